/* The runner's process: the main thread leases jobs, each job has a thread of its own, and one more
 * keeps the leases. */
#include "run/runner.h"

#include <curl/curl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/scope.h"
#include "common/token.h"
#include "run/cancel.h"
#include "run/lifecycle.h"
#include "run/owner.h"
#include "run/turns.h"
#include "server/metrics.h"
#include "server/settings.h"
#include "store/database.h"
#include "store/jobs.h"

enum {
    BORROW_MS = 5 * 1000,
    IDLE_WAIT_S = 5,       /* a notification that got lost costs at most this */
    RETRY_MS = 1000,       /* after the database failed */
    CUT_OFF_MS = 3 * 1000, /* of the drain time, for what has to be cut off */
    ENSURE_EVERY = 12,     /* heartbeats */
    STACK_BYTES = 1 << 20,
};

struct runner {
    pthread_mutex_t lock; /* guards the next */
    struct work *first;   /* each job that has a thread: their leases are kept, and no others */
    char owner[UUID_SIZE];
    struct pool *pool;
    struct pool *heart; /* one connection, so that leases are kept however busy the others are */
    struct listening *listener;
    int done_fd; /* written when a job has ended */
    _Atomic int active;
    int stop_heart_fd;
};

enum outcome { OUTCOME_FAILED = -1, OUTCOME_DONE, OUTCOME_GIVEN_BACK };

/* One job, its thread and its memory. */
struct work {
    struct work *next, *previous; /* in the runner's list */
    struct runner *runner;
    struct sandbox_link *link;
    struct arena arena;
    struct job job;
};

/* --- kinds ----------------------------------------------------------------------------------- */

static int do_boot(struct work *work, struct error *err)
{
    const struct job *job = &work->job;
    int64_t generation = json_member_number(&work->arena, job->payload, "generation", 0);

    if (job->attempts > job->max_attempts)
        return lifecycle_boot_failed(work->runner->pool, job->session_id, generation,
                                     "the boot was given up: its process died each time", err);
    return lifecycle_boot(work->runner->pool, work->link, job->session_id, generation, err);
}

static int do_turn(struct work *work, struct error *err)
{
    return turns_run(work->runner->pool, work->link, &work->job, err);
}

static int do_idle(struct work *work, struct error *err)
{
    return lifecycle_release_idle(work->runner->pool, work->link, err);
}

static int do_reconcile(struct work *work, struct error *err)
{
    return lifecycle_reconcile(work->runner->pool, work->link, err);
}

static const struct kind {
    const char *name;
    int (*run)(struct work *work, struct error *err);
    int again_s;
} kinds[] = {
#define JOB(kind_name, function, seconds) {.name = #kind_name, .run = function, .again_s = seconds},
#include "run/jobs.def"
#undef JOB
};

