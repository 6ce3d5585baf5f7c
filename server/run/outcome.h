/* How a command ended: outcome.def. The API's answer, the events of a turn and the metrics come
 * from that one table, so that they never use two words for the same thing. */
#ifndef RUN_OUTCOME_H
#define RUN_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/field.h"
#include "run/sandbox.h"

struct exec_outcome {
#define OUTCOME(kind, type, member, meaning) type member;
#include "run/outcome.def"
#undef OUTCOME
};

/* A row of the field table of a struct that has these members. */
enum { OUTCOME_NULL_NUMBER = 0, OUTCOME_NULL_FLAG = 0, OUTCOME_NULL_MAYBE_NUMBER = 1 };
#define OUTCOME_FIELD(owner, kind, member, meaning) \
    {kind(owner, member), .nullable = OUTCOME_NULL_##kind, .about = meaning},

extern const struct schema schema_exec_outcome;

/* Run a command as sandbox_exec does, tell how it ended in one struct (`signal` lies in the arena),
 * and count that. */
int outcome_run(struct sandbox_link *link, const struct exec *exec, size_t keep, int cancel_fd,
                struct arena *arena, struct sandbox_output *out, struct sandbox_output *errors,
                struct exec_outcome *outcome, struct error *err);
/* Add the members to the JSON object, with members of its own, that the buffer ends with. */
void outcome_add(struct buffer *object, const struct exec_outcome *outcome);

#endif
