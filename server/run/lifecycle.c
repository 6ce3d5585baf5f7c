/* Sandboxes brought up and down, and what the rows and logs say of it.
 *
 * The row is changed first, with its lock held; the sandbox follows under the guard, after another
 * look at the row. So whoever comes last in the row has the last word about the sandbox, and who
 * died in between is made up for by lifecycle_reconcile. */
#include "run/lifecycle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/scope.h"
#include "run/build.h"
#include "run/capacity.h"
#include "run/events.h"
#include "run/guard.h"
#include "run/manifest.h"
#include "run/turn.h"
#include "run/turns.h"
#include "server/metrics.h"
#include "server/settings.h"
#include "store/jobs.h"

enum {
    BORROW_MS = 5 * 1000,
    BOOT_ATTEMPTS = 3,
    RESCUE_AFTER_S = 10,            /* a start whose process died is taken up by a runner */
    SUPERVISOR_WAIT_MS = 10 * 1000, /* for one that is being restarted */
    SUPERVISOR_PAUSE_MS = 100,
    START_WAIT_MS = 110 * 1000,
    WANTED_CHECK_MS = 100,
};

#define LOST "the sandbox was lost when the server restarted"

struct boot_plan {
    const char *status;
    int64_t generation;
    bool prepared;
    const char *workdir;
    const char *backend;
    const char *exposed_ports;
    const char *image;
    const char *entries;
};

static const struct field boot_plan_fields[] = {
    {TEXT(boot_plan, status)},
    {NUMBER(boot_plan, generation)},
    {FLAG(boot_plan, prepared)},
    {TEXT(boot_plan, workdir)},
    {TEXT(boot_plan, backend)},
    {JSON(boot_plan, exposed_ports), .shape = SHAPE_LIST},
    {TEXT(boot_plan, image), .nullable = true},
    {JSON(boot_plan, entries), .shape = SHAPE_MAP},
};
SCHEMA(boot_plan);

struct session_known {
    const char *id;
    const char *status;
    int64_t generation;
};

static const struct field session_known_fields[] = {
    {TEXT(session_known, id)},
    {TEXT(session_known, status)},
    {NUMBER(session_known, generation)},
};
SCHEMA(session_known);

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static bool is(const char *status, const char *name)
{
    return strcmp(status, name) == 0;
}

/* Borrow a connection and begin. */
static int begin(struct pool *pool, struct database **db, struct error *err)
{
    return database_borrow(pool, BORROW_MS, db, err) < 0 ? -1 : database_begin(*db, err);
}

/* The row as it is now. ERR_NOT_FOUND when the session is gone. */
static int look(struct pool *pool, const char *session_id, struct arena *arena,
                struct session_lock *row, struct error *err)
{
    auto_database struct database *db = NULL;

    return database_borrow(pool, BORROW_MS, &db, err) < 0
               ? -1
               : query_row(db, QUERY_lifecycle_look, PARAMS(session_id), arena, row, err);
}

/* --- the supervisor, which may be restarting ------------------------------------------------- */

static int with_patience(int (*ask)(struct sandbox_link *link, const char *sandbox,
                                    struct error *err),
                         struct sandbox_link *link, const char *session_id, struct error *err)
{
    int64_t deadline = clock_ms() + SUPERVISOR_WAIT_MS;

    while (ask(link, session_id, err) < 0) {
        if (err->kind == ERR_NOT_FOUND)
            return 0; /* what is not there is neither up nor in the way */
        if (err->kind != ERR_UNAVAILABLE || clock_ms() >= deadline)
            return -1;
        sleep_ms(SUPERVISOR_PAUSE_MS);
    }
    return 0;
}

/* --- boot ------------------------------------------------------------------------------------ */

struct boot {
    struct pool *pool;
    struct sandbox_link *link;
    const char *session_id;
    int64_t generation;
    struct boot_plan plan;
    int64_t checked_ms;
    bool wanted;
};

/* Whether nobody has stopped or deleted the session meanwhile. When the database can't tell, the
 * end will. */
