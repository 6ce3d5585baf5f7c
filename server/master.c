/* The master: see master.h.
 *
 * Every process has a slot. In it are the process that serves now and, while it is being replaced,
 * its successor; who was told to leave waits outside the slots until it has ended. */
#include "server/master.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/notify.h"
#include "common/scope.h"
#include "run/runner.h"
#include "server/listener.h"
#include "server/metrics.h"
#include "server/role.h"
#include "server/settings.h"
#include "server/streamer.h"
#include "server/worker.h"

enum {
    BACKOFF_FIRST_MS = 100,
    BACKOFF_LAST_MS = 5 * 1000,
    LIVED_MS = 10 * 1000, /* who lived so long starts its back-off anew */
    READY_MS = 30 * 1000, /* a successor that is not ready by then is given up */
    GRACE_MS = 1000,      /* beyond drain_seconds, which the processes know themselves */
    DESCRIPTORS_MAX = 1 << 20,
};

/* The order of a replacement: who serves the others goes last. */
enum { ROLE_WORKER, ROLE_STREAMER, ROLE_RUNNER, ROLES };

static const struct role roles[ROLES] = {
    [ROLE_WORKER] = {"worker", worker_run, true},
    [ROLE_STREAMER] = {"streamer", streamer_run, true},
    [ROLE_RUNNER] = {"runner", runner_run, false},
};

struct child {
    const struct role *role;
    pid_t pid;
    int ready_fd; /* -1: it has told, or need not */
    int64_t started_ms;
    int64_t kill_ms;    /* leaving: when it is killed; 0: it is not leaving */
    struct child *next; /* among those that leave */
};

struct slot {
    const struct role *role;
    struct child *current, *successor;
    int64_t start_ms; /* without current: when the next is started */
    int64_t backoff_ms;
};

static struct {
    pid_t pid;
    int signals;
    struct slot *slots;
    size_t slot_count;
    struct child *leaving;
    int64_t watchdog_ms;
    bool announced; /* READY=1 was sent */
    bool replacing;
    size_t replaced;    /* slots done */
    bool replace_again; /* SIGHUP came meanwhile */
    int stops;          /* signals that asked to end */
} master;

static void count_role(enum metric metric, const struct role *role)
{
    counter_add(metric, (int[]){counter_label(metric, 0, role->name)}, 1);
}

/* --- processes ------------------------------------------------------------------------------- */

/* In the new process: what belongs to the master alone, or to the workers. */
static void leave_master(const struct role *role)
{
    close(master.signals);
    if (role != &roles[ROLE_WORKER])
        listener_close();
    for (size_t i = 0; i < master.slot_count; i++) {
        const struct slot *slot = &master.slots[i];

        if (slot->current && slot->current->ready_fd >= 0)
            close(slot->current->ready_fd);
        if (slot->successor && slot->successor->ready_fd >= 0)
            close(slot->successor->ready_fd);
    }
}

/* NULL when the system has no room; the caller tries again later. */
static struct child *child_start(const struct role *role)
{
    struct child *child = calloc(1, sizeof(*child));
    int ready[2];
    pid_t pid;

    if (!child)
        abort();
    if (pipe2(ready, O_CLOEXEC | O_NONBLOCK) < 0) {
        LOG(ERROR, "process_not_started", V("role", role->name), V("errno", errno));
        free(child);
        return NULL;
    }
    pid = fork();
    if (pid == 0) {
        free(child);
        close(ready[0]);
        leave_master(role);
        counters_enter();
        role_main(role, master.pid, ready[1]);
    }
    close(ready[1]);
    if (pid < 0) {
        LOG(ERROR, "process_not_started", V("role", role->name), V("errno", errno));
        close(ready[0]);
        free(child);
        return NULL;
    }
    *child =
        (struct child){.role = role, .pid = pid, .ready_fd = ready[0], .started_ms = clock_ms()};
    if (!role->tells_ready) {
        close(child->ready_fd);
        child->ready_fd = -1;
    }
    count_role(METRIC_process_starts_total, role);
    LOG(INFO, "process_started", V("role", role->name), V("child", pid));
    return child;
}

static void child_free(struct child *child)
{
    if (child->ready_fd >= 0)
        close(child->ready_fd);
    free(child);
}

/* Tell it to finish, within the time it has. */
static void child_dismiss(struct child *child, int number)
{
    kill(child->pid, number);
    child->kill_ms = clock_ms() + settings.drain_seconds * 1000 + GRACE_MS;
    child->next = master.leaving;
    master.leaving = child;
}

/* Whether it serves. */
static bool child_ready(struct child *child)
{
    char byte;
    ssize_t got;

    if (child->ready_fd < 0)
        return true;
    got = read(child->ready_fd, &byte, 1);
    /* The end without a byte is that of the process, which waitpid will tell. */
    if (got != 1)
        return false;
    close(child->ready_fd);
    child->ready_fd = -1;
    return true;
}

