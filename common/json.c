/* JSON → struct by field table: see json.h. json_write.c writes; json_scan.c has the syntax. */
#include "common/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_scan.h"
#include "common/utf8.h"

enum { FAILURES_MAX = 100, KEY_SHOWN_MAX = 128, FIELDS_MAX = 64 };

/* Where in the document we are; a chain on the stack. */
struct place {
    const struct place *parent;
    const char *name;   /* NULL: quoted or index */
    const char *quoted; /* a key as it came; NULL: index */
    size_t index;
};

struct decoder {
    struct arena *arena;  /* where values go now: the caller's, or `scratch` inside an element */
    struct arena scratch; /* structs of elements, which only their checks look at */
    int elements;         /* how many elements we are in */
    bool trusted;         /* in a fallback: bounds are for what comes from outside */
    struct buffer failures;
    int failure_count;
    const char *defect; /* a field whose fallback is not of its type */
};

static void decoder_done(struct decoder *d)
{
    arena_done(&d->scratch);
    buffer_done(&d->failures);
}

/* --- failures -------------------------------------------------------------------------- */

void json_field_error(struct buffer *list, const char *loc, const char *type, const char *message)
{
    if (list->length && list->data[list->length - 1] != '[')
        buffer_char(list, ',');
    json_format(list, "{\"loc\":%j,\"msg\":%s,\"type\":%s}", loc, message, type);
}

static void add_place(struct buffer *loc, const struct place *place)
{
    auto_arena struct arena arena = {0};

    if (place->parent) {
        add_place(loc, place->parent);
        buffer_char(loc, ',');
    }
    if (place->name) {
        json_string(loc, place->name);
    } else if (place->quoted) {
        size_t length;
        const char *key = json_unquote(&arena, place->quoted, &length);

        json_string_n(loc, key, utf8_cut(key, length, KEY_SHOWN_MAX));
    } else {
        json_number(loc, (int64_t)place->index);
    }
}

static bool full(const struct decoder *d)
{
    return d->failure_count >= FAILURES_MAX;
}

static void fault(struct decoder *d, const struct place *place, const char *type,
                  const char *message)
{
    auto_buffer struct buffer loc = {0};

    if (full(d))
        return;
    d->failure_count++;
    buffer_char(&loc, '[');
    add_place(&loc, place);
    buffer_char(&loc, ']');
    json_field_error(&d->failures, loc.data, type, message);
}

__attribute__((format(printf, 4, 5))) static void fault_format(struct decoder *d,
                                                               const struct place *place,
                                                               const char *type, const char *format,
                                                               ...)
{
    auto_free char *message = NULL;
    va_list values;
    int length;

    va_start(values, format);
    length = vasprintf(&message, format, values);
    va_end(values);
    if (length < 0)
        abort();
    fault(d, place, type, message);
}

/* "'a', 'b' or 'c'" */
static const char *list_of_choices(struct arena *arena, const char *choices)
{
    auto_buffer struct buffer out = {0};

    for (;;) {
        size_t length = strcspn(choices, "|");
        const char *next = choices[length] ? choices + length + 1 : NULL;

        if (out.length)
            buffer_text(&out, next ? ", " : " or ");
        buffer_format(&out, "'%.*s'", (int)length, choices);
        if (!next)
            return arena_copy(arena, out.data, out.length);
        choices = next;
    }
}

/* --- scalars --------------------------------------------------------------------------- */

/* choices, pattern and check of one text */
static void check_text(struct decoder *d, const struct field *field, const struct place *place,
                       const char *text)
{
    const char *wrong;

    if (d->trusted)
        return;
    if (field->choices && !field_chooses(field->choices, text))
        fault_format(d, place, "literal_error", "Input should be %s",
                     list_of_choices(d->arena, field->choices));
    else if (field->pattern && !field_matches(field->pattern, text))
        fault_format(d, place, "string_pattern_mismatch", "String should match pattern '^%s$'",
                     field->pattern);
    else if (field->check && (wrong = field->check(text)))
        fault_format(d, place, "value_error", "Value error, %s", wrong);
}

