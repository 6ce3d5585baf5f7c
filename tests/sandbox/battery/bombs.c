/* `battery --bomb NAME` takes all that there is of something, in several processes, and keeps it
 * until it is ended: nobody else may notice. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

enum { BLOCK = 1 << 16, PASSED = 253 };

static char block[BLOCK];

/* Different in each process, as far as anybody inside can choose. */
static unsigned share;

static void *idle(void *data)
{
    for (;;)
        pause();
    return data;
}

static void bomb_forks(void)
{
    for (;;)
        if (fork() < 0)
            usleep(1000);
}

static void bomb_threads(void)
{
    pthread_attr_t attributes;
    pthread_t one;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    while (pthread_create(&one, &attributes, idle, NULL) == 0)
        ;
}

static void bomb_memory(void)
{
    for (;;) {
        char *bytes = malloc(BLOCK);

        if (bytes)
            memset(bytes, 1, BLOCK);
    }
}

/* A page in each part of the address space for which there is a table. */
static void bomb_page_tables(void)
{
    for (size_t at = 0; at < 1UL << 46; at += 1UL << 30) {
        char *bytes = mmap(NULL, 1UL << 30, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (bytes == MAP_FAILED)
            return;
        for (size_t offset = 0; offset < 1UL << 30; offset += 2UL << 20)
            (void)*(volatile char *)(bytes + offset);
    }
}

static void bomb_mappings(void)
{
    for (int i = 0; i < 100000; i++)
        if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
            MAP_FAILED)
            return;
}

static void bomb_descriptors(void)
{
    while (dup(0) >= 0)
        ;
}

static void bomb_open_files(void)
{
    while (open("/dev/null", O_RDONLY) >= 0)
        ;
}

static void bomb_terminals(void)
{
    while (open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0)
        ;
}

static void take_inodes(const char *folder)
{
    char path[256];

    for (long i = 0; i < 2000000; i++) {
        snprintf(path, sizeof(path), "%s/%u.%ld", folder, share, i);
        if (mknod(path, S_IFIFO | 0600, 0) < 0)
            return;
    }
}

static void bomb_inodes_of_tmp(void)
{
    take_inodes("/tmp");
}

static void bomb_inodes_of_shm(void)
{
    take_inodes("/dev/shm");
}

static void bomb_inodes_of_disk(void)
{
    take_inodes("/workspace");
}

static void take_bytes(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    while (write(fd, block, sizeof(block)) > 0)
        ;
}

static void bomb_bytes_of_tmp(void)
{
    take_bytes("/tmp/bytes");
}

static void bomb_bytes_of_shm(void)
{
    take_bytes("/dev/shm/bytes");
}

static void bomb_bytes_of_disk(void)
{
    take_bytes("/workspace/bytes");
}

static void bomb_attributes(void)
{
    char path[64], name[64];

    for (int file = 0; file < 100000; file++) {
        snprintf(path, sizeof(path), "/tmp/attributes.%d", file);
        if (mknod(path, S_IFREG | 0600, 0) < 0)
            return;
        for (int i = 0; i < 100; i++) {
            snprintf(name, sizeof(name), "user.%d", i);
            if (setxattr(path, name, block, 65536, 0) < 0)
                break;
        }
    }
}

static void bomb_deep_folders(void)
{
    char name[] = "a-name-that-is-not-short-so-that-the-path-soon-is-longer-than-any-buffer";

    if (chdir("/workspace") < 0)
        return;
    while (mkdir(name, 0700) == 0 && chdir(name) == 0)
        ;
}

/* Of files that are not there. */
static void bomb_names(void)
{
    char path[256];
    struct stat status;

    for (unsigned long i = 0;; i++) {
        snprintf(path, sizeof(path), "/tmp/%u-%0200lu", share, i);
        stat(path, &status);
    }
}

static void bomb_locks(void)
{
    int fd = open("/tmp/locked", O_CREAT | O_RDWR | O_CLOEXEC, 0600);

    for (long i = 0; i < 10000000; i++) {
        struct flock lock = {
            .l_type = F_RDLCK, .l_start = i * 2 + (share % 2 ? 1L << 40 : 0), .l_len = 1};

        if (fcntl(fd, F_SETLK, &lock) < 0)
            return;
    }
}

