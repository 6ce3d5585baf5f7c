/* net.*, unix.*: sockets, families and what can be reached. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

enum { NETLINK_ROUTE = 0, ULP = 31 };

/* --- one socket a row ------------------------------------------------------------------------ */

struct attempt {
    long family, type, protocol;
    int error; /* 0: works */
};

static int socket_answers(const void *data)
{
    const struct attempt *row = data;
    long fd = syscall(SYS_socket, row->family, row->type, row->protocol);

    return row->error ? refused("socket", fd, row->error) : works("socket", fd);
}

/* name, family, type, protocol, error */

#define ROW(name, ...) static const struct attempt socket_##name = {__VA_ARGS__};
#include "tests/sandbox/battery/sockets.def"
#undef ROW

static const struct check socket_checks[] = {
#define ROW(name, ...) {#name, socket_answers, &socket_##name, EVERYBODY},
#include "tests/sandbox/battery/sockets.def"
#undef ROW
};

const struct battery battery_sockets = {"net", socket_checks, COUNT(socket_checks)};

/* --- sweeps ---------------------------------------------------------------------------------- */

static int family_sweep(const void *row)
{
    (void)row;
    for (long family = 0; family < 300; family++)
        for (long type = 0; type < 16; type++)
            for (int high = 0; high < 2; high++) {
                long fd;

                if (family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
                    family == AF_NETLINK)
                    continue;
                fd = syscall(SYS_socket, (high ? (long)HIGH_BITS : 0) | family, type, 0);
                if (fd >= 0 || errno != EAFNOSUPPORT)
                    return broken("family %ld type %ld: %s", family, type, strerror(errno));
            }
    return HOLDS;
}

static int protocol_sweep(const void *row)
{
    (void)row;
    for (long protocol = 0; protocol < 600; protocol++)
        for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
            bool known = protocol == 0 || protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ||
                         protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6;

            if (!known &&
                (syscall(SYS_socket, AF_INET, type, protocol) >= 0 || errno != EPROTONOSUPPORT))
                return broken("protocol %ld: %s", protocol, strerror(errno));
            if (!known &&
                (syscall(SYS_socket, AF_INET6, type, protocol) >= 0 || errno != EPROTONOSUPPORT))
                return broken("protocol %ld of IPv6: %s", protocol, strerror(errno));
        }
    return HOLDS;
}

static int netlink_sweep(const void *row)
{
    (void)row;
    for (long protocol = 1; protocol < 64; protocol++)
        for (int type = SOCK_DGRAM; type <= SOCK_RAW; type++)
            if (syscall(SYS_socket, AF_NETLINK, type, protocol) >= 0 || errno != EPROTONOSUPPORT)
                return broken("netlink %ld: %s", protocol, strerror(errno));
    return HOLDS;
}

static int socketpair_sweep(const void *row)
{
    int pair[2];

    (void)row;
    for (long family = 0; family < 64; family++)
        if (family != AF_UNIX &&
            (syscall(SYS_socketpair, family, SOCK_STREAM, 0, pair) >= 0 || errno != EAFNOSUPPORT))
            return broken("family %ld: %s", family, strerror(errno));
    return REFUSED_WITH(EAFNOSUPPORT,
                        syscall(SYS_socketpair, HIGH_BITS | AF_TIPC, SOCK_STREAM, 0, pair));
}

/* --- what root of a network could do --------------------------------------------------------- */

static int route_answers(uint16_t type, uint16_t flags, const void *body, size_t length)
{
    struct {
        uint32_t length;
        uint16_t type, flags;
        uint32_t serial, port;
        char body[128];
    } message = {(uint32_t)(16 + length), type, (uint16_t)(flags | 5 /* REQUEST ACK */), 1, 0, ""};
    struct {
        uint32_t length;
        uint16_t type, flags;
        uint32_t serial, port;
        int32_t error;
        char rest[1024];
    } answer = {0};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    memcpy(message.body, body, length);
    if (send(fd, &message, message.length, 0) < 0 || recv(fd, &answer, sizeof(answer), 0) < 0)
        return -errno;
    close(fd);
    return answer.type == 2 /* ERROR */ ? answer.error : 0;
}