/* --- replacement ----------------------------------------------------------------------------- */

static void announce_reload(void)
{
    struct timespec time;
    char state[96];

    /* Both lines, as sd_notify(3) asks of Type=notify-reload. */
    clock_gettime(CLOCK_MONOTONIC, &time);
    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
             (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000);
    notify_send(state);
}

static void replace_begin(void)
{
    master.replacing = true;
    master.replaced = 0;
    announce_reload();
    LOG(INFO, "reload_begins");
}

static void replace_end(const char *outcome)
{
    master.replacing = false;
    notify_send("READY=1");
    LOG(INFO, "reload_ended", V("outcome", outcome));
    if (master.replace_again) {
        master.replace_again = false;
        replace_begin();
    }
}

/* The successor that can't serve goes; who serves now stays. */
static void replace_abandon(struct slot *slot)
{
    struct child *successor = slot->successor;

    slot->successor = NULL;
    if (successor)
        child_dismiss(successor, SIGKILL);
    LOG(ERROR, "reload_failed", V("role", slot->role->name));
    replace_end("failed");
}

/* One step of the replacement, if it is due: start the successor, then, once it serves, let the old
 * one finish. */
static void replace_step(void)
{
    struct slot *slot = &master.slots[master.replaced];

    if (!slot->current && !slot->successor) {
        /* It has died, and what is started anew is new anyway. */
        master.replaced++;
    } else if (!slot->successor) {
        slot->successor = child_start(slot->role);
        if (!slot->successor)
            replace_abandon(slot);
    } else if (child_ready(slot->successor)) {
        if (slot->current)
            child_dismiss(slot->current, SIGHUP);
        slot->current = slot->successor;
        slot->successor = NULL;
        master.replaced++;
    } else if (clock_ms() - slot->successor->started_ms > READY_MS) {
        replace_abandon(slot);
    } else {
        return;
    }
    if (master.replacing && master.replaced == master.slot_count)
        replace_end("done");
}

/* --- what happens ---------------------------------------------------------------------------- */

static void log_death(const struct child *child, int status, bool asked)
{
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    log_write(asked ? LOG_INFO : LOG_WARNING, asked ? "process_ended" : "process_died",
              (const struct log_value[]){
                  V("role", child->role->name), V("child", child->pid),
                  V("exit_code", WIFEXITED(status) ? WEXITSTATUS(status) : -1), V("signal", number),
                  V("lived_ms", clock_ms() - child->started_ms)},
              5);
}

static bool reap_leaving(pid_t pid, int status)
{
    for (struct child **at = &master.leaving; *at; at = &(*at)->next) {
        struct child *child = *at;

        if (child->pid != pid)
            continue;
        *at = child->next;
        log_death(child, status, true);
        child_free(child);
        return true;
    }
    return false;
}

static void reap_serving(pid_t pid, int status)
{
    for (size_t i = 0; i < master.slot_count; i++) {
        struct slot *slot = &master.slots[i];
        struct child *child = slot->current;

        if (slot->successor && slot->successor->pid == pid) {
            log_death(slot->successor, status, false);
            count_role(METRIC_process_deaths_total, slot->role);
            child_free(slot->successor);
            slot->successor = NULL;
            replace_abandon(slot);
            return;
        }
        if (!child || child->pid != pid)
            continue;
        log_death(child, status, false);
        count_role(METRIC_process_deaths_total, slot->role);
        if (!slot->backoff_ms || clock_ms() - child->started_ms >= LIVED_MS)
            slot->backoff_ms = BACKOFF_FIRST_MS;
        slot->start_ms = clock_ms() + slot->backoff_ms;
        slot->backoff_ms =
            slot->backoff_ms * 2 < BACKOFF_LAST_MS ? slot->backoff_ms * 2 : BACKOFF_LAST_MS;
        slot->current = NULL;
        child_free(child);
        return;
    }
}

static void reap(void)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        counters_leave(pid);
        if (!reap_leaving(pid, status))
            reap_serving(pid, status);
    }
}

static void stop_begin(void)
{
    master.replacing = false;
    notify_send("STOPPING=1");
    LOG(INFO, "server_stops");
    /* The workers close it, too: who comes now is refused rather than kept waiting. */
    listener_close();
    for (size_t i = 0; i < master.slot_count; i++) {
        struct slot *slot = &master.slots[i];

        if (slot->current)
            child_dismiss(slot->current, SIGTERM);
        if (slot->successor)
            child_dismiss(slot->successor, SIGTERM);
        slot->current = slot->successor = NULL;
    }
    /* Those that a replacement had told to take their time have less now. */
    for (struct child *child = master.leaving; child; child = child->next)
        kill(child->pid, SIGTERM);
}

