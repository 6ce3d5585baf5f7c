/* A program for inside a sandbox, and for the other side: it listens, connects and asks for names,
 * and says in a word what came of it. Static, so that it runs in any image. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 700 };

static socklen_t read_address(const char *text, const char *port, struct sockaddr_storage *address)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;

    memset(address, 0, sizeof(*address));
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)atoi(port));
        return sizeof(*four);
    }
    if (inet_pton(AF_INET6, text, &six->sin6_addr) != 1) {
        printf("%s is no address\n", text);
        exit(2);
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)atoi(port));
    return sizeof(*six);
}

static int fails(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    return 1;
}

static int open_socket(const char *address, const char *port, int type,
                       struct sockaddr_storage *where, socklen_t *length)
{
    *length = read_address(address, port, where);
    return socket(where->ss_family, type | SOCK_CLOEXEC, 0);
}

/* Who came, and to which of our addresses. */
static void log_peer(int client, const char *peer)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof(own);
    char text[64] = "";

    getsockname(client, (struct sockaddr *)&own, &size);
    getnameinfo((struct sockaddr *)&own, size, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
    printf("%s to %s\n", peer, text);
    fflush(stdout);
}

/* Greet whoever connects, with the address it came from. */
static int serve_tcp(char **argv)
{
    struct sockaddr_storage where;
    socklen_t length;
    int one = 1, fd = open_socket(argv[0], argv[1], SOCK_STREAM, &where, &length);

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (where.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&where, length) < 0 || listen(fd, 64) < 0)
        return fails("listen");
    for (;;) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof(peer);
        char text[64] = "", line[80];
        int client = accept(fd, (struct sockaddr *)&peer, &size);

        if (client < 0)
            continue;
        getnameinfo((struct sockaddr *)&peer, size, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
        log_peer(client, text);
        snprintf(line, sizeof(line), "hello %s\n", text);
        if (write(client, line, strlen(line)) < 0)
            perror("write");
        close(client);
    }
}

/* Send back what comes. */
static int serve_udp(char **argv)
{
    struct sockaddr_storage where;
    socklen_t length;
    int fd = open_socket(argv[0], argv[1], SOCK_DGRAM, &where, &length);

    if (bind(fd, (struct sockaddr *)&where, length) < 0)
        return fails("bind");
    for (;;) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof(peer);
        char bytes[2048];
        ssize_t got = recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&peer, &size);

        if (got >= 0) {
            char text[64] = "";

            getnameinfo((struct sockaddr *)&peer, size, text, sizeof(text), NULL, 0,
                        NI_NUMERICHOST);
            printf("%s sent\n", text);
            fflush(stdout);
        }
        if (got >= 0)
            sendto(fd, bytes, (size_t)got, 0, (struct sockaddr *)&peer, size);
    }
}

/* Take all that comes, and say how much at the end. */
static int sink(char **argv)
{
    struct sockaddr_storage where;
    socklen_t length;
    int one = 1, fd = open_socket(argv[0], argv[1], SOCK_STREAM, &where, &length);

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&where, length) < 0 || listen(fd, 8) < 0)
        return fails("listen");
    for (;;) {
        static char bytes[65536];
        int client = accept(fd, NULL, NULL);
        ssize_t got;

        while ((got = read(client, bytes, sizeof(bytes))) > 0)
            ;
        close(client);
    }
}

static int try_tcp(char **argv)
{
    struct sockaddr_storage where;
    socklen_t length;
    int fd = open_socket(argv[0], argv[1], SOCK_STREAM | SOCK_NONBLOCK, &where, &length);
    struct pollfd event = {.fd = fd, .events = POLLOUT};
    char line[128];
    ssize_t got;

    if (fd < 0)
        return fails("socket");
    if (connect(fd, (struct sockaddr *)&where, length) < 0 && errno != EINPROGRESS)
        return fails("connect");
    if (poll(&event, 1, PATIENCE_MS) <= 0) {
        puts("silence");
        return 1;
    }
    length = sizeof(errno);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &errno, &length);
    if (errno)
        return fails("connect");
    event.events = POLLIN;
    poll(&event, 1, PATIENCE_MS);
    got = read(fd, line, sizeof(line));
    printf("%.*s", got > 0 ? (int)got : 0, line);
    return 0;
}