static bool still_wanted(void *context)
{
    struct boot *boot = context;
    auto_arena struct arena arena = {0};
    struct session_lock row;
    struct error err;

    if (!boot->wanted || clock_ms() - boot->checked_ms < WANTED_CHECK_MS)
        return boot->wanted;
    boot->checked_ms = clock_ms();
    if (look(boot->pool, boot->session_id, &arena, &row, &err) < 0)
        boot->wanted = err.kind != ERR_NOT_FOUND;
    else
        boot->wanted = is(row.status, "provisioning") && row.generation == boot->generation;
    return boot->wanted;
}

static int start_sandbox(const struct boot *boot, struct error *err)
{
    const struct start start = {
        .sandbox = boot->session_id,
        .image = boot->plan.image ? boot->plan.image : settings.sandbox_image,
        .hostname = "sandbox", /* the same for all: those that were made ahead have it already */
        .memory_bytes = settings.sandbox_memory_mb << 20,
        .pids = settings.sandbox_pids,
        .cpu_percent = settings.sandbox_cpu_percent,
        .tmp_bytes = settings.sandbox_tmp_mb << 20,
        .network = settings.sandbox_network,
        .swap_bytes = settings.sandbox_swap_mb << 20,
        .cpu_weight = settings.sandbox_cpu_weight,
        .open_files = settings.sandbox_open_files,
        .nice = settings.sandbox_nice,
        .oom_score = settings.sandbox_oom_score,
        .oom_group = settings.sandbox_oom_group,
    };

    const struct create create = {.sandbox = boot->session_id,
                                  .disk_bytes = settings.sandbox_disk_mb << 20};

    /* Whatever an agent has asked for: what can't be a name is the name of nothing. */
    if (!field_matches(IMAGE_NAME_PATTERN, start.image))
        return error_set(err, ERR_NOT_FOUND, "there is no image '%s'", start.image);
    /* Only the first boot makes the folders: a workspace that is gone later is not silently
     * replaced by an empty one. */
    if (!boot->plan.prepared && sandbox_create_sized(boot->link, &create, err) < 0 &&
        err->kind != ERR_CONFLICT)
        return -1;
    if (sandbox_start(boot->link, &start, err) == 0)
        return 0;
    if (err->kind != ERR_CONFLICT)
        return -1;
    /* It runs: left by a process that died before it could write so, or by a stop that did. */
    if (sandbox_stop(boot->link, boot->session_id, err) < 0)
        return -1;
    return sandbox_start(boot->link, &start, err);
}

/* Bring it up. 1 when it is not wanted any more. */
static int bring_up(struct boot *boot, struct error *err)
{
    int64_t deadline = clock_ms() + SUPERVISOR_WAIT_MS;

    while (start_sandbox(boot, err) < 0) {
        if (err->kind != ERR_UNAVAILABLE || clock_ms() >= deadline)
            return -1;
        sleep_ms(SUPERVISOR_PAUSE_MS);
        if (!still_wanted(boot))
            return 1;
    }
    return boot->plan.prepared ? 0
                               : manifest_write(boot->link, boot->session_id, boot->plan.entries,
                                                still_wanted, boot, err);
}

/* A workspace that has never been used goes with its sandbox. */
static void throw_away(const struct boot *boot, bool deleted)
{
    struct error err;

    if (with_patience(deleted || !boot->plan.prepared ? sandbox_destroy : sandbox_stop, boot->link,
                      boot->session_id, &err) < 0)
        LOG(WARNING, "sandbox_left_behind", V("session", boot->session_id),
            V("reason", err.message));
}

static int enqueue_waiting(struct database *db, const char *session_id, struct error *err)
{
    auto_rows struct rows *waiting = NULL;

    if (query_rows(db, QUERY_lifecycle_waiting, PARAMS(session_id), &waiting, err) < 0)
        return -1;
    for (size_t row = 0; row < rows_count(waiting); row++)
        if (turns_enqueue(db, session_id, rows_text(waiting, row, 0), err) < 0)
            return -1;
    return 0;
}

static int write_running(struct database *db, const struct boot *boot, struct error *err)
{
    auto_buffer struct buffer payload = {0};

    json_format(&payload, "{\"backend\":%s,\"workdir\":%s,\"exposed_ports\":%j}",
                boot->plan.backend, boot->plan.workdir, boot->plan.exposed_ports);
    if (query_run(db, QUERY_lifecycle_booted, PARAMS(boot->session_id), err) < 0 ||
        events_append(db, boot->session_id, NULL, "session.status_running", payload.data, NULL,
                      err) < 0)
        return -1;
    return enqueue_waiting(db, boot->session_id, err);
}

