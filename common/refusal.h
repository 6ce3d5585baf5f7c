/* What must not start: faults of the settings and of the machine, each a sentence that begins with
 * the name of the setting. All are found before anybody gives up, so that `--check-config` can tell
 * every one; a start tells the first. */
#ifndef COMMON_REFUSAL_H
#define COMMON_REFUSAL_H

#include <stddef.h>
#include <stdio.h>

#include "common/error.h"

struct refusals {
    FILE *out; /* each is written here, a line; NULL: none is */
    size_t count;
    struct error first; /* its kind is ERR_INVALID; valid when count is not 0 */
};

void refusal_add(struct refusals *refusals, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The first one as an error: -1 with *err filled, or 0 when there is none. */
int refusals_result(const struct refusals *refusals, struct error *err);

#endif
