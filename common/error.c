/* Errors: see error.h. */
#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* snprintf cuts anywhere; a message must stay UTF-8, since it ends up in JSON. */
static void cut_at_character(char *text, size_t size)
{
    size_t length = strnlen(text, size);
    size_t start = length;

    if (length + 1 < size)
        return;
    while (start > 0 && length - start < 4 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start > 0 && ((unsigned char)text[start - 1] & 0x80))
        text[start - 1] = '\0';
}

static void fill(struct error *err, enum error_kind kind, const char *format, va_list values)
{
    err->kind = kind;
    err->retry_after_s = 0;
    err->fields = NULL;
    vsnprintf(err->message, sizeof(err->message), format, values);
    cut_at_character(err->message, sizeof(err->message));
}

int(error_set)(struct error *err, enum error_kind kind, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    fill(err, kind, format, values);
    va_end(values);
    return -1;
}

int(error_set_errno)(struct error *err, enum error_kind kind, const char *format, ...)
{
    int number = errno;
    char reason[128];
    size_t used;
    va_list values;

    va_start(values, format);
    fill(err, kind, format, values);
    va_end(values);
    used = strlen(err->message);
    snprintf(err->message + used, sizeof(err->message) - used, ": %s",
             strerror_r(number, reason, sizeof(reason)));
    cut_at_character(err->message, sizeof(err->message));
    return -1;
}

int(error_add_context)(struct error *err, const char *format, ...)
{
    char old[sizeof(err->message)];
    size_t used;
    va_list values;

    memcpy(old, err->message, sizeof(old));
    va_start(values, format);
    vsnprintf(err->message, sizeof(err->message), format, values);
    va_end(values);
    used = strlen(err->message);
    snprintf(err->message + used, sizeof(err->message) - used, ": %s", old);
    cut_at_character(err->message, sizeof(err->message));
    return -1;
}

int error_status(enum error_kind kind)
{
    switch (kind) {
#define ERROR(name, status) \
    case ERR_##name:        \
        return status;
#include "common/error.def"
#undef ERROR
    default:
        return 500;
    }
}

const char *error_name(enum error_kind kind)
{
    static const char *const names[ERR_KINDS] = {
        [ERR_NONE] = "none",
#define ERROR(name, status) [ERR_##name] = #name,
#include "common/error.def"
#undef ERROR
    };

    return kind < ERR_KINDS ? names[kind] : "unknown";
}
