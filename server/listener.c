/* The one listening socket, which every worker inherits: see listener.h. */
#include "server/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/scope.h"

enum {
    BACKLOG = 4096,
    PASSED_FIRST = 3,
    TAKEN_TRIES = 100, /* of an address that somebody else has */
    TAKEN_PAUSE_MS = 20,
};

static int listener = -1;

int listener_fd(void)
{
    return listener;
}

static int set_flag(int fd, int level, int option, int value, struct error *err)
{
    if (setsockopt(fd, level, option, &value, sizeof(value)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "setsockopt");
    return 0;
}

/* Accepted sockets inherit these (tcp(7)), which saves two calls for each. */
static int set_options(int fd, struct error *err)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return error_set_errno(err, ERR_INTERNAL, "fcntl");
    if (set_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1, err) < 0)
        return -1;
    return set_flag(fd, SOL_SOCKET, SO_KEEPALIVE, 1, err);
}

static int option_of(int fd, int option)
{
    int value = -1;
    socklen_t length = sizeof(value);

    return getsockopt(fd, SOL_SOCKET, option, &value, &length) < 0 ? -1 : value;
}

/* How many sockets the service manager passed. The variables are for this process alone. */
static long passed_count(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    long passed = pid && count && strtol(pid, NULL, 10) == getpid() ? strtol(count, NULL, 10) : 0;

    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return passed;
}

static int take_passed(long count, struct error *err)
{
    int domain = option_of(PASSED_FIRST, SO_DOMAIN);

    if (count != 1)
        return error_set(err, ERR_INVALID, "LISTEN_FDS: one listening socket is expected, %ld came",
                         count);
    if (option_of(PASSED_FIRST, SO_ACCEPTCONN) != 1 ||
        option_of(PASSED_FIRST, SO_TYPE) != SOCK_STREAM ||
        (domain != AF_INET && domain != AF_INET6))
        return error_set(err, ERR_INVALID, "LISTEN_FDS: descriptor 3 is no listening TCP socket");
    if (set_options(PASSED_FIRST, err) < 0)
        return -1;
    listener = PASSED_FIRST;
    return 0;
}

/* When a master was killed, its workers let go of the address only a moment after the next one
 * wants it. */
static int bind_patiently(int fd, const struct addrinfo *address)
{
    const struct timespec pause = {.tv_nsec = TAKEN_PAUSE_MS * 1000000L};

    for (int tries = 1;; tries++) {
        if (bind(fd, address->ai_addr, address->ai_addrlen) == 0)
            return 0;
        if (errno != EADDRINUSE || tries == TAKEN_TRIES)
            return -1;
        nanosleep(&pause, NULL);
    }
}

static int open_at(const struct addrinfo *address, struct error *err)
{
    auto_close int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "socket");
    if (set_flag(fd, SOL_SOCKET, SO_REUSEADDR, 1, err) < 0)
        return -1;
    if (address->ai_family == AF_INET6 && set_flag(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0, err) < 0)
        return -1;
    if (bind_patiently(fd, address) < 0)
        return error_set_errno(err, ERR_INTERNAL, "bind");
    if (listen(fd, BACKLOG) < 0)
        return error_set_errno(err, ERR_INTERNAL, "listen");
    if (set_options(fd, err) < 0)
        return -1;
    listener = take_fd(&fd);
    return 0;
}

int listener_open(const char *host, int port, struct error *err)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char service[16];
    long passed = passed_count();
    int code, result;

    if (passed > 0)
        return take_passed(passed, err);
    snprintf(service, sizeof(service), "%d", port);
    code = getaddrinfo(host, service, &hints, &found);
    if (code != 0)
        return error_set(err, ERR_INVALID, "HOST '%s': %s", host, gai_strerror(code));
    result = open_at(found, err);
    freeaddrinfo(found);
    return result < 0 ? error_add_context(err, "HOST %s, PORT %d", host, port) : 0;
}

void listener_close(void)
{
    if (listener >= 0)
        close(listener);
    listener = -1;
}

const char *listener_name(void)
{
    static char name[NI_MAXHOST + NI_MAXSERV + 4];
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    char host[NI_MAXHOST], port[NI_MAXSERV];

    if (getsockname(listener, (struct sockaddr *)&address, &length) < 0 ||
        getnameinfo((struct sockaddr *)&address, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return "?";
    snprintf(name, sizeof(name), address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return name;
}
