/* What must not start: see refusal.h. */
#include "common/refusal.h"

#include <stdarg.h>

void refusal_add(struct refusals *refusals, const char *format, ...)
{
    struct error error;
    char sentence[sizeof(error.message)];
    va_list values;

    va_start(values, format);
    vsnprintf(sentence, sizeof(sentence), format, values);
    va_end(values);
    error_set(&error, ERR_INVALID, "%s", sentence);
    if (refusals->count++ == 0)
        refusals->first = error;
    if (refusals->out)
        fprintf(refusals->out, "%s\n", error.message);
}

int refusals_result(const struct refusals *refusals, struct error *err)
{
    if (!refusals->count)
        return 0;
    *err = refusals->first;
    return error_failed(-1);
}
