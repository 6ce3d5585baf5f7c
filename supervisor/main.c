/* The supervisor: one socket for the server, one loop, and a spawner beside it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/log.h"
#include "common/notify.h"
#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/cgroup.h"
#include "supervisor/config.h"
#include "supervisor/connection.h"
#include "supervisor/create.h"
#include "supervisor/host.h"
#include "supervisor/job.h"
#include "supervisor/lifecycle.h"
#include "supervisor/loop.h"
#include "supervisor/network_dns.h"
#include "supervisor/network_pool.h"
#include "supervisor/pool.h"
#include "supervisor/ports.h"
#include "supervisor/pressure.h"
#include "supervisor/sandbox.h"
#include "supervisor/selftest.h"
#include "supervisor/snapshots.h"
#include "supervisor/spawn.h"
#include "supervisor/statistics.h"
#include "supervisor/storage.h"
#include "supervisor/storekeeper.h"

enum { SYSTEMD_FIRST = 3, BACKLOG = 128, SETTLE_MS = 5000 };

static bool stopping;
static bool spawner_died; /* then the sandboxes run on, whatever STOP_ON_EXIT says */
static bool socket_is_ours;
static int spare; /* descriptor */
static struct watch listening, signals;
static struct timer watchdog;

/* --- the socket ------------------------------------------------------------------------------ */

static void accept_peer(struct watch *watch, uint32_t events)
{
    int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)events;
    if (fd >= 0) {
        connection_accept(fd);
    } else if (errno == EMFILE || errno == ENFILE) {
        /* Not left in the queue, where it would wake us for ever: refused, with the one that was
         * kept for this. */
        LOG(ERROR, "accept", V("reason", "no descriptors are left"));
        close(spare);
        fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            close(fd);
        spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
}

/* The one that systemd opened, or -1. */
static int inherited_socket(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");

    if (!pid || !count || strtol(pid, NULL, 10) != getpid() || strcmp(count, "1") != 0)
        return -1;
    fcntl(SYSTEMD_FIRST, F_SETFD, FD_CLOEXEC);
    fcntl(SYSTEMD_FIRST, F_SETFL, O_NONBLOCK);
    return SYSTEMD_FIRST;
}

/* The folder of the socket: only root and the server's group reach into it. One that exists is left
 * as it is. */
static int make_socket_folder(const char *path, struct error *err)
{
    char folder[PATH_MAX];
    char *slash;

    snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return 0;
    *slash = '\0';
    if (mkdir(folder, 0750) < 0)
        return errno == EEXIST ? 0 : error_set_errno(err, ERR_INTERNAL, "mkdir %s", folder);
    if (chown(folder, 0, (gid_t)settings.server_gid) < 0)
        return error_set_errno(err, ERR_INTERNAL, "chown %s", folder);
    return 0;
}

