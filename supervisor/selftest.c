/* Before it serves, the supervisor tries a sandbox on itself: see selftest.h. */
#include "supervisor/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/lifecycle.h"
#include "supervisor/loop.h"
#include "supervisor/sandbox.h"
#include "supervisor/spawn.h"

enum { PATIENCE_MS = (SPAWN_SECONDS + 1) * 1000, HIGH_BIT = 32 };

/* The ten that are kept: all else of capabilities.c is its own. */
#define CAPABILITIES_INSIDE                                                           \
    (1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE | 1U << CAP_FOWNER | 1U << CAP_FSETID | \
     1U << CAP_KILL | 1U << CAP_SETGID | 1U << CAP_SETUID | 1U << CAP_SETPCAP |       \
     1U << CAP_NET_BIND_SERVICE | 1U << CAP_SETFCAP)

#define NAME "selftest" /* no sandbox is called so: what is left of it is swept as a stray */

/* --- inside ---------------------------------------------------------------------------------- */

/* A call without arguments that must fail; true when it did. */
static bool refuses_mount(void)
{
    return mount("none", "/tmp", "tmpfs", 0, NULL) < 0;
}

static bool refuses_umount(void)
{
    return umount2("/proc/sys", MNT_DETACH) < 0;
}

static bool refuses_namespaces(void)
{
    long pid =
        syscall(SYS_clone, (1UL << HIGH_BIT) | CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0)
        _exit(0);
    return pid < 0 && unshare(CLONE_NEWUSER) < 0 && unshare(CLONE_NEWNS) < 0 &&
           syscall(SYS_clone3, NULL, 0) < 0 && errno == ENOSYS;
}

static bool refuses_devices(void)
{
    return mknod("/tmp/memory", S_IFCHR | 0600, makedev(1, 1)) < 0 &&
           open("/dev/mem", O_RDONLY) < 0;
}

/* The second belongs to the sandbox's root, who may write to it unless something covers it. */
static bool refuses_switches(void)
{
    return open("/proc/sys/kernel/core_pattern", O_WRONLY) < 0 &&
           open("/proc/sys/user/max_user_namespaces", O_WRONLY) < 0 && mkdir("/dev/x", 0700) < 0 &&
           mkdir("/sys/x", 0700) < 0;
}

static bool hides_the_kernel(void)
{
    static const char *const paths[] = {"/proc/kallsyms", "/proc/timer_list", "/proc/keys",
                                        "/proc/cmdline", "/proc/partitions"};

    for (size_t i = 0; i < COUNT(paths); i++) {
        auto_close int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        char byte;

        if (fd >= 0 && read(fd, &byte, 1) > 0)
            return false;
    }
    return true;
}

static bool refuses_sockets(void)
{
    return socket(AF_ALG, SOCK_SEQPACKET, 0) < 0 &&
           syscall(SYS_socket, (1UL << HIGH_BIT) | AF_ALG, SOCK_SEQPACKET, 0) < 0 &&
           socket(AF_PACKET, SOCK_RAW, 0) < 0 && socket(AF_INET, SOCK_RAW, 1) < 0 &&
           socket(AF_NETLINK, SOCK_RAW, 6) < 0;
}

static bool refuses_injection(void)
{
    return ioctl(0, TIOCSTI, "x") < 0 && errno == EPERM &&
           syscall(SYS_ioctl, 0, (1UL << HIGH_BIT) | TIOCSTI, "x") < 0 && errno == EPERM;
}

static bool refuses_kernel_calls(void)
{
    static const int numbers[] = {SYS_bpf,
                                  SYS_perf_event_open,
                                  SYS_keyctl,
                                  SYS_add_key,
                                  SYS_userfaultfd,
                                  SYS_io_uring_setup,
                                  SYS_kcmp,
                                  SYS_chroot,
                                  SYS_pivot_root,
                                  SYS_init_module,
                                  SYS_open_by_handle_at,
                                  SYS_fsopen,
                                  SYS_setns,
                                  SYS_pidfd_getfd,
                                  SYS_vmsplice,
                                  SYS_swapon,
                                  SYS_reboot,
                                  SYS_syslog,
                                  SYS_process_madvise};

    /* With no sense in the arguments a call that is let through fails otherwise. */
    for (size_t i = 0; i < COUNT(numbers); i++)
        if (syscall(numbers[i], -1, NULL, NULL, NULL, NULL) >= 0 ||
            (errno != EPERM && errno != ENOSYS))
            return false;
    return true;
}

static bool is_alone(void)
{
    return getpid() == 1 && getppid() == 0 && getuid() == 0 && access("/etc/passwd", F_OK) < 0;
}

static bool has_lost_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {0};

    if (syscall(SYS_capget, &head, sets) < 0)
        return false;
    for (size_t i = 0; i < COUNT(sets); i++) {
        uint32_t most = i == 0 ? CAPABILITIES_INSIDE : 0;

        if (sets[i].effective != most || sets[i].permitted != most || sets[i].inheritable)
            return false;
    }
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
        if (prctl(PR_CAPBSET_READ, cap) == 1 && (cap >= 32 || !(CAPABILITIES_INSIDE >> cap & 1)))
            return false;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && sethostname("x", 1) < 0 &&
           prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) < 0 &&
           prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0) < 0;
}