static void on_signal(const struct signalfd_siginfo *info)
{
    switch (info->ssi_signo) {
    case SIGCHLD:
        reap();
        break;
    case SIGHUP:
        if (master.stops)
            break;
        if (master.replacing)
            master.replace_again = true;
        else
            replace_begin();
        break;
    default:
        if (master.stops++ == 0)
            stop_begin();
        else
            for (const struct child *child = master.leaving; child; child = child->next)
                kill(child->pid, SIGKILL);
        break;
    }
}

/* --- the loop -------------------------------------------------------------------------------- */

static void start_missing(void)
{
    for (size_t i = 0; i < master.slot_count; i++) {
        struct slot *slot = &master.slots[i];

        if (slot->current || clock_ms() < slot->start_ms)
            continue;
        slot->current = child_start(slot->role);
        if (!slot->current)
            slot->start_ms = clock_ms() + BACKOFF_LAST_MS;
    }
}

/* See who serves; once all did, tell. */
static void look_at_ready(void)
{
    bool all = true;

    for (size_t i = 0; i < master.slot_count; i++)
        all &= master.slots[i].current && child_ready(master.slots[i].current);
    if (!all || master.announced)
        return;
    master.announced = true;
    notify_send("READY=1");
    LOG(INFO, "server_ready", V("address", listener_name()),
        V("processes", (long)master.slot_count));
}

static void kill_late(void)
{
    for (struct child *child = master.leaving; child; child = child->next) {
        if (clock_ms() < child->kill_ms)
            continue;
        LOG(WARNING, "process_killed", V("role", child->role->name), V("child", child->pid));
        kill(child->pid, SIGKILL);
        child->kill_ms = clock_ms() + 1000;
    }
}

static void earlier(int64_t *next_ms, int64_t at_ms)
{
    if (at_ms < *next_ms)
        *next_ms = at_ms;
}

/* When there is something to do, if nothing happens before. */
static int wait_ms(int64_t watchdog_next_ms)
{
    int64_t next_ms = clock_ms() + 3600 * 1000;

    if (master.watchdog_ms)
        earlier(&next_ms, watchdog_next_ms);
    for (size_t i = 0; i < master.slot_count && !master.stops; i++) {
        const struct slot *slot = &master.slots[i];

        if (!slot->current)
            earlier(&next_ms, slot->start_ms);
        /* Readiness is asked for: it comes within moments, and rarely. */
        if ((slot->current && slot->current->ready_fd >= 0) || slot->successor)
            earlier(&next_ms, clock_ms() + 20);
    }
    for (const struct child *child = master.leaving; child; child = child->next)
        earlier(&next_ms, child->kill_ms);
    if (master.replacing)
        earlier(&next_ms, clock_ms() + 20);
    return next_ms > clock_ms() ? (int)(next_ms - clock_ms()) : 0;
}

static int open_signals(struct error *err)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < COUNT(numbers); i++)
        sigaddset(&set, numbers[i]);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return error_set_errno(err, ERR_INTERNAL, "sigprocmask");
    master.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (master.signals < 0)
        return error_set_errno(err, ERR_INTERNAL, "signalfd");
    return 0;
}

static void open_slots(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t counts[ROLES] = {
        [ROLE_WORKER] = (size_t)(settings.workers ? settings.workers
                                 : cores > 0      ? cores
                                                  : 1),
        [ROLE_STREAMER] = 1,
        [ROLE_RUNNER] = (size_t)settings.runners,
    };

    for (size_t role = 0; role < ROLES; role++)
        master.slot_count += counts[role];
    master.slots = calloc(master.slot_count, sizeof(*master.slots));
    if (!master.slots)
        abort();
    for (size_t role = 0, slot = 0; role < ROLES; role++)
        for (size_t i = 0; i < counts[role]; i++)
            master.slots[slot++].role = &roles[role];
}

/* A connection costs a descriptor, and the usual soft limit is 1024. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS_MAX ? limit.rlim_max : DESCRIPTORS_MAX;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        LOG(WARNING, "descriptors_not_raised", V("errno", errno));
}

int master_run(struct error *err)
{
    int64_t watchdog_next_ms;

    master.pid = getpid();
    raise_descriptors();
    if (open_signals(err) < 0)
        return -1;
    open_slots();
    master.watchdog_ms = notify_watchdog_ms();
    watchdog_next_ms = clock_ms() + master.watchdog_ms;
    while (!master.stops || master.leaving) {
        struct pollfd events = {.fd = master.signals, .events = POLLIN};
        struct signalfd_siginfo info;

        if (!master.stops)
            start_missing();
        if (!master.stops)
            look_at_ready();
        if (!master.stops && master.replacing)
            replace_step();
        kill_late();
        if (master.watchdog_ms && clock_ms() >= watchdog_next_ms) {
            notify_send("WATCHDOG=1");
            watchdog_next_ms = clock_ms() + master.watchdog_ms;
        }
        poll(&events, 1, wait_ms(watchdog_next_ms));
        while (read(master.signals, &info, sizeof(info)) == sizeof(info))
            on_signal(&info);
    }
    LOG(INFO, "server_stopped");
    free(master.slots);
    return 0;
}