static void bomb_leases(void)
{
    int fd;

    while ((fd = open("/etc/passwd", O_RDONLY)) >= 0)
        fcntl(fd, F_SETLEASE, F_RDLCK);
}

static int send_descriptors(int socket, int passed)
{
    int fds[PASSED];
    static char space[CMSG_SPACE(sizeof(fds))];
    struct iovec vector = {.iov_base = "x", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);

    for (int i = 0; i < PASSED; i++)
        fds[i] = passed;
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(part), fds, sizeof(fds));
    return (int)sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* As each user that the sandbox has, since what is in flight is counted for users; in chains, each
 * link of which waits in the one before, for the collector of the kernel to walk along. */
static void bomb_scm_rights_in_flight(void)
{
    int before = -1;

    for (unsigned round = 0; round < 2000; round++) {
        int pair[2];

        if (getuid() == 0 && syscall(SYS_setresuid, -1, 1000 + share * 2000 + round, -1) < 0)
            return;
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0) {
            while (send_descriptors(pair[0], before >= 0 && round % 2 ? before : pair[1]) > 0)
                ;
            close(before);
            before = pair[1];
            if (round % 8 == 0)
                close(pair[0]);
        }
        if (getuid() == 0)
            syscall(SYS_setresuid, -1, 0, -1);
    }
}

static void widen(int fd)
{
    int size = 1 << 30;

    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

static void bomb_unix_buffers(void)
{
    int pair[2];

    while (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) {
        widen(pair[0]);
        while (send(pair[0], block, sizeof(block), MSG_DONTWAIT) > 0)
            ;
    }
}

static int bound_to_loopback(int type, struct sockaddr_in *here)
{
    socklen_t length = sizeof(*here);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    *here = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    widen(fd);
    if (fd >= 0 && (bind(fd, (struct sockaddr *)here, length) < 0 ||
                    getsockname(fd, (struct sockaddr *)here, &length) < 0))
        return -1;
    return fd;
}

static void bomb_tcp_buffers(void)
{
    struct sockaddr_in here;
    int listener = bound_to_loopback(SOCK_STREAM, &here);

    listen(listener, 1000);
    for (;;) {
        int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        widen(client);
        if (client < 0 || connect(client, (struct sockaddr *)&here, sizeof(here)) < 0 ||
            accept(listener, NULL, NULL) < 0)
            return;
        while (send(client, block, sizeof(block), MSG_DONTWAIT) > 0)
            ;
    }
}

static void bomb_udp_buffers(void)
{
    struct sockaddr_in here;
    int client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    while (bound_to_loopback(SOCK_DGRAM, &here) >= 0)
        for (int i = 0; i < 200; i++)
            sendto(client, block, 60000, MSG_DONTWAIT, (struct sockaddr *)&here, sizeof(here));
}

/* Answers that nobody reads. */
static void bomb_netlink_buffers(void)
{
    struct {
        uint32_t length;
        uint16_t type, flags;
        uint32_t serial, port;
        uint8_t family, rest[15];
    } request = {32, 18 /* GETLINK */, 0x301, 1, 0, 0, {0}};
    int fd;

    while ((fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0)) >= 0) {
        widen(fd);
        for (int i = 0; i < 100; i++)
            send(fd, &request, sizeof(request), MSG_DONTWAIT);
    }
}

static void bomb_socket_filters(void)
{
    static struct {
        uint16_t code;
        uint8_t jt, jf;
        uint32_t k;
    } code[4000];
    struct {
        uint16_t length;
        void *filter;
    } program = {COUNT(code), code};
    int pair[2];

    for (size_t i = 0; i < COUNT(code); i++)
        code[i].code = 6 /* RET */;
    while (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0) {
        setsockopt(pair[0], SOL_SOCKET, 26 /* SO_ATTACH_FILTER */, &program, sizeof(program));
        setsockopt(pair[1], SOL_SOCKET, 26, &program, sizeof(program));
    }
}

