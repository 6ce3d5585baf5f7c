/* From one state to the next: start, stop, destroy, and finding what an earlier supervisor left.
 *
 * Every way down is the same: kill all, wait until the kernel has let go, remove what was made, by
 * name; so it can begin at any point of the way up, and again after a crash. */
#include "supervisor/lifecycle.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/cgroup.h"
#include "supervisor/dispatch.h"
#include "supervisor/exec.h"
#include "supervisor/files.h"
#include "supervisor/image_commit.h"
#include "supervisor/job.h"
#include "supervisor/pool.h"
#include "supervisor/spawn.h"
#include "supervisor/statistics.h"

enum {
    START_MS = (SPAWN_SECONDS + 1) * 1000,
    QUEUE_MS = 60000,
    ADOPT_MS = 5000,
    KILL_MS = 5000,
    KILL_PAUSE_MS = 2,
    KILL_PAUSE_MAX_MS = 64,
    SPARE_MS = 3,         /* out of the way of the start that took the last one */
    REMOVED_AT_ONCE = 64, /* files and folders */
    TEARDOWN_SECONDS = 300,
    RETRY_AFTER_S = 10,
};

#define PROCESSES_REMAIN ERR_TIMEOUT

static const struct nothing no_body;

/* --- answers to whoever asked for the change ------------------------------------------------- */

void lifecycle_settle(struct sandbox *box, const struct error *failure)
{
    struct connection *asker = box->asker;
    struct error told = {.kind = ERR_NONE};
    char id[sizeof(box->id)];

    /* Both may be the sandbox's own, which may be gone before they are told. */
    memcpy(id, box->id, sizeof(id));
    if (failure)
        told = *failure;
    box->busy = false;
    box->asker = NULL;
    if (box->destroyed && box->slot < 0)
        sandbox_forget(box);
    if (asker && told.kind != ERR_NONE)
        connection_refuse(asker, &told);
    else if (asker)
        connection_answer(asker, &schema_nothing, &no_body, -1);
    connection_resume(id);
}

/* --- down ------------------------------------------------------------------------------------ */

struct teardown {
    struct sandbox *box;
    char folder[SANDBOX_ID_LENGTH + 8];
    bool whole; /* the folder too */
    int64_t deadline;
    int64_t pause_ms;
    struct timer again;
};

bool lifecycle_kill(const char *id, int process)
{
    int64_t deadline = loop_now() + KILL_MS;
    struct pollfd end = {.fd = process, .events = POLLIN};

    for (;;) {
        cgroup_kill(id);
        if (process >= 0) {
            syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
            poll(&end, 1, KILL_MS);
        }
        if ((process < 0 || (end.revents & (POLLIN | POLLHUP))) && cgroup_remove(id))
            return true;
        if (loop_now() >= deadline)
            return false;
        poll(NULL, 0, KILL_PAUSE_MS);
    }
}

