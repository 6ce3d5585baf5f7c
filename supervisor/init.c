/* PID 1 of a sandbox: reaps, and runs commands for the supervisor. Static, holds no secret, never
 * exits.
 *
 * Each command has a monitor between init and itself: a child subreaper (prctl(2)), so that
 * whatever the command leaves behind stays below the monitor until the command ends. A timeout or
 * an abort therefore finds the whole tree, whatever sessions and daemons it made, and the
 * background children of a command that ended by itself fall to init and live on. A tenant may kill
 * monitors (kill -9 -1): then the command falls to init, which goes on waiting for it. The monitor
 * never reaps the command, so its pid can't be reused before init knows how it ended. One that is
 * stopped (kill -STOP -1) is continued, and what a monitor has not ended some time after its
 * deadline init ends itself. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "supervisor/init.h"
#include "supervisor/names.h"
#include "supervisor/tails.h"
#include "supervisor/trees.h"

enum { MONITOR_ENDED = 0, MONITOR_TIMED_OUT = 71, MONITOR_ABORTED = 72, MONITOR_FAILED = 73 };
enum {
    KILL_PAUSE_MS = 5,
    KILL_PATIENCE_MS = 8000,
    KILL_LEAVE_MS = 1300,
    KILL_SETTLE_MS = 50, /* in which init hears nothing else */
    MONITOR_GRACE_MS = 1000,
    OWN_EVENTS = 4,
    OVERFLOW_ID = 65534,
    SAVED_ID = 65535
};

enum { COUNT_TAILS = 2 }; /* standard output and error */

struct exec {
    enum { FREE, RUNNING, ENDED } state;
    bool sent;         /* its end, on this connection */
    bool command_done; /* reaped, `status` is set */
    uint64_t id;
    pid_t monitor; /* until it is reaped, also when FREE; 0 while RUNNING: init looks after the
                      command itself */
    pid_t command; /* 0: not announced yet */
    int tails[COUNT_TAILS]; /* its pipes: see tails.h; -1 */
    int abort_fd;           /* the monitor ends the tree when this is closed; -1 */
    uint32_t flags;
    int status;
    int64_t started_ms;
    int64_t deadline_ms;
    int64_t duration_ms;
};

/* What init hears of a command: from the command itself before it runs anything, then from its
 * monitor. */
struct announcement {
    uint64_t id;
    int32_t pid;
    int32_t ended; /* then `status` is how, as of waitpid(2) */
    int32_t status;
    int32_t unused;
};

static struct exec execs[INIT_EXECS_MAX];
static int control = -1;
static int niceness; /* of commands */
static const char *score = "500";
static int announcements[2];

static union {
    struct init_request request;
    char bytes[sizeof(struct init_request) + INIT_DATA_MAX];
} packet;

/* --- the command ----------------------------------------------------------------------------- */

/* Split the packet's texts. False when they are not what the header says. */
static bool split_texts(char **texts, size_t count, char *data, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        char *end = memchr(data, '\0', length);

        if (!end)
            return false;
        texts[i] = data;
        length -= (size_t)(end + 1 - data);
        data = end + 1;
    }
    return length == 0;
}

static void write_score(void)
{
    int fd = openat(trees_proc, "self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, score, strlen(score)) < 0)
            dprintf(2, "oom_score_adj: %s\n", strerror(errno));
        close(fd);
    }
}

static _Noreturn void fail_command(const char *what, int code)
{
    dprintf(2, "%s: %s\n", what, strerror(errno));
    _exit(code);
}

static bool announce(const struct announcement *announcement)
{
    return write(announcements[1], announcement, sizeof(*announcement)) == sizeof(*announcement);
}

/* It shares its monitor's memory until the exec (vfork(2)), which is most of what a fork costs: so
 * it changes nothing that the monitor reads. No signal has a handler here. */