static bool refuses_personalities(void)
{
    static const unsigned long others[] = {0x40000 /* ADDR_NO_RANDOMIZE */,
                                           0x100000 /* PAGE_ZERO */, 0x20009, 0xfffffffe,
                                           (1UL << HIGH_BIT) | 0x40000};

    for (size_t i = 0; i < COUNT(others); i++)
        if (syscall(SYS_personality, others[i]) >= 0 || errno != EPERM)
            return false;
    return true; /* units may refuse to ask for it, too (systemd.exec(5), LockPersonality) */
}

/* Libraries fall back on ENOSYS alone. */
static bool refuses_unknown_calls(void)
{
    return syscall(0x3fffffff) < 0 && errno == ENOSYS && syscall(SYS_io_uring_setup, 1, NULL) < 0 &&
           errno == ENOSYS;
}

static bool has_limits(void)
{
    static const struct {
        int resource;
        rlim_t most;
    } limits[] = {
        {RLIMIT_CORE, 1}, /* 0 where raise_core_limit found no handler */
        {RLIMIT_NOFILE, 16384},    {RLIMIT_MEMLOCK, 8 << 20}, {RLIMIT_MSGQUEUE, 819200},
        {RLIMIT_SIGPENDING, 4096}, {RLIMIT_RTPRIO, 0},        {RLIMIT_NICE, 0},
        {RLIMIT_NPROC, 4096},
    };

    for (size_t i = 0; i < COUNT(limits); i++) {
        struct rlimit now;

        if (getrlimit((__rlimit_resource_t)limits[i].resource, &now) < 0 ||
            now.rlim_max > limits[i].most || now.rlim_cur > now.rlim_max)
            return false;
    }
    return true;
}

static const struct {
    const char *name;
    bool (*holds)(void);
} fences[] = {
    {"mount", refuses_mount},
    {"unmount", refuses_umount},
    {"namespaces", refuses_namespaces},
    {"devices", refuses_devices},
    {"kernel switches", refuses_switches},
    {"what the kernel tells", hides_the_kernel},
    {"sockets", refuses_sockets},
    {"terminal injection", refuses_injection},
    {"kernel calls", refuses_kernel_calls},
    {"the host's files and processes", is_alone},
    {"personalities", refuses_personalities},
    {"unknown calls", refuses_unknown_calls},
    {"capabilities", has_lost_capabilities},
    {"limits", has_limits},
};

int selftest_inside(struct error *err)
{
    for (size_t i = 0; i < COUNT(fences); i++)
        if (!fences[i].holds())
            return error_set(err, ERR_INTERNAL, "a sandbox on this machine does not contain: %s",
                             fences[i].name);
    return 0;
}

/* --- outside --------------------------------------------------------------------------------- */

static int make_folder(struct error *err)
{
    struct disk disk;

    if (storage_size(0, 0, &disk, err) < 0 || storage_make("sandboxes", NAME, &disk, err) < 0)
        return -1;
    if (mkdirat(sandbox_folder(), NAME "/image", 0755) < 0 ||
        mkdirat(sandbox_folder(), NAME "/image/etc", 0755) < 0)
        return error_set_errno(err, ERR_INTERNAL, "self-test");
    return 0;
}

static int await_report(int reports, int *pidfd, struct error *err)
{
    int64_t deadline = loop_now() + PATIENCE_MS;

    for (;;) {
        struct pollfd event = {.fd = reports, .events = POLLIN};
        struct spawn_report report;
        int heard, received;

        if (poll(&event, 1, PATIENCE_MS) < 0 && errno != EINTR)
            return error_set_errno(err, ERR_INTERNAL, "self-test");
        heard = spawn_hear(reports, &report, &received);
        if (heard < 0 || loop_now() >= deadline)
            return error_set(err, ERR_INTERNAL, "self-test: the sandbox did not start in time");
        if (heard == 0)
            continue;
        if (report.stage == SPAWN_CLONED) {
            *pidfd = received;
            continue;
        }
        if (report.stage == SPAWN_STARTED)
            return 0;
        report.error.message[sizeof(report.error.message) - 1] = '\0';
        *err = report.error;
        return error_add_context(err, "self-test");
    }
}

int selftest_run(struct error *err)
{
    struct spawn_request request = {
        .sandbox = NAME,
        .cgroup = NAME,
        .hostname = NAME,
        .self_test = true,
        .slot = sandbox_free_slot(),
    };
    const struct start start = {
        .memory_bytes = 64 << 20, .pids = 16, .cpu_percent = 100, .tmp_bytes = 1 << 20};
    auto_close int pidfd = -1;
    struct error ignored;
    int result = -1, reports = -1;

    if (limits_of(&start, &request.limits, err) < 0)
        return -1;
    if (request.slot < 0)
        return 0; /* all are in use by sandboxes of an earlier supervisor, which has tried it */
    if (make_folder(err) == 0 && (reports = spawn_begin(&request, -1, err)) >= 0)
        result = await_report(reports, &pidfd, err);
    if (reports >= 0)
        spawn_forget(reports);
    if (!lifecycle_kill(NAME, pidfd) && result == 0)
        result = error_set(err, ERR_INTERNAL, "self-test: its processes do not end");
    if (storage_remove("sandboxes", NAME, result == 0 ? err : &ignored) < 0)
        result = -1;
    return result;
}