static int exchange(int fd, const struct sockaddr_storage *where, socklen_t length)
{
    struct pollfd event = {.fd = fd, .events = POLLIN};
    char bytes[64];

    if (sendto(fd, "ping", 4, 0, (const struct sockaddr *)where, length) < 0)
        return fails("send");
    if (poll(&event, 1, PATIENCE_MS) <= 0) {
        puts("silence");
        return 1;
    }
    if (recv(fd, bytes, sizeof(bytes), 0) < 0)
        return fails("receive");
    puts("answer");
    return 0;
}

static int try_udp(char **argv)
{
    struct sockaddr_storage where;
    socklen_t length;
    int fd = open_socket(argv[0], argv[1], SOCK_DGRAM, &where, &length);

    return exchange(fd, &where, length);
}

/* The same under a source address that is not ours. */
static int spoof_udp(char **argv)
{
    struct sockaddr_storage where, source;
    socklen_t length, own = read_address(argv[2], "0", &source);
    int one = 1, fd = open_socket(argv[0], argv[1], SOCK_DGRAM, &where, &length);

    /* IP_FREEBIND, which needs no right, lets any program name an address. */
    setsockopt(fd, where.ss_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
               where.ss_family == AF_INET ? 15 : 78, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&source, own) < 0)
        return fails("bind");
    return exchange(fd, &where, length);
}

/* Send for some milliseconds, as fast as it goes; how many bytes were taken. */
static int flood(char **argv)
{
    static char bytes[16384];
    struct sockaddr_storage where;
    socklen_t length;
    int fd = open_socket(argv[0], argv[1], SOCK_STREAM, &where, &length);
    long long total = 0;
    ssize_t put;

    signal(SIGALRM, SIG_DFL);
    if (connect(fd, (struct sockaddr *)&where, length) < 0)
        return fails("connect");
    for (long long most = atoll(argv[2]); total < most; total += put)
        if ((put = write(fd, bytes, sizeof(bytes))) < 0)
            return fails("write");
    printf("%lld\n", total);
    return 0;
}

static int resolve(char **argv)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    char text[64];
    int result = getaddrinfo(argv[0], NULL, &hints, &found);

    if (result) {
        printf("%s\n", gai_strerror(result));
        return 1;
    }
    getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
    puts(text);
    return 0;
}

/* --- names ---------------------------------------------------------------------------------------
 */

enum { HEADER = 12, ANSWER_BYTES = 16 };

/* 93.184.216.34, whatever was asked; the length of the answer. */
static size_t answer_name(unsigned char *bytes, size_t length)
{
    static const unsigned char record[ANSWER_BYTES] = {0xc0, HEADER, 0, 1, 0,  1,   0,   0,
                                                       0,    1,      0, 4, 93, 184, 216, 34};
    size_t end = HEADER;

    while (end < length && bytes[end])
        end += bytes[end] + 1U;
    end += 5;
    if (end > length)
        return 0;
    bytes[2] = 0x81;
    bytes[3] = 0x80;
    memset(bytes + 6, 0, 6);
    bytes[7] = 1;
    memcpy(bytes + end, record, sizeof(record));
    return end + sizeof(record);
}

static int serve_names(char **argv)
{
    struct sockaddr_storage where;
    socklen_t length;
    int one = 1, udp = open_socket(argv[0], "53", SOCK_DGRAM, &where, &length);
    int tcp = open_socket(argv[0], "53", SOCK_STREAM, &where, &length);

    setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(udp, (struct sockaddr *)&where, length) < 0 ||
        bind(tcp, (struct sockaddr *)&where, length) < 0 || listen(tcp, 8) < 0)
        return fails("bind");
    for (;;) {
        struct pollfd events[] = {{.fd = udp, .events = POLLIN}, {.fd = tcp, .events = POLLIN}};
        unsigned char bytes[2048];
        struct sockaddr_storage peer;
        socklen_t size = sizeof(peer);
        ssize_t got;

        poll(events, 2, -1);
        if (events[0].revents &&
            (got = recvfrom(udp, bytes, 1500, 0, (struct sockaddr *)&peer, &size)) > HEADER)
            sendto(udp, bytes, answer_name(bytes, (size_t)got), 0, (struct sockaddr *)&peer, size);
        if (events[1].revents) {
            int client = accept(tcp, NULL, NULL);

            if ((got = read(client, bytes, 1500)) > HEADER + 2) {
                size_t reply = answer_name(bytes + 2, (size_t)got - 2);

                bytes[0] = (unsigned char)(reply >> 8);
                bytes[1] = (unsigned char)reply;
                if (write(client, bytes, reply + 2) < 0)
                    perror("write");
            }
            close(client);
        }
    }
}

