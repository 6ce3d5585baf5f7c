/* compat.*: what programs do every day, and must go on doing: processes, memory, messages. */
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

static int unknown_call_is_enosys(const void *row)
{
    (void)row;
    return REFUSED_WITH(ENOSYS, syscall(600)) | REFUSED_WITH(ENOSYS, syscall(1000)) |
           REFUSED_WITH(ENOSYS, syscall(-1L)) | REFUSED_WITH(ENOSYS, syscall(SYS_clone3, 0, 0)) |
           REFUSED_WITH(ENOSYS, syscall(425 /* io_uring_setup */, 1, 0));
}

/* --- processes ------------------------------------------------------------------------------- */

static int child_status(pid_t pid)
{
    int status = -1;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static void *thread(void *data)
{
    return data;
}

static int threads(const void *row)
{
    pthread_t all[8];
    pthread_barrier_t barrier;

    (void)row;
    pthread_barrier_init(&barrier, NULL, 1);
    for (size_t i = 0; i < COUNT(all); i++)
        if ((errno = pthread_create(&all[i], NULL, thread, NULL)) != 0)
            return broken("pthread_create: %s", strerror(errno));
    for (size_t i = 0; i < COUNT(all); i++)
        pthread_join(all[i], NULL);
    return HOLDS;
}

static int processes(const void *row)
{
    static char *const arguments[] = {"battery", "--true", NULL};
    pid_t pid = fork();

    (void)row;
    if (pid == 0)
        _exit(3);
    if (child_status(pid) != 3 << 8)
        return broken("fork");
    pid = vfork();
    if (pid == 0)
        _exit(4);
    if (child_status(pid) != 4 << 8)
        return broken("vfork");
    if ((errno = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ)) != 0 ||
        child_status(pid) != 0)
        return broken("posix_spawn: %s", strerror(errno));
    return HOLDS;
}

/* A program in memory, as some launchers have it. */
static int program_in_memory(const void *row)
{
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
        to = (int)syscall(SYS_memfd_create, "program", 3 /* CLOEXEC, ALLOW_SEALING */);
    char bytes[65536];
    ssize_t length;
    pid_t pid;

    (void)row;
    while ((length = read(from, bytes, sizeof(bytes))) > 0)
        if (write(to, bytes, (size_t)length) != length)
            return broken("memfd: %s", strerror(errno));
    pid = fork();
    if (pid == 0) {
        char *arguments[] = {"battery", "--true", NULL};

        syscall(SYS_execveat, to, "", arguments, environ, 0x1000 /* AT_EMPTY_PATH */);
        _exit(9);
    }
    return child_status(pid) == 0 ? HOLDS : broken("execveat");
}

static int pidfds(const void *row)
{
    siginfo_t info = {0};
    pid_t pid = fork();
    int pidfd;

    (void)row;
    if (pid == 0)
        for (;;)
            pause();
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return WORKS_FINE(pidfd) | WORKS_FINE(syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0)) |
           WORKS_FINE(waitid(3 /* P_PIDFD */, (id_t)pidfd, &info, WEXITED)) |
           (info.si_status == SIGTERM ? HOLDS : broken("status %d", info.si_status));
}

