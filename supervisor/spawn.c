/* The spawner: makes the process that becomes a sandbox's init, with all that it needs, and nothing
 * more. */
#include "supervisor/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/mounts.h"
#include "supervisor/seccomp.h"
#include "supervisor/selftest.h"
#include "supervisor/steps.h"

enum { INIT_NICE = -15 };
enum { GRANTS = 3 }; /* mounts that the child gets: root, workspace, /dev */

static int spawner = -1; /* the main loop's end */
static pid_t spawner_pid;
static int sandboxes_folder; /* the spawner's descriptors */
static int images_folder, program;

/* --- packets with descriptors
 * ------------------------------------------------------------------------------------------- */

union ancillary {
    char space[CMSG_SPACE(GRANTS * sizeof(int))];
    struct cmsghdr align;
};

static int send_packet(int socket, const void *bytes, size_t length, const int *fds, size_t count)
{
    union ancillary ancillary = {0};
    struct iovec vector = {.iov_base = (void *)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};

    if (count) {
        message.msg_control = &ancillary;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(part), fds, count * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)length ? 0 : -1;
}

/* The length of the packet, 0 at the end, -1 with errno. Missing descriptors are -1. */
static ssize_t receive_packet(int socket, void *bytes, size_t length, int *fds, size_t count)
{
    union ancillary ancillary;
    struct iovec vector = {.iov_base = bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof(ancillary)};
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);

    for (size_t i = 0; i < count; i++)
        fds[i] = -1;
    if (got <= 0)
        return got;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        size_t present = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (part->cmsg_type == SCM_RIGHTS && present <= count)
            memcpy(fds, CMSG_DATA(part), present * sizeof(int));
    }
    return got;
}

/* --- the child ------------------------------------------------------------------------------- */

static void reset_signals(void)
{
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Only the process itself may open its user namespace without CAP_SYS_PTRACE, since the namespace's
 * owner is an id that nobody else has. */
static int give_userns(int report, struct error *err)
{
    auto_close int userns = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);

    if (userns < 0 || send_packet(report, "", 1, &userns, 1) < 0)
        return error_set_errno(err, ERR_INTERNAL, "user namespace");
    return 0;
}

static int become_init(struct containment *containment, bool self_test, struct error *err)
{
    char *const arguments[] = {(char[]){"sandbox-init"}, NULL}, *const environment[] = {NULL};
    int grants[GRANTS];
    char go;

    reset_signals();
    if (give_userns(containment->report, err) < 0)
        return -1;
    /* A worker that died has closed its end. */
    if (receive_packet(containment->report, &go, 1, grants, GRANTS) != 1)
        return error_set(err, ERR_INTERNAL, "the spawner is gone");
    containment->root = grants[0];
    containment->workspace = grants[1];
    containment->devices = grants[2];
    if (steps_run(containment, err) < 0)
        return -1;
    if (self_test) {
        if (selftest_inside(err) == 0)
            _exit(0);
        return -1;
    }
    syscall(SYS_execveat, containment->program, "", arguments, environment, AT_EMPTY_PATH);
    return error_set_errno(err, ERR_INTERNAL, "sandbox-init");
}

/* --- the worker ------------------------------------------------------------------------------ */

static int open_image(const struct spawn_request *request, int folder, struct error *err)
{
    const char *name = request->self_test ? "image" : request->image;
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH |
                   RESOLVE_NO_MAGICLINKS, /* a name may be a link to a version beside it */
    };
    int fd = (int)syscall(SYS_openat2, request->self_test ? folder : images_folder, name, &how,
                          sizeof(how));

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return error_set(err, ERR_NOT_FOUND, "there is no image '%s'", name);
    return fd < 0 ? error_set_errno(err, ERR_INTERNAL, "image '%s'", name) : fd;
}

static int make_layers(int folder, struct error *err)
{
    if (mkdirat(folder, "l", 0755) < 0 || mkdirat(folder, "l/u", 0755) < 0 ||
        mkdirat(folder, "l/w", 0755) < 0)
        return error_set_errno(err, ERR_INTERNAL, "layers");
    return 0;
}

/* Named through the folder's descriptor, since a socket's path is short (unix(7)). */
static int make_listener(int folder, struct error *err)
{
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/ctl.sock", folder);
    unlinkat(folder, "ctl.sock", 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 4) < 0)
        return error_set_errno(err, ERR_INTERNAL, "control socket");
    return take_fd(&fd);
}

static int64_t owner_of(int64_t slot)
{
    return settings.id_base + slot;
}

static int64_t first_id(int64_t slot)
{
    return settings.id_base + (slot + 1) * ID_RANGE;
}

/* A new user namespace is charged to its maker's id for what it holds (inotify instances, message
 * queues, pending signals: namespaces(7), "user.max_*"), so each sandbox has a maker of its own:
 * else one could take what all the others, and the host's root, have. */