static _Noreturn void run_command(const struct exec *exec, char **texts, const int *fds,
                                  pid_t parent)
{
    const struct init_request *request = &packet.request;
    struct announcement announcement = {.id = exec->id, .pid = getpid()};
    char *arguments[INIT_TEXTS_MAX + 1], *environment[INIT_TEXTS_MAX + 1];
    char where[4096];
    /* struct open_how, which musl does not have; RESOLVE_NO_MAGICLINKS is 2. */
    struct {
        uint64_t flags, mode, resolve;
    } place = {O_PATH | O_DIRECTORY | O_CLOEXEC, 0, 2};
    sigset_t none;

    memcpy(arguments, texts + 1, request->argc * sizeof(*texts));
    arguments[request->argc] = NULL;
    memcpy(environment, texts + 1 + request->argc, request->envc * sizeof(*texts));
    environment[request->envc] = NULL;

    /* A monitor that is killed leaves nobody behind whom init does not know: either it still lived
     * when init was told, or the command ends here. */
    if (!announce(&announcement) || getppid() != parent)
        raise(SIGKILL);
    write_score(); /* as root, to whom /proc/self belongs until the exec */
    if (setresgid(request->uid, request->uid, request->uid) < 0 ||
        setresuid(request->uid, request->uid, request->uid) < 0)
        _exit(126);
    setsid();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0)
            _exit(126);
    setpriority(PRIO_PROCESS, 0, niceness);
    syscall(SYS_close_range, 3, ~0U, 0);
    /* Never through the descriptor of another process; and a directory that lies outside has no
     * path. */
    int directory = (int)syscall(SYS_openat2, AT_FDCWD, texts[0], &place, sizeof(place));
    if (directory < 0 || fchdir(directory) < 0 || !getcwd(where, sizeof(where)) || where[0] != '/')
        fail_command(texts[0], 126);
    environ = environment;
    execvpe(arguments[0], arguments, environment);
    fail_command(arguments[0], errno == ENOENT || errno == ENOTDIR ? 127 : 126);
}

/* --- the monitor ----------------------------------------------------------------------------- */

/* How a process ended, as waitpid(2) has it. */
static int wait_status(const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED)
        return (info->si_status & 0xff) << 8;
    return info->si_status | (info->si_code == CLD_DUMPED ? 0x80 : 0);
}

/* Whether the command has ended, and how; everything else that ended is reaped. */
static bool command_ended(pid_t command, int *status)
{
    siginfo_t info;

    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return false;
        if (info.si_pid == command) {
            *status = wait_status(&info);
            return true;
        }
        waitpid(info.si_pid, NULL, WNOHANG);
    }
}

/* All are killed when this returns, and gone but for what the kernel takes longer over. Again until
 * a look finds none: a fork that was under way may end after the first. */
static void end_tree(pid_t command)
{
    int64_t leave_ms = clock_ms() + KILL_LEAVE_MS;

    while (trees_kill(getpid()) > 0 && clock_ms() < leave_ms)
        trees_settle(command, leave_ms);
}

static _Noreturn void monitor(struct exec *exec, char **texts, const int *fds, int abort_fd)
{
    struct announcement end = {.id = exec->id, .ended = 1};
    struct signalfd_siginfo seen;
    pid_t own = getpid(), command;
    int children;
    sigset_t child;

    close(INIT_SOCKET);
    close(control);
    close(announcements[0]);
    for (size_t i = 0; i < INIT_EXECS_MAX; i++)
        if (execs[i].state == RUNNING && execs[i].abort_fd >= 0)
            close(execs[i].abort_fd);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (children < 0 || (command = vfork()) < 0) { /* NOLINT: meant */
        dprintf(fds[2], "cannot start a process: %s\n", strerror(errno));
        _exit(MONITOR_FAILED);
    }
    if (command == 0)
        run_command(exec, texts, fds, own);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    end.pid = command;

    for (;;) {
        struct pollfd events[2] = {{.fd = abort_fd, .events = POLLIN},
                                   {.fd = children, .events = POLLIN}};
        int64_t left = exec->deadline_ms - clock_ms();

        poll(events, 2, left < 0 ? 0 : left > 60000 ? 60000 : (int)left);
        while (read(children, &seen, sizeof(seen)) > 0)
            ;
        if (command_ended(command, &end.status)) {
            /* Init need not wait until this process is taken down; if the pipe is full, it does. */
            announce(&end);
            _exit(MONITOR_ENDED);
        }
        if (events[0].revents) {
            end_tree(command);
            _exit(MONITOR_ABORTED);
        }
        if (clock_ms() >= exec->deadline_ms) {
            end_tree(command);
            _exit(MONITOR_TIMED_OUT);
        }
    }
}

/* --- bookkeeping ----------------------------------------------------------------------------- */

