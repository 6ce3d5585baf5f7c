/* Timed and background work: the table `jobs`. A row is leased by one runner for a while and
 * renewed by its heartbeat; a runner that dies loses nothing, since the lease runs out and another
 * takes the job up. */
#ifndef STORE_JOBS_H
#define STORE_JOBS_H

#include <stdint.h>

#include "store/database.h"

struct job {
    int64_t id;
    const char *kind;       /* jobs.def of the runner */
    const char *session_id; /* NULL where it has none */
    const char *run_id;
    const char *payload; /* JSON object */
    int64_t attempts;    /* this one included */
    int64_t max_attempts;
    const char *lease; /* token of this lease: what the job writes is guarded by it */
};

enum { JOB_LEASE_S = 15, JOB_HEARTBEAT_S = 5 };

/* Add a job, in the caller's transaction; runners are notified at its commit. `run_after_s` 0: at
 * once. `session_id`, `run_id` may be NULL. */
int jobs_add(struct database *db, const char *kind, const char *session_id, const char *run_id,
             const char *payload, int run_after_s, int max_attempts, struct error *err);
/* Lease one due job of any kind. 1 with a job in the arena, 0 when none is due. An expired lease
 * counts as a failed attempt; a job whose attempts are used up becomes dead and is given once more
 * with attempts > max_attempts, so that its kind can write the end (again, three times at most,
 * when that runner dies too). An owner is one process: its name never comes back. */
int jobs_lease(struct database *db, const char *owner, struct arena *arena, struct job *job,
               struct error *err);
/* Renew these leases, "{UUID,UUID,…}": those that somebody works on. An owner may have more without
 * knowing: the answer to jobs_lease was lost. */
int jobs_heartbeat(struct database *db, const char *leases, struct error *err);
/* Whether the lease is still ours (the guard of what a job writes). ERR_CONFLICT when it is not.
 * Locks the row. */
int jobs_hold(struct database *db, const struct job *job, struct error *err);
/* It is done: the row goes. */
int jobs_finish(struct database *db, const struct job *job, struct error *err);
/* It failed: again after a backoff (1 s · 2^attempts, at most 5 minutes, ±20 %), or dead. */
int jobs_fail(struct database *db, const struct job *job, const char *reason, struct error *err);
/* Seconds until the next due job, at most `cap_s`. */
int jobs_next_due(struct database *db, int cap_s, struct error *err);

#endif