/* As strace and gdb do it. */
static int tracing(const void *row)
{
    static int secret = 7;
    struct user_regs_struct registers;
    int copy = 0, status;
    struct iovec own = {&copy, sizeof(copy)}, theirs = {&secret, sizeof(secret)};
    pid_t pid = fork();

    (void)row;
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        secret = 8;
        raise(SIGSTOP);
        getppid();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (!WIFSTOPPED(status))
        return broken("not stopped: %x", status);
    if (works("options", ptrace((int)0x4200 /* SETOPTIONS */, pid, NULL, (void *)1)) |
        works("syscall", ptrace(PTRACE_SYSCALL, pid, NULL, NULL)))
        return BROKEN;
    waitpid(pid, &status, 0);
    if (WSTOPSIG(status) != (SIGTRAP | 0x80) ||
        works("registers", ptrace(PTRACE_GETREGS, pid, NULL, &registers)) ||
        works("registers", ptrace(PTRACE_SETREGS, pid, NULL, &registers)))
        return broken("no stop at a call: %x", status);
    if (works("memory", process_vm_readv(pid, &own, 1, &theirs, 1, 0)) || copy != 8)
        return broken("memory reads %d", copy);
    if (works("memory", process_vm_writev(pid, &own, 1, &theirs, 1, 0)))
        return BROKEN;
    kill(pid, SIGKILL);
    child_status(pid);

    pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    if (works("attach", ptrace(PTRACE_ATTACH, pid, NULL, NULL)) ||
        waitpid(pid, &status, 0) != pid ||
        works("detach", ptrace(PTRACE_DETACH, pid, NULL, NULL)) ||
        works("seize", ptrace((int)0x4206, pid, NULL, NULL)))
        return BROKEN;
    kill(pid, SIGKILL);
    return HOLDS;
}

static int sessions(const void *row)
{
    pid_t pid = fork();

    (void)row;
    if (pid == 0)
        _exit(setsid() < 0 || getsid(0) != getpid() || getpgid(0) != getpid() ||
              prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
              prctl(PR_SET_NAME, "renamed") < 0 || prctl(PR_SET_DUMPABLE, 1) < 0);
    return child_status(pid) == 0 ? HOLDS : broken("a session");
}

/* apt and su become others. */
static int becomes_another(const void *row)
{
    gid_t groups[] = {7, 8};
    pid_t pid = fork();

    (void)row;
    if (pid == 0)
        _exit(setgroups(2, groups) < 0 || setresgid(42, 42, 42) < 0 ||
              setresuid(100, 100, 100) < 0 || getuid() != 100 || setuid(0) == 0 ||
              open("/etc/shadow", O_RDWR) >= 0);
    return child_status(pid) == 0 ? HOLDS : broken("another user");
}

static int root_owns_its_files(const void *row)
{
    int fd = open("/tmp/owned-by-root", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    struct stat status;

    (void)row;
    return WORKS_FINE(fchown(fd, 1000, 1000)) | WORKS_FINE(fchmod(fd, 04755)) |
           WORKS_FINE(open("/tmp/owned-by-root", O_RDWR)) | WORKS_FINE(fstat(fd, &status)) |
           (status.st_uid == 1000 && (status.st_mode & 07777) == 04755
                ? HOLDS
                : broken("it has uid %u, mode %o", status.st_uid, status.st_mode)) |
           WORKS_FINE(unlink("/tmp/owned-by-root")) |
           WORKS_FINE(close(open("/etc/battery", O_CREAT | O_WRONLY, 0644))) |
           WORKS_FINE(rename("/etc/battery", "/root/battery")) |
           WORKS_FINE(unlink("/root/battery"));
}

static int scheduling(const void *row)
{
    struct sched_param none = {0};
    cpu_set_t set;

    (void)row;
    return WORKS_FINE(sched_getaffinity(0, sizeof(set), &set)) |
           WORKS_FINE(sched_setaffinity(0, sizeof(set), &set)) |
           WORKS_FINE(syscall(SYS_sched_setscheduler, 0, 3 /* BATCH */, &none)) |
           WORKS_FINE(syscall(SYS_sched_setscheduler, 0, 0, &none)) |
           WORKS_FINE(setpriority(PRIO_PROCESS, 0, 5)) |
           WORKS_FINE(syscall(SYS_ioprio_set, 1, 0, (3 << 13) /* idle */)) |
           WORKS_FINE(sched_yield());
}

static int own_limits(const void *row)
{
    struct rlimit lower = {64, 128}, none = {0, 0};

    (void)row;
    return WORKS_FINE(setrlimit(RLIMIT_NOFILE, &lower)) |
           WORKS_FINE(setrlimit(RLIMIT_CORE, &none)) |
           WORKS_FINE(prlimit(0, RLIMIT_STACK, NULL, &lower));
}

/* --- memory ---------------------------------------------------------------------------------- */

static int memory(const void *row)
{
    size_t size = 1 << 20;
    unsigned char *bytes =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)row;
    bytes[0] = 0xc3; /* ret */
    if (mprotect(bytes, size, PROT_READ | PROT_EXEC) < 0)
        return broken("mprotect: %s", strerror(errno));
    ((void (*)(void))(uintptr_t)bytes)();
    /* As JIT compilers do. */
    if (mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
        MAP_FAILED)
        return broken("mmap: %s", strerror(errno));
    return WORKS_FINE(madvise(bytes, size, MADV_DONTNEED)) | WORKS_FINE(mlock(bytes, 65536)) |
           WORKS_FINE(munlock(bytes, 65536)) | WORKS_FINE(msync(bytes, size, MS_ASYNC)) |
           (mremap(bytes, size, size * 2, MREMAP_MAYMOVE) == MAP_FAILED
                ? broken("mremap: %s", strerror(errno))
                : HOLDS) |
           WORKS_FINE(syscall(SYS_membarrier, 0, 0, 0));
}