/* Questions and other bytes, as fast as it goes, over both; until it is ended. */
static int talk_nonsense(char **argv)
{
    unsigned char bytes[1600];
    struct sockaddr_storage where;
    socklen_t length;
    int udp = open_socket(argv[0], "53", SOCK_DGRAM, &where, &length);

    if (udp < 0)
        return fails("socket");
    for (unsigned seed = 1;; seed++) {
        int tcp = socket(where.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct pollfd event = {.fd = tcp, .events = POLLOUT};

        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (unsigned char)((seed * 2654435761U + i * 40503U) >> 11);
        for (size_t i = 0; i < 64; i++) {
            bytes[2] = (unsigned char)(i & 1 ? bytes[2] : 1);
            sendto(udp, bytes, i * 25, MSG_DONTWAIT, (struct sockaddr *)&where, length);
        }
        connect(tcp, (struct sockaddr *)&where, length);
        poll(&event, 1, 10);
        if (write(tcp, bytes, seed % sizeof(bytes)) < 0)
            usleep(1000);
        close(tcp);
    }
}

/* Ask over TCP; the last four bytes of the answer, which are an address. */
static int resolve_tcp(char **argv)
{
    unsigned char bytes[512] = {0, 0, 0x12, 0x34, 1, 0, 0, 1}, *at = bytes + 14;
    struct sockaddr_storage where;
    socklen_t length;
    int fd = open_socket(argv[0], "53", SOCK_STREAM, &where, &length);
    struct pollfd event = {.fd = fd, .events = POLLIN};
    ssize_t got;

    for (char *part = strtok(argv[1], "."); part; part = strtok(NULL, ".")) {
        *at = (unsigned char)strlen(part);
        memcpy(at + 1, part, *at);
        at += *at + 1;
    }
    memcpy(at, "\0\0\1\0\1", 5);
    at += 5;
    bytes[1] = (unsigned char)(at - bytes - 2);
    if (connect(fd, (struct sockaddr *)&where, length) < 0 ||
        write(fd, bytes, (size_t)(at - bytes)) < 0)
        return fails("connect");
    if (poll(&event, 1, PATIENCE_MS) <= 0 || (got = read(fd, bytes, sizeof(bytes))) < 30) {
        puts("silence");
        return 1;
    }
    printf("%d.%d.%d.%d\n", bytes[got - 4], bytes[got - 3], bytes[got - 2], bytes[got - 1]);
    return 0;
}

/* --- what needs a right that a sandbox does not have
 * ------------------------------------------------
 */

static int change(int type, int flags, const void *body, size_t length)
{
    struct {
        struct nlmsghdr head;
        char bytes[256];
    } request = {.head = {.nlmsg_len = (unsigned)NLMSG_LENGTH(length),
                          .nlmsg_type = (unsigned short)type,
                          .nlmsg_flags = (unsigned short)(NLM_F_REQUEST | NLM_F_ACK | flags)}};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char more[512];
    } answer = {0};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    memcpy(request.bytes, body, length);
    if (fd < 0 || send(fd, &request, request.head.nlmsg_len, 0) < 0 ||
        recv(fd, &answer, sizeof(answer), 0) < 0)
        return errno;
    close(fd);
    return -answer.error.error;
}

