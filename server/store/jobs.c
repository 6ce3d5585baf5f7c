/* Jobs: the table as a queue; see jobs.h. */
#include "store/jobs.h"

#include <stdlib.h>

#include "common/field.h"

/* A job whose runner dies even while it writes the end is given out again, but not for ever. */
enum { LAST_WORDS = 3 };

static const struct field job_fields[] = {
    {NUMBER(job, id)},
    {TEXT(job, kind)},
    {TEXT(job, session_id), .nullable = true},
    {TEXT(job, run_id), .nullable = true},
    {JSON(job, payload), .shape = SHAPE_OBJECT},
    {NUMBER(job, attempts)},
    {NUMBER(job, max_attempts)},
    {TEXT(job, lease)},
};
SCHEMA(job);

int jobs_add(struct database *db, const char *kind, const char *session_id, const char *run_id,
             const char *payload, int run_after_s, int max_attempts, struct error *err)
{
    return query_run(db, QUERY_jobs_insert,
                     PARAMS(kind, session_id, run_id, payload, NUM(run_after_s), NUM(max_attempts)),
                     err) < 0
               ? -1
               : 0;
}

int jobs_lease(struct database *db, const char *owner, struct arena *arena, struct job *job,
               struct error *err)
{
    for (;;) {
        auto_rows struct rows *rows = NULL;

        if (query_rows(db, QUERY_jobs_take, PARAMS(owner, NUM(LAST_WORDS), NUM(JOB_LEASE_S)), &rows,
                       err) < 0)
            return -1;
        if (rows_count(rows) == 0)
            return 0;
        rows_value(rows, 0, arena, job);
        /* That one was buried instead. */
        if (job->attempts <= job->max_attempts + LAST_WORDS)
            return 1;
    }
}

int jobs_heartbeat(struct database *db, const char *leases, struct error *err)
{
    return query_run(db, QUERY_jobs_renew, PARAMS(leases, NUM(JOB_LEASE_S)), err) < 0 ? -1 : 0;
}

/* Run a query that is guarded by the lease. */
static int guarded(struct database *db, enum query_id query, struct params params,
                   struct error *err)
{
    int rows = query_run(db, query, params, err);

    if (rows < 0)
        return -1;
    return rows > 0 ? 0 : error_set(err, ERR_CONFLICT, "the lease of this job is over");
}

int jobs_hold(struct database *db, const struct job *job, struct error *err)
{
    return guarded(db, QUERY_jobs_lock, PARAMS(NUM(job->id), job->lease), err);
}

int jobs_finish(struct database *db, const struct job *job, struct error *err)
{
    return guarded(db, QUERY_jobs_delete, PARAMS(NUM(job->id), job->lease), err);
}

int jobs_fail(struct database *db, const struct job *job, const char *reason, struct error *err)
{
    return guarded(db, QUERY_jobs_return, PARAMS(NUM(job->id), job->lease, reason), err);
}

int jobs_next_due(struct database *db, int cap_s, struct error *err)
{
    auto_rows struct rows *rows = NULL;
    const char *due;
    long long seconds;

    if (query_rows(db, QUERY_jobs_due, NO_PARAMS, &rows, err) < 0)
        return -1;
    due = rows_text(rows, 0, 0);
    if (!due)
        return cap_s;
    seconds = strtoll(due, NULL, 10);
    return seconds < 0 ? 0 : seconds < cap_s ? (int)seconds : cap_s;
}
