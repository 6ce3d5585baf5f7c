/* compat.*: files, sockets, terminals, and what /proc and /sys must go on telling. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

static const char *own_folder(void)
{
    static char path[64];

    snprintf(path, sizeof(path), "/tmp/battery.%d", getpid());
    mkdir(path, 0700);
    return chdir(path) < 0 ? "/tmp" : path;
}

/* --- files ----------------------------------------------------------------------------------- */

static int files(const void *row)
{
    struct {
        uint64_t flags, mode, resolve;
    } beneath = {O_RDONLY, 0, 8};
    char bytes[256], name[64];
    int fd, unnamed;

    (void)row;
    own_folder();
    fd = open("file", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    unnamed = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", unnamed);
    return WORKS_FINE(write(fd, "hello", 5)) | WORKS_FINE(link("file", "hard")) |
           WORKS_FINE(symlink("file", "soft")) |
           WORKS_FINE(readlink("soft", bytes, sizeof(bytes))) | WORKS_FINE(mkfifo("fifo", 0600)) |
           WORKS_FINE(mknod("regular", S_IFREG | 0600, 0)) |
           WORKS_FINE(mknod("socket", S_IFSOCK | 0600, 0)) | WORKS_FINE(unnamed) |
           WORKS_FINE(linkat(AT_FDCWD, name, AT_FDCWD, "named", AT_SYMLINK_FOLLOW)) |
           WORKS_FINE(
               syscall(SYS_renameat2, AT_FDCWD, "file", AT_FDCWD, "hard", 2 /* EXCHANGE */)) |
           WORKS_FINE(syscall(SYS_renameat2, AT_FDCWD, "soft", AT_FDCWD, "softer", 1)) |
           WORKS_FINE(syscall(SYS_statx, AT_FDCWD, "file", 0, 0xfff, bytes)) |
           WORKS_FINE(syscall(SYS_openat2, AT_FDCWD, "file", &beneath, sizeof(beneath))) |
           WORKS_FINE(syscall(SYS_faccessat2, AT_FDCWD, "file", R_OK, AT_EACCESS)) |
           WORKS_FINE(fsetxattr(fd, "user.note", "x", 1, 0)) |
           WORKS_FINE(fgetxattr(fd, "user.note", bytes, sizeof(bytes))) |
           WORKS_FINE(flock(fd, LOCK_EX)) |
           WORKS_FINE(fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK})) |
           WORKS_FINE(fallocate(fd, 0, 0, 65536)) | WORKS_FINE(fallocate(fd, 3, 0, 4096)) |
           WORKS_FINE(ftruncate(fd, 100)) | WORKS_FINE(fsync(fd)) | WORKS_FINE(futimens(fd, NULL)) |
           WORKS_FINE(chmod("file", 0600)) | WORKS_FINE(rmdir("/tmp/never") < 0 ? 0 : -1);
}

