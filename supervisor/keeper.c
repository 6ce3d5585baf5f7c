/* The keeper: a process that does nothing but hold the mount namespace of the disks. It outlives
 * the supervisor, and ends when the file that names it is gone. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/sandbox.h"
#include "supervisor/storekeeper.h"

enum { LOOK_MS = 60 * 1000, FIRST_DESCRIPTOR = 3 };

#define FILE_NAME "keeper"

/* --- the file that names it ------------------------------------------------------------------ */

static bool read_name(int state, struct sandbox *named)
{
    char text[256];
    unsigned long long inode, start;
    auto_close int fd = openat(state, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (length <= 0)
        return false;
    text[length] = '\0';
    if (sscanf(text, "pid %d inode %llu start %llu", &named->pid, &inode, &start) != 3)
        return false;
    named->pid_inode = inode;
    named->pid_start = start;
    return true;
}

static int write_name(int state, const struct sandbox *keeper, struct error *err)
{
    char text[256];
    int length =
        snprintf(text, sizeof(text), "pid %d\ninode %llu\nstart %llu\n", keeper->pid,
                 (unsigned long long)keeper->pid_inode, (unsigned long long)keeper->pid_start);
    auto_close int fd = openat(state, FILE_NAME ".new",
                               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, text, (size_t)length) != length ||
        renameat(state, FILE_NAME ".new", state, FILE_NAME) < 0)
        return error_set_errno(err, ERR_INTERNAL, "SUPERVISOR_STATE: " FILE_NAME);
    return 0;
}

/* A pidfd of the one that the file names, or -1: a number that was given out anew is not it. */
static int find(int state, struct sandbox *named)
{
    struct sandbox now = {0};
    auto_close int pidfd = -1;

    if (!read_name(state, named) || named->pid <= 1)
        return -1;
    pidfd = (int)syscall(SYS_pidfd_open, named->pid, 0);
    if (pidfd < 0)
        return -1;
    fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    now.pid = named->pid;
    sandbox_identify(&now, pidfd);
    if (now.pid_inode != named->pid_inode || now.pid_start != named->pid_start)
        return -1;
    return take_fd(&pidfd);
}

/* --- the process ----------------------------------------------------------------------------- */

static bool is_named(int state)
{
    struct sandbox named;

    return read_name(state, &named) && named.pid == getpid();
}

/* Opened anew for each look, so that the folder's own file system can be unmounted. */
static bool is_wanted(void)
{
    auto_close int state = open(settings.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return state >= 0 && is_named(state);
}

static _Noreturn void keep(int parent)
{
    auto_close int changes = -1;
    char word;
    cap_t none = cap_init();

    setsid();
    prctl(PR_SET_NAME, "disk-keeper");
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
        chdir("/") < 0 || write(parent, &(pid_t){getpid()}, sizeof(pid_t)) != sizeof(pid_t))
        _exit(1);
    /* It is named now, or there is nobody to hold anything for. */
    if (read(parent, &word, 1) != 1)
        _exit(0);
    changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    dup2(changes, FIRST_DESCRIPTOR);
    close_range(FIRST_DESCRIPTOR + 1, ~0U, 0);
    changes = FIRST_DESCRIPTOR;
    inotify_add_watch(changes, settings.state,
                      IN_DELETE | IN_MOVED_TO | IN_DELETE_SELF | IN_ONLYDIR);
    /* Whatever it was given, it needs nothing. */
    if (!none || cap_set_proc(none) < 0)
        _exit(1);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    while (is_wanted()) {
        struct pollfd event = {.fd = changes, .events = POLLIN};
        char events[4096];

        poll(&event, 1, LOOK_MS);
        while (read(changes, events, sizeof(events)) > 0)
            ;
    }
    _exit(0);
}

/* Twice forked, so that nobody waits for it. */
static pid_t make(int *socket, struct error *err)
{
    pid_t child, keeper = -1;
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    child = fork();
    if (child == 0) {
        close(sockets[0]);
        if (fork() == 0)
            keep(sockets[1]);
        _exit(0);
    }
    close(sockets[1]);
    *socket = sockets[0];
    if (child > 0)
        waitpid(child, NULL, 0);
    if (child < 0 || read(*socket, &keeper, sizeof(keeper)) != sizeof(keeper)) {
        close(take_fd(socket));
        return error_set(err, ERR_INTERNAL, "there can be no mount namespace for disks");
    }
    return keeper;
}

static int open_namespace(pid_t pid, int pidfd, struct error *err)
{
    char path[64];
    struct pollfd end = {.fd = pidfd, .events = POLLIN};

    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || poll(&end, 1, 0) != 0)
        return error_set_errno(err, ERR_INTERNAL, "mount namespace of the disks");
    return take_fd(&fd);
}

int keeper_open(int state, struct error *err)
{
    struct sandbox keeper = {0};
    auto_close int pidfd = find(state, &keeper), socket = -1;
    auto_close int disks = pidfd < 0 ? -1 : open_namespace(keeper.pid, pidfd, err);

    if (disks >= 0)
        return take_fd(&disks);
    keeper.pid = make(&socket, err);
    if (keeper.pid < 0)
        return -1;
    scope_close(&pidfd);
    pidfd = (int)syscall(SYS_pidfd_open, keeper.pid, 0);
    if (pidfd < 0)
        return error_set_errno(err, ERR_INTERNAL, "keeper of the disks");
    fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    sandbox_identify(&keeper, pidfd);
    disks = open_namespace(keeper.pid, pidfd, err);
    if (disks < 0 || write_name(state, &keeper, err) < 0)
        return -1;
    if (write(socket, "k", 1) != 1)
        return error_set_errno(err, ERR_INTERNAL, "keeper of the disks");
    return take_fd(&disks);
}

void keeper_close(int state)
{
    struct sandbox keeper = {0};
    auto_close int pidfd = find(state, &keeper);
    struct pollfd end = {.fd = pidfd, .events = POLLIN};

    unlinkat(state, FILE_NAME, 0);
    if (pidfd < 0)
        return;
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    poll(&end, 1, 1000);
}
