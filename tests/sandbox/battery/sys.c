/* sys.*: system calls, by what the filter answers. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

/* --- calls that have no business inside ------------------------------------------------------ */

struct call {
    long number;
    int error;
    long arguments[6];
};

static char page[4096];
#define P ((long)(uintptr_t)page)

/* With arguments that the kernel itself would answer in another way, if it could. */
static int call_refused(const void *data)
{
    const struct call *call = data;
    const long *a = call->arguments;
    long result = syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);

    if (result < 0 && errno == call->error)
        return HOLDS;
    if (result >= 0)
        return broken("call %ld worked (%ld)", call->number, result);
    return broken("call %ld: %s, not %s", call->number, strerror(errno), strerror(call->error));
}

/* name, number, error, arguments */

#define CALL(name, number, error, ...) \
    static const struct call call_##name = {number, error, {__VA_ARGS__}};
#include "tests/sandbox/battery/calls.def"
#undef CALL

static const struct check calls[] = {
#define CALL(name, number, error, ...) {#name, call_refused, &call_##name, EVERYBODY},
#include "tests/sandbox/battery/calls.def"
#undef CALL
};

const struct battery battery_calls = {"sys", calls, COUNT(calls)};

/* --- clone ----------------------------------------------------------------------------------- */

struct flags {
    unsigned long flags;
};

static int clone_refused(const void *data)
{
    const struct flags *row = data;
    long pid = syscall(SYS_clone, row->flags | SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0)
        _exit(0);
    return refused("clone", pid, EPERM);
}

/* The flags of a thread do not hide the others. */
static int clone_thread_refused(const void *data)
{
    const struct flags *row = data;

    /* Were it let through, the kernel would say EINVAL: a thread can't have what these ask. */
    return refused("clone",
                   syscall(SYS_clone, row->flags | CLONE_VM | CLONE_SIGHAND | CLONE_THREAD, page,
                           NULL, NULL, NULL),
                   EPERM);
}

static int clone3_refused(const void *data)
{
    const struct flags *row = data;
    uint64_t arguments[11] = {row->flags, 0, 0, 0, SIGCHLD};
    long pid = syscall(SYS_clone3, arguments, sizeof(arguments));

    if (pid == 0)
        _exit(0);
    return refused("clone3", pid, ENOSYS);
}

#define ROW(name, bits)                                               \
    static const struct flags flags_##name = {(unsigned long)(bits)}, \
                              flags_##name##_high = {HIGH_BITS | (unsigned long)(bits)};
#include "tests/sandbox/battery/namespaces.def"
#undef ROW

/* --- more than one call ---------------------------------------------------------------------- */

static int setns_own(const void *row)
{
    static const char *const names[] = {"user", "mnt", "pid",    "net",
                                        "ipc",  "uts", "cgroup", "time"};
    char path[64];

    (void)row;
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        if (refused(path, syscall(SYS_setns, open(path, O_RDONLY), 0), EPERM))
            return BROKEN;
    }
    return REFUSED_WITH(EPERM,
                        syscall(SYS_setns, syscall(SYS_pidfd_open, getpid(), 0), 0x40000000));
}

/* What is not on the list, whatever a later kernel makes of it. */
static int unknown_numbers(const void *row)
{
    (void)row;
    for (long number = 471; number < 4096; number++)
        if (syscall(number, -1, 0, 0, 0, 0, 0) >= 0 || errno != ENOSYS)
            return broken("call %ld: %s", number, strerror(errno));
    return REFUSED_WITH(ENOSYS, syscall(0x3fffffff));
}

static int personality_known(const void *row)
{
    static const unsigned long fine[] = {8, 0x20000, 0x20008, 0};

    (void)row;
    for (size_t i = 0; i < COUNT(fine); i++)
        if (syscall(SYS_personality, fine[i]) < 0)
            return broken("personality %lx: %s", fine[i], strerror(errno));
    return WORKS_FINE(syscall(SYS_personality, 0xffffffffUL)) |
           WORKS_FINE(syscall(SYS_personality, -1L));
}

struct device {
    mode_t mode;
    unsigned major_number, minor_number;
};

static int mknod_refused(const void *data)
{
    const struct device *row = data;
    dev_t device = makedev(row->major_number, row->minor_number);

    return REFUSED_WITH(EPERM, mknod("/tmp/device", row->mode | 0600, device)) |
           REFUSED_WITH(EPERM, syscall(SYS_mknod, "/tmp/device", row->mode | 0600, device)) |
           REFUSED_WITH(EPERM,
                        syscall(SYS_mknodat, AT_FDCWD, "/tmp/device", row->mode | 0600, device)) |
           REFUSED_WITH(EPERM, syscall(SYS_mknodat, AT_FDCWD, "/tmp/device",
                                       HIGH_BITS | row->mode | 0600, device));
}

static const struct device device_memory = {S_IFCHR, 1, 1}, device_null = {S_IFCHR, 1, 3},
                           device_disk = {S_IFBLK, 254, 0}, device_loop = {S_IFBLK, 7, 0},
                           device_whiteout = {S_IFCHR, 0, 0}, device_kmsg = {S_IFCHR, 1, 11},
                           device_tun = {S_IFCHR, 10, 200}, device_fuse = {S_IFCHR, 10, 229},
                           device_console = {S_IFCHR, 5, 1};

static int capset_more(const void *row)
{
    struct {
        uint32_t version;
        int pid;
    } head = {0x20080522, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2] = {{~0U, ~0U, 0}, {~0U, ~0U, 0}};

    (void)row;
    return REFUSED(syscall(SYS_capset, &head, sets));
}