/* The run that waited for this boot ends with it, and its end is the boot's; else the boot has one
 * of its own. */
static int write_failed(struct database *db, const char *session_id, const char *reason,
                        struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer payload = {0};
    struct turn_state state;
    int ended;

    if (query_run(db, QUERY_lifecycle_failed, PARAMS(session_id, reason), err) < 0)
        return -1;
    ended = turns_end_any(db, session_id, "failed", "error", reason, err);
    if (ended != 0)
        return ended < 0 ? -1 : 0;
    if (query_row(db, QUERY_lifecycle_account, PARAMS(session_id), &arena, &state, err) < 0)
        return -1;
    turns_end_payload(&payload, &state, "failed", "error", NULL, reason);
    return events_append(db, session_id, NULL, "session.status_error", payload.data, NULL, err);
}

/* Write how a boot ended, unless the session has moved on: 1 then. `reason` NULL: it runs. */
static int write_boot(struct pool *pool, const struct boot *boot, const char *reason, bool *deleted,
                      struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    struct session_lock row;

    *deleted = false;
    if (begin(pool, &db, err) < 0)
        return -1;
    if (turns_lock(db, boot->session_id, &arena, &row, err) < 0) {
        *deleted = err->kind == ERR_NOT_FOUND;
        return *deleted ? 1 : -1;
    }
    if (!is(row.status, "provisioning") || row.generation != boot->generation)
        return 1;
    if ((reason ? write_failed(db, boot->session_id, reason, err) : write_running(db, boot, err)) <
        0)
        return -1;
    return database_commit(db, err);
}

static int read_plan(struct boot *boot, struct arena *arena, struct error *err)
{
    auto_database struct database *db = NULL;

    if (database_borrow(boot->pool, BORROW_MS, &db, err) < 0)
        return -1;
    if (query_row(db, QUERY_lifecycle_boot_plan, PARAMS(boot->session_id), arena, &boot->plan,
                  err) < 0)
        return err->kind == ERR_NOT_FOUND ? 1 : -1;
    return !is(boot->plan.status, "provisioning") || boot->plan.generation != boot->generation;
}

int lifecycle_boot(struct pool *pool, struct sandbox_link *link, const char *session_id,
                   int64_t generation, struct error *err)
{
    auto_close int guard = guard_take(session_id, err);
    auto_arena struct arena arena = {0};
    struct boot boot = {.pool = pool,
                        .link = link,
                        .session_id = session_id,
                        .generation = generation,
                        .wanted = true};
    struct error failure = {0};
    int64_t began_ms = clock_ms();
    bool deleted = false;
    int moved_on, up;

    if (guard < 0)
        return -1;
    moved_on = read_plan(&boot, &arena, err);
    if (moved_on != 0)
        return moved_on < 0 ? -1 : 0;
    boot.checked_ms = clock_ms();
    up = bring_up(&boot, &failure);
    if (up != 0)
        throw_away(&boot, false);
    moved_on = write_boot(pool, &boot, up < 0 ? failure.message : NULL, &deleted, err);
    if (moved_on < 0)
        return -1;
    if (moved_on) {
        throw_away(&boot, deleted);
        return 0;
    }
    counter_observe(METRIC_boot_seconds, NULL, (double)(clock_ms() - began_ms) / 1000);
    if (up < 0)
        LOG(WARNING, "boot_failed", V("session", session_id), V("reason", failure.message));
    return 0;
}

int lifecycle_boot_failed(struct pool *pool, const char *session_id, int64_t generation,
                          const char *reason, struct error *err)
{
    const struct boot boot = {.session_id = session_id, .generation = generation};
    bool deleted;

    return write_boot(pool, &boot, reason, &deleted, err) < 0 ? -1 : 0;
}

/* --- start ----------------------------------------------------------------------------------- */

/* Make a stopped or failed session provisioning. 1 with its new generation, 0 when it runs or
 * somebody boots it. */