/* Each leaves one that waits for its time to pass, or that has no owner. */
static void bomb_connections(void)
{
    struct sockaddr_in here;
    int listener = bound_to_loopback(SOCK_STREAM, &here);

    listen(listener, 1000);
    for (;;) {
        int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), server;

        if (connect(client, (struct sockaddr *)&here, sizeof(here)) < 0)
            return;
        server = accept(listener, NULL, NULL);
        send(client, block, sizeof(block), MSG_DONTWAIT);
        close(client);
        close(server);
    }
}

static void bomb_pipes(void)
{
    int ends[2];

    while (pipe2(ends, O_NONBLOCK) == 0) {
        fcntl(ends[1], 1031 /* F_SETPIPE_SZ */, 1 << 20);
        while (write(ends[1], block, sizeof(block)) > 0)
            ;
    }
}

static void bomb_inotify(void)
{
    while (inotify_init1(0) >= 0)
        ;
}

static void bomb_inotify_watches(void)
{
    char path[64];

    for (int i = 0; i < 60000; i++) {
        snprintf(path, sizeof(path), "/tmp/watched.%u.%d", share, i);
        if (mknod(path, S_IFREG | 0600, 0) < 0)
            break;
    }
    for (int fd; (fd = inotify_init1(0)) >= 0;)
        for (int i = 0; i < 60000; i++) {
            snprintf(path, sizeof(path), "/tmp/watched.%u.%d", share, i);
            if (inotify_add_watch(fd, path, IN_ALL_EVENTS) < 0)
                break;
        }
}

static void bomb_timers(void)
{
    struct itimerspec often = {{0, 1000}, {0, 1000}};
    timer_t timer;

    while (timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_NONE}, &timer) ==
           0)
        timer_settime(timer, 0, &often, NULL);
}

static void bomb_timer_descriptors(void)
{
    struct itimerspec often = {{0, 1}, {0, 1}};
    int fd;

    while ((fd = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0)
        timerfd_settime(fd, 0, &often, NULL);
}

/* Waiting ones are counted for users, of which the sandbox has many. */
static void bomb_signals(void)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (unsigned round = 0; round < 2000; round++) {
        if (getuid() == 0 && syscall(SYS_setresuid, 1000 + share * 2000 + round, -1, -1) < 0)
            return;
        while (sigqueue(getpid(), SIGRTMIN, (union sigval){0}) == 0)
            ;
        syscall(SYS_setresuid, 0, -1, -1);
    }
}

static void bomb_keyrings(void)
{
    for (int i = 0; i < 100000; i++) {
        syscall(SYS_add_key, "user", "x", block, 30000, -3);
        syscall(SYS_keyctl, 1 /* JOIN_SESSION_KEYRING */, NULL);
        syscall(SYS_request_key, "user", "x", "y", -3);
    }
}

static void bomb_shared_segments(void)
{
    int id;

    while ((id = shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600)) >= 0) {
        char *bytes = shmat(id, NULL, 0);

        if (bytes == (void *)-1)
            return;
        memset(bytes, 1, 1 << 20);
        shmdt(bytes);
    }
}

static void bomb_semaphores(void)
{
    int id;

    while ((id = semget(IPC_PRIVATE, 32000, IPC_CREAT | 0600)) >= 0)
        for (unsigned short i = 0; i < 500; i++)
            if (semop(id, &(struct sembuf){.sem_num = i, .sem_op = 1, .sem_flg = SEM_UNDO}, 1) < 0)
                break;
}

static void bomb_message_queues(void)
{
    struct {
        long type;
        char text[8000];
    } message = {1, ""};
    int id;

    while ((id = msgget(IPC_PRIVATE, IPC_CREAT | 0600)) >= 0)
        while (msgsnd(id, &message, sizeof(message.text), IPC_NOWAIT) == 0)
            ;
}

static void bomb_posix_queues(void)
{
    struct mq_attr size = {.mq_maxmsg = 10, .mq_msgsize = 8192};
    char name[32];

    for (unsigned i = 0; i < 100000; i++) {
        mqd_t queue;

        if (getuid() == 0)
            syscall(SYS_setresuid, 1000 + i % 60000, -1, -1);
        snprintf(name, sizeof(name), "/queue.%u.%u", share, i);
        queue = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &size);
        syscall(SYS_setresuid, 0, -1, -1);
        if (queue < 0)
            return;
        while (mq_send(queue, block, 8192, 0) == 0)
            ;
    }
}