/* Every attempt must fail for want of the right, and for nothing else. */
static int try_changes(char **argv)
{
    const int index = (int)if_nametoindex(argv[0]);
    const struct ifinfomsg down = {.ifi_index = index, .ifi_change = IFF_UP};
    const struct ifaddrmsg address = {
        .ifa_family = AF_INET, .ifa_prefixlen = 24, .ifa_index = (unsigned)index};
    const struct rtmsg route = {.rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN};
    const struct ndmsg neighbour = {.ndm_family = AF_INET, .ndm_ifindex = index};
    const struct tcmsg rate = {.tcm_ifindex = index, .tcm_parent = TC_H_ROOT};
    struct ifreq request = {.ifr_flags = 0};
    const struct {
        const char *what;
        int result;
    } tries[] = {
        {"link down", change(RTM_NEWLINK, 0, &down, sizeof(down))},
        {"link gone", change(RTM_DELLINK, 0, &down, sizeof(down))},
        {"address", change(RTM_NEWADDR, NLM_F_CREATE, &address, sizeof(address))},
        {"no address", change(RTM_DELADDR, 0, &address, sizeof(address))},
        {"route", change(RTM_NEWROUTE, NLM_F_CREATE, &route, sizeof(route))},
        {"no route", change(RTM_DELROUTE, 0, &route, sizeof(route))},
        {"neighbour", change(RTM_NEWNEIGH, NLM_F_CREATE, &neighbour, sizeof(neighbour))},
        {"no rate", change(RTM_DELQDISC, 0, &rate, sizeof(rate))},
        {"rule", change(RTM_NEWRULE, NLM_F_CREATE, &route, sizeof(route))},
    };
    int wrong = 0, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    for (size_t i = 0; i < sizeof(tries) / sizeof(*tries); i++)
        if (tries[i].result != EPERM) {
            printf("%s: %s\n", tries[i].what, strerror(tries[i].result));
            wrong = 1;
        }
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", argv[0]);
    if (ioctl(fd, SIOCSIFFLAGS, &request) == 0 || errno != EPERM)
        wrong |= fails("SIOCSIFFLAGS");
    if (setsockopt(fd, IPPROTO_IP, 64 /* IPT_SO_SET_REPLACE */, "", 1) == 0 ||
        (errno != EPERM && errno != ENOPROTOOPT))
        wrong |= fails("IPT_SO_SET_REPLACE");
    if (socket(AF_NETLINK, SOCK_RAW, 12 /* NETLINK_NETFILTER */) >= 0)
        wrong |= fails("NETLINK_NETFILTER");
    if (socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0 || socket(AF_INET6, SOCK_RAW, 58) >= 0 ||
        socket(AF_PACKET, SOCK_RAW, 0) >= 0)
        wrong |= fails("raw socket");
    return wrong;
}

/* The address of that family that an interface has, beyond those that only count on the link. */
static int show_address(char **argv)
{
    int family = argv[1][0] == '6' ? AF_INET6 : AF_INET;
    struct ifaddrs *all = NULL;
    char text[64];

    getifaddrs(&all);
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != family ||
            strcmp(one->ifa_name, argv[0]) != 0)
            continue;
        getnameinfo(one->ifa_addr,
                    family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6),
                    text, sizeof(text), NULL, 0, NI_NUMERICHOST);
        if (strncmp(text, "fe80", 4) != 0) {
            puts(text);
            return 0;
        }
    }
    return 1;
}

static const struct {
    const char *name;
    int arguments;
    int (*run)(char **argv);
} commands[] = {
    {"serve-tcp", 2, serve_tcp},
    {"serve-udp", 2, serve_udp},
    {"sink", 2, sink},
    {"tcp", 2, try_tcp},
    {"udp", 2, try_udp},
    {"spoof", 3, spoof_udp},
    {"flood", 3, flood},
    {"resolve", 1, resolve},
    {"names", 1, serve_names},
    {"nonsense", 1, talk_nonsense},
    {"resolve-tcp", 2, resolve_tcp},
    {"changes", 1, try_changes},
    {"address", 2, show_address},
};

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(*commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0 && argc - 2 == commands[i].arguments)
            return commands[i].run(argv + 2);
    return 2;
}
