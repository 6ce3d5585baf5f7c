/* proc.*: what can be done to init and to other processes. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

enum { SEIZE = 0x4206 };

static int ptrace_pid1(const void *row)
{
    (void)row;
    return REFUSED(ptrace(PTRACE_ATTACH, 1, NULL, NULL)) | REFUSED(ptrace(SEIZE, 1, NULL, NULL)) |
           REFUSED(ptrace(PTRACE_PEEKDATA, 1, (void *)0x400000, NULL));
}

static int vm_readv_pid1(const void *row)
{
    char bytes[8];
    struct iovec own = {bytes, sizeof(bytes)}, theirs = {(void *)0x400000, sizeof(bytes)};

    (void)row;
    return REFUSED_WITH(EPERM, process_vm_readv(1, &own, 1, &theirs, 1, 0));
}

static int vm_writev_pid1(const void *row)
{
    char bytes[8] = "";
    struct iovec own = {bytes, sizeof(bytes)}, theirs = {(void *)0x400000, sizeof(bytes)};

    (void)row;
    return REFUSED_WITH(EPERM, process_vm_writev(1, &own, 1, &theirs, 1, 0));
}

static int pidfd_getfd_pid1(const void *row)
{
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);

    (void)row;
    for (int fd = 0; fd < 16; fd++)
        if (refused("pidfd_getfd", syscall(SYS_pidfd_getfd, pidfd, fd, 0), 0))
            return BROKEN;
    return HOLDS;
}

static int prlimit_pid1(const void *row)
{
    struct rlimit limit = {1, 1};

    (void)row;
    return REFUSED(prlimit(1, RLIMIT_NOFILE, &limit, NULL)) |
           REFUSED(prlimit(1, RLIMIT_CPU, &limit, NULL)) |
           REFUSED(prlimit(1, RLIMIT_AS, &limit, NULL));
}

/* Init has a handler for none of them, so the kernel drops what its own namespace sends. */
static int kill_pid1(const void *row)
{
    union sigval value = {0};
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);

    (void)row;
    for (int number = 1; number <= 64; number++) {
        kill(1, number);
        syscall(SYS_tgkill, 1, 1, number);
        syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
        sigqueue(1, number, value);
    }
    usleep(50000);
    /* As another user EPERM tells that it lives. */
    return kill(1, 0) == 0 || errno == EPERM ? HOLDS : broken("init is gone");
}

static int init_is_not_stopped(const void *row)
{
    char line[512] = "", *state;
    FILE *file;

    (void)row;
    kill(1, SIGSTOP);
    kill(1, SIGTSTP);
    usleep(20000);
    file = fopen("/proc/1/stat", "r");
    if (!file || !fgets(line, sizeof(line), file) || !(state = strrchr(line, ')')))
        return broken("/proc/1/stat");
    return state[2] == 'T' ? broken("init is stopped") : HOLDS;
}

static int oom_score_pid1(const void *row)
{
    (void)row;
    return REFUSED(write(open("/proc/1/oom_score_adj", O_WRONLY), "1000", 4)) |
           REFUSED(write(open("/proc/1/coredump_filter", O_WRONLY), "0x1", 3));
}

/* A setuid program gains nothing: no_new_privs, and nosuid everywhere. */
static int setuid_program(const void *row)
{
    int status;
    pid_t pid;

    (void)row;
    pid = fork();
    if (pid == 0) {
        execl("/tmp/battery-setuid", "battery", "--is-root", (char *)NULL);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
        return SKIPPED_CHECK; /* root has not left one */
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? HOLDS
                                                         : broken("it has become root: %x", status);
}

/* For the one before, when the other user's turn comes. */
static int setuid_program_is_left(const void *row)
{
    char bytes[65536];
    ssize_t length;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
        to = open("/tmp/battery-setuid", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

    (void)row;
    while ((length = read(from, bytes, sizeof(bytes))) > 0)
        if (write(to, bytes, (size_t)length) != length)
            return broken("copy: %s", strerror(errno));
    return WORKS_FINE(length) | WORKS_FINE(fchmod(to, 06755));
}

static int host_pid(const void *row)
{
    const char *pid = told("BATTERY_HOST_PID");

    (void)row;
    if (!pid)
        return SKIPPED_CHECK;
    return REFUSED_WITH(ESRCH, kill(atoi(pid), SIGKILL)) |
           REFUSED_WITH(ESRCH, ptrace(PTRACE_ATTACH, atoi(pid), NULL, NULL)) |
           REFUSED(syscall(SYS_pidfd_open, atoi(pid), 0));
}

/* Nobody that can be traced is other than a descendant of this run or a command beside it; the
 * monitors are not. */
static int monitors_cannot_be_traced(const void *row)
{
    pid_t monitor = getpid();

    (void)row;
    /* Up to whose parent is init. */
    for (int up = 0; up < 16; up++) {
        char path[64], line[512] = "", *state;
        int parent = 0;

        snprintf(path, sizeof(path), "/proc/%d/stat", monitor);
        FILE *file = fopen(path, "r");
        if (!file || !fgets(line, sizeof(line), file) || !(state = strrchr(line, ')')) ||
            sscanf(state + 1, " %*c %d", &parent) != 1)
            return broken("%s", path);
        fclose(file);
        if (parent <= 1)
            break;
        monitor = parent;
    }
    if (monitor == getpid())
        return SKIPPED_CHECK;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mem", monitor);
    /* In the start path the one below init is a command of the tenant's. */
    if (told("BATTERY_START_PATH"))
        return SKIPPED_CHECK;
    return REFUSED(ptrace(SEIZE, monitor, NULL, NULL)) | REFUSED(open(path, O_RDWR)) |
           REFUSED(prlimit(monitor, RLIMIT_CPU, &(struct rlimit){0, 0}, NULL));
}

static int priority_raised(const void *row)
{
    struct sched_param real = {.sched_priority = 1};
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } deadline = {
        .size = 48, .policy = 6, .runtime = 1000000, .deadline = 10000000, .period = 10000000};

    (void)row;
    return REFUSED(setpriority(PRIO_PROCESS, 0, -1)) |
           REFUSED(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &real)) |
           REFUSED(syscall(SYS_sched_setscheduler, 0, SCHED_RR, &real)) |
           REFUSED(syscall(SYS_sched_setattr, 0, &deadline, 0)) |
           REFUSED(syscall(SYS_ioprio_set, 1, 0, (1 << 13) /* real time */));
}

