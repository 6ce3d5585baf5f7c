/* The supervisor: one socket for the server, one loop, and a spawner beside it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
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
#include <unistd.h>

#include "common/log.h"
#include "common/notify.h"
#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/cgroup.h"
#include "supervisor/connection.h"
#include "supervisor/host.h"
#include "supervisor/job.h"
#include "supervisor/lifecycle.h"
#include "supervisor/loop.h"
#include "supervisor/sandbox.h"
#include "supervisor/selftest.h"
#include "supervisor/spawn.h"

enum { SYSTEMD_FIRST = 3, BACKLOG = 128, FIRST_RESERVED_ID = 65534 };

static const struct setting table[] = {
#define SETTING(type, member, variable, fallback, min, max, about)                          \
    {variable, SETTING_##type, offsetof(struct supervisor_settings, member), fallback, min, \
     max,      about},
#include "supervisor/settings.def"
#undef SETTING
};

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
        if (pid == spawn_pid()) {
            /* Without it nothing can start; the next supervisor takes over what runs. */
            LOG(ERROR, "spawner_died");
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

/* The file is read as it is: what getpwnam(3) would load and ask is not for a privileged program.
 */
static int find_server_user(struct error *err)
{
    auto_fclose FILE *file = fopen("/etc/passwd", "re");
    const struct passwd *entry;

    if (!settings.server_user[0])
        return 0;
    while (file && (entry = fgetpwent(file))) {
        if (strcmp(entry->pw_name, settings.server_user) != 0)
            continue;
        settings.server_uid = entry->pw_uid;
        settings.server_gid = entry->pw_gid;
        return 0;
    }
    return error_set(err, ERR_INVALID, "SERVER_USER: /etc/passwd has no '%s'",
                     settings.server_user);
}

static int check_paths(struct error *err)
{
    if (settings.cgroup_parent[0] &&
        (settings.cgroup_parent[0] != '/' || strstr(settings.cgroup_parent, "/..")))
        return error_set(err, ERR_INVALID,
                         "CGROUP_PARENT must be a path that starts with / and has no ..");
    return 0;
}

static int check_settings(struct error *err)
{
    int64_t last = settings.id_base + (settings.sandboxes_max + 1) * ID_RANGE;
    int level = log_level_of(settings.log_level);

    if (level < 0)
        return error_set(err, ERR_INVALID, "LOG_LEVEL must be debug, info, warning or error");
    if (last > UINT32_MAX)
        return error_set(err, ERR_INVALID, "ID_BASE and SANDBOXES_MAX need ids beyond 2^32");
    if (settings.id_base <= FIRST_RESERVED_ID ||
        (settings.server_uid >= settings.id_base && settings.server_uid < last))
        return error_set(err, ERR_INVALID,
                         "ID_BASE: the ranges of the sandboxes overlap with other users");
    if (geteuid() != 0)
        return error_set(err, ERR_FORBIDDEN, "the supervisor must be started as root");
    log_init("supervisor", (enum log_level)level);
    return 0;
}

/* Each sandbox costs a few descriptors. */
static void raise_limits(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* What sudo starts may write no core at all. A sandbox wants a limit of one byte (limits.c), and
   where that cannot be had, a host without a crash handler. */
static int raise_core_limit(struct error *err)
{
    struct rlimit core;
    char pattern = '\0';

    if (getrlimit(RLIMIT_CORE, &core) < 0 || core.rlim_max > 0)
        return 0;
    core.rlim_max = 1;
    if (setrlimit(RLIMIT_CORE, &core) == 0)
        return 0;
    auto_close int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);
    if (read(fd, &pattern, 1) == 1 && pattern != '|')
        return 0;
    return error_set(err, ERR_FORBIDDEN,
                     "crashes in sandboxes would reach the crash handler of this host: the hard "
                     "limit of core files is 0 "
                     "(sudo sets it) and cannot be raised; start as root");
}

static int start(struct error *err)
{
    umask(022);
    raise_limits();
    host_raise_tables();
    if (raise_core_limit(err) < 0 || sandbox_open(err) < 0 ||
        cgroup_open(settings.state, settings.cgroups_required, err) < 0)
        return -1;
    /* Inits fall to this process when their worker ends. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "subreaper");
    if (spawn_open(sandbox_folder(), err) < 0 || capabilities_keep_main(err) < 0 ||
        loop_open(err) < 0 || watch_signals(err) < 0)
        return -1;
    lifecycle_recover();
    if (selftest_run(err) < 0)
        return -1;
    return listen_to_peers(err);
}

static void stop(void)
{
    notify_send("STOPPING=1");
    connection_close_all();
    if (settings.stop_on_exit && !spawner_died)
        lifecycle_stop_all();
    cgroup_close(settings.state); /* which leaves those that are in use */
    if (socket_is_ours)
        unlink(settings.socket_path);
    LOG(INFO, "supervisor_stopped", V("sandboxes_stopped", settings.stop_on_exit && !spawner_died));
}

static void usage(void)
{
    printf("sandbox-supervisor [--help]\n\n"
           "Makes, feeds and removes sandboxes for sandbox-server. Started as root.\n"
           "Settings, from the environment:\n\n");
    settings_help(table, COUNT(table), stdout);
}

int main(int argc, char **argv)
{
    struct error error;

    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        usage();
        return 0;
    }
    if (argc > 1) {
        fprintf(stderr, "sandbox-supervisor: unknown argument '%s'; --help lists the settings\n",
                argv[1]);
        return 2;
    }
    log_init("supervisor", LOG_INFO);
    if (settings_load(table, COUNT(table), NULL, &settings, &error) < 0 ||
        find_server_user(&error) < 0 || check_paths(&error) < 0 || check_settings(&error) < 0 ||
        start(&error) < 0) {
        LOG(ERROR, "supervisor_failed", V("reason", (const char *)error.message));
        cgroup_close(settings.state);
        return 1;
    }
    LOG(INFO, "supervisor_ready", V("socket", settings.socket_path),
        V("cgroups", cgroup_describe()));
    notify_send("READY=1");
    if (notify_watchdog_ms() > 0)
        feed_watchdog(&watchdog);
    loop_run(&stopping);
    stop();
    return spawner_died;
}