static int copies(const void *row)
{
    int from, to, ends[2], more[2];
    off_t zero = 0;

    (void)row;
    own_folder();
    from = open("from", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    to = open("to", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (write(from, "hello", 5) != 5 || pipe(ends) < 0 || pipe(more) < 0)
        return broken("files: %s", strerror(errno));
    return WORKS_FINE(sendfile(to, from, &zero, 5)) | WORKS_FINE(lseek(from, 0, SEEK_SET)) |
           WORKS_FINE(syscall(SYS_copy_file_range, from, NULL, to, NULL, 5, 0)) |
           WORKS_FINE(lseek(from, 0, SEEK_SET)) |
           WORKS_FINE(splice(from, NULL, ends[1], NULL, 5, 0)) |
           WORKS_FINE(tee(ends[0], more[1], 5, 0)) |
           WORKS_FINE(splice(ends[0], NULL, to, NULL, 5, 0));
}

static int events(const void *row)
{
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t none;
    int poll_fd = epoll_create1(EPOLL_CLOEXEC), counter = eventfd(1, EFD_CLOEXEC),
        watch = inotify_init1(IN_CLOEXEC);

    (void)row;
    sigemptyset(&none);
    return WORKS_FINE(epoll_ctl(poll_fd, EPOLL_CTL_ADD, counter, &event)) |
           WORKS_FINE(epoll_wait(poll_fd, &event, 1, 0)) |
           WORKS_FINE(inotify_add_watch(watch, own_folder(), IN_CREATE)) |
           WORKS_FINE(close(open("new", O_CREAT | O_WRONLY, 0600))) |
           WORKS_FINE(read(watch, (char[256]){0}, 256)) | WORKS_FINE(signalfd(-1, &none, 0));
}

static int asynchronous_io(const void *row)
{
    unsigned long context = 0;

    (void)row;
    return WORKS_FINE(syscall(SYS_io_setup, 8, &context)) |
           WORKS_FINE(syscall(SYS_io_destroy, context));
}

/* --- sockets --------------------------------------------------------------------------------- */

static int loopback(const void *data)
{
    const int *type = data;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(here);
    int listener = socket(AF_INET, *type | SOCK_CLOEXEC, 0),
        client = socket(AF_INET, *type | SOCK_CLOEXEC, 0);
    char bytes[8];

    if (works("bind", bind(listener, (struct sockaddr *)&here, length)) |
        works("name", getsockname(listener, (struct sockaddr *)&here, &length)) |
        (*type == SOCK_STREAM ? works("listen", listen(listener, 1)) : HOLDS) |
        works("connect", connect(client, (struct sockaddr *)&here, length)) |
        works("send", send(client, "hello", 5, 0)))
        return BROKEN;
    if (*type == SOCK_STREAM)
        listener = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    return works("recv", recv(listener, bytes, sizeof(bytes), 0));
}

/* Servers listen at 80, whoever they are. */
static int low_port(const void *row)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(80)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    (void)row;
    return WORKS_FINE(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one))) |
           WORKS_FINE(bind(fd, (struct sockaddr *)&here, sizeof(here)));
}

static int unix_sockets(const void *data)
{
    const int *type = data;
    struct sockaddr_un name = {.sun_family = AF_UNIX}, hidden = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t length = sizeof(peer);
    int pair[2], listener = socket(AF_UNIX, *type | SOCK_CLOEXEC, 0);

    own_folder();
    snprintf(name.sun_path, sizeof(name.sun_path), "socket");
    snprintf(hidden.sun_path + 1, sizeof(hidden.sun_path) - 1, "battery.%d", getpid());
    return WORKS_FINE(bind(listener, (struct sockaddr *)&name, sizeof(name))) |
           WORKS_FINE(bind(socket(AF_UNIX, *type, 0), (struct sockaddr *)&hidden, sizeof(hidden))) |
           WORKS_FINE(socketpair(AF_UNIX, *type | SOCK_CLOEXEC, 0, pair)) |
           WORKS_FINE(send(pair[0], "x", 1, 0)) | WORKS_FINE(recv(pair[1], (char[1]){0}, 1, 0)) |
           WORKS_FINE(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &length)) |
           (*type == SOCK_DGRAM || (peer.uid == getuid() && peer.pid > 0)
                ? HOLDS
                : broken("the peer is %u, %d", peer.uid, peer.pid));
}

static int descriptors_passed(const void *row)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } ancillary = {0};
    struct iovec vector = {.iov_base = (char[]){"x"}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof(ancillary)};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    int pair[2], received = -1;

    (void)row;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return broken("socketpair: %s", strerror(errno));
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(part), &pair[0], sizeof(int));
    if (works("sendmsg", sendmsg(pair[0], &message, 0)) |
        works("recvmsg", recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC)))
        return BROKEN;
    if ((part = CMSG_FIRSTHDR(&message)))
        memcpy(&received, CMSG_DATA(part), sizeof(int));
    return works("descriptor", fcntl(received, F_GETFD));
}

/* What `ip addr`, getaddrinfo(3) and Go's net ask for. */
static int routes(const void *row)
{
    struct {
        uint32_t length;
        uint16_t type, flags;
        uint32_t serial, port;
        uint8_t family, rest[15];
    } request = {32, 18 /* GETLINK */, 0x301, 1, 0, 0, {0}};
    char answer[8192];
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);

    (void)row;
    return WORKS_FINE(send(fd, &request, sizeof(request), 0)) |
           WORKS_FINE(recv(fd, answer, sizeof(answer), 0)) |
           WORKS_FINE(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)) |
           WORKS_FINE(socket(AF_INET6, SOCK_STREAM, 0)) |
           WORKS_FINE(socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6));
}

static const int stream = SOCK_STREAM, datagram = SOCK_DGRAM, packets = SOCK_SEQPACKET;