static int oom_score_lowered(const void *row)
{
    int fd = open("/proc/self/oom_score_adj", O_RDWR);
    char score[16] = "";

    (void)row;
    return REFUSED(write(fd, "-1000", 5)) |
           (pread(fd, score, sizeof(score) - 1, 0) < 0 || atoi(score) < 300
                ? broken("oom_score_adj is %s", score)
                : HOLDS);
}

/* --- on the watch ---------------------------------------------------------------------------- */

/* A descriptor of a process that starts or ends, and leads out of here. */
static void look_into(const char *pid)
{
    char path[64], name[400];
    struct dirent *entry;
    int number = atoi(pid), pidfd = (int)syscall(SYS_pidfd_open, number, 0);
    DIR *directory;

    for (int fd = 0; fd < 12; fd++)
        if (syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0)
            printf("pidfd_getfd of %s\n", pid);
    close(pidfd);
    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    directory = opendir(path);
    while (directory && (entry = readdir(directory))) {
        char target[512], seen[64];
        struct stat status;
        ssize_t length;

        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        length = readlink(name, target, sizeof(target) - 1);
        if (entry->d_name[0] == '.' || length <= 0)
            continue;
        target[length] = '\0';
        /* A place that is not here, or what only the outside has. */
        if ((target[0] == '/' && lstat(target, &status) < 0 && errno == ENOENT &&
             !strstr(target, "/proc/") && !strstr(target, "(deleted)")) ||
            strncmp(target, "mnt:", 4) == 0 || strncmp(target, "socket:", 7) == 0) {
            snprintf(seen, sizeof(seen), "%.60s", target);
            printf("%s -> %s\n", name, seen);
        }
    }
    if (directory)
        closedir(directory);
}

/* A command of ours may be traced; what is still the supervisor's program may not. */
static void trace_briefly(pid_t pid)
{
    char path[64], name[64] = "";
    FILE *file;

    if (ptrace(SEIZE, pid, NULL, NULL) < 0)
        return;
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    if ((file = fopen(path, "r"))) {
        if (fgets(name, sizeof(name), file) && strstr(name, "sandbox"))
            printf("traced %s", name);
        fclose(file);
    }
    ptrace((int)0x4207 /* INTERRUPT */, pid, NULL, NULL);
    if (waitpid(pid, NULL, 0x40000000 /* __WALL */) == pid)
        ptrace(PTRACE_DETACH, pid, NULL, NULL);
}

/* The way by which one could get hold of what starts beside it: prints what it finds. Of two that
 * trace, each would wait for the other. */
int spin_main(bool tracing)
{
    int looked =
        open(tracing ? "/tmp/traced" : "/tmp/looked", O_CREAT | O_WRONLY | O_CLOEXEC, 0666);

    for (unsigned long count = 0;;) {
        DIR *all = opendir("/proc");
        struct dirent *process;

        while (all && (process = readdir(all))) {
            if (process->d_name[0] < '1' || process->d_name[0] > '9' ||
                atoi(process->d_name) == getpid())
                continue;
            look_into(process->d_name);
            if (tracing)
                trace_briefly(atoi(process->d_name));
            fflush(stdout);
            count++;
        }
        if (all)
            closedir(all);
        dprintf(looked, "%lu\n", count);
    }
}

static const struct check checks[] = {
    {"ptrace_pid1", ptrace_pid1, NULL, EVERYBODY},
    {"vm_readv_pid1", vm_readv_pid1, NULL, EVERYBODY},
    {"vm_writev_pid1", vm_writev_pid1, NULL, EVERYBODY},
    {"pidfd_getfd_pid1", pidfd_getfd_pid1, NULL, EVERYBODY},
    {"prlimit_pid1", prlimit_pid1, NULL, EVERYBODY},
    {"kill_pid1", kill_pid1, NULL, EVERYBODY},
    {"init_is_not_stopped", init_is_not_stopped, NULL, EVERYBODY},
    {"oom_score_pid1", oom_score_pid1, NULL, EVERYBODY},
    {"setuid_program_is_left", setuid_program_is_left, NULL, ROOT},
    {"setuid_program", setuid_program, NULL, USER},
    {"host_pid", host_pid, NULL, EVERYBODY},
    {"monitors_cannot_be_traced", monitors_cannot_be_traced, NULL, EVERYBODY},
    {"priority_raised", priority_raised, NULL, EVERYBODY},
    {"oom_score_lowered", oom_score_lowered, NULL, EVERYBODY},
};

const struct battery battery_processes = {"proc", checks, COUNT(checks)};