static void send_event(struct exec *exec, enum init_event_type type)
{
    struct init_event event = {.type = type};

    if (exec) {
        event.id = exec->id;
        event.flags = exec->flags;
        event.status = exec->status;
        event.duration_ms = exec->duration_ms;
    }
    if (control < 0 ||
        send(control, &event, sizeof(event), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(event))
        return;
    if (exec && type == INIT_ENDED)
        exec->sent = true;
}

static void refuse(uint64_t id, int reason)
{
    struct exec refused = {.id = id, .status = reason};

    send_event(&refused, INIT_REFUSED);
}

static struct exec *find_exec(uint64_t id)
{
    for (size_t i = 0; i < INIT_EXECS_MAX; i++)
        if (execs[i].state != FREE && execs[i].id == id)
            return &execs[i];
    return NULL;
}

static void exec_end(struct exec *exec, int status)
{
    exec->state = ENDED;
    exec->status = status;
    exec->duration_ms = clock_ms() - exec->started_ms;
    if (exec->abort_fd >= 0)
        close(exec->abort_fd);
    exec->abort_fd = -1;
    exec->sent = false;
    send_event(exec, INIT_ENDED);
    for (size_t i = 0; i < COUNT_TAILS; i++) {
        tails_keep(exec->tails[i]);
        exec->tails[i] = -1;
    }
}

static void exec_begin(int *fds)
{
    static char *texts[1 + INIT_TEXTS_MAX];
    struct init_request *request = &packet.request;
    struct exec *exec = NULL;
    int abort_pipe[2];

    if (request->timeout_ms < 0 || request->timeout_ms > INIT_TIMEOUT_MAX_MS || request->argc < 1 ||
        request->argc > INIT_TEXTS_MAX || request->envc > INIT_TEXTS_MAX - request->argc ||
        !split_texts(texts, 1 + request->argc + request->envc, packet.bytes + sizeof(*request),
                     request->length) ||
        find_exec(request->id)) {
        refuse(request->id, EINVAL);
        return;
    }
    for (size_t i = 0; i < INIT_EXECS_MAX && !exec; i++)
        if (execs[i].state == FREE && !execs[i].monitor)
            exec = &execs[i];
    if (!exec) {
        refuse(request->id, EUSERS);
        return;
    }
    if (pipe2(abort_pipe, O_CLOEXEC) < 0) {
        refuse(request->id, errno);
        return;
    }
    *exec = (struct exec){
        .id = request->id, .abort_fd = -1, .tails = {-1, -1}, .started_ms = clock_ms()};
    exec->deadline_ms = exec->started_ms + request->timeout_ms;
    exec->monitor = _Fork();
    if (exec->monitor == 0) {
        close(abort_pipe[1]);
        monitor(exec, texts, fds, abort_pipe[0]);
    }
    close(abort_pipe[0]);
    if (exec->monitor < 0) {
        refuse(request->id, errno);
        close(abort_pipe[1]);
        return;
    }
    exec->abort_fd = abort_pipe[1];
    exec->state = RUNNING;
    /* While the command begins. */
    for (size_t i = 0; i < COUNT_TAILS; i++)
        exec->tails[i] = tails_open(fds[1 + i]);
}

static void hear_announcements(void)
{
    struct announcement announcement;

    while (read(announcements[0], &announcement, sizeof(announcement)) == sizeof(announcement)) {
        struct exec *exec = find_exec(announcement.id);

        if (!exec || exec->state != RUNNING)
            continue;
        exec->command = announcement.pid;
        if (announcement.ended)
            exec_end(exec, announcement.status);
    }
}

static void monitor_gone(struct exec *exec, int status)
{
    int command_status = SIGKILL;
    pid_t found = 0;

    if (WIFEXITED(status) && WEXITSTATUS(status) == MONITOR_TIMED_OUT)
        exec->flags |= INIT_TIMED_OUT;
    if (WIFEXITED(status) && WEXITSTATUS(status) == MONITOR_ABORTED)
        exec->flags |= INIT_ABORTED;
    if (WIFEXITED(status) && WEXITSTATUS(status) == MONITOR_FAILED) {
        exec_end(exec, 126 << 8);
        return;
    }
    if (exec->command_done) {
        exec_end(exec, exec->status);
        return;
    }
    if (exec->command)
        found = waitpid(exec->command, &command_status, WNOHANG);
    if (!exec->command || found != 0)
        exec_end(exec, found > 0 ? command_status : SIGKILL);
}

static void reap(void)
{
    /* Not for ever: one may go on stopping them. */
    int status, patience = INIT_EXECS_MAX;
    pid_t pid;

    hear_announcements();
    while ((pid = waitpid(-1, &status, WNOHANG | (patience > 0 ? WUNTRACED : 0))) > 0) {
        hear_announcements();
        if (WIFSTOPPED(status)) {
            patience--;
            for (size_t i = 0; i < INIT_EXECS_MAX; i++)
                if (execs[i].monitor == pid)
                    kill(pid, SIGCONT);
            continue;
        }
        for (size_t i = 0; i < INIT_EXECS_MAX; i++) {
            struct exec *exec = &execs[i];

            if (exec->monitor == pid) {
                exec->monitor = 0;
                if (exec->state == RUNNING)
                    monitor_gone(exec, status);
                break;
            }
            if (exec->state != RUNNING)
                continue;
            if (exec->command == pid) {
                exec->status = status;
                exec->command_done = true;
                if (!exec->monitor)
                    exec_end(exec, status);
                break;
            }
        }
    }
}

/* End an overdue tree in the place of a monitor that was killed, or that does not get to it. */
static void end_overdue(struct exec *exec)
{
    const struct process *command;

    if (!(exec->flags & INIT_ABORTED))
        exec->flags |= INIT_TIMED_OUT;
    if (exec->monitor) {
        bool patient = clock_ms() < exec->deadline_ms + MONITOR_GRACE_MS + KILL_PATIENCE_MS;

        if (trees_kill(exec->monitor) == 0 || !patient)
            kill(exec->monitor, SIGKILL);
        else
            trees_settle(exec->command, clock_ms() + KILL_SETTLE_MS);
        return;
    }
    if (trees_kill(exec->command) > 0)
        trees_settle(exec->command, clock_ms() + KILL_SETTLE_MS);
    kill(exec->command, SIGKILL);
    command = trees_find(exec->command);
    if (command && command->dead)
        exec_end(exec, SIGKILL);
}

/* See to what is overdue. Returns how long until something is, -1: never. */
static int tend_overdue(void)
{
    int64_t nearest = -1;

    for (size_t i = 0; i < INIT_EXECS_MAX; i++) {
        struct exec *exec = &execs[i];
        int64_t left;

        if (exec->state != RUNNING)
            continue;
        left = exec->deadline_ms + (exec->monitor ? MONITOR_GRACE_MS : 0) - clock_ms();
        if (left <= 0) {
            end_overdue(exec);
            left = KILL_PAUSE_MS;
        }
        if (nearest < 0 || left < nearest)
            nearest = left;
    }
    return nearest > 60000 ? 60000 : (int)nearest;
}

static void exec_abort(struct exec *exec)
{
    if (exec->abort_fd >= 0)
        close(exec->abort_fd);
    exec->abort_fd = -1;
    exec->flags |= INIT_ABORTED;
    if (exec->deadline_ms > clock_ms())
        exec->deadline_ms = clock_ms();
}

static void hello(void)
{
    send_event(NULL, INIT_READY);
    for (size_t i = 0; i < INIT_EXECS_MAX; i++) {
        if (execs[i].state == RUNNING)
            send_event(&execs[i], INIT_RUNNING);
        execs[i].sent = false;
    }
}

/* Before anything of a tenant has run: the files are those of the start. */
static int write_file(const char *path, const char *text)
{
    size_t length = strlen(text);
    ssize_t written;
    int fd;

    if (unlink(path) < 0 && errno != ENOENT)
        return errno;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    written = write(fd, text, length);
    close(fd);
    return written == (ssize_t)length ? 0 : EIO;
}

static void rename_sandbox(void)
{
    const char *hostname = packet.bytes + sizeof(packet.request);
    struct init_event named = {.type = INIT_NAMED, .status = EINVAL};
    char text[NAMES_LENGTH];

    if (packet.request.length && hostname[packet.request.length - 1] == '\0') {
        names_hostname(text, hostname);
        named.status = write_file("/etc/hostname", text);
        names_hosts(text, hostname);
        if (named.status == 0)
            named.status = write_file("/etc/hosts", text);
    }
    send(control, &named, sizeof(named), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void handle(size_t length, int *fds, size_t fd_count)
{
    struct init_request *request = &packet.request;
    struct exec *exec;

    if (length < sizeof(*request) || length - sizeof(*request) != request->length)
        return;
    exec = find_exec(request->id);
    if (request->type == INIT_HELLO)
        hello();
    else if (request->type == INIT_EXEC && fd_count == 3)
        exec_begin(fds);
    else if (request->type == INIT_ABORT && exec && exec->state == RUNNING)
        exec_abort(exec);
    else if (request->type == INIT_ACK && exec && exec->state == ENDED)
        exec->state = FREE;
    else if (request->type == INIT_NAME)
        rename_sandbox();
}

/* False when the connection ended. */
static bool hear_control(void)
{
    enum { ROOM = 4 }; /* even: the space for an odd number holds one more (cmsg(3), alignment) */
    union {
        char space[CMSG_SPACE(ROOM * sizeof(int))];
        struct cmsghdr align;
    } ancillary;
    struct iovec vector = {.iov_base = packet.bytes, .iov_len = sizeof(packet)};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             /* Not its whole size, whose padding holds one more. */
                             .msg_controllen = CMSG_LEN(3 * sizeof(int))};
    ssize_t length = recvmsg(control, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int fds[ROOM];
    size_t count = 0;

    if (length < 0)
        return errno == EAGAIN || errno == EINTR;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(part), count * sizeof(int));
    }
    if (length > 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        handle((size_t)length, fds, count);
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    return length > 0;
}

/* Only from outside: a peer in another pid namespace has no pid here. */
static void accept_control(void)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    int fd = accept4(INIT_SOCKET, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0 || peer.pid != 0 ||
        peer.uid != OVERFLOW_ID) {
        close(fd);
        return;
    }
    if (control >= 0)
        close(control);
    control = fd;
}

static bool unsent(void)
{
    for (size_t i = 0; i < INIT_EXECS_MAX; i++)
        if (execs[i].state == ENDED && !execs[i].sent)
            return true;
    return false;
}

static int sooner(int a, int b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

/* sandbox-init NICE OOM_SCORE_ADJ: both of commands, not its own. */
int main(int argc, char **argv)
{
    struct signalfd_siginfo seen;
    sigset_t all;
    int children;

    /* Before anything else runs here: no tenant may read or trace this process, whatever its uid.
     */
    prctl(PR_SET_DUMPABLE, 0);
    /* A saved id that no command has: prlimit(2) on init and its monitors wants all of them equal.
     */
    if (setresgid(0, 0, SAVED_ID) < 0 || setresuid(0, 0, SAVED_ID) < 0)
        return 1;
    if (argc == 3) {
        niceness = (int)strtol(argv[1], NULL, 10);
        score = argv[2];
    }
    umask(022);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&all);
    sigaddset(&all, SIGCHLD);
    children = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    trees_proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (children < 0 || trees_proc < 0 || pipe2(announcements, O_CLOEXEC | O_NONBLOCK) < 0 ||
        fcntl(INIT_SOCKET, F_SETFD, FD_CLOEXEC) < 0)
        return 1;
    for (;;) {
        bool late = unsent();
        struct pollfd events[OWN_EVENTS + TAILS_MAX] = {
            {.fd = children, .events = POLLIN},
            {.fd = INIT_SOCKET, .events = POLLIN},
            {.fd = control, .events = late ? POLLIN | POLLOUT : POLLIN},
            {.fd = announcements[0], .events = POLLIN},
        };
        size_t tail_count = tails_count;

        tails_events(events + OWN_EVENTS);
        poll(events, OWN_EVENTS + tail_count, sooner(tend_overdue(), tails_wait_ms()));
        /* First: what follows adds to them. */
        tails_tend(events + OWN_EVENTS, tail_count);
        if (events[3].revents)
            hear_announcements();
        if (events[0].revents) {
            while (read(children, &seen, sizeof(seen)) > 0)
                ;
            reap();
        }
        if (control >= 0 && events[2].revents) {
            if (events[2].revents & POLLOUT)
                for (size_t i = 0; i < INIT_EXECS_MAX; i++)
                    if (execs[i].state == ENDED && !execs[i].sent)
                        send_event(&execs[i], INIT_ENDED);
            if (!hear_control()) {
                close(control);
                control = -1;
            }
        }
        if (events[1].revents)
            accept_control();
    }
}