static int network_changes(const void *row)
{
    struct {
        uint8_t family, pad;
        uint16_t type;
        int32_t index;
        uint32_t flags, change;
    } link = {0, 0, 0, 1, 0, 1 /* IFF_UP */};
    struct {
        uint8_t family, prefix, flags, scope;
        uint32_t index;
        uint16_t length, type;
        uint8_t address[4];
    } address = {AF_INET, 8, 0, 0, 1, 8, 2, {10, 0, 0, 1}};
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)row;
    errno = -route_answers(16 /* NEWLINK */, 0, &link, sizeof(link));
    if (errno != EPERM)
        return broken("a link was changed: %s", strerror(errno));
    errno = -route_answers(20 /* NEWADDR */, 0x600, &address, sizeof(address));
    if (errno != EPERM)
        return broken("an address was added: %s", strerror(errno));
    return REFUSED_WITH(EPERM, ioctl(fd, SIOCSIFFLAGS, &request)) |
           REFUSED_WITH(EPERM, ioctl(fd, SIOCSIFADDR, &request)) |
           REFUSED(ioctl(fd, 0x89a0 /* SIOCBRADDBR */, "x")) |
           REFUSED(ioctl(fd, 0x89f1 /* SIOCADDTUNNEL */, &request)) |
           REFUSED(ioctl(fd, 0x8946 /* SIOCETHTOOL */, &request)) |
           REFUSED(ioctl(fd, 0x894c /* SIOCGSKNS */, 0)) |
           REFUSED(ioctl(fd, SIOCADDRT, page_of_zeroes()));
}

static int socket_options(const void *row)
{
    int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1;
    char table[256] = "filter";

    (void)row;
    return REFUSED(setsockopt(tcp, SOL_SOCKET, 36 /* SO_MARK */, &one, sizeof(one))) |
           REFUSED(setsockopt(tcp, SOL_SOCKET, 33 /* SO_RCVBUFFORCE */, &one, sizeof(one))) |
           REFUSED(setsockopt(tcp, SOL_SOCKET, 32 /* SO_SNDBUFFORCE */, &one, sizeof(one))) |
           REFUSED(setsockopt(tcp, IPPROTO_IP, 19 /* IP_TRANSPARENT */, &one, sizeof(one))) |
           REFUSED(setsockopt(udp, IPPROTO_IP, 200 /* MRT_INIT */, &one, sizeof(one))) |
           REFUSED(setsockopt(tcp, IPPROTO_IP, 64 /* IPT_SO_SET_REPLACE */, table, sizeof(table))) |
           REFUSED(setsockopt(tcp, IPPROTO_IPV6, 64, table, sizeof(table))) |
           REFUSED(setsockopt(tcp, IPPROTO_IP, 1155 /* IP_VS_SO_SET */, table, sizeof(table))) |
           REFUSED(setsockopt(tcp, IPPROTO_TCP, ULP, "espintcp", 8)) |
           REFUSED(setsockopt(tcp, IPPROTO_TCP, ULP, "smc", 3)) |
           REFUSED(setsockopt(tcp, SOL_SOCKET, 50 /* SO_ATTACH_BPF */, &one, sizeof(one)));
}

static int namespace_handles(const void *row)
{
    static const char *const names[] = {"user", "pid", "mnt", "net"};
    int verdict = HOLDS;

    (void)row;
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (i < 2)
            verdict |= REFUSED(ioctl(fd, 0xb702 /* NS_GET_PARENT */));
        verdict |= REFUSED(ioctl(fd, 0x8010b70b /* NS_MNT_GET_NEXT */, page_of_zeroes()));
    }
    return verdict;
}

static int nothing_is_reached(const char *address, int port)
{
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = inet_addr(address)};
    struct timeval patience = {.tv_usec = 300000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return refused(address, connect(fd, (struct sockaddr *)&there, sizeof(there)), 0);
}

static int metadata(const void *row)
{
    (void)row;
    return nothing_is_reached("169.254.169.254", 80) | nothing_is_reached("100.100.100.200", 80) |
           nothing_is_reached("192.168.0.1", 80);
}

/* A listener of the host, on its loopback. */
static int host_loopback(const void *row)
{
    const char *port = told("BATTERY_HOST_PORT");

    (void)row;
    if (!port)
        return SKIPPED_CHECK;
    return nothing_is_reached("127.0.0.1", atoi(port)) |
           nothing_is_reached("127.0.0.2", atoi(port)) | nothing_is_reached("0.0.0.0", atoi(port));
}

static int interfaces(const void *row)
{
    struct if_nameindex *all = if_nameindex();

    (void)row;
    if (told("BATTERY_NETWORK"))
        return SKIPPED_CHECK;
    /* Of each tunnel's driver there is one in every namespace, down. */
    for (struct if_nameindex *at = all; at && at->if_index; at++) {
        struct ifreq request = {0};
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", at->if_name);
        if (ioctl(fd, SIOCGIFFLAGS, &request) < 0 ||
            ((request.ifr_flags & IFF_UP) && strcmp(at->if_name, "lo") != 0))
            return broken("%s is up", at->if_name);
        close(fd);
    }
    return all ? HOLDS : broken("no interfaces");
}

