/* The spawner: makes the process that becomes a sandbox's init, with all that it needs, and nothing
 * more. */
#include "supervisor/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/environment.h"
#include "supervisor/image.h"
#include "supervisor/mounts.h"
#include "supervisor/network.h"
#include "supervisor/network_pool.h"
#include "supervisor/packet.h"
#include "supervisor/seccomp.h"
#include "supervisor/selftest.h"
#include "supervisor/steps.h"
#include "supervisor/storage.h"

enum { INIT_NICE = -15 };
enum {
    WORKERS = 2, /* more are not faster: the kernel's locks are few */
    AT_ONCE = 2 * WORKERS,
    MAIN_LOOP_GONE = 70, /* a worker's exit status */
};

/* A start that is under way, or waits for its turn. */
struct spawn {
    int socket;  /* the main loop's end, whose owner is who began it */
    int result;  /* the other end, until it is sent; -1 */
    int process; /* goes along; -1 */
    struct spawn_request request;
    struct spawn *next;
};

static int spawner = -1; /* the main loop's end */
static pid_t spawner_pid;
static struct spawn *spawns; /* the oldest first */
static size_t sent;
static int sandboxes_folder; /* the spawner's descriptors */
static int images_folder, program;
static int spare_devices = -1; /* a worker's: /dev for its next sandbox */
static bool spare_network;     /* it is in a network namespace for its next sandbox */

/* --- the child ------------------------------------------------------------------------------- */

static void reset_signals(void)
{
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int become_init(struct containment *containment, bool self_test, struct error *err)
{
    char nice[8], score[8];
    char *const arguments[] = {(char[]){"sandbox-init"}, nice, score, NULL}, *const environment[] =
                                                                                 {NULL};

    snprintf(nice, sizeof(nice), "%d", (int)containment->limits->nice);
    snprintf(score, sizeof(score), "%d", (int)containment->limits->oom_score);
    reset_signals();
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

/* --- one start ------------------------------------------------------------------------------- */

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
    char path[64], text[8];
    int length = snprintf(text, sizeof(text), "%d", LIMITS_INIT_SCORE);

    if (!capabilities_have(CAP_SYS_RESOURCE))
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, (size_t)length) != length)
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