static int begin_start(struct pool *pool, const char *session_id, int64_t *generation,
                       bool *booting, struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    auto_rows struct rows *started = NULL;
    struct session_lock row;

    if (begin(pool, &db, err) < 0 || turns_lock(db, session_id, &arena, &row, err) < 0)
        return -1;
    *booting = is(row.status, "provisioning");
    if (*booting || is(row.status, "running"))
        return 0;
    if (capacity_claim(db, NULL, session_id, err) < 0 ||
        query_rows(db, QUERY_lifecycle_starting, PARAMS(session_id), &started, err) < 0)
        return -1;
    *generation = strtoll(rows_text(started, 0, 0), NULL, 10);
    if (jobs_add(db, "boot", session_id, NULL,
                 arena_text(&arena, "{\"generation\":%lld}", (long long)*generation),
                 RESCUE_AFTER_S, BOOT_ATTEMPTS, err) < 0 ||
        database_commit(db, err) < 0)
        return -1;
    return 1;
}

static int wait_for_boot(struct pool *pool, const char *session_id, struct error *err)
{
    int64_t deadline = clock_ms() + START_WAIT_MS;

    for (int pause = 5;; pause = pause < 100 ? 2 * pause : pause) {
        auto_arena struct arena arena = {0};
        struct session_lock row;

        if (look(pool, session_id, &arena, &row, err) < 0)
            return -1;
        if (!is(row.status, "provisioning"))
            return 0;
        if (clock_ms() >= deadline) {
            error_set(err, ERR_UNAVAILABLE, "the session is still booting");
            err->retry_after_s = 5;
            return -1;
        }
        sleep_ms(pause);
    }
}

int lifecycle_start(struct pool *pool, struct sandbox_link *link, const char *session_id,
                    struct error *err)
{
    int64_t generation = 0;
    bool booting;
    int begun = begin_start(pool, session_id, &generation, &booting, err);

    if (begun < 0)
        return -1;
    if (begun)
        return lifecycle_boot(pool, link, session_id, generation, err);
    return booting ? wait_for_boot(pool, session_id, err) : 0;
}

/* --- stop ------------------------------------------------------------------------------------ */

/* Take the sandbox down, if the session is down still when its time has come. */
static int take_down(struct pool *pool, struct sandbox_link *link, const char *session_id,
                     struct error *err)
{
    auto_close int guard = guard_take(session_id, err);
    auto_arena struct arena arena = {0};
    struct session_lock row;

    if (guard < 0)
        return -1;
    if (look(pool, session_id, &arena, &row, err) < 0)
        return err->kind == ERR_NOT_FOUND ? 0 : -1;
    if (!is(row.status, "stopped") && !is(row.status, "error"))
        return 0;
    return with_patience(sandbox_stop, link, session_id, err);
}

/* In a transaction that holds the row: the turn's end, then the session's. */
static int write_stopped(struct database *db, const char *session_id, const char *reason,
                         struct error *err)
{
    bool lost = is(reason, "restart");
    auto_buffer struct buffer payload = {0};

    json_format(&payload, "{\"reason\":%s}", reason);
    if (turns_end_any(db, session_id, lost ? "failed" : "cancelled", lost ? "error" : "cancelled",
                      lost ? LOST : NULL, err) < 0 ||
        query_run(db, QUERY_lifecycle_stopped, PARAMS(session_id, reason), err) < 0)
        return -1;
    return events_append(db, session_id, NULL, "session.status_stopped", payload.data, NULL, err);
}

static bool is_up(const struct session_lock *row)
{
    return is(row->status, "running") || is(row->status, "provisioning");
}

/* 1: the sandbox is to be taken down; 0: the session was used after all. */
static int write_stop(struct pool *pool, const char *session_id, const char *reason,
                      struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    struct session_lock row;

    if (begin(pool, &db, err) < 0 || turns_lock(db, session_id, &arena, &row, err) < 0)
        return -1;
    if (is(reason, "idle")) {
        int idle = query_run(db, QUERY_lifecycle_is_idle,
                             PARAMS(session_id, NUM(settings.idle_ttl_seconds)), err);

        if (idle <= 0)
            return idle;
    }
    if (is_up(&row)) {
        if (write_stopped(db, session_id, reason, err) < 0)
            return -1;
    } else if (row.stopped_reason && is(row.stopped_reason, "idle")) {
        if (query_run(db, QUERY_lifecycle_stopped, PARAMS(session_id, reason), err) < 0)
            return -1;
    }
    return database_commit(db, err) < 0 ? -1 : 1;
}

