/* Turns: one run of a session, from its prompt to its terminal event. */
#ifndef RUN_TURNS_H
#define RUN_TURNS_H

#include "run/sandbox.h"
#include "store/database.h"
#include "store/jobs.h"

/* Begin a turn in the caller's transaction: the run's row, user.message and the job. ERR_CONFLICT
 * when the session is not running or has a turn. The new run's id goes to `run_id` (37 bytes).
 * `wait_for_boot`: the session is provisioning and the first run waits for it (no job yet:
 * lifecycle_boot adds it). */
int turns_begin(struct database *db, const char *session_id, const char *prompt, int64_t max_turns,
                const char *client_tools, bool wait_for_boot, char run_id[37], struct error *err);
/* Write the end of a run and its terminal event in the caller's transaction: status completed,
 * failed or cancelled. Does nothing and returns 0 when the run has ended already, 1 when it wrote.
 */
int turns_end(struct database *db, const char *session_id, const char *run_id, const char *status,
              const char *stop_reason, const char *final_output, const char *error,
              struct error *err);
/* The job: do the turn until its end, or until somebody else ended it. */
int turns_run(struct pool *pool, struct sandbox_link *link, const struct job *job,
              struct error *err);
/* The tools of our own that a client tool may not be called. */
bool turns_is_own_tool(const char *name);
/* The model that an agent without one gets. */
const char *turns_default_model(void);

#endif