static int shared_memory(const void *row)
{
    char name[64];
    int fd, id;
    void *bytes;

    (void)row;
    snprintf(name, sizeof(name), "/battery.%d", getpid());
    fd = shm_open(name, O_CREAT | O_RDWR, 0600);
    id = shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600);
    if (works("shm_open", fd) | works("ftruncate", ftruncate(fd, 4096)) | works("shmget", id))
        return BROKEN;
    bytes = shmat(id, NULL, 0);
    return (bytes == (void *)-1 ? broken("shmat: %s", strerror(errno)) : HOLDS) |
           WORKS_FINE(shmdt(bytes)) | WORKS_FINE(shmctl(id, IPC_RMID, NULL)) |
           WORKS_FINE(shm_unlink(name));
}

/* --- messages -------------------------------------------------------------------------------- */

static int queues(const void *row)
{
    struct {
        long type;
        char text[8];
    } message = {1, "hello"};
    struct mq_attr size = {.mq_maxmsg = 4, .mq_msgsize = 64};
    struct sembuf up = {.sem_op = 1}, down = {.sem_op = -1};
    char name[64], bytes[64];
    int queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600),
        set = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    mqd_t posix;
    sem_t *semaphore;

    (void)row;
    snprintf(name, sizeof(name), "/battery.%d", getpid());
    posix = mq_open(name, O_CREAT | O_RDWR, 0600, &size);
    semaphore = sem_open(name, O_CREAT, 0600, 1);
    if (semaphore == SEM_FAILED)
        return broken("sem_open: %s", strerror(errno));
    return WORKS_FINE(msgsnd(queue, &message, 8, 0)) |
           WORKS_FINE(msgrcv(queue, &message, 8, 0, 0)) |
           WORKS_FINE(msgctl(queue, IPC_RMID, NULL)) | WORKS_FINE(semop(set, &up, 1)) |
           WORKS_FINE(semop(set, &down, 1)) | WORKS_FINE(semctl(set, 0, IPC_RMID)) |
           WORKS_FINE(posix) | WORKS_FINE(mq_send(posix, "hello", 5, 0)) |
           WORKS_FINE(mq_receive(posix, bytes, sizeof(bytes), NULL)) | WORKS_FINE(mq_unlink(name)) |
           WORKS_FINE(sem_wait(semaphore)) | WORKS_FINE(sem_post(semaphore)) |
           WORKS_FINE(sem_unlink(name));
}

