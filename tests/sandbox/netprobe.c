/* A program for inside a sandbox, and for the other side: it listens, connects and asks for names,
 * and says in a word what came of it. Static, so that it runs in any image. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 1500 };

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

static const struct {
    const char *name;
    int arguments;
    int (*run)(char **argv);
} commands[] = {
    {"serve-tcp", 2, serve_tcp}, {"serve-udp", 2, serve_udp}, {"sink", 2, sink},
    {"tcp", 2, try_tcp},         {"udp", 2, try_udp},         {"spoof", 3, spoof_udp},
    {"flood", 3, flood},         {"resolve", 1, resolve},
};

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(*commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0 && argc - 2 == commands[i].arguments)
            return commands[i].run(argv + 2);
    return 2;
}