static pid_t clone_owned(struct clone_args *args, uid_t owner, struct error *err)
{
    pid_t pid;

    if (setresuid((uid_t)-1, owner, (uid_t)-1) < 0)
        return error_set_errno(err, ERR_INTERNAL, "setresuid");
    if (capabilities_raise(err) < 0)
        return -1;
    pid = (pid_t)syscall(SYS_clone3, args, sizeof(*args));
    if (pid == 0) {
        /* /proc/self is its own: the change of id took that away. */
        prctl(PR_SET_DUMPABLE, 1);
        return 0;
    }
    if (pid < 0)
        error_set_errno(err, ERR_INTERNAL, "clone3");
    if (setresuid((uid_t)-1, 0, (uid_t)-1) < 0 && pid >= 0)
        return error_set_errno(err, ERR_INTERNAL, "setresuid");
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which a change of id clears */
    return pid;
}

/* Under pressure the host gives up sandboxes first; commands raise theirs further. With
 * CAP_SYS_RESOURCE this is also the least that they can have; without, that is what init has
 * anyway, and init must not have more than any of them, so that it goes last (proc(5)). */
static int write_score(pid_t pid, struct error *err)
{
    char path[64];

    if (!capabilities_have_resource())
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "300", 3) != 3)
        return error_set_errno(err, ERR_INTERNAL, "oom_score_adj");
    return 0;
}

static int write_map(pid_t pid, const char *name, int64_t first, struct error *err)
{
    char path[64], text[64];
    int length = snprintf(text, sizeof(text), "0 %lld %d", (long long)first, ID_RANGE);

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, (size_t)length) != length)
        return error_set_errno(err, ERR_INTERNAL, "%s", name);
    return 0;
}

static int grant_mounts(const struct spawn_request *request, pid_t pid, int folder, int report,
                        struct error *err)
{
    int64_t first = first_id(request->slot);
    struct error failure;
    int given;