static const struct check checks[] = {
    {"family_sweep", family_sweep, NULL, EVERYBODY},
    {"protocol_sweep", protocol_sweep, NULL, EVERYBODY},
    {"netlink_sweep", netlink_sweep, NULL, EVERYBODY},
    {"socketpair_sweep", socketpair_sweep, NULL, EVERYBODY},
    {"network_changes", network_changes, NULL, EVERYBODY},
    {"socket_options", socket_options, NULL, EVERYBODY},
    {"namespace_handles", namespace_handles, NULL, EVERYBODY},
    {"metadata", metadata, NULL, EVERYBODY},
    {"host_loopback", host_loopback, NULL, EVERYBODY},
    {"interfaces", interfaces, NULL, EVERYBODY},
};

const struct battery battery_net = {"net", checks, COUNT(checks)};

/* --- unix ------------------------------------------------------------------------------------ */

static int send_credentials(int socket, pid_t pid, uid_t uid, gid_t gid)
{
    struct ucred claimed = {.pid = pid, .uid = uid, .gid = gid};
    union {
        char space[CMSG_SPACE(sizeof(claimed))];
        struct cmsghdr align;
    } ancillary = {0};
    struct iovec vector = {.iov_base = (char[]){"x"}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof(ancillary)};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);

    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_CREDENTIALS;
    part->cmsg_len = CMSG_LEN(sizeof(claimed));
    memcpy(CMSG_DATA(part), &claimed, sizeof(claimed));
    return (int)sendmsg(socket, &message, MSG_NOSIGNAL);
}

static int scm_credentials_forged(const void *row)
{
    int pair[2];

    (void)row;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return broken("socketpair: %s", strerror(errno));
    return REFUSED(send_credentials(pair[0], 1, getuid(), getgid())) |
           REFUSED(send_credentials(pair[0], getpid(), 65536, getgid())) |
           REFUSED(send_credentials(pair[0], getpid(), getuid(), 1 << 20)) |
           (getuid() ? REFUSED(send_credentials(pair[0], getpid(), 0, 0)) : HOLDS) |
           WORKS_FINE(send_credentials(pair[0], getpid(), getuid(), getgid()));
}

static int connect_to(const char *name, size_t length, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, name, length);
    return connect(fd, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
}

static int host_sockets(const void *row)
{
    static const char *const paths[] = {
        "/var/run/docker.sock",        "/run/docker.sock",     "/run/containerd/containerd.sock",
        "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/agent-sandbox/supervisor.sock",
        "/run/systemd/notify",         "/run/snapd.socket",    "/var/run/postgresql/.s.PGSQL.5432",
        "/run/podman/podman.sock",     "/run/crio/crio.sock",  "/var/run/redis/redis.sock"};

    (void)row;
    for (size_t i = 0; i < COUNT(paths); i++)
        if (connect_to(paths[i], strlen(paths[i]) + 1, SOCK_STREAM) == 0 ||
            connect_to(paths[i], strlen(paths[i]) + 1, SOCK_SEQPACKET) == 0)
            return broken("%s answers", paths[i]);
    return HOLDS;
}

static int host_abstract(const void *row)
{
    const char *name = told("BATTERY_HOST_ABSTRACT");
    char address[108] = "";

    (void)row;
    if (!name)
        return SKIPPED_CHECK;
    snprintf(address + 1, sizeof(address) - 1, "%s", name);
    return REFUSED_WITH(ECONNREFUSED, connect_to(address, 1 + strlen(name), SOCK_STREAM));
}

/* Every name in the table is tried: the shims of containerd listened so (CVE-2020-15257), in a
 * network namespace that was the host's. */
static int table_is_its_own(const void *row)
{
    FILE *file = fopen("/proc/net/unix", "r");
    char line[512];
    int verdict = HOLDS;

    (void)row;
    while (file && fgets(line, sizeof(line), file)) {
        char path[108] = "";
        size_t length;

        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %107s", path) != 1 || !path[0])
            continue;
        length = strlen(path);
        if (path[0] == '@')
            path[0] = '\0';
        for (int type = SOCK_STREAM; type <= SOCK_SEQPACKET; type++)
            if (type != SOCK_RAW && type != SOCK_RDM && connect_to(path, length, type) == 0)
                verdict = broken("%s", line);
    }
    return file ? verdict : broken("/proc/net/unix");
}

static int supervisor_socket(const void *row)
{
    const char *path = told("BATTERY_HOST_SOCKET");

    (void)row;
    if (!path)
        return SKIPPED_CHECK;
    return REFUSED(connect_to(path, strlen(path) + 1, SOCK_SEQPACKET));
}

static const struct check unix_checks[] = {
    {"scm_credentials_forged", scm_credentials_forged, NULL, EVERYBODY},
    {"host_sockets", host_sockets, NULL, EVERYBODY},
    {"host_abstract", host_abstract, NULL, EVERYBODY},
    {"table_is_its_own", table_is_its_own, NULL, EVERYBODY},
    {"supervisor_socket", supervisor_socket, NULL, EVERYBODY},
};

const struct battery battery_unix = {"unix", unix_checks, COUNT(unix_checks)};
