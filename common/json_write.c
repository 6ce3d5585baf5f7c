/* Struct → JSON by field table, and the small builders: see json.h. */
#include "common/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

/* The short escape of a character, or 0. */
static char short_escape(unsigned char c)
{
    static const char escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";

    for (const char *at = escapes; *at; at += 2)
        if ((unsigned char)*at == c)
            return at[1];
    return 0;
}

void json_string_n(struct buffer *out, const char *bytes, size_t length)
{
    size_t run = 0, at = 0;

    buffer_char(out, '"');
    while (at < length) {
        unsigned char c = (unsigned char)bytes[at];
        size_t size = utf8_length(bytes + at, length - at);
        char escape;

        if (size && c >= 0x20 && c != '"' && c != '\\') {
            at += size;
            continue;
        }
        buffer_add(out, bytes + run, at - run);
        run = ++at;
        if (!size || !c) {
            buffer_text(out, "\xEF\xBF\xBD");
        } else if ((escape = short_escape(c))) {
            buffer_char(out, '\\');
            buffer_char(out, escape);
        } else {
            buffer_format(out, "\\u%04x", c);
        }
    }
    buffer_add(out, bytes + run, at - run);
    buffer_char(out, '"');
}

void json_string(struct buffer *out, const char *text)
{
    if (text)
        json_string_n(out, text, strlen(text));
    else
        buffer_text(out, "null");
}

void json_number(struct buffer *out, int64_t value)
{
    buffer_format(out, "%" PRId64, value);
}

void json_real(struct buffer *out, double value)
{
    enum { DIGITS_ALWAYS_RIGHT = 17 };
    char text[40];

    if (!isfinite(value)) {
        buffer_text(out, "null");
        return;
    }
    for (int digits = 15; digits <= DIGITS_ALWAYS_RIGHT; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    buffer_text(out, text);
}

/* --- by field table -------------------------------------------------------------------- */

static void add_texts(struct buffer *out, const struct texts *texts)
{
    buffer_char(out, '[');
    for (size_t i = 0; i < texts->count; i++) {
        if (i)
            buffer_char(out, ',');
        json_string(out, texts->items[i]);
    }
    buffer_char(out, ']');
}

static void add_numbers(struct buffer *out, const struct numbers *numbers)
{
    buffer_char(out, '[');
    for (size_t i = 0; i < numbers->count; i++) {
        if (i)
            buffer_char(out, ',');
        json_number(out, numbers->items[i]);
    }
    buffer_char(out, ']');
}

/* What the member points to; NULL when it holds no value. */
static const void *content(const struct field *field, const void *value)
{
    const void *member = (const char *)value + field->offset;

    if (field->type == FIELD_JSON) {
        const char *text = *(const char *const *)member; /* NOLINT: no member is NULL */

        return text && *text ? text : NULL;
    }
    if (field->indirect || field->type == FIELD_TEXT)
        return *(const void *const *)member; /* NOLINT: likewise */
    return member;
}

static void add_content(struct buffer *out, const struct field *field, const void *content)
{
    switch (field->type) {
    case FIELD_TEXT:
        json_string(out, content);
        break;
    case FIELD_NUMBER:
        json_number(out, *(const int64_t *)content);
        break;
    case FIELD_REAL:
        json_real(out, *(const double *)content);
        break;
    case FIELD_FLAG:
        buffer_text(out, *(const bool *)content ? "true" : "false");
        break;
    case FIELD_TEXTS:
        add_texts(out, content);
        break;
    case FIELD_NUMBERS:
        add_numbers(out, content);
        break;
    case FIELD_JSON:
        buffer_text(out, content);
        break;
    }
}

/* What stands for no value where the field must be there and may not be null. */
static const char *empty(const struct field *field)
{
    static const char *const of_type[] = {
        [FIELD_TEXT] = "\"\"", [FIELD_NUMBER] = "0",   [FIELD_REAL] = "0",   [FIELD_FLAG] = "false",
        [FIELD_TEXTS] = "[]",  [FIELD_NUMBERS] = "[]", [FIELD_JSON] = "null"};
    static const char *const of_shape[] = {
        [SHAPE_ANY] = "null", [SHAPE_OBJECT] = "{}", [SHAPE_LIST] = "[]", [SHAPE_MAP] = "{}"};

    if (field->nullable)
        return "null";
    if (field->fallback)
        return field->fallback;
    return field->type == FIELD_JSON ? of_shape[field->shape] : of_type[field->type];
}

/* The variant that a struct is, or NULL: its tag tells, which must lie at one place in all of them.
 */
static const struct schema *variant_of(const struct schema *schema, const void *value)
{
    for (size_t i = 0; i < schema->variant_count; i++) {
        const struct schema *variant = schema->variants[i].schema;

        for (size_t f = 0; f < variant->count; f++) {
            const char *tag;

            if (strcmp(variant->fields[f].name, schema->tag) != 0)
                continue;
            tag = content(&variant->fields[f], value);
            if (tag && strcmp(tag, schema->variants[i].value) == 0)
                return variant;
        }
    }
    return NULL;
}

void json_encode(struct buffer *out, const struct schema *schema, const void *value)
{
    bool first = true;

    if (schema->tag && !(schema = variant_of(schema, value))) {
        buffer_text(out, "null");
        return;
    }
    buffer_char(out, '{');
    for (size_t i = 0; i < schema->count; i++) {
        const struct field *field = &schema->fields[i];
        const void *held = content(field, value);

        if (!held && !field->nullable && !field->fallback && field->optional)
            continue;
        if (!first)
            buffer_char(out, ',');
        first = false;
        json_string(out, field->name);
        buffer_char(out, ':');
        if (held)
            add_content(out, field, held);
        else
            buffer_text(out, empty(field));
    }
    buffer_char(out, '}');
}

/* --- builders -------------------------------------------------------------------------- */

void json_format(struct buffer *out, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    for (;;) {
        size_t plain = strcspn(format, "%");

        buffer_add(out, format, plain);
        format += plain;
        if (!*format)
            break;
        switch (format[1]) {
        case 's':
            json_string(out, va_arg(values, const char *));
            break;
        case 'j':
            buffer_text(out, va_arg(values, const char *));
            break;
        case 'd':
            json_number(out, va_arg(values, int64_t));
            break;
        case 'f':
            json_real(out, va_arg(values, double));
            break;
        case 'b':
            buffer_text(out, va_arg(values, int) ? "true" : "false");
            break;
        case '%':
            buffer_char(out, '%');
            break;
        default:
            abort();
        }
        format += 2;
    }
    va_end(values);
}