static void bomb_epoll_sets(void)
{
    int sets[500];

    for (size_t i = 0; i < COUNT(sets); i++)
        if ((sets[i] = epoll_create1(0)) < 0)
            return;
    /* Each watches a thousand descriptors, and another set. */
    for (size_t i = 0; i < COUNT(sets); i++) {
        struct epoll_event event = {.events = EPOLLIN};

        if (i)
            epoll_ctl(sets[i], EPOLL_CTL_ADD, sets[i - 1], &event);
        for (int fd; (fd = (int)syscall(SYS_eventfd2, 0, 0)) >= 0;)
            if (epoll_ctl(sets[i], EPOLL_CTL_ADD, fd, &event) < 0)
                break;
    }
}

static void bomb_asynchronous_io(void)
{
    unsigned long context = 0;

    while (syscall(SYS_io_setup, 65536, &context) == 0)
        context = 0;
    context = 0;
    while (syscall(SYS_io_setup, 1, &context) == 0)
        context = 0;
}

static void bomb_filters(void)
{
    static struct {
        uint16_t code;
        uint8_t jt, jf;
        uint32_t k;
    } code[4096];
    struct {
        uint16_t length;
        void *filter;
    } program = {COUNT(code), code};

    for (size_t i = 0; i < COUNT(code); i++) {
        code[i].code = 6 /* RET */;
        code[i].k = 0x7fff0000 /* ALLOW */;
    }
    while (syscall(SYS_seccomp, 1, 0, &program) == 0)
        ;
}

static void bomb_rulesets(void)
{
    uint64_t handled[3] = {1 << 10, 0, 0};
    int fd;

    while ((fd = (int)syscall(444, handled, 8, 0)) >= 0)
        for (int i = 0; i < 100; i++) {
            struct {
                uint64_t allowed;
                int32_t parent;
            } __attribute__((packed)) rule = {1 << 10, open("/tmp", O_PATH)};

            syscall(445, fd, 1, &rule, 0);
            close(rule.parent);
        }
}

static void bomb_execs(void)
{
    char *arguments[] = {"battery", "--true", NULL};

    for (;;) {
        pid_t pid = fork();

        if (pid == 0) {
            execv("/proc/self/exe", arguments);
            _exit(1);
        }
        if (pid > 0)
            waitpid(pid, NULL, 0);
    }
}

/* Stopped, traced, and with everything blocked: none of it keeps a process from its end. */
static void bomb_stopped(void)
{
    for (;;) {
        pid_t pid = fork();

        if (pid == 0) {
            sigset_t all;

            sigfillset(&all);
            sigprocmask(SIG_SETMASK, &all, NULL);
            if (getpid() % 2)
                ptrace(PTRACE_TRACEME, 0, NULL, NULL);
            raise(SIGSTOP);
            mkfifo("/tmp/fifo", 0600);
            open("/tmp/fifo", O_RDONLY);
        }
        if (pid < 0)
            break;
    }
}

static void bomb_spinning(void)
{
    for (;;)
        sched_yield();
}

static void bomb_syncing(void)
{
    for (;;)
        sync();
}

static const struct {
    const char *name;
    void (*run)(void);
    unsigned processes;
} bombs[] = {
#define BOMB(name, processes) {#name, bomb_##name, processes},
#include "tests/sandbox/battery/bombs.def"
#undef BOMB
};

int bomb_main(const char *name)
{
    struct rlimit most = {16384, 16384};

    setrlimit(RLIMIT_NOFILE, &most);
    memset(block, 'x', sizeof(block));
    for (size_t i = 0; i < COUNT(bombs); i++) {
        if (strcmp(bombs[i].name, name) != 0)
            continue;
        for (unsigned n = 0; n < bombs[i].processes; n++) {
            share = n;
            if (n + 1 < bombs[i].processes && fork() != 0)
                continue;
            bombs[i].run();
            idle(NULL);
        }
    }
    return 2;
}