static const struct kind *kind_of(const char *name)
{
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

/* --- one job --------------------------------------------------------------------------------- */

/* What becomes of the row. It may be gone already, with the turn that it was for or with the
 * session. */
static int settle(struct work *work, const struct kind *kind, enum outcome outcome,
                  const struct error *failure, struct error *err)
{
    auto_database struct database *db = NULL;
    const struct job *job = &work->job;

    if (database_borrow(work->runner->pool, BORROW_MS, &db, err) < 0)
        return -1;
    if (outcome == OUTCOME_FAILED)
        return jobs_fail(db, job, failure->message, err);
    if (outcome == OUTCOME_GIVEN_BACK)
        return query_run(db, QUERY_runner_give_back, PARAMS(NUM(job->id), job->lease), err);
    if (kind->again_s)
        return query_run(db, QUERY_runner_again,
                         PARAMS(NUM(job->id), job->lease, NUM(kind->again_s)), err);
    return jobs_finish(db, job, err);
}

static void count(const struct job *job, enum outcome outcome)
{
    const int labels[] = {counter_label(METRIC_jobs_total, 0, job->kind),
                          outcome == OUTCOME_FAILED       ? 1
                          : outcome == OUTCOME_GIVEN_BACK ? 2
                                                          : 0};

    counter_add(METRIC_jobs_total, labels, 1);
}

static void do_job(struct work *work)
{
    const struct kind *kind = kind_of(work->job.kind);
    struct error failure = {0}, err = {0};
    enum outcome outcome = OUTCOME_FAILED;

    log_context(NULL, work->job.run_id ? work->job.run_id : work->job.session_id);
    if (kind)
        outcome = (enum outcome)kind->run(work, &failure);
    else
        error_set(&failure, ERR_INTERNAL, "this program knows no such kind of job");
    if (outcome == OUTCOME_FAILED)
        LOG(WARNING, "job_failed", V("kind", work->job.kind), V("attempts", work->job.attempts),
            V("reason", failure.message));
    count(&work->job, outcome);
    if (settle(work, kind, outcome, &failure, &err) < 0 && err.kind != ERR_CONFLICT)
        LOG(WARNING, "job_not_settled", V("kind", work->job.kind), V("reason", err.message));
    log_context(NULL, NULL);
}

static void work_enter(struct work *work)
{
    struct runner *runner = work->runner;

    pthread_mutex_lock(&runner->lock);
    work->next = runner->first;
    if (work->next)
        work->next->previous = work;
    runner->first = work;
    pthread_mutex_unlock(&runner->lock);
}

static void work_leave(struct work *work)
{
    struct runner *runner = work->runner;

    pthread_mutex_lock(&runner->lock);
    if (work->next)
        work->next->previous = work->previous;
    if (work->previous)
        work->previous->next = work->next;
    else
        runner->first = work->next;
    pthread_mutex_unlock(&runner->lock);
}

static void *work_thread(void *argument)
{
    struct work *work = argument;
    struct runner *runner = work->runner;

    work->link = sandbox_link_new(settings.supervisor_socket);
    do_job(work);
    work_leave(work);
    sandbox_link_free(work->link);
    arena_done(&work->arena);
    free(work);
    runner->active--;
    eventfd_write(runner->done_fd, 1);
    return NULL;
}

/* Lease a job and give it a thread. 1 when there was one. */
static int take_job(struct runner *runner, struct error *err)
{
    auto_database struct database *db = NULL;
    struct work *work;
    pthread_attr_t attributes;
    pthread_t thread;
    int found, failed;

    if (database_borrow(runner->pool, BORROW_MS, &db, err) < 0)
        return -1;
    work = calloc(1, sizeof(*work));
    if (!work)
        abort();
    work->runner = runner;
    found = jobs_lease(db, runner->owner, &work->arena, &work->job, err);
    if (found <= 0) {
        arena_done(&work->arena);
        free(work);
        return found;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    runner->active++;
    work_enter(work);
    failed = pthread_create(&thread, &attributes, work_thread, work);
    pthread_attr_destroy(&attributes);
    if (!failed)
        return 1;
    work_leave(work);
    runner->active--;
    query_run(db, QUERY_runner_give_back, PARAMS(NUM(work->job.id), work->job.lease), err);
    arena_done(&work->arena);
    free(work);
    return error_set(err, ERR_UNAVAILABLE, "no thread for a job: %s", strerror(failed));
}

/* --- the heart ------------------------------------------------------------------------------- */

/* Runs that ended, and leases that were lost, without a notification that reached us. */
static int check_runs(struct runner *runner, struct database *db, struct error *err)
{
    auto_buffer struct buffer runs = {0};
    auto_rows struct rows *over = NULL;

    if (!cancel_runs(&runs))
        return 0;
    if (query_rows(db, QUERY_runner_over, PARAMS(runner->owner, runs.data), &over, err) < 0)
        return -1;
    for (size_t row = 0; row < rows_count(over); row++)
        cancel_run(rows_text(over, row, 0), CANCEL_ENDED);
    return 0;
}

static int ensure_repeating(struct database *db, struct error *err)
{
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (kinds[i].again_s && query_run(db, QUERY_runner_ensure, PARAMS(kinds[i].name), err) < 0)
            return -1;
    return 0;
}

/* Of the jobs that are worked on, as an array. A row that we hold without working on it (the answer
 * to its lease, or the note of its end, was lost with the database) has to expire. */
static void list_leases(struct runner *runner, struct buffer *array)
{
    size_t count = 0;

    buffer_char(array, '{');
    pthread_mutex_lock(&runner->lock);
    for (const struct work *work = runner->first; work; work = work->next)
        buffer_format(array, "%s%s", count++ ? "," : "", work->job.lease);
    pthread_mutex_unlock(&runner->lock);
    buffer_char(array, '}');
}

static int beat(struct runner *runner, bool ensure, struct error *err)
{
    auto_buffer struct buffer leases = {0};
    auto_database struct database *db = NULL;

    list_leases(runner, &leases);
    if (database_borrow(runner->heart, BORROW_MS, &db, err) < 0 ||
        jobs_heartbeat(db, leases.data, err) < 0 || check_runs(runner, db, err) < 0)
        return -1;
    return ensure ? ensure_repeating(db, err) : 0;
}

static void *heart_thread(void *argument)
{
    struct runner *runner = argument;
    struct pollfd stop = {.fd = runner->stop_heart_fd, .events = POLLIN};
    struct error err;

    for (unsigned beats = 0;; beats++) {
        int wait_ms = JOB_HEARTBEAT_S * 1000;

        if (beat(runner, beats % ENSURE_EVERY == 0, &err) < 0) {
            LOG(WARNING, "heartbeat_failed", V("reason", err.message));
            wait_ms = RETRY_MS;
        }
        if (poll(&stop, 1, wait_ms) > 0)
            return NULL;
    }
}

/* --- leasing --------------------------------------------------------------------------------- */

/* Take jobs while there are any and there is room. Returns in how many milliseconds to look again.
 */
static int take_jobs(struct runner *runner, bool *full)
{
    struct error err;
    int found = 1, due;

    *full = false;
    while (found > 0 && runner->active < settings.runner_jobs)
        found = take_job(runner, &err);
    if (found == 0) {
        auto_database struct database *db = NULL;

        if (database_borrow(runner->pool, BORROW_MS, &db, &err) == 0 &&
            (due = jobs_next_due(db, IDLE_WAIT_S, &err)) >= 0)
            return due > 0 ? due * 1000 : 100;
        found = -1;
    }
    if (found < 0) {
        LOG(WARNING, "lease_failed", V("reason", err.message));
        return RETRY_MS;
    }
    *full = true; /* the end of a job is a reason to look again */
    return IDLE_WAIT_S * 1000;
}

static bool is_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) > 0;
}