static int write_maps(pid_t pid, int64_t slot, int report, struct error *err)
{
    int64_t first = first_id(slot);

    if (write_score(pid, err) < 0 || write_map(pid, "uid_map", first, err) < 0 ||
        write_map(pid, "gid_map", first, err) < 0 ||
        write_map(pid, "projid_map", first, err) < 0) /* which else anybody inside may do */
        return -1;
    if (packet_send(report, "", 1, NULL, 0, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "the new process");
    return 0;
}

/* The first word of the new process: its user namespace, or why it failed. */
static int hear_userns(int report, struct error *err)
{
    struct error failure;
    int userns;

    if (packet_receive(report, &failure, sizeof(failure), &userns, 1) <= 0)
        return error_set_errno(err, ERR_INTERNAL, "the new process");
    if (userns < 0)
        *err = failure;
    return userns;
}

/* Mounts of an image's layers, as the sandbox sees their owners. */
static int map_layers(const struct image *image, int userns, struct image *mapped,
                      struct error *err)
{
    for (; mapped->count < image->count; mapped->count++)
        if ((mapped->layers[mapped->count] =
                 mounts_idmap(image->layers[mapped->count], userns, err)) < 0)
            return -1;
    return 0;
}

static int grant_mounts(const struct spawn_request *request, const struct image *image, int report,
                        struct error *err)
{
    int64_t first = first_id(request->slot);
    auto_close int userns = hear_userns(report, err);
    auto_image struct image lower = {0};

    if (userns < 0 || map_layers(image, userns, &lower, err) < 0)
        return -1;
    auto_close int upper = -1, workspace = -1;
    if (storage_map(request->sandbox, userns, &upper, &workspace, err) < 0)
        return -1;
    auto_close int root = mounts_overlay(lower.layers, lower.count, upper, (uid_t)first, err);
    auto_close int dev = root < 0             ? -1
                         : spare_devices >= 0 ? take_fd(&spare_devices)
                                              : mounts_devices(err);
    if (dev < 0)
        return -1;
    if (packet_send(report, "", 1, (const int[GRANTS]){root, workspace, dev}, GRANTS, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "hand over mounts");
    return 0;
}

/* The child tells of a failure, or its end of the socket goes with the exec. */
static int await_exec(int report, struct error *err)
{
    struct error failure;
    ssize_t length = packet_receive(report, &failure, sizeof(failure), NULL, 0);

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
    auto_cgroup_entry struct cgroup_entry entry = {.unified = -1};
    struct containment containment = {.hostname = request->hostname,
                                      .limits = &request->limits,
                                      .tmp_inodes = settings.tmp_inodes,
                                      .cgroups = &entry,
                                      .program = program};
    struct spawn_report report = {.stage = SPAWN_CLONED};
    auto_image struct image image = {0};
    int pidfd_number = -1, sockets[2];

    if (folder < 0)
        return error_set_errno(err, ERR_INTERNAL, "sandbox folder");
    /* First: what is missing costs nothing then. */
    if (image_open(request->self_test ? folder : images_folder,
                   request->self_test ? "image" : request->image, &image, err) < 0)
        return -1;
    report.image = image.inode;
    if ((!request->cgroup_is_ready && cgroup_make(request->cgroup, &request->limits, err) < 0) ||
        cgroup_enter(request->cgroup, &entry, err) < 0)
        return -1;
    auto_close int listener = make_listener(folder, err);
    if (listener < 0 || environment_keep(folder, &image.variables, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    auto_close int ours = sockets[0], theirs = sockets[1];
    auto_close int network = request->egress ? network_claim(err) : -1;
    auto_close int before = network < 0 ? -1 : network_enter(network, err);
    if (request->egress && before < 0)
        return -1;
    containment.network_ready = spare_network || network >= 0;
    containment.names = network < 0 ? NULL : network_names();
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                 (containment.network_ready ? 0 : CLONE_NEWNET) | CLONE_PIDFD |
                 (entry.unified >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uintptr_t)&pidfd_number,
        .exit_signal = SIGCHLD,
        .cgroup = entry.unified >= 0 ? (unsigned)entry.unified : 0,
    };
    report.pid = clone_owned(&args, (uid_t)owner_of(request->slot), err);
    if (report.pid != 0 && network >= 0)
        network_leave(before);
    if (report.pid < 0)
        return -1;
    if (report.pid == 0) {
        struct error failure = {0};

        close(ours);
        containment.listener = listener;
        containment.report = theirs;
        become_init(&containment, request->self_test, &failure);
        packet_send(containment.report, &failure, sizeof(failure), NULL, 0, 0);
        _exit(1);
    }
    auto_close int pidfd = pidfd_number;
    close(take_fd(&theirs));
    if (network < 0)
        spare_network = false;
    if (write_maps(report.pid, request->slot, ours, err) < 0)
        return -1;
    if (packet_send(result, &report, sizeof(report), &pidfd, 1, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "report");
    if (grant_mounts(request, &image, ours, err) < 0)
        return -1;
    /* Against a crowd of the sandbox's own processes, which begin at 0 and can't go below. */
    setpriority(PRIO_PROCESS, (id_t)report.pid, INIT_NICE);
    return await_exec(ours, err);
}

/* Safe: nothing of a tenant has run there yet, and only the name is reached. */
static int name_one(const struct spawn_request *request, int process, struct error *err)
{
    static int own = -1;
    int result;

    if (own < 0 && (own = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "own name");
    if (process < 0 || setns(process, CLONE_NEWUTS) < 0)
        return error_set_errno(err, ERR_INTERNAL, "name");
    result = sethostname(request->hostname, strlen(request->hostname));
    if (result < 0)
        error_set_errno(err, ERR_INTERNAL, "sethostname");
    /* A worker that can't leave is of no use any more. */
    if (setns(own, CLONE_NEWUTS) < 0)
        abort();
    return result;
}

/* --- a worker -------------------------------------------------------------------------------- */

/* What every sandbox needs and no two may share, made while nobody waits. What can't be is made
 * when it is needed, and fails there. */
static void make_spares(void)
{
    struct error error;

    if (spare_devices < 0)
        spare_devices = mounts_devices(&error);
    if (!spare_network)
        spare_network = network_pings_ahead() && network_prepare(&error) == 0;
}

/* One start after the other. One that hangs ends the worker (alarm(2)), and with it what it has
 * begun: its end is heard through the socket. */
static _Noreturn void work(int socket)
{
    struct spawn_request request;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, SIG_DFL);
    /* Without it, no sandbox. */
    if (seccomp_refuse() < 0) {
        LOG(ERROR, "spawner", V("reason", strerror(errno)));
        sleep(1);
        _exit(EXIT_FAILURE);
    }
    for (;;) {
        struct spawn_report report = {.stage = SPAWN_STARTED};
        int received[2];

        alarm(SPAWN_SECONDS);
        make_spares();
        alarm(0);
        ssize_t length = packet_receive(socket, &request, sizeof(request), received, 2);
        auto_close int result = received[0], process = received[1];
        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0)
            _exit(MAIN_LOOP_GONE);
        if (length != sizeof(request) || result < 0)
            continue;
        alarm(SPAWN_SECONDS);
        if ((request.task == SPAWN_NAME ? name_one(&request, process, &report.error)
                                        : spawn_one(&request, result, &report.error)) < 0)
            report.stage = SPAWN_FAILED;
        alarm(0);
        packet_send(result, &report, sizeof(report), NULL, 0, 0);
    }
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

/* It does nothing but replace workers that ended, so that it does not end itself. */
static _Noreturn void serve(int socket)
{
    unsigned running = 0;
    int status;

    prctl(PR_SET_NAME, "spawner");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The terminal's signals are for the main loop. */
    for (size_t i = 0; i < 3; i++)
        signal((const int[]){SIGINT, SIGTERM, SIGHUP}[i], SIG_IGN);
    for (;;) {
        for (; running < WORKERS; running++) {
            pid_t pid = fork();

            if (pid == 0) {
                /* Inits are reaped by themselves, and fall to the main loop when their worker
                 * ends. */
                signal(SIGCHLD, SIG_IGN);
                work(socket);
            }
            if (pid < 0) {
                sleep(1);
                break;
            }
        }
        if (running && wait(&status) > 0) {
            running--;
            if (WIFEXITED(status) && WEXITSTATUS(status) == MAIN_LOOP_GONE)
                _exit(0);
        }
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

/* --- the main loop's side -------------------------------------------------------------------- */

/* Hand over what the workers have room for. */
static void send_next(void)
{
    for (struct spawn *spawn = spawns; spawn && sent < AT_ONCE; spawn = spawn->next) {
        if (spawn->result < 0)
            continue;
        /* Should it fail, the socket's other end is closed: heard as a start that was cut off. */
        if (packet_send(spawner, &spawn->request, sizeof(spawn->request),
                        (const int[]){spawn->result, spawn->process}, spawn->process < 0 ? 1 : 2,
                        MSG_DONTWAIT) < 0)
            LOG(ERROR, "spawner", V("reason", strerror(errno)));
        scope_close(&spawn->process);
        spawn->process = -1;
        close(take_fd(&spawn->result));
        sent++;
    }
}

int spawn_begin(const struct spawn_request *request, int process, struct error *err)
{
    struct spawn **last = &spawns, *spawn;
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "socketpair");
    auto_close int ours = sockets[0], theirs = sockets[1];
    if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "socketpair");
    spawn = calloc(1, sizeof(*spawn));
    if (!spawn)
        abort();
    *spawn = (struct spawn){
        .socket = ours, .result = take_fd(&theirs), .process = -1, .request = *request};
    if (process >= 0)
        spawn->process = fcntl(process, F_DUPFD_CLOEXEC, 3);
    while (*last)
        last = &(*last)->next;
    *last = spawn;
    send_next();
    return take_fd(&ours);
}

int spawn_hear(int socket, struct spawn_report *report, int *pidfd)
{
    ssize_t length = packet_receive(socket, report, sizeof(*report), pidfd, 1);

    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return length == sizeof(*report) ? 1 : -1;
}

void spawn_forget(int socket)
{
    struct spawn **at = &spawns, *spawn;

    while (*at && (*at)->socket != socket)
        at = &(*at)->next;
    if ((spawn = *at)) {
        *at = spawn->next;
        if (spawn->result >= 0)
            close(spawn->result);
        else
            sent--;
        scope_close(&spawn->process);
        free(spawn);
    }
    close(socket);
    send_next();
}

void spawn_end(struct watch *watch)
{
    int socket = loop_release(watch);

    if (socket >= 0)
        spawn_forget(socket);
}

pid_t spawn_pid(void)
{
    return spawner_pid;
}
