/* limit.*: what one process may hold; abi.*: the other ways into the kernel. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

/* --- limits ---------------------------------------------------------------------------------- */

struct bound {
    int resource;
    rlim_t soft, hard;
};

/* No more than that, and no way to more. */
static int limit_is(const void *data)
{
    const struct bound *bound = data;
    struct rlimit now, more;

    if (getrlimit(bound->resource, &now) < 0)
        return broken("getrlimit: %s", strerror(errno));
    if (now.rlim_cur > bound->soft || now.rlim_max > bound->hard)
        return broken("%lu:%lu", (unsigned long)now.rlim_cur, (unsigned long)now.rlim_max);
    more = (struct rlimit){now.rlim_cur, now.rlim_max + 1};
    return REFUSED_WITH(EPERM, setrlimit(bound->resource, &more)) |
           REFUSED_WITH(EPERM, prlimit(0, bound->resource, &(struct rlimit){~0UL, ~0UL}, NULL));
}

#define LIMIT(name, resource, soft, hard) \
    static const struct bound limit_##name = {resource, soft, hard};
#include "tests/sandbox/battery/limits.def"
#undef LIMIT

/* A crash leaves no file, and feeds no handler of the host. */
static int crash_leaves_nothing(const void *row)
{
    int status;
    pid_t pid;

    (void)row;
    if (mkdir("/tmp/crash", 0777) < 0 && errno != EEXIST)
        return broken("mkdir: %s", strerror(errno));
    pid = fork();
    if (pid == 0) {
        if (chdir("/tmp/crash") < 0)
            _exit(1);
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    waitpid(pid, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        return broken("it did not crash: %x", status);
    if (WCOREDUMP(status))
        return broken("it was dumped");
    return access("/tmp/crash/core", F_OK) < 0 ? HOLDS : broken("a file was left");
}

static int descriptors_are_bounded(const void *row)
{
    struct rlimit most = {16384, 16384};
    int count = 0;

    (void)row;
    setrlimit(RLIMIT_NOFILE, &most);
    while (count < 20000 && dup(0) >= 0)
        count++;
    return count < 16384 ? HOLDS : broken("%d descriptors", count);
}

static int inotify_is_bounded(const void *row)
{
    int count = 0;

    (void)row;
    while (count < 20000 && syscall(SYS_inotify_init1, 0) >= 0)
        count++;
    return count > 0 && count <= 1024 ? HOLDS : broken("%d instances", count);
}

/* Until something runs out, which must be soon. */
static int inodes_run_out(const void *data)
{
    char path[256];
    long count = 0;
    bool full = false;

    snprintf(path, sizeof(path), "%s/many.%d", (const char *)data, getuid());
    if (mkdir(path, 0755) < 0)
        return broken("%s: %s", path, strerror(errno));
    for (; count < 300000 && !full; count++) {
        snprintf(path, sizeof(path), "%s/many.%d/%ld", (const char *)data, getuid(), count);
        full = mknod(path, S_IFIFO | 0600, 0) < 0;
    }
    for (; count >= 0; count--) {
        snprintf(path, sizeof(path), "%s/many.%d/%ld", (const char *)data, getuid(), count);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/many.%d", (const char *)data, getuid());
    rmdir(path);
    return full ? HOLDS : broken("%s takes %ld files", (const char *)data, count);
}

static int bytes_run_out(const void *data)
{
    char path[256];
    int fd;
    bool fits;

    snprintf(path, sizeof(path), "%s/large.%d", (const char *)data, getuid());
    fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    fits = fd >= 0 && posix_fallocate(fd, 0, 4L << 30) == 0;
    unlink(path);
    return fits ? broken("%s takes 4 GB", path) : HOLDS;
}

static int locked_memory(const void *row)
{
    size_t size = 64 << 20;
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)row;
    return REFUSED(mlock(bytes, size)) | WORKS_FINE(mlock(bytes, 4096));
}

/* Pages that are taken from a pool of the host's. */
static int huge_pages(const void *row)
{
    (void)row;
    void *huge = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | 0x40000 /* MAP_HUGETLB */, -1, 0);

    return huge == MAP_FAILED ? HOLDS : broken("a huge page was mapped");
}

static const struct check limit_checks[] = {
#define LIMIT(name, resource, soft, hard) {#name, limit_is, &limit_##name, EVERYBODY},
#include "tests/sandbox/battery/limits.def"
#undef LIMIT
    {"crash_leaves_nothing", crash_leaves_nothing, NULL, EVERYBODY},
    {"descriptors", descriptors_are_bounded, NULL, EVERYBODY},
    {"inotify", inotify_is_bounded, NULL, EVERYBODY},
    {"inodes_of_tmp", inodes_run_out, "/tmp", ROOT},
    {"inodes_of_shm", inodes_run_out, "/dev/shm", ROOT},
    {"bytes_of_tmp", bytes_run_out, "/tmp", EVERYBODY},
    {"bytes_of_shm", bytes_run_out, "/dev/shm", EVERYBODY},
    {"bytes_of_workspace", bytes_run_out, "/workspace", ROOT},
    {"bytes_of_root", bytes_run_out, "/root", ROOT},
    {"locked_memory", locked_memory, NULL, EVERYBODY},
    {"huge_pages", huge_pages, NULL, EVERYBODY},
};

const struct battery battery_limit = {"limit", limit_checks, COUNT(limit_checks)};

/* --- other ABIs ------------------------------------------------------------------------------ */

/* A call of the 32-bit ABI: whatever its number, the process must die of it. */
struct foreign {
    long number, arguments[3];
    enum { INT80, X32, HIGH_X32 } way;
};

static char low_page[4096];

static int dies(const void *data)
{
    const struct foreign *call = data;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        long result = call->number;

        if (call->way == INT80)
            __asm__ volatile("int $0x80"
                             : "+a"(result)
                             : "b"(call->arguments[0]), "c"(call->arguments[1]),
                               "d"(call->arguments[2])
                             : "memory", "r8", "r9", "r10", "r11");
        else
            result =
                syscall((call->way == HIGH_X32 ? (long)HIGH_BITS : 0) | 0x40000000 | call->number,
                        call->arguments[0], call->arguments[1], call->arguments[2]);
        _exit(result < 0 ? 1 : 0);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS ? HOLDS
                                                             : broken("it ended with %x", status);
}

#define CALL(name, ...) static const struct foreign foreign_##name = {__VA_ARGS__};
#include "tests/sandbox/battery/foreign.def"
#undef CALL

/* The kernel looks at the low half of the number. */
static int number_highbits(const void *row)
{
    (void)row;
    return REFUSED_WITH(EPERM, syscall((long)HIGH_BITS | SYS_unshare, 0x10000000)) |
           REFUSED_WITH(EPERM, syscall((long)HIGH_BITS | SYS_mount, "x", "/tmp", "tmpfs", 0, 0)) |
           REFUSED_WITH(ENOSYS, syscall((long)HIGH_BITS | 425, 1, low_page));
}

/* The far jump into 32-bit code that makes SYSENTER and INT 0x80 of another mode. */
static int compatibility_mode(const void *row)
{
    static const unsigned char code[] = {
        0xb8, 0x14, 0x00, 0x00, 0x00, /* mov eax, 20 (getpid) */
        0xcd, 0x80,                   /* int 0x80 */
        0xb8, 0x01, 0x00, 0x00, 0x00, /* mov eax, 1 (exit) */
        0x31, 0xdb,                   /* xor ebx, ebx */
        0xcd, 0x80,
    };
    int status;
    pid_t pid;
    unsigned char *low = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    (void)row;
    if (low == MAP_FAILED)
        return broken("mmap: %s", strerror(errno));
    memcpy(low, code, sizeof(code));
    pid = fork();
    if (pid == 0) {
        struct {
            uint32_t offset;
            uint16_t segment;
        } __attribute__((packed)) target = {0x10000000, 0x23};

        __asm__ volatile("ljmp *%0" : : "m"(target));
        _exit(1);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? HOLDS : broken("it ended with %x", status);
}

static const struct check abi_checks[] = {
#define CALL(name, ...) {#name, dies, &foreign_##name, EVERYBODY},
#include "tests/sandbox/battery/foreign.def"
#undef CALL
    {"number_highbits", number_highbits, NULL, EVERYBODY},
    {"compatibility_mode", compatibility_mode, NULL, EVERYBODY},
};

const struct battery battery_abi = {"abi", abi_checks, COUNT(abi_checks)};
