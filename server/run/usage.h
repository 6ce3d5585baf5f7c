/* What turns cost: DECISION 72 of the sessions contract. */
#ifndef RUN_USAGE_H
#define RUN_USAGE_H

#include <stdint.h>

#include "common/arena.h"

struct usage {
    int64_t requests;
    int64_t input_tokens;
    int64_t cached_input_tokens; /* of the input */
    int64_t output_tokens;
    int64_t reasoning_tokens; /* of the output */
    int64_t total_tokens;
    double active_seconds;
};

/* Append `stored` (a usage object; "{}": nothing yet) with `more` added to the whole, and to what
 * `model` and `agent` (a slug; either may be NULL) have in it. Seconds of a model are its own
 * alone: those of the whole run on while tools do. */
void usage_add(struct arena *arena, const char *stored, const struct usage *more, const char *model,
               const char *agent, struct buffer *out);

#endif
