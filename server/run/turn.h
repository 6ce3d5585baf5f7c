/* What turns.c, turn.c and lifecycle.c share: the locked session, and a run's account. For this
 * room only. */
#ifndef RUN_TURN_H
#define RUN_TURN_H

#include <stdint.h>

#include "run/usage.h"
#include "store/database.h"

struct session_lock {
    const char *status;
    const char *stopped_reason;
    int64_t generation;
    bool prepared;
};

struct turn_state {
    const char *status;
    int64_t turns;
    const char *usage;
    const char *session_usage;
    const char *agent; /* slug */
    double sandbox_seconds;
    double active_seconds; /* since the turn began, or its sandbox was up */
};

/* Lock the session's row until the end of the transaction. ERR_NOT_FOUND when it is gone. */
int turns_lock(struct database *db, const char *session_id, struct arena *arena,
               struct session_lock *lock, struct error *err);
/* Add the job that does the turn. */
int turns_enqueue(struct database *db, const char *session_id, const char *run_id,
                  struct error *err);
/* Add to the usage of run and session, and store it with `state->turns`; the session is locked.
 * `state` is brought up to date. */
int turns_charge(struct database *db, const char *run_id, struct arena *arena,
                 struct turn_state *state, const struct usage *more, const char *model,
                 struct error *err);
/* End the session's run in flight, if there is one: 1 when there was. As turns_end. */
int turns_end_any(struct database *db, const char *session_id, const char *status,
                  const char *stop_reason, const char *error, struct error *err);
/* The payload of a turn's terminal event. */
void turns_end_payload(struct buffer *out, const struct turn_state *state, const char *status,
                       const char *stop_reason, const char *final_output, const char *error);

#endif