static int open_socket(struct error *err)
{
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(settings.socket_path);
    mode_t mask;
    int bound;

    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "socket");
    if (length == 0 || length >= sizeof(address.sun_path))
        return error_set(err, ERR_INVALID,
                         "SUPERVISOR_SOCKET must be a path of less than %zu bytes",
                         sizeof(address.sun_path));
    memcpy(address.sun_path, settings.socket_path, length);
    if (make_socket_folder(settings.socket_path, err) < 0)
        return -1;
    /* What an earlier one left: the lock on the state folder says that it is gone. */
    unlink(settings.socket_path);
    mask = umask(0777);
    bound = bind(fd, (struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (bound < 0)
        return error_set_errno(err, ERR_INTERNAL, "bind %s", settings.socket_path);
    socket_is_ours = true;
    if (chown(settings.socket_path, 0, (gid_t)settings.server_gid) < 0 ||
        chmod(settings.socket_path, 0660) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", settings.socket_path);
    if (listen(fd, BACKLOG) < 0)
        return error_set_errno(err, ERR_INTERNAL, "listen");
    return take_fd(&fd);
}

static int listen_to_peers(struct error *err)
{
    int fd = inherited_socket();

    if (fd < 0)
        fd = open_socket(err);
    if (fd < 0)
        return -1;
    spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return loop_watch(&listening, fd, EPOLLIN, accept_peer, err);
}

/* --- signals --------------------------------------------------------------------------------- */

static void reap(void)
{
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        job_reaped(pid);
        const char *lost = pid == spawn_pid()                                 ? "spawner_died"
                           : pid == ports_pid()                               ? "ports_died"
                           : pid == storekeeper_pid()                         ? "storekeeper_died"
                           : pid == network_pid() || pid == network_dns_pid() ? "network_died"
                                                                              : NULL;

        if (lost) {
            /* Without it little can be done; the next supervisor takes over what runs. */
            log_write(LOG_ERROR, lost, NULL, 0);
            spawner_died = stopping = true;
        }
    }
}

static void hear_signal(struct watch *watch, uint32_t events)
{
    struct signalfd_siginfo info;

    (void)events;
    while (read(watch->fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            reap();
        else if (info.ssi_signo != SIGHUP)
            stopping = true;
    }
}

static int watch_signals(struct error *err)
{
    sigset_t set;
    int fd;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    for (size_t i = 0; i < 4; i++)
        sigaddset(&set, (const int[]){SIGINT, SIGTERM, SIGHUP, SIGCHLD}[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return error_set_errno(err, ERR_INTERNAL, "signals");
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "signalfd");
    return loop_watch(&signals, fd, EPOLLIN, hear_signal, err);
}

static void feed_watchdog(struct timer *timer)
{
    notify_send("WATCHDOG=1");
    loop_set(timer, notify_watchdog_ms(), feed_watchdog);
}

/* --- start and end --------------------------------------------------------------------------- */

/* Each sandbox costs a few descriptors. */
static void raise_limits(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* Where it cannot be raised, there is no crash handler: config.c saw to that. */
static void raise_core_limit(void)
{
    struct rlimit core;

    if (getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0) {
        core.rlim_max = 1;
        setrlimit(RLIMIT_CORE, &core);
    }
}

static int start(struct error *err)
{
    umask(022);
    raise_limits();
    host_raise_tables();
    raise_core_limit();
    if (sandbox_open(err) < 0 || cgroup_open(settings.state, settings.cgroups_required, err) < 0)
        return -1;
    /* Inits fall to this process when their worker ends. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "subreaper");
    if (network_open(err) < 0 || spawn_open(sandbox_folder(), err) < 0 || ports_open(err) < 0 ||
        storage_enter(err) < 0 || capabilities_keep_main(err) < 0 || loop_open(err) < 0 ||
        watch_signals(err) < 0 || ports_watch(err) < 0 || storage_watch(err) < 0)
        return -1;
    statistics_open();
    lifecycle_recover();
    if (snapshots_open(err) < 0 || selftest_run(err) < 0 || storage_spares_open(err) < 0)
        return -1;
    create_open();
    pressure_watch();
    return listen_to_peers(err);
}

static void stop(void)
{
    notify_send("STOPPING=1");
    connection_close_all();
    spawn_close(); /* nothing new */
    storekeeper_settle(SETTLE_MS);
    pool_close();
    cgroup_remove_spare();
    ports_close();
    network_close(settings.stop_on_exit && !spawner_died);
    if (settings.stop_on_exit && !spawner_died)
        lifecycle_stop_all();
    storage_close();
    cgroup_close(settings.state); /* which leaves those that are in use */
    if (socket_is_ours)
        unlink(settings.socket_path);
    LOG(INFO, "supervisor_stopped", V("sandboxes_stopped", settings.stop_on_exit && !spawner_died));
}

/* --- the command line ------------------------------------------------------------------------ */

static void usage(void)
{
    printf("sandbox-supervisor [--check-config | --help]\n\n"
           "Makes, feeds and removes sandboxes for sandbox-server. Started as root.\n"
           "--check-config prints every reason why it would not start, and ends.\n"
           "Settings, from the environment:\n\n");
    config_help(stdout);
}

static int report(void)
{
    struct refusals refusals = {.out = stderr};

    config_check(&refusals);
    if (refusals.count)
        return EX_CONFIG;
    puts("The settings are fine.");
    return EXIT_SUCCESS;
}

static int run_command(const char *name)
{
    if (strcmp(name, "--check-config") == 0)
        return report();
    if (strcmp(name, "--help") == 0)
        usage();
    else if (strcmp(name, "--settings-manual") == 0) /* for supervisor.8 */
        config_manual(stdout);
    else
        return -1;
    return EXIT_SUCCESS;
}

static int load(struct error *err)
{
    struct refusals refusals = {0};

    config_check(&refusals);
    if (refusals_result(&refusals, err) < 0)
        return -1;
    log_init("supervisor", (enum log_level)log_level_of(settings.log_level));
    return 0;
}

static int fail(int status, const struct error *err)
{
    LOG(ERROR, "supervisor_failed", V("reason", (const char *)err->message));
    cgroup_close(settings.state);
    return status;
}

int main(int argc, char **argv)
{
    struct error error;

    if (argc > 1) {
        int status = argc == 2 ? run_command(argv[1]) : -1;

        if (status < 0)
            fprintf(stderr,
                    "sandbox-supervisor: unknown argument '%s'; --help lists the settings\n",
                    argv[argc - 1]);
        return status < 0 ? EX_USAGE : status;
    }
    log_init("supervisor", LOG_INFO);
    if (load(&error) < 0)
        return fail(EX_CONFIG, &error);
    if (start(&error) < 0)
        return fail(EXIT_FAILURE, &error);
    LOG(INFO, "supervisor_ready", V("socket", settings.socket_path),
        V("cgroups", cgroup_describe()), V("storage", storage_describe()));
    notify_send("READY=1");
    if (notify_watchdog_ms() > 0)
        feed_watchdog(&watchdog);
    loop_run(&stopping);
    stop();
    return spawner_died;
}