int lifecycle_stop(struct pool *pool, struct sandbox_link *link, const char *session_id,
                   const char *reason, struct error *err)
{
    int written = write_stop(pool, session_id, reason, err);

    return written > 0 ? take_down(pool, link, session_id, err) : written;
}

int lifecycle_interrupt(struct pool *pool, const char *session_id, struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    struct session_lock row;

    if (begin(pool, &db, err) < 0 || turns_lock(db, session_id, &arena, &row, err) < 0 ||
        turns_end_any(db, session_id, "cancelled", "cancelled", NULL, err) < 0)
        return -1;
    return database_commit(db, err);
}

int lifecycle_release_idle(struct pool *pool, struct sandbox_link *link, struct error *err)
{
    auto_rows struct rows *idle = NULL;
    struct database *db;
    int result = database_borrow(pool, BORROW_MS, &db, err);

    if (result == 0) {
        result = query_rows(db, QUERY_lifecycle_idle, PARAMS(NUM(settings.idle_ttl_seconds)), &idle,
                            err);
        database_return(db);
    }
    for (size_t row = 0; result == 0 && row < rows_count(idle); row++) {
        struct error failure;

        if (lifecycle_stop(pool, link, rows_text(idle, row, 0), "idle", &failure) < 0 &&
            failure.kind != ERR_NOT_FOUND)
            LOG(WARNING, "idle_release_failed", V("session", rows_text(idle, row, 0)),
                V("reason", failure.message));
    }
    return result;
}

/* --- delete ---------------------------------------------------------------------------------- */

static int end_for_good(struct pool *pool, const char *session_id, struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    struct session_lock row;

    if (begin(pool, &db, err) < 0 || turns_lock(db, session_id, &arena, &row, err) < 0)
        return -1;
    if (!is_up(&row))
        return 0;
    if (write_stopped(db, session_id, "requested", err) < 0)
        return -1;
    return database_commit(db, err);
}

static int remove_row(struct pool *pool, const char *session_id, struct error *err)
{
    auto_database struct database *db = NULL;

    if (begin(pool, &db, err) < 0 ||
        query_run(db, QUERY_lifecycle_delete, PARAMS(session_id), err) < 0)
        return -1;
    database_touch(db, session_id);
    return database_commit(db, err);
}

/* The row goes last: until then the session can be found, and deleted again should the supervisor
 * be away. */
int lifecycle_delete(struct pool *pool, struct sandbox_link *link, const char *session_id,
                     struct error *err)
{
    auto_close int guard = -1;

    if (end_for_good(pool, session_id, err) < 0)
        return -1;
    guard = guard_take(session_id, err);
    if (guard < 0 || with_patience(sandbox_destroy, link, session_id, err) < 0)
        return -1;
    return remove_row(pool, session_id, err);
}

/* --- reconcile ------------------------------------------------------------------------------- */

struct census {
    struct pool *pool;
    struct sandbox_link *link;
    struct sandbox_entry *entries;
    size_t count;
};

static int64_t state_of(const struct census *census, const char *session_id)
{
    for (size_t i = 0; i < census->count; i++)
        if (is(census->entries[i].sandbox, session_id))
            return census->entries[i].state;
    return SANDBOX_ABSENT;
}

/* A session that says `running`, without a sandbox that does. Looked at again under the guard: it
 * may have been booting. */
static int settle_lost(const struct census *census, const char *session_id, struct error *err)
{
    auto_close int guard = guard_take(session_id, err);
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    struct sandbox_status status;
    struct session_lock row;

    if (guard < 0 || sandbox_status(census->link, session_id, &arena, &status, err) < 0)
        return -1;
    if (status.state == SANDBOX_RUNNING)
        return 0;
    if (begin(census->pool, &db, err) < 0 || turns_lock(db, session_id, &arena, &row, err) < 0)
        return err->kind == ERR_NOT_FOUND ? 0 : -1;
    if (!is(row.status, "running"))
        return 0;
    LOG(WARNING, "sandbox_lost", V("session", session_id));
    if (write_stopped(db, session_id, "restart", err) < 0)
        return -1;
    return database_commit(db, err);
}