static int clocks(const void *row)
{
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    struct timespec now, pause_for = {.tv_nsec = 1000000};
    struct itimerval none = {0};
    struct timeval day;
    uint64_t count;
    timer_t timer;
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

    (void)row;
    return WORKS_FINE(timerfd_settime(fd, 0, &soon, NULL)) |
           WORKS_FINE(read(fd, &count, sizeof(count))) |
           WORKS_FINE(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_NONE},
                                   &timer)) |
           WORKS_FINE(timer_settime(timer, 0, &soon, NULL)) | WORKS_FINE(timer_delete(timer)) |
           WORKS_FINE(clock_gettime(CLOCK_BOOTTIME, &now)) | WORKS_FINE(gettimeofday(&day, NULL)) |
           WORKS_FINE(-clock_nanosleep(CLOCK_MONOTONIC, 0, &pause_for, NULL)) |
           WORKS_FINE(setitimer(ITIMER_REAL, &none, NULL)) |
           REFUSED_WITH(EPERM, clock_settime(CLOCK_REALTIME, &now)) |
           REFUSED(syscall(SYS_adjtimex, &(struct {
                               uint32_t modes;
                               char rest[256];
                           }){1, {0}}));
}

/* --- their own fences ------------------------------------------------------------------------ */

static int own_filter(const void *row)
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
    uint64_t handled[3] = {1 << 10 /* MAKE_FIFO */, 0, 0};
    int ruleset;

    (void)row;
    if (works("seccomp", syscall(SYS_seccomp, 1, 0, &program)) |
        works("prctl", prctl(PR_SET_SECCOMP, 2, &program)))
        return BROKEN;
    ruleset = (int)syscall(444 /* landlock_create_ruleset */, handled, 8, 0);
    if (ruleset < 0)
        return errno == EOPNOTSUPP || errno == ENOSYS ? HOLDS
                                                      : broken("landlock: %s", strerror(errno));
    return WORKS_FINE(syscall(446 /* landlock_restrict_self */, ruleset, 0));
}

static int capabilities_dropped(const void *row)
{
    struct {
        uint32_t version;
        int pid;
    } head = {0x20080522, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } none[2] = {{0}};

    (void)row;
    return WORKS_FINE(syscall(SYS_capset, &head, none)) | REFUSED(chown("/etc/passwd", 1, 1));
}

static int system_told(const void *row)
{
    struct utsname names;
    struct sysinfo info;
    struct rusage usage;
    const char *hostname = told("BATTERY_HOSTNAME");

    (void)row;
    if (uname(&names) < 0 || strcmp(names.domainname, "(none)") != 0)
        return broken("the domain is %s", names.domainname);
    return WORKS_FINE(sysinfo(&info)) | WORKS_FINE(getrusage(RUSAGE_SELF, &usage)) |
           (!hostname || strcmp(names.nodename, hostname) == 0 ? HOLDS
                                                               : broken("%s", names.nodename));
}

static const struct check checks[] = {
    {"unknown_call_is_enosys", unknown_call_is_enosys, NULL, EVERYBODY},
    {"threads", threads, NULL, EVERYBODY},
    {"processes", processes, NULL, EVERYBODY},
    {"program_in_memory", program_in_memory, NULL, EVERYBODY},
    {"pidfds", pidfds, NULL, EVERYBODY},
    {"tracing", tracing, NULL, EVERYBODY},
    {"sessions", sessions, NULL, EVERYBODY},
    {"becomes_another", becomes_another, NULL, ROOT},
    {"root_owns_its_files", root_owns_its_files, NULL, ROOT},
    {"scheduling", scheduling, NULL, EVERYBODY},
    {"own_limits", own_limits, NULL, EVERYBODY},
    {"memory", memory, NULL, EVERYBODY},
    {"shared_memory", shared_memory, NULL, EVERYBODY},
    {"queues", queues, NULL, EVERYBODY},
    {"clocks", clocks, NULL, EVERYBODY},
    {"own_filter", own_filter, NULL, EVERYBODY},
    {"capabilities_dropped", capabilities_dropped, NULL, ROOT},
    {"system_told", system_told, NULL, EVERYBODY},
};

const struct battery battery_compat = {"compat", checks, COUNT(checks)};