    if (receive_packet(report, &failure, sizeof(failure), &given, 1) <= 0)
        return error_set_errno(err, ERR_INTERNAL, "the new process");
    auto_close int userns = given;
    if (userns < 0) {
        *err = failure;
        return -1;
    }
    if (write_score(pid, err) < 0 || write_map(pid, "uid_map", first, err) < 0 ||
        write_map(pid, "gid_map", first, err) < 0)
        return -1;
    auto_close int image = open_image(request, folder, err);
    auto_close int layers = openat(folder, "l", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int files = openat(folder, "ws", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (image < 0)
        return -1;
    if (layers < 0 || files < 0)
        return error_set_errno(err, ERR_INTERNAL, "layers");
    auto_close int lower = mounts_idmap(image, userns, err);
    auto_close int upper = lower < 0 ? -1 : mounts_idmap(layers, userns, err);
    auto_close int root = upper < 0 ? -1 : mounts_overlay(lower, upper, (uid_t)first, err);
    auto_close int workspace = root < 0 ? -1 : mounts_idmap(files, userns, err);
    auto_close int dev = workspace < 0 ? -1 : mounts_devices(err);
    if (dev < 0)
        return -1;
    if (send_packet(report, "", 1, (const int[GRANTS]){root, workspace, dev}, GRANTS) < 0)
        return error_set_errno(err, ERR_INTERNAL, "hand over mounts");
    return 0;
}

/* The child tells of a failure, or its end of the socket goes with the exec. */
static int await_exec(int report, struct error *err)
{
    struct error failure;
    ssize_t length = receive_packet(report, &failure, sizeof(failure), NULL, 0);

    if (length == 0)
        return 0;
    if (length != sizeof(failure))
        return error_set_errno(err, ERR_INTERNAL, "the new process");
    *err = failure;
    return -1;
}

static int spawn_one(const struct spawn_request *request, int result, struct error *err)
{
    auto_close int folder =
        openat(sandboxes_folder, request->sandbox, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct start limits = {.memory_bytes = request->memory_bytes,
                           .pids = request->pids,
                           .cpu_percent = request->cpu_percent};
    auto_cgroup_entry struct cgroup_entry entry = {.unified = -1};
    struct containment containment = {.hostname = request->hostname,
                                      .memory_bytes = request->memory_bytes,
                                      .pids = request->pids,
                                      .cpu_percent = request->cpu_percent,
                                      .tmp_bytes = request->tmp_bytes,
                                      .tmp_inodes = settings.tmp_inodes,
                                      .cgroups = &entry,
                                      .program = program};
    struct spawn_report report = {.stage = SPAWN_CLONED};
    int pidfd_number = -1, sockets[2];

    if (folder < 0)
        return error_set_errno(err, ERR_INTERNAL, "sandbox folder");
    if (make_layers(folder, err) < 0 || cgroup_make(request->sandbox, &limits, err) < 0 ||
        cgroup_enter(request->sandbox, &entry, err) < 0)
        return -1;
    auto_close int listener = make_listener(folder, err);
    if (listener < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    auto_close int ours = sockets[0], theirs = sockets[1];
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_NEWNET | CLONE_PIDFD | (entry.unified >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uintptr_t)&pidfd_number,
        .exit_signal = SIGCHLD,
        .cgroup = entry.unified >= 0 ? (unsigned)entry.unified : 0,
    };
    report.pid = clone_owned(&args, (uid_t)owner_of(request->slot), err);
    if (report.pid < 0)
        return -1;
    if (report.pid == 0) {
        struct error failure = {0};

        close(ours);
        containment.listener = listener;
        containment.report = theirs;
        become_init(&containment, request->self_test, &failure);
        send_packet(containment.report, &failure, sizeof(failure), NULL, 0);
        _exit(1);
    }
    auto_close int pidfd = pidfd_number;
    close(take_fd(&theirs));
    /* Against a crowd of the sandbox's own processes, which begin at 0 and can't go below. */
    setpriority(PRIO_PROCESS, (id_t)report.pid, INIT_NICE);
    if (send_packet(result, &report, sizeof(report), &pidfd, 1) < 0)
        return error_set_errno(err, ERR_INTERNAL, "report");
    if (grant_mounts(request, report.pid, folder, ours, err) < 0)
        return -1;
    return await_exec(ours, err);
}

static void work(const struct spawn_request *request, int result)
{
    struct spawn_report report = {.stage = SPAWN_STARTED};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, SIG_DFL);
    alarm(SPAWN_SECONDS);
    if (spawn_one(request, result, &report.error) < 0)
        report.stage = SPAWN_FAILED;
    send_packet(result, &report, sizeof(report), NULL, 0);
    _exit(0);
}

/* --- the spawner ----------------------------------------------------------------------------- */

/* A copy that nobody can write to, whatever runs from it. */
static int seal_program(const char *path, struct error *err)
{
    auto_close int file = open(path, O_RDONLY | O_CLOEXEC);
    auto_close int copy = memfd_create("sandbox-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct stat status;
    off_t at = 0;

    if (file < 0 || fstat(file, &status) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", path);
    if (copy < 0)
        return error_set_errno(err, ERR_INTERNAL, "memfd_create");
    while (at < status.st_size)
        if (sendfile(copy, file, &at, (size_t)(status.st_size - at)) <= 0)
            return error_set_errno(err, ERR_INTERNAL, "copy %s", path);
    if (fchmod(copy, 0555) < 0 ||
        fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return error_set_errno(err, ERR_INTERNAL, "seal %s", path);
    /* A writable description can't be executed (ETXTBSY): open it anew. */
    char own[64];
    snprintf(own, sizeof(own), "/proc/self/fd/%d", copy);
    int fd = open(own, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? error_set_errno(err, ERR_INTERNAL, "%s", own) : fd;
}

static void serve(int socket)
{
    struct spawn_request request;
    int result;

    prctl(PR_SET_NAME, "spawner");
    /* The terminal's signals are for the main loop; children are not waited for, and inits fall to
     * it when their worker ends. */
    for (size_t i = 0; i < 4; i++)
        signal((const int[]){SIGINT, SIGTERM, SIGHUP, SIGCHLD}[i], SIG_IGN);
    for (;;) {
        ssize_t length = receive_packet(socket, &request, sizeof(request), &result, 1);

        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0)
            _exit(0); /* the main loop is gone */
        if (length == sizeof(request) && result >= 0) {
            pid_t pid = fork();

            if (pid == 0) {
                close(socket);
                work(&request, result);
            }
        }
        if (result >= 0)
            close(result); /* a worker that could not be forked: the main loop sees the end */
    }
}

int spawn_open(int sandboxes, struct error *err)
{
    int sockets[2];
    pid_t pid;

    sandboxes_folder = sandboxes;
    images_folder = open(settings.images, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (images_folder < 0)
        return error_set_errno(err, ERR_INTERNAL, "IMAGES_DIR %s", settings.images);
    if ((program = seal_program(settings.init_path, err)) < 0)
        return error_add_context(err, "INIT_PATH");
    if (seccomp_prepare(err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    pid = fork();
    if (pid < 0)
        return error_set_errno(err, ERR_INTERNAL, "fork");
    if (pid == 0) {
        close(sockets[0]);
        serve(sockets[1]);
    }
    close(sockets[1]);
    close(program);
    close(images_folder);
    spawner = sockets[0];
    spawner_pid = pid;
    return 0;
}

void spawn_close(void)
{
    if (spawner < 0)
        return;
    kill(spawner_pid, SIGKILL); /* its workers die with it */
    waitpid(spawner_pid, NULL, 0);
    close(spawner);
    spawner = -1;
}

int spawn_begin(const struct spawn_request *request, struct error *err)
{
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "socketpair");
    auto_close int ours = sockets[0], theirs = sockets[1];
    if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0 ||
        send_packet(spawner, request, sizeof(*request), &theirs, 1) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "spawner");
    return take_fd(&ours);
}

int spawn_hear(int socket, struct spawn_report *report, int *pidfd)
{
    ssize_t length = receive_packet(socket, report, sizeof(*report), pidfd, 1);

    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return length == sizeof(*report) ? 1 : -1;
}

pid_t spawn_pid(void)
{
    return spawner_pid;
}