/* --- terminals ------------------------------------------------------------------------------- */

static int terminal(const void *row)
{
    struct winsize size = {24, 80, 0, 0};
    int master = -1, slave = -1, status;
    pid_t pid;

    (void)row;
    if (works("openpty", openpty(&master, &slave, NULL, NULL, &size)))
        return BROKEN;
    pid = fork();
    if (pid == 0)
        _exit(setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0 || open("/dev/tty", O_RDWR) < 0 ||
              ioctl(slave, TIOCGWINSZ, &size) < 0 || size.ws_col != 80 || !isatty(slave) ||
              tcsetpgrp(slave, getpid()) < 0 || !ttyname(slave));
    waitpid(pid, &status, 0);
    return status == 0 ? works("write", write(master, "x\n", 2)) : broken("terminal: %x", status);
}

/* --- /proc, /sys, /dev ----------------------------------------------------------------------- */

/* Not masked: runtimes read these. */
static int readable(const void *data)
{
    const char *path = data;
    char byte;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return broken("%s: %s", path, strerror(errno));
    return read(fd, &byte, 1) == 1 ? HOLDS : broken("%s is empty", path);
}

static int number_in(const char *path, const char *expected)
{
    char text[64] = "";
    FILE *file = fopen(path, "r");

    if (!expected)
        return SKIPPED_CHECK;
    if (!file || !fgets(text, sizeof(text), file))
        return broken("%s: %s", path, strerror(errno));
    text[strcspn(text, "\n")] = '\0';
    return strcmp(text, expected) == 0 ? HOLDS : broken("%s says %s", path, text);
}

static int limits_told(const void *row)
{
    const char *bytes = told("BATTERY_MEMORY"), *pids = told("BATTERY_PIDS"),
               *cpu = told("BATTERY_CPU");

    (void)row;
    if (!bytes || !pids || !cpu)
        return SKIPPED_CHECK;
    return number_in("/sys/fs/cgroup/memory.max", bytes) |
           number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", bytes) |
           number_in("/sys/fs/cgroup/pids.max", pids) | number_in("/sys/fs/cgroup/cpu.max", cpu);
}

static int devices(const void *row)
{
    char bytes[16] = "x";
    int null = open("/dev/null", O_RDWR | O_CLOEXEC),
        full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    (void)row;
    return WORKS_FINE(write(null, bytes, 1)) |
           (read(null, bytes, 1) == 0 ? HOLDS : broken("/dev/null has content")) |
           REFUSED_WITH(ENOSPC, write(full, bytes, 1)) | WORKS_FINE(access("/dev/fd/0", F_OK)) |
           WORKS_FINE(open("/dev/ptmx", O_RDWR | O_NOCTTY)) |
           WORKS_FINE(close(open("/dev/shm/battery", O_CREAT | O_RDWR, 0600))) |
           WORKS_FINE(unlink("/dev/shm/battery")) |
           WORKS_FINE(syscall(SYS_getrandom, bytes, sizeof(bytes), 0)) |
           WORKS_FINE(readlink("/proc/self/exe", bytes, sizeof(bytes)));
}

static const struct check checks[] = {
    {"files", files, NULL, EVERYBODY},
    {"copies", copies, NULL, EVERYBODY},
    {"events", events, NULL, EVERYBODY},
    {"asynchronous_io", asynchronous_io, NULL, EVERYBODY},
    {"tcp", loopback, &stream, EVERYBODY},
    {"udp", loopback, &datagram, EVERYBODY},
    {"low_port", low_port, NULL, EVERYBODY},
    {"unix_stream", unix_sockets, &stream, EVERYBODY},
    {"unix_datagram", unix_sockets, &datagram, EVERYBODY},
    {"unix_packets", unix_sockets, &packets, EVERYBODY},
    {"descriptors_passed", descriptors_passed, NULL, EVERYBODY},
    {"routes", routes, NULL, EVERYBODY},
    {"terminal", terminal, NULL, EVERYBODY},
    {"limits_told", limits_told, NULL, EVERYBODY},
    {"devices", devices, NULL, EVERYBODY},
#define FILE(name, path) {"reads_" #name, readable, path, EVERYBODY},
#include "tests/sandbox/battery/readable.def"
#undef FILE
};

const struct battery battery_compat_io = {"compat", checks, COUNT(checks)};