/* Notifications until there is a reason to look for jobs. */
static void wait_for_work(struct runner *runner, int stop_fd, int wake_fd, int wait_ms, bool full)
{
    int64_t deadline = clock_ms() + wait_ms;

    for (;;) {
        const char *channel, *payload;
        struct error err;
        eventfd_t ended;
        int64_t left = deadline - clock_ms();
        int got;

        if (left <= 0)
            return;
        got = listen_wait(runner->listener, (int)left, wake_fd, &channel, &payload, &err);
        if (got < 0) {
            LOG(WARNING, "listen_failed", V("reason", err.message));
            poll(&(struct pollfd){.fd = stop_fd, .events = POLLIN}, 1, RETRY_MS);
            return;
        }
        if (got > 0 && strcmp(channel, "cancel") == 0) {
            if (*payload)
                cancel_run(payload, CANCEL_ENDED);
            continue; /* what was missed the heart sees to */
        }
        if (got == 0 && eventfd_read(runner->done_fd, &ended) == 0 && !full &&
            !is_readable(stop_fd))
            continue;
        return;
    }
}

static int watch(int epoll_fd, int fd, struct error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0
               ? error_set_errno(err, ERR_INTERNAL, "epoll_ctl")
               : 0;
}

/* --- the process ----------------------------------------------------------------------------- */