static const char *read_text(struct decoder *d, const char *at, const struct place *place,
                             size_t *length)
{
    if (*at == '"')
        return json_unquote(d->arena, at, length);
    fault(d, place, "string_type", "Input should be a valid string");
    return NULL;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static bool fits_length(struct decoder *d, const struct field *field, const struct place *place,
                        size_t bytes, const char *text)
{
    int64_t count;

    if (d->trusted || (!field_has_min(field) && !field_has_max(field)))
        return true;
    count = (int64_t)utf8_count(text, bytes);
    if (field_has_min(field) && count < field->min) {
        fault_format(d, place, "string_too_short",
                     "String should have at least %" PRId64 " character%s", field->min,
                     plural(field->min));
        return false;
    }
    if (field_has_max(field) && count > field->max) {
        fault_format(d, place, "string_too_long",
                     "String should have at most %" PRId64 " character%s", field->max,
                     plural(field->max));
        return false;
    }
    return true;
}

/* The number of items of a list or map. */
static bool fits_count(struct decoder *d, const struct field *field, const struct place *place,
                       size_t count, const char *what)
{
    int64_t items = (int64_t)count;

    if (d->trusted)
        return true;
    if (field_has_min(field) && items < field->min) {
        fault_format(d, place, "too_short",
                     "%s should have at least %" PRId64 " item%s after validation, not %" PRId64,
                     what, field->min, plural(field->min), items);
        return false;
    }
    if (field_has_max(field) && items > field->max) {
        fault_format(d, place, "too_long",
                     "%s should have at most %" PRId64 " item%s after validation, not %" PRId64,
                     what, field->max, plural(field->max), items);
        return false;
    }
    return true;
}

static void fault_bound(struct decoder *d, const struct place *place, const char *type,
                        const char *words, int64_t bound)
{
    fault_format(d, place, type, "Input should be %s %" PRId64, words, bound);
}

static bool is_number(char c)
{
    return c == '-' || (c >= '0' && c <= '9');
}

static bool read_integer(struct decoder *d, const struct field *field, const char *at,
                         const struct place *place, int64_t *value)
{
    if (!is_number(*at)) {
        fault(d, place, "int_type", "Input should be a valid integer");
        return false;
    }
    switch (json_integer(at, value)) {
    case INTEGER_FRACTION:
        fault(d, place, "int_from_float",
              "Input should be a valid integer, got a number with a fractional part");
        return false;
    case INTEGER_TOO_LARGE:
        fault(d, place, "int_parsing_size",
              "Unable to parse input string as an integer, exceeded maximum size");
        return false;
    default:
        break;
    }
    if (d->trusted)
        return true;
    if (field_has_min(field) && *value < field->min)
        fault_bound(d, place, "greater_than_equal", "greater than or equal to", field->min);
    else if (field_has_max(field) && *value > field->max)
        fault_bound(d, place, "less_than_equal", "less than or equal to", field->max);
    else
        return true;
    return false;
}

static bool read_real(struct decoder *d, const struct field *field, const char *at,
                      const struct place *place, double *value)
{
    auto_buffer struct buffer bound = {0};

    if (!is_number(*at)) {
        fault(d, place, "float_type", "Input should be a valid number");
        return false;
    }
    *value = json_double(at);
    if (d->trusted)
        return true;
    if (field->exclusive && !(*value > field->above)) {
        json_real(&bound, field->above);
        fault_format(d, place, "greater_than", "Input should be greater than %s", bound.data);
    } else if (field_has_min(field) && *value < (double)field->min) {
        fault_bound(d, place, "greater_than_equal", "greater than or equal to", field->min);
    } else if (field_has_max(field) && *value > (double)field->max) {
        fault_bound(d, place, "less_than_equal", "less than or equal to", field->max);
    } else {
        return true;
    }
    return false;
}

/* --- fields ---------------------------------------------------------------------------- */

/* Read the value at `at` into `member` and append it, normalised, to `out`. After a failure neither
 * matters. */
typedef void read_field(struct decoder *d, const struct field *field, const char *at,
                        const struct place *place, void *member, struct buffer *out);

static void decode_object(struct decoder *d, const struct schema *schema, const char *at,
                          const struct place *place, struct decoded *result, struct buffer *out);

/* The member itself, or new memory that it points to. */
static void *target(struct decoder *d, const struct field *field, void *member, size_t size)
{
    if (!field->indirect)
        return member;
    return *(void **)member = arena_alloc(d->arena, size);
}

static void read_text_field(struct decoder *d, const struct field *field, const char *at,
                            const struct place *place, void *member, struct buffer *out)
{
    size_t length;
    const char *text = read_text(d, at, place, &length);

    if (!text || !fits_length(d, field, place, length, text))
        return;
    check_text(d, field, place, text);
    *(const char **)member = text;
    json_string_n(out, text, length);
}

static void read_number_field(struct decoder *d, const struct field *field, const char *at,
                              const struct place *place, void *member, struct buffer *out)
{
    int64_t value;

    if (!read_integer(d, field, at, place, &value))
        return;
    *(int64_t *)target(d, field, member, sizeof(value)) = value;
    json_number(out, value);
}

static void read_real_field(struct decoder *d, const struct field *field, const char *at,
                            const struct place *place, void *member, struct buffer *out)
{
    double value;

    if (!read_real(d, field, at, place, &value))
        return;
    *(double *)target(d, field, member, sizeof(value)) = value;
    json_real(out, value);
}

static void read_flag_field(struct decoder *d, const struct field *field, const char *at,
                            const struct place *place, void *member, struct buffer *out)
{
    if (*at != 't' && *at != 'f') {
        fault(d, place, "bool_type", "Input should be a valid boolean");
        return;
    }
    *(bool *)target(d, field, member, sizeof(bool)) = *at == 't';
    buffer_text(out, *at == 't' ? "true" : "false");
}

static size_t count_members(const char *at)
{
    struct json_walk walk = {.at = at};
    size_t count = 0;

    while (json_walk(&walk))
        count++;
    return count;
}

/* Whether an array is there, with as many items as the field allows. */
static bool open_list(struct decoder *d, const struct field *field, const char *at,
                      const struct place *place, size_t *count)
{
    if (*at != '[') {
        fault(d, place, "list_type", "Input should be a valid list");
        return false;
    }
    *count = count_members(at);
    return fits_count(d, field, place, *count, "List");
}

static void read_texts_field(struct decoder *d, const struct field *field, const char *at,
                             const struct place *place, void *member, struct buffer *out)
{
    struct json_walk walk = {.at = at};
    struct texts texts;

    if (!open_list(d, field, at, place, &texts.count))
        return;
    texts.items = arena_alloc(d->arena, (texts.count + 1) * sizeof(*texts.items));
    buffer_char(out, '[');
    for (size_t i = 0; json_walk(&walk) && !full(d); i++) {
        struct place item = {.parent = place, .index = i};
        const char *text = read_text(d, walk.value, &item, NULL);

        if (!text)
            continue;
        check_text(d, field, &item, text);
        texts.items[i] = text;
        if (i)
            buffer_char(out, ',');
        json_string(out, text);
    }
    buffer_char(out, ']');
    *(struct texts *)member = texts;
}

static void read_numbers_field(struct decoder *d, const struct field *field, const char *at,
                               const struct place *place, void *member, struct buffer *out)
{
    static const struct field any_count = {0};
    struct json_walk walk = {.at = at};
    struct numbers numbers;

    if (!open_list(d, &any_count, at, place, &numbers.count))
        return;
    numbers.items = arena_alloc(d->arena, (numbers.count + 1) * sizeof(*numbers.items));
    buffer_char(out, '[');
    for (size_t i = 0; json_walk(&walk) && !full(d); i++) {
        struct place item = {.parent = place, .index = i};

        if (!read_integer(d, field, walk.value, &item, &numbers.items[i]))
            continue;
        if (i)
            buffer_char(out, ',');
        json_number(out, numbers.items[i]);
    }
    buffer_char(out, ']');
    *(struct numbers *)member = numbers;
}

/* An object inside a FIELD_JSON: only its text is kept, and its struct for as long as its checks
 * run. */
static void decode_element(struct decoder *d, const struct schema *schema, const char *at,
                           const struct place *place, struct buffer *out)
{
    struct arena *outer = d->arena;
    struct decoded result;

    d->arena = &d->scratch;
    d->elements++;
    decode_object(d, schema, at, place, &result, out);
    d->elements--;
    d->arena = outer;
    if (d->elements == 0)
        arena_reset(&d->scratch);
}

static void read_list(struct decoder *d, const struct field *field, const char *at,
                      const struct place *place, struct buffer *out)
{
    struct json_walk walk = {.at = at};
    size_t count;

    if (!open_list(d, field, at, place, &count))
        return;
    if (!field->element) {
        json_compact(out, at);
        return;
    }
    buffer_char(out, '[');
    for (size_t i = 0; json_walk(&walk) && !full(d); i++) {
        struct place item = {.parent = place, .index = i};

        if (i)
            buffer_char(out, ',');
        decode_element(d, field->element, walk.value, &item, out);
    }
    buffer_char(out, ']');
}

static void read_map_member(struct decoder *d, const struct field *field,
                            const struct json_walk *walk, const struct place *place,
                            struct buffer *out)
{
    auto_arena struct arena arena = {0};
    struct place item = {.parent = place, .quoted = walk->key};
    const char *key = json_unquote(&arena, walk->key, NULL);
    const char *wrong = field->check && !d->trusted ? field->check(key) : NULL;

    if (wrong)
        fault_format(d, &item, "value_error", "Value error, %s", wrong);
    json_string(out, key);
    buffer_char(out, ':');
    if (field->element)
        decode_element(d, field->element, walk->value, &item, out);
    else if (*walk->value != '"')
        fault(d, &item, "string_type", "Input should be a valid string");
    else
        json_compact(out, walk->value);
}

static void read_map(struct decoder *d, const struct field *field, const char *at,
                     const struct place *place, struct buffer *out)
{
    struct json_walk walk = {.at = at};

    if (*at != '{') {
        fault(d, place, "dict_type", "Input should be a valid dictionary");
        return;
    }
    if (!fits_count(d, field, place, count_members(at), "Dictionary"))
        return;
    buffer_char(out, '{');
    for (size_t i = 0; json_walk(&walk) && !full(d); i++) {
        if (i)
            buffer_char(out, ',');
        read_map_member(d, field, &walk, place, out);
    }
    buffer_char(out, '}');
}

static void read_json_field(struct decoder *d, const struct field *field, const char *at,
                            const struct place *place, void *member, struct buffer *out)
{
    size_t start = out->length;

    switch (field->shape) {
    case SHAPE_LIST:
        read_list(d, field, at, place, out);
        break;
    case SHAPE_MAP:
        read_map(d, field, at, place, out);
        break;
    case SHAPE_OBJECT:
        if (field->element)
            decode_element(d, field->element, at, place, out);
        else if (*at == '{')
            json_compact(out, at);
        else
            fault(d, place, "dict_type", "Input should be a valid dictionary");
        break;
    default:
        json_compact(out, at);
    }
    if (out->length > start)
        *(const char **)member = arena_copy(d->arena, out->data + start, out->length - start);
}

static read_field *const readers[] = {
    [FIELD_TEXT] = read_text_field,   [FIELD_NUMBER] = read_number_field,
    [FIELD_REAL] = read_real_field,   [FIELD_FLAG] = read_flag_field,
    [FIELD_TEXTS] = read_texts_field, [FIELD_NUMBERS] = read_numbers_field,
    [FIELD_JSON] = read_json_field,
};

static void add_key(struct buffer *out, const char *name)
{
    if (out->data[out->length - 1] != '{')
        buffer_char(out, ',');
    json_string(out, name);
    buffer_char(out, ':');
}

static void read_fallback(struct decoder *d, const struct field *field, const struct place *place,
                          void *member, struct buffer *out)
{
    struct json_fault syntax;
    bool outer = d->trusted;
    int failures = d->failure_count;

    if (json_scan(field->fallback, strlen(field->fallback), &syntax) < 0) {
        d->defect = field->name;
        return;
    }
    add_key(out, field->name);
    if (field->nullable && strcmp(field->fallback, "null") == 0) {
        buffer_text(out, "null");
        return;
    }
    d->trusted = true;
    readers[field->type](d, field, json_space(field->fallback), place, member, out);
    d->trusted = outer;
    if (d->failure_count != failures)
        d->defect = field->name;
}

/* `at` is NULL when the key was not there. */
static void decode_field(struct decoder *d, const struct field *field, const char *at,
                         const struct place *parent, void *value, struct buffer *out)
{
    struct place place = {.parent = parent, .name = field->name};
    void *member = (char *)value + field->offset;
    bool null = at && *at == 'n';

    if (!at || (null && !field->nullable && field->null_is_fallback)) {
        if (field->fallback)
            read_fallback(d, field, &place, member, out);
        else if (!field->optional)
            fault(d, &place, "missing", "Field required");
        return;
    }
    add_key(out, field->name);
    if (null && field->nullable)
        buffer_text(out, "null");
    else
        readers[field->type](d, field, at, &place, member, out);
}

/* --- objects --------------------------------------------------------------------------- */

static const struct schema *choose_variant(struct decoder *d, const struct schema *schema,
                                           const char *at, const struct place *place,
                                           const char **value)
{
    auto_buffer struct buffer choices = {0};
    struct place member = {.parent = place, .name = schema->tag};
    struct json_walk walk = {.at = at};
    const char *tag = NULL;

    while (!tag && json_walk(&walk))
        if (json_quoted_is(walk.key, schema->tag))
            tag = walk.value;
    if (!tag) {
        fault(d, &member, "missing", "Field required");
        return NULL;
    }
    for (size_t i = 0; i < schema->variant_count; i++) {
        const struct variant *variant = &schema->variants[i];

        if (*tag == '"' && json_quoted_is(tag, variant->value)) {
            *value = variant->value;
            return variant->schema;
        }
        buffer_format(&choices, "%s'%s'", i ? ", " : "", variant->value);
    }
    fault_format(d, place, "union_tag_invalid",
                 "Input tag found using '%s' does not match any of the expected tags: %s",
                 schema->tag, choices.data ? choices.data : "");
    return NULL;
}

static size_t find_field(const struct schema *schema, const char *key)
{
    size_t i = 0;

    while (i < schema->count && !json_quoted_is(key, schema->fields[i].name))
        i++;
    return i;
}

static void check_object(struct decoder *d, const struct schema *schema, const void *value,
                         const struct place *place)
{
    struct place member = {.parent = place};
    const char *wrong = schema->check(value, &member.name);

    if (wrong)
        fault_format(d, member.name ? &member : place, "value_error", "Value error, %s", wrong);
}

static void decode_object(struct decoder *d, const struct schema *schema, const char *at,
                          const struct place *place, struct decoded *result, struct buffer *out)
{
    const char *found[FIELDS_MAX] = {0};
    const char *tag = schema->tag, *tag_value = NULL;
    struct json_walk walk = {.at = at};
    int failures = d->failure_count;
    size_t unknown = 0;

    *result = (struct decoded){0};
    if (*at != '{') {
        fault(d, place, "dict_type", "Input should be a valid dictionary");
        return;
    }
    if (tag && !(schema = choose_variant(d, schema, at, place, &tag_value)))
        return;
    if (schema->count > FIELDS_MAX)
        abort();
    while (json_walk(&walk)) {
        size_t i = find_field(schema, walk.key);

        if (i == schema->count) {
            unknown += !tag || !json_quoted_is(walk.key, tag);
            continue;
        }
        found[i] = walk.value;
        result->given |= UINT64_C(1) << i;
        if (*walk.value == 'n')
            result->nulls |= UINT64_C(1) << i;
        if (tag && strcmp(schema->fields[i].name, tag) == 0)
            tag = NULL;
    }
    result->value = arena_alloc(d->arena, schema->size);
    buffer_char(out, '{');
    if (tag) {
        add_key(out, tag);
        json_string(out, tag_value);
    }
    for (size_t i = 0; i < schema->count && !full(d); i++)
        decode_field(d, &schema->fields[i], found[i], place, result->value, out);
    buffer_char(out, '}');
    walk = (struct json_walk){.at = at};
    while (schema->closed && unknown > 0 && !full(d) && json_walk(&walk)) {
        struct place extra = {.parent = place, .quoted = walk.key};

        if (find_field(schema, walk.key) == schema->count &&
            (!tag || !json_quoted_is(walk.key, tag)))
            fault(d, &extra, "extra_forbidden", "Extra inputs are not permitted");
    }
    if (schema->check && !d->trusted && d->failure_count == failures)
        check_object(d, schema, result->value, place);
}

/* --- whole texts ----------------------------------------------------------------------- */

static int refuse_list(struct decoder *d, struct arena *arena, struct error *err)
{
    error_set(err, ERR_INVALID, "the request does not validate");
    err->fields = arena_text(arena, "[%s]", d->failures.data);
    return -1;
}

static int refuse_syntax(struct decoder *d, const char *where, const struct json_fault *syntax,
                         struct arena *arena, struct error *err)
{
    struct place root = {.name = where};
    struct place place = {.parent = &root, .index = syntax->position};

    fault_format(d, &place, "json_invalid", "JSON decode error: %s", syntax->reason);
    return refuse_list(d, arena, err);
}

int json_decode(const struct schema *schema, const char *where, const char *text, size_t length,
                struct arena *arena, struct decoded *out, struct error *err)
{
    __attribute__((cleanup(decoder_done))) struct decoder d = {.arena = arena};
    auto_buffer struct buffer normal = {0};
    struct place root = {.name = where};
    struct json_fault syntax;
    struct decoded result;

    if (length == 0) {
        fault(&d, &root, "missing", "Field required");
        return refuse_list(&d, arena, err);
    }
    if (json_scan(text, length, &syntax) < 0)
        return refuse_syntax(&d, where, &syntax, arena, err);
    /* A scalar need not end in anything; an object ends in a brace, behind which nobody reads. */
    text = json_space(text);
    decode_object(&d, schema, *text == '{' ? text : "[]", &root, &result, &normal);
    if (d.defect)
        return error_set(err, ERR_INTERNAL, "%s.%s: the fallback does not fit", schema->name,
                         d.defect);
    if (d.failure_count)
        return refuse_list(&d, arena, err);
    result.json = arena_copy(arena, normal.data, normal.length);
    *out = result;
    return 0;
}

int json_check(const char *text, size_t length, struct error *err)
{
    struct json_fault syntax;

    if (json_scan(text, length, &syntax) == 0)
        return 0;
    return error_set(err, ERR_INVALID, "JSON decode error: %s (character %zu)", syntax.reason,
                     syntax.position);
}

/* --- single members -------------------------------------------------------------------- */

static const char *find_member(const char *object, const char *name)
{
    struct json_walk walk = {.at = object ? json_space(object) : ""};

    if (*walk.at != '{')
        return NULL;
    while (json_walk(&walk))
        if (json_quoted_is(walk.key, name))
            return walk.value;
    return NULL;
}

const char *json_member(struct arena *arena, const char *object, const char *name)
{
    const char *value = find_member(object, name);

    return value ? arena_copy(arena, value, (size_t)(json_skip(value) - value)) : NULL;
}

const char *json_member_text(struct arena *arena, const char *object, const char *name)
{
    const char *value = find_member(object, name);

    return value && *value == '"' ? json_unquote(arena, value, NULL) : NULL;
}

int64_t json_member_number(struct arena *arena, const char *object, const char *name,
                           int64_t fallback)
{
    const char *value = find_member(object, name);
    int64_t number;

    (void)arena;
    if (value && is_number(*value) && json_integer(value, &number) == INTEGER_EXACT)
        return number;
    return fallback;
}

int json_each(struct arena *arena, const char *container,
              int (*each)(const char *key, const char *value, void *context), void *context)
{
    struct json_walk walk = {.at = container ? json_space(container) : ""};
    int stopped = 0;

    while (!stopped && json_walk(&walk)) {
        const char *key = walk.key ? json_unquote(arena, walk.key, NULL) : NULL;
        size_t length = (size_t)(json_skip(walk.value) - walk.value);

        stopped = each(key, arena_copy(arena, walk.value, length), context);
    }
    return stopped;
}
