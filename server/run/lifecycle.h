/* A session's sandbox from boot to end: contract/sessions-api.md section 4, State. Called by
 * handlers (start, stop, delete, interrupt) and by jobs (boot). None of them holds a database
 * connection while it waits for the supervisor. */
#ifndef RUN_LIFECYCLE_H
#define RUN_LIFECYCLE_H

#include "run/sandbox.h"
#include "store/database.h"

/* Boot the sandbox of a session that is `provisioning` with this `generation`; the end is written
 * to its row and log: `running` with session.status_running, or `error` with session.status_error
 * (and a waiting first run failed). When the generation has moved on meanwhile, the sandbox is
 * thrown away and nothing is written. Returns 0 whether it runs or not: the row tells; -1 when the
 * end could not be written (the job is tried again). The manifest is written at the first boot
 * only. */
int lifecycle_boot(struct pool *pool, struct sandbox_link *link, const char *session_id,
                   int64_t generation, struct error *err);
/* Write that this boot was given up: nobody works on it any more. */
int lifecycle_boot_failed(struct pool *pool, const char *session_id, int64_t generation,
                          const char *reason, struct error *err);
/* Start: any stopped or failed session becomes provisioning and boots here, synchronously. A
 * running one is left alone; one that somebody else is booting is waited for. */
int lifecycle_start(struct pool *pool, struct sandbox_link *link, const char *session_id,
                    struct error *err);
/* Stop with this reason ("requested", "idle"): the turn ends `cancelled` first with its own
 * terminal event, then the sandbox. */
int lifecycle_stop(struct pool *pool, struct sandbox_link *link, const char *session_id,
                   const char *reason, struct error *err);
/* End the turn in flight, if there is one: run cancelled, session.status_idle written, its runner
 * told, its command killed. */
int lifecycle_interrupt(struct pool *pool, const char *session_id, struct error *err);
/* Stop every session that nobody used for its time. */
int lifecycle_release_idle(struct pool *pool, struct sandbox_link *link, struct error *err);
/* Remove the session: turn ended, sandbox and workspace destroyed, row gone; streams end. */
int lifecycle_delete(struct pool *pool, struct sandbox_link *link, const char *session_id,
                     struct error *err);
/* After a restart of server or supervisor: sessions that say `running` whose sandbox is gone become
 * stopped with reason `restart`; sandboxes that no row knows are destroyed, boots and turns that
 * nobody works on get a job. Done by one runner at its start, and every few seconds. */
int lifecycle_reconcile(struct pool *pool, struct sandbox_link *link, struct error *err);

#endif