static int remove_boot(const char *folder, struct error *err)
{
    auto_close int own =
        openat(sandbox_folder(), folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (own < 0)
        return errno == ENOENT ? 0 : error_set_errno(err, ERR_INTERNAL, "folder of the sandbox");
    if (files_delete_tree(own, "ctl.sock", err) < 0 ||
        files_delete_tree(own, "environment", err) < 0)
        return -1;
    auto_close int disk = openat(own, "disk", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (disk < 0)
        return errno == ENOENT ? 0 : error_set_errno(err, ERR_INTERNAL, "disk of the sandbox");
    /* One that is not attached keeps them until it is. */
    auto_close int trash = openat(disk, "trash", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (trash < 0)
        return errno == ENOENT ? 0 : error_set_errno(err, ERR_INTERNAL, "trash");
    return files_delete_tree(disk, "l", err) < 0 || files_empty(trash, err) < 0 ? -1 : 0;
}

static void teardown_done(void *data, const struct error *result)
{
    struct teardown *teardown = data;
    struct sandbox *box = teardown->box;
    struct error error;

    loop_clear(&teardown->again);
    loop_close_watch(&box->process);
    free(teardown);
    if (result->kind != ERR_NONE) {
        statistics_count(STATISTIC_sandbox_left_over_total, 0);
        LOG(ERROR, "sandbox_left_over", V("sandbox", (const char *)box->id),
            V("reason", (const char *)result->message));
    }
    box->commit[0] = '\0';
    if (box->state == SANDBOX_RUNNING)
        box->state = SANDBOX_STOPPED;
    /* While processes remain the range of ids stays taken. */
    if (result->kind != PROCESSES_REMAIN)
        box->slot = -1;
    box->pid = 0;
    box->boot[0] = '\0';
    box->used_ms = loop_now();
    if (!box->destroyed && sandbox_save(box, &error) < 0)
        LOG(ERROR, "sandbox_state", V("sandbox", (const char *)box->id),
            V("reason", (const char *)error.message));
    lifecycle_settle(box, box->failure.kind != ERR_NONE ? &box->failure : result);
}

static int removal_work(void *data, struct error *err)
{
    struct teardown *teardown = data;

    if (teardown->whole)
        return storage_remove("sandboxes", teardown->folder, err);
    return remove_boot(teardown->folder, err);
}

/* Most sandboxes have changed little: that much is removed at once, the rest in a job. */
static bool removed_at_once(const struct teardown *teardown)
{
    int budget = REMOVED_AT_ONCE;

    if (teardown->whole)
        return files_delete_little(sandbox_folder(), teardown->folder, &budget);
    if (!teardown->box->attached)
        return false;
    auto_close int own =
        openat(sandbox_folder(), teardown->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int disk =
        own < 0 ? -1 : openat(own, "disk", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return disk >= 0 && files_delete_little(own, "ctl.sock", &budget) &&
           files_delete_little(own, "environment", &budget) &&
           files_delete_little(disk, "l", &budget) && files_delete_little(disk, "trash", &budget) &&
           mkdirat(disk, "trash", 0700) == 0;
}

static void remove_rest(struct teardown *teardown);

static void commit_done(void *data, const struct error *result)
{
    struct teardown *teardown = data;

    teardown->box->failure = *result;
    remove_rest(teardown);
}

static void remove_rest(struct teardown *teardown)
{
    static const struct error none;
    struct error error;

    /* All has ended: neither may bring us here again. */
    loop_clear(&teardown->again);
    loop_close_watch(&teardown->box->process);
    if (image_commit_due(teardown->box, commit_done, teardown))
        return;
    if (teardown->whole && storage_remove_begin("sandboxes", teardown->folder, &teardown->box->disk,
                                                teardown_done, teardown))
        return;
    if (removed_at_once(teardown))
        teardown_done(teardown, &none);
    else if (!job_begin("teardown", TEARDOWN_SECONDS, removal_work, teardown_done, teardown,
                        &error))
        teardown_done(teardown, &error);
}

static bool process_is_gone(const struct sandbox *box)
{
    struct pollfd end = {.fd = box->process.fd, .events = POLLIN};

    return end.fd < 0 || poll(&end, 1, 0) > 0;
}

/* Look again whether all has ended, a little later each time. */
static void teardown_again(struct timer *timer)
{
    struct teardown *teardown = OWNER(timer, struct teardown, again);
    struct sandbox *box = teardown->box;
    struct error error;

    cgroup_kill(box->cgroup);
    if (box->process.fd >= 0)
        syscall(SYS_pidfd_send_signal, box->process.fd, SIGKILL, NULL, 0);
    if (process_is_gone(box) && cgroup_remove(box->cgroup)) {
        remove_rest(teardown);
    } else if (loop_now() >= teardown->deadline) {
        error_set(&error, PROCESSES_REMAIN, "processes of the sandbox do not end");
        teardown_done(teardown, &error);
    } else {
        loop_set(timer, teardown->pause_ms, teardown_again);
        if (teardown->pause_ms < KILL_PAUSE_MAX_MS)
            teardown->pause_ms *= 2;
    }
}

/* Init is the last of its pid namespace to end (pid_namespaces(7)). */
static void killed(struct watch *watch, uint32_t events)
{
    struct sandbox *box = OWNER(watch, struct sandbox, process);

    (void)events;
    loop_silence(watch);
    if (cgroup_remove(box->cgroup))
        remove_rest(box->teardown);
}

/* Begin the way down. The sandbox is busy until it is done. */
static void teardown_begin(struct sandbox *box, const char *folder, const char *reason)
{
    struct teardown *teardown = calloc(1, sizeof(*teardown));
    struct error error;
    int process;

    if (!teardown)
        abort();
    box->busy = true;
    box->warm = false;
    box->naming = 0;
    box->teardown = teardown;
    loop_clear(&box->deadline);
    spawn_end(&box->spawning);
    error_set(&error, ERR_CONFLICT, "%s", reason);
    exec_end_all(box, &error);
    *teardown = (struct teardown){.box = box,
                                  .whole = box->destroyed,
                                  .deadline = loop_now() + KILL_MS,
                                  .pause_ms = KILL_PAUSE_MS};
    snprintf(teardown->folder, sizeof(teardown->folder), "%s", folder);
    if (box->state == SANDBOX_RUNNING && box->slot >= 0)
        statistics_oom_kills(box);
    cgroup_signal(box->cgroup); /* teardown_again helps who does not end by that */
    process = loop_release(&box->process);
    if (process < 0 && cgroup_remove(box->cgroup)) {
        remove_rest(teardown);
        return;
    }
    /* Watched anew: it may have been silenced. */
    if (process >= 0 && loop_watch(&box->process, process, EPOLLIN, killed, &error) < 0) {
        LOG(ERROR, "teardown", V("reason", (const char *)error.message));
        close(process);
    } else if (process >= 0) {
        syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
    }
    loop_set(&teardown->again, KILL_PAUSE_MS, teardown_again);
}

/* --- up -------------------------------------------------------------------------------------- */

void lifecycle_failed(struct sandbox *box, const struct error *failure)
{
    box->failure = *failure;
    statistics_count(STATISTIC_sandbox_starts_failed_total, box->way);
    LOG(WARNING, "start_failed", V("sandbox", (const char *)box->id),
        V("reason", (const char *)failure->message));
    if (box->spare) {
        pool_failed();
        lifecycle_discard(box, "a spare did not start");
    } else {
        teardown_begin(box, box->id, "the sandbox did not start");
    }
}

void lifecycle_overdue(struct timer *timer)
{
    struct sandbox *box = OWNER(timer, struct sandbox, deadline);
    struct error error;

    error_set(&error, ERR_TIMEOUT, "the sandbox did not start in time");
    lifecycle_failed(box, &error);
}

static void process_ended(struct watch *watch, uint32_t events)
{
    struct sandbox *box = OWNER(watch, struct sandbox, process);
    struct error error;

    (void)events;
    /* The worker is about to say why. */
    if (box->busy && box->spawning.fd >= 0) {
        loop_silence(watch);
        return;
    }
    if (box->busy) {
        error_set(&error, ERR_INTERNAL, "init ended while the sandbox started");
        lifecycle_failed(box, &error);
        return;
    }
    if (box->spare) {
        lifecycle_discard(box, "a spare ended");
        return;
    }
    LOG(WARNING, "sandbox_ended", V("sandbox", (const char *)box->id),
        V("oom_kills", (long)statistics_oom_kills(box)));
    statistics_count(STATISTIC_sandbox_ended_total, 0);
    exec_end_short_of_memory(box);
    box->failure.kind = ERR_NONE;
    teardown_begin(box, box->id, "the sandbox ended");
}

/* Init answered: the start counts. */
static void init_ready(struct sandbox *box)
{
    loop_clear(&box->deadline);
    if (!box->busy)
        return; /* adopted */
    spawn_end(&box->spawning);
    if (!box->spare) {
        lifecycle_started(box);
        return;
    }
    statistics_observe(STATISTIC_sandbox_start_seconds, START_AHEAD, box->begun);
    box->busy = false;
    pool_ready(box);
}

void lifecycle_started(struct sandbox *box)
{
    struct error error;

    loop_clear(&box->deadline);
    free(box->made);
    box->made = NULL;
    box->state = SANDBOX_RUNNING;
    if (sandbox_save(box, &error) < 0) {
        box->state = SANDBOX_STOPPED;
        lifecycle_failed(box, &error);
        return;
    }
    statistics_observe(STATISTIC_sandbox_start_seconds, box->way, box->begun);
    LOG(INFO, "sandbox_started", V("sandbox", (const char *)box->id), V("slot", (long)box->slot),
        V("pid", box->pid));
    lifecycle_settle(box, NULL);
}

static void process_begun(struct sandbox *box, const struct spawn_report *report, int pidfd)
{
    struct error error;

    loop_set(&box->deadline, START_MS, lifecycle_overdue);
    box->pid = report->pid;
    box->image = report->image;
    sandbox_identify(box, pidfd);
    if (loop_watch(&box->process, pidfd, EPOLLIN, process_ended, &error) < 0) {
        close(pidfd);
        lifecycle_failed(box, &error);
        return;
    }
    /* Init's socket is there already: it answers as soon as it runs. */
    if (exec_connect(box, init_ready, &error) < 0)
        lifecycle_failed(box, &error);
}

static void spawn_ready(struct watch *watch, uint32_t events)
{
    struct sandbox *box = OWNER(watch, struct sandbox, spawning);
    struct spawn_report report;
    struct error error;
    int pidfd = -1, heard = spawn_hear(watch->fd, &report, &pidfd);

    (void)events;
    if (heard == 0)
        return;
    if (heard < 0) {
        error_set(&error, ERR_INTERNAL, "the start was cut off");
        lifecycle_failed(box, &error);
    } else if (report.stage == SPAWN_CLONED && pidfd >= 0 && box->process.fd < 0) {
        process_begun(box, &report, pidfd);
    } else if (report.stage == SPAWN_STARTED) {
        spawn_end(watch);
    } else {
        report.error.message[sizeof(report.error.message) - 1] = '\0';
        report.error.fields = NULL;
        lifecycle_failed(box, &report.error);
    }
}

static int make_boot(char boot[BOOT_LENGTH + 1], struct error *err)
{
    uint64_t random[2];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return error_set_errno(err, ERR_INTERNAL, "boot id");
    /* A UUID of version 4 (RFC 9562). */
    snprintf(boot, BOOT_LENGTH + 1, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(random[0] >> 32),
             (unsigned)(random[0] >> 16) & 0xffff, (unsigned)random[0] & 0xfff,
             (unsigned)(random[1] >> 48 & 0x3fff) | 0x8000,
             (unsigned long long)(random[1] & 0xffffffffffff));
    return 0;
}

static struct timer spare_cgroup;
static struct limits latest_limits;

static void make_spare_cgroup(struct timer *timer)
{
    (void)timer;
    cgroup_make_spare(&latest_limits);
}

int lifecycle_begin(struct sandbox *box, struct spawn_request *request, struct error *err)
{
    int reports;

    request->task = SPAWN_START;
    request->slot = sandbox_free_slot();
    if (request->slot < 0) {
        error_set(err, ERR_UNAVAILABLE, "all %lld sandboxes are in use",
                  (long long)settings.sandboxes_max);
        err->retry_after_s = 1;
        return -1;
    }
    if (make_boot(box->boot, err) < 0)
        return -1;
    snprintf(request->sandbox, sizeof(request->sandbox), "%s", box->id);
    snprintf(request->cgroup, sizeof(request->cgroup), "%s", box->id);
    request->cgroup_is_ready =
        cgroup_take_spare(request->cgroup, sizeof(request->cgroup), &request->limits);
    latest_limits = request->limits;
    loop_set(&spare_cgroup, SPARE_MS, make_spare_cgroup);
    snprintf(box->cgroup, sizeof(box->cgroup), "%s", request->cgroup);
    reports = spawn_begin(request, -1, err);
    if (reports < 0)
        return -1;
    if (loop_watch(&box->spawning, reports, EPOLLIN, spawn_ready, err) < 0) {
        spawn_forget(reports);
        return -1;
    }
    box->slot = request->slot;
    box->image = 0; /* until it is known which */
    box->busy = true;
    box->way = box->spare ? START_AHEAD : START_COLD;
    box->begun = statistics_now();
    box->oom_kills = 0;
    box->failure = (struct error){0};
    loop_set(&box->deadline, QUEUE_MS, lifecycle_overdue); /* others may be before it */
    return 0;
}

/* Zeroed first: pool.c compares bytes. */
static int describe(const struct start *body, struct spawn_request *request, struct error *err)
{
    memset(request, 0, sizeof(*request));
    request->egress = body->network && strcmp(body->network, "egress") == 0;
    snprintf(request->image, sizeof(request->image), "%s", body->image);
    snprintf(request->hostname, sizeof(request->hostname), "%s", body->hostname);
    return limits_of(body, &request->limits, err);
}

/* What was promised counts, as with disks. Spares are not promised to anybody. */
static int check_memory(struct sandbox *box, const struct spawn_request *wanted, struct error *err)
{
    int64_t total = wanted->limits.memory_bytes;

    box->memory_bytes = total;
    if (!settings.memory_total_mb)
        return 0;
    for (struct sandbox *other = sandbox_first(); other; other = other->next)
        total += other == box || other->slot < 0 || other->spare || other->warm
                     ? 0
                     : other->memory_bytes;
    if (total <= settings.memory_total_mb << 20)
        return 0;
    error_set(err, ERR_UNAVAILABLE,
              "the memory of all sandboxes would be more than the %lld MiB of MEMORY_TOTAL_MB",
              (long long)settings.memory_total_mb);
    err->retry_after_s = RETRY_AFTER_S;
    return -1;
}

int operation_start(struct request *request, struct error *err)
{
    struct sandbox *box = request->box;
    struct spawn_request wanted;
    int begun;

    if (describe(request->body, &wanted, err) < 0 || check_memory(box, &wanted, err) < 0)
        return -1;
    if (wanted.egress && !settings.egress)
        return error_set(err, ERR_CONFLICT,
                         "sandboxes have no network on this machine: EGRESS is off");
    pool_learn(&wanted);
    if (box->warm && !pool_fits(box, &wanted)) {
        /* When its idle init is gone, the request has its turn again: a cold start. */
        snprintf(request->connection->waits_for, sizeof(request->connection->waits_for), "%s",
                 box->id);
        box->asker = NULL;
        box->failure = (struct error){0};
        teardown_begin(box, box->id, "it is started otherwise");
        return 0;
    }
    box->failure = (struct error){0};
    box->asker = request->connection; /* who may have the answer at once */
    begun = box->warm ? pool_claim(box, &wanted, err) : lifecycle_begin(box, &wanted, err);
    if (begun < 0)
        box->asker = NULL;
    return begun;
}

/* --- the other messages ---------------------------------------------------------------------- */

int operation_stop(struct request *request, struct error *err)
{
    struct sandbox *box = request->box;

    (void)err;
    if (box->state != SANDBOX_RUNNING) {
        connection_answer(request->connection, &schema_nothing, &no_body, -1);
        return 0;
    }
    box->asker = request->connection;
    box->failure = (struct error){0};
    teardown_begin(box, box->id, "the sandbox was stopped");
    return 0;
}

int operation_image_commit(struct request *request, struct error *err)
{
    const struct image_commit *body = request->body;
    struct sandbox *box = request->box;

    if (image_commit_check(box, body->image, err) < 0)
        return -1;
    snprintf(box->commit, sizeof(box->commit), "%s", body->image);
    box->asker = request->connection;
    box->failure = (struct error){0};
    teardown_begin(box, box->id, "an image is made of the sandbox");
    return 0;
}

/* From here on it is absent, also to the next supervisor. */
static int remove_begin(struct sandbox *box, const char *reason, struct error *err)
{
    static unsigned serial;
    char gone[SANDBOX_ID_LENGTH + 8];

    snprintf(gone, sizeof(gone), ".%u-%s", serial++ % 100000, box->id);
    if (renameat(sandbox_folder(), box->id, sandbox_folder(), gone) < 0 && errno != ENOENT)
        return error_set_errno(err, ERR_INTERNAL, "destroy");
    box->destroyed = true;
    box->failure = (struct error){0};
    teardown_begin(box, gone, reason);
    return 0;
}

void lifecycle_discard(struct sandbox *box, const char *reason)
{
    struct error error;

    box->asker = NULL;
    if (remove_begin(box, reason, &error) < 0)
        LOG(ERROR, "sandbox_left_over", V("sandbox", (const char *)box->id),
            V("reason", (const char *)error.message));
}

int operation_destroy(struct request *request, struct error *err)
{
    struct sandbox *box = request->box;
    struct connection *connection = request->connection;

    if (!box) {
        connection_answer(connection, &schema_nothing, &no_body, -1);
        return 0;
    }
    box->asker = connection;
    if (remove_begin(box, "the sandbox was destroyed", err) == 0)
        return 0;
    box->asker = NULL;
    return -1;
}

int operation_status(struct request *request, struct error *err)
{
    const struct sandbox *box = request->box;
    struct sandbox_status status = {.state = box ? (int64_t)box->state : SANDBOX_ABSENT};

    (void)err;
    if (box && box->state == SANDBOX_RUNNING && box->boot[0])
        status.boot = box->boot;
    connection_answer(request->connection, &schema_sandbox_status, &status, -1);
    return 0;
}

/* --- after a crash --------------------------------------------------------------------------- */

static int adopted, ended;

static void adopt_overdue(struct timer *timer)
{
    struct sandbox *box = OWNER(timer, struct sandbox, deadline);

    LOG(ERROR, "init_lost", V("sandbox", (const char *)box->id),
        V("reason", "does not answer a new supervisor"));
    teardown_begin(box, box->id, "the sandbox ended");
}

static void adopt(struct sandbox *box, int pidfd)
{
    struct error error;

    /* An earlier supervisor may have ended while it made a snapshot. */
    if (pidfd >= 0 && cgroup_freeze(box->cgroup, false, &error) < 0)
        LOG(WARNING, "thaw", V("sandbox", (const char *)box->id),
            V("reason", (const char *)error.message));
    if (pidfd >= 0 && loop_watch(&box->process, pidfd, EPOLLIN, process_ended, &error) < 0)
        close(pidfd);
    if (box->process.fd >= 0 && exec_connect(box, init_ready, &error) == 0) {
        loop_set(&box->deadline, ADOPT_MS, adopt_overdue);
        adopted++;
        statistics_count(STATISTIC_sandbox_recovered_total, RECOVERED_ADOPTED);
        return;
    }
    ended++;
    statistics_count(STATISTIC_sandbox_recovered_total, RECOVERED_ENDED);
    box->failure.kind = ERR_NONE;
    teardown_begin(box, box->id, "the sandbox ended");
}

static void sweep_folder(const char *name)
{
    struct error error;

    statistics_count(STATISTIC_sandbox_recovered_total, RECOVERED_FOLDER);
    /* Its processes, if there are any, are in cgroups that nobody claims. */
    if (storage_remove("sandboxes", name, &error) < 0)
        LOG(ERROR, "sweep", V("folder", name), V("reason", (const char *)error.message));
}

static bool is_claimed(const char *cgroup)
{
    for (struct sandbox *box = sandbox_first(); box; box = box->next)
        if (box->slot >= 0 && strcmp(box->cgroup, cgroup) == 0)
            return true;
    return false;
}

static void sweep_cgroup(const char *name, void *data)
{
    (void)data;
    if (is_claimed(name))
        return;
    statistics_count(STATISTIC_sandbox_recovered_total, RECOVERED_CGROUP);
    if (!lifecycle_kill(name, -1))
        LOG(ERROR, "sweep", V("cgroup", name), V("reason", "processes do not end"));
}

/* A start that was cut short leaves layers in the folder of a sandbox that never ran; the next
 * start needs their place. */
static void sweep_layers(void)
{
    struct error error;

    for (struct sandbox *box = sandbox_first(); box; box = box->next)
        if (box->slot < 0 && remove_boot(box->id, &error) < 0)
            LOG(ERROR, "sweep", V("sandbox", (const char *)box->id),
                V("reason", (const char *)error.message));
}

void lifecycle_recover(void)
{
    sandbox_load(adopt, sweep_folder);
    cgroup_each(sweep_cgroup, NULL);
    sweep_layers();
    image_commit_sweep();
    LOG(INFO, "recovered", V("adopted", adopted), V("ended", ended),
        V("known", (unsigned long)sandbox_count()));
}

void lifecycle_stop_all(void)
{
    struct error error;

    for (struct sandbox *box = sandbox_first(); box; box = box->next)
        if (box->slot >= 0)
            cgroup_kill(box->cgroup);
    for (struct sandbox *box = sandbox_first(); box; box = box->next) {
        if (box->slot < 0)
            continue;
        if (!lifecycle_kill(box->cgroup, box->process.fd) || remove_boot(box->id, &error) < 0) {
            LOG(ERROR, "sandbox_left_over", V("sandbox", (const char *)box->id));
            continue;
        }
        if (box->state == SANDBOX_RUNNING)
            box->state = SANDBOX_STOPPED;
        box->slot = -1;
        box->boot[0] = '\0';
        if (!box->destroyed && sandbox_save(box, &error) < 0)
            LOG(ERROR, "sandbox_state", V("sandbox", (const char *)box->id),
                V("reason", (const char *)error.message));
    }
    sandbox_load(NULL, sweep_folder);
}