static int securebits(const void *row)
{
    (void)row;
    return REFUSED(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0)) |
           REFUSED(prctl(PR_SET_SECUREBITS, 1 /* NOROOT */, 0, 0, 0)) |
           REFUSED(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 0 /* CHOWN */, 0, 0));
}

static int prctl_privileged(const void *row)
{
    (void)row;
    return REFUSED(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)) |
           REFUSED(prctl(PR_SET_SECCOMP, 0, 0, 0, 0)) |
           REFUSED(prctl(35 /* SET_MM */, 8, page, 0, 0)) |
           REFUSED(prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0)) |
           REFUSED_WITH(EPERM, prctl(62 /* SCHED_CORE */, 1, 0, 0, 0)) |
           REFUSED_WITH(EPERM, syscall(SYS_prctl, HIGH_BITS | 62, 1, 0, 0, 0)) |
           REFUSED_WITH(EPERM, prctl(67 /* SET_MEMORY_MERGE */, 1, 0, 0, 0));
}

/* A tracer can't take the filter from whom it traces, nor read it. */
static int filter_suspended(const void *row)
{
    int status, verdict;
    pid_t pid = fork();

    (void)row;
    if (pid == 0)
        for (;;)
            pause();
    if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) < 0 || waitpid(pid, &status, 0) != pid)
        return broken("attach: %s", strerror(errno));
    verdict = REFUSED(ptrace((int)0x4200 /* SETOPTIONS */, pid, NULL, (void *)(1L << 21))) |
              REFUSED(ptrace((int)0x420c /* SECCOMP_GET_FILTER */, pid, NULL, page));
    kill(pid, SIGKILL);
    return verdict;
}

/* What root writes beside a program gives nobody anything: no_new_privs, and nosuid. */
static int file_capabilities(const void *row)
{
    /* VFS_CAP_REVISION_2, effective: everything */
    static const uint32_t all[5] = {0x02000001, ~0U, 0, ~0U, 0};
    char bytes[65536];
    int status, from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
                to = open("/tmp/capable", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    ssize_t length;
    pid_t pid;

    (void)row;
    while ((length = read(from, bytes, sizeof(bytes))) > 0)
        if (write(to, bytes, (size_t)length) != length)
            return broken("copy: %s", strerror(errno));
    close(to);
    if (works("setxattr", setxattr("/tmp/capable", "security.capability", all, sizeof(all), 0)))
        return BROKEN;
    pid = fork();
    if (pid == 0) {
        if (setgid(1000) < 0 || setuid(1000) < 0)
            _exit(8);
        execl("/tmp/capable", "battery", "--is-capable", (char *)NULL);
        _exit(errno == EPERM ? 0 : 9); /* refused is fine too */
    }
    waitpid(pid, &status, 0);
    unlink("/tmp/capable");
    return status == 0 ? HOLDS : broken("it ended with %x", status);
}

/* A tenant's own filter, with a listener, can't allow what ours refuses. */
static int filter_loosened(const void *row)
{
    struct {
        uint16_t code;
        uint8_t jt, jf;
        uint32_t k;
    } allow = {6 /* RET */, 0, 0, 0x7fff0000};
    struct {
        uint16_t length;
        void *filter;
    } program = {1, &allow};

    (void)row;
    return WORKS_FINE(syscall(SYS_seccomp, 1, 0, &program)) |
           REFUSED_WITH(EPERM, syscall(SYS_unshare, CLONE_NEWUSER)) |
           REFUSED_WITH(ENOSYS, syscall(425, 1, page));
}

static const struct check checks[] = {
#define ROW(name, bits)                                                                  \
    {"clone_new" #name, clone_refused, &flags_##name, EVERYBODY},                        \
        {"clone_new" #name "_highbits", clone_refused, &flags_##name##_high, EVERYBODY}, \
        {"clone_thread_new" #name, clone_thread_refused, &flags_##name, EVERYBODY},      \
        {"clone3_new" #name, clone3_refused, &flags_##name, EVERYBODY},
#include "tests/sandbox/battery/namespaces.def"
#undef ROW
    {"setns_own", setns_own, NULL, EVERYBODY},
    {"unknown_numbers", unknown_numbers, NULL, EVERYBODY},
    {"personality_known", personality_known, NULL, EVERYBODY},
    {"mknod_memory", mknod_refused, &device_memory, EVERYBODY},
    {"mknod_null", mknod_refused, &device_null, EVERYBODY},
    {"mknod_disk", mknod_refused, &device_disk, EVERYBODY},
    {"mknod_loop", mknod_refused, &device_loop, EVERYBODY},
    {"mknod_whiteout", mknod_refused, &device_whiteout, EVERYBODY},
    {"mknod_kmsg", mknod_refused, &device_kmsg, EVERYBODY},
    {"mknod_tun", mknod_refused, &device_tun, EVERYBODY},
    {"mknod_fuse", mknod_refused, &device_fuse, EVERYBODY},
    {"mknod_console", mknod_refused, &device_console, EVERYBODY},
    {"capset_more", capset_more, NULL, EVERYBODY},
    {"securebits", securebits, NULL, EVERYBODY},
    {"prctl_privileged", prctl_privileged, NULL, EVERYBODY},
    {"filter_suspended", filter_suspended, NULL, EVERYBODY},
    {"file_capabilities", file_capabilities, NULL, ROOT},
    {"filter_loosened", filter_loosened, NULL, EVERYBODY},
};

const struct battery battery_sys = {"sys", checks, COUNT(checks)};