static void wait_until_idle(const struct runner *runner, int64_t deadline_ms)
{
    while (runner->active > 0 && clock_ms() < deadline_ms) {
        eventfd_t ended;

        if (poll(&(struct pollfd){.fd = runner->done_fd, .events = POLLIN}, 1, 100) > 0)
            eventfd_read(runner->done_fd, &ended);
    }
}

/* Turns are given back at their next seam, and what has not ended near the end of the drain time is
 * cut off. */
static void drain(struct runner *runner)
{
    int64_t end_ms = clock_ms() + settings.drain_seconds * 1000;
    struct database *db;
    struct error err;

    LOG(INFO, "runner_drains", V("jobs", (int)runner->active));
    cancel_all(CANCEL_PAUSE);
    wait_until_idle(runner, end_ms - CUT_OFF_MS);
    cancel_all(CANCEL_GIVE_BACK);
    wait_until_idle(runner, end_ms - CUT_OFF_MS / 3);
    if (runner->active == 0)
        return;
    LOG(WARNING, "jobs_left_behind", V("jobs", (int)runner->active));
    if (database_borrow(runner->heart, BORROW_MS / 10, &db, &err) < 0)
        return;
    query_run(db, QUERY_runner_give_back_all, PARAMS(runner->owner), &err);
    database_return(db);
}

/* Something may have happened while nobody looked, and whoever this one stands in for has left
 * jobs. */
static void greet(struct runner *runner)
{
    auto_database struct database *db = NULL;
    struct error err;

    if (database_borrow(runner->pool, BORROW_MS, &db, &err) < 0 || ensure_repeating(db, &err) < 0 ||
        owner_sweep(db, &err) < 0 ||
        query_run(db, QUERY_runner_hasten, PARAMS("reconcile"), &err) < 0)
        LOG(WARNING, "runner_start_incomplete", V("reason", err.message));
}

static int serve(struct runner *runner, int stop_fd, int wake_fd, struct error *err)
{
    pthread_t heart;

    if (watch(wake_fd, stop_fd, err) < 0 || watch(wake_fd, runner->done_fd, err) < 0)
        return -1;
    if (pthread_create(&heart, NULL, heart_thread, runner) != 0)
        return error_set(err, ERR_INTERNAL, "no thread for the heartbeat");
    greet(runner);
    while (!is_readable(stop_fd)) {
        bool full;
        int wait_ms = take_jobs(runner, &full);

        wait_for_work(runner, stop_fd, wake_fd, wait_ms, full);
    }
    drain(runner);
    eventfd_write(runner->stop_heart_fd, 1);
    pthread_join(heart, NULL);
    return 0;
}

static int open_all(struct runner *runner, struct error *err)
{
    static const char *const channels[] = {"jobs", "cancel", NULL};
    const char *url = settings.database_url.value;

    /* Its descriptor is kept as long as the process lives. */
    if (owner_claim(runner->owner, err) < 0)
        return -1;
    runner->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    runner->stop_heart_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (runner->done_fd < 0 || runner->stop_heart_fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "eventfd");
    if (pool_open(&runner->pool, url, (int)settings.database_pool, err) < 0 ||
        pool_open(&runner->heart, url, 1, err) < 0)
        return -1;
    return listen_open(&runner->listener, url, channels, err);
}

int runner_run(int stop_fd, struct error *err)
{
    static struct runner runner = {
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .done_fd = -1,
        .stop_heart_fd = -1}; /* jobs that were left behind use it until the process ends */
    auto_close int wake_fd = epoll_create1(EPOLL_CLOEXEC);

    if (wake_fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "epoll_create1");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(err, ERR_INTERNAL, "libcurl does not start");
    if (open_all(&runner, err) < 0 || serve(&runner, stop_fd, wake_fd, err) < 0)
        return -1;
    listen_close(runner.listener);
    if (runner.active > 0)
        return 0;
    owner_drop(runner.owner);
    pool_close(runner.pool);
    pool_close(runner.heart);
    close(runner.done_fd);
    close(runner.stop_heart_fd);
    curl_global_cleanup();
    return 0;
}