static int settle_stray(const struct census *census, const char *session_id, struct error *err)
{
    auto_close int guard = guard_take(session_id, err);
    auto_arena struct arena arena = {0};
    struct session_lock row;

    if (guard < 0)
        return -1;
    if (look(census->pool, session_id, &arena, &row, err) == 0)
        return 0;
    if (err->kind != ERR_NOT_FOUND)
        return -1;
    LOG(WARNING, "sandbox_stray", V("sandbox", session_id));
    return with_patience(sandbox_destroy, census->link, session_id, err);
}

static int settle(const struct census *census, const struct session_known *known, struct error *err)
{
    bool runs = state_of(census, known->id) == SANDBOX_RUNNING;

    if (is(known->status, "running") && !runs)
        return settle_lost(census, known->id, err);
    if (runs && (is(known->status, "stopped") || is(known->status, "error")))
        return take_down(census->pool, census->link, known->id, err);
    return 0;
}

static void note(const char *session_id, const struct error *err)
{
    LOG(WARNING, "reconcile_failed", V("session", session_id), V("reason", err->message));
}

static int compare(const struct census *census, struct arena *arena, struct error *err)
{
    auto_buffer struct buffer ids = {0};
    auto_rows struct rows *rows = NULL;
    struct database *db;
    struct error failure;
    int result;

    buffer_char(&ids, '{');
    for (size_t i = 0; i < census->count; i++)
        buffer_format(&ids, "%s%s", i ? "," : "", census->entries[i].sandbox);
    buffer_char(&ids, '}');
    if (database_borrow(census->pool, BORROW_MS, &db, err) < 0)
        return -1;
    result = query_rows(db, QUERY_lifecycle_all, PARAMS(ids.data), &rows, err);
    database_return(db);
    if (result < 0)
        return -1;
    for (size_t row = 0; row < rows_count(rows); row++) {
        struct session_known known;

        rows_value(rows, row, arena, &known);
        if (settle(census, &known, &failure) < 0)
            note(known.id, &failure);
        for (size_t i = 0; i < census->count; i++)
            if (is(census->entries[i].sandbox, known.id))
                census->entries[i].state = 0; /* it has a row */
    }
    for (size_t i = 0; i < census->count; i++)
        if (census->entries[i].state && !build_is_sandbox(census->entries[i].sandbox) &&
            settle_stray(census, census->entries[i].sandbox, &failure) < 0)
            note(census->entries[i].sandbox, &failure);
    return 0;
}

/* Give a job to a boot or a turn that lost its own. Looked at again with the row locked. */
static int adopt(struct pool *pool, const char *session_id, struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    struct session_lock row;

    if (begin(pool, &db, err) < 0 || turns_lock(db, session_id, &arena, &row, err) < 0)
        return -1;
    LOG(WARNING, "session_adopted", V("session", session_id), V("status", row.status));
    if (is(row.status, "running") && enqueue_waiting(db, session_id, err) < 0)
        return -1;
    if (is(row.status, "provisioning") &&
        jobs_add(db, "boot", session_id, NULL,
                 arena_text(&arena, "{\"generation\":%lld}", (long long)row.generation), 0,
                 BOOT_ATTEMPTS, err) < 0)
        return -1;
    return database_commit(db, err);
}

static int adopt_all(struct pool *pool, enum query_id query, struct error *err)
{
    auto_rows struct rows *rows = NULL;
    struct database *db;
    struct error failure;
    int result = database_borrow(pool, BORROW_MS, &db, err);

    if (result == 0) {
        result = query_rows(db, query, NO_PARAMS, &rows, err);
        database_return(db);
    }
    for (size_t row = 0; result == 0 && row < rows_count(rows); row++)
        if (adopt(pool, rows_text(rows, row, 0), &failure) < 0)
            note(rows_text(rows, row, 0), &failure);
    return result;
}

int lifecycle_reconcile(struct pool *pool, struct sandbox_link *link, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct census census = {.pool = pool, .link = link};

    if (adopt_all(pool, QUERY_lifecycle_orphans, err) < 0 ||
        adopt_all(pool, QUERY_lifecycle_orphan_runs, err) < 0 ||
        sandbox_list(link, &arena, &census.entries, &census.count, err) < 0)
        return -1;
    return compare(&census, &arena, err);
}
