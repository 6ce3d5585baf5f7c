/* Many followers of one session in one process, so that the client's own cost is small beside the
 * server's.
 *
 * followers PORT COUNT PATH NEEDLE SECONDS opens COUNT streams of PATH on loopback, each with
 * SANDBOX_API_KEY of the environment, and prints "open N BEGAN ENDED" when all have their heads. It
 * then reads, and prints "seen N FIRST LAST" when all have seen NEEDLE, or after SECONDS. Times are
 * seconds of CLOCK_MONOTONIC. It keeps the streams until standard input ends. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_SIZE = 64 * 1024, NEEDLE_MAX = 128, OPEN_AT_ONCE = 128, OPEN_MS = 30 * 1000 };

struct follower {
    int fd;
    bool headed, seen;
    size_t tail_length;
    char tail[NEEDLE_MAX]; /* the end of what came, since a needle may come in two pieces */
};

static struct follower *followers;
static size_t headed, refused, seen,
    lost; /* refused: ended before its head; lost: ended before the needle */
static double first, last;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "followers: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Loopback connects at once; the request fits any socket buffer. */
static void follower_open(struct follower *follower, int port, const char *request, int epoll)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = follower};
    size_t length = strlen(request);

    follower->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (follower->fd < 0 || connect(follower->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        fail("connect");
    if (send(follower->fd, request, length, MSG_NOSIGNAL) != (ssize_t)length)
        fail("send");
    if (fcntl(follower->fd, F_SETFL, O_NONBLOCK) < 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, follower->fd, &event) < 0)
        fail("epoll");
}

static void follower_lost(struct follower *follower)
{
    close(follower->fd);
    follower->fd = -1;
    refused += !follower->headed;
    lost += !follower->seen;
}

/* Look for the needle in the tail and the new bytes, behind which a new tail is kept. `text` has
 * room for the tail in front of it. */
static void follower_search(struct follower *follower, char *text, size_t length,
                            const char *needle)
{
    size_t keep = strlen(needle) - 1;

    memcpy(text - follower->tail_length, follower->tail, follower->tail_length);
    text -= follower->tail_length;
    length += follower->tail_length;
    if (!follower->headed) {
        static const char status[] = "HTTP/1.1 200 ";

        if (length < sizeof(status) - 1 || !memmem(text, length, "\r\n\r\n", 4)) {
            /* A head comes in one piece here; a server that splits it is not what is measured. */
            fprintf(stderr, "followers: half a head: %.*s\n", (int)length, text);
            exit(1);
        }
        if (memcmp(text, status, sizeof(status) - 1) != 0) {
            fprintf(stderr, "followers: refused: %.*s\n", (int)(length < 300 ? length : 300), text);
            exit(1);
        }
        follower->headed = true;
        headed++;
    }
    if (!follower->seen && memmem(text, length, needle, strlen(needle))) {
        follower->seen = true;
        last = now();
        if (seen++ == 0)
            first = last;
    }
    follower->tail_length = length < keep ? length : keep;
    memcpy(follower->tail, text + length - follower->tail_length, follower->tail_length);
}

static void follower_read(struct follower *follower, const char *needle)
{
    static char text[NEEDLE_MAX + READ_SIZE];
    ssize_t got = recv(follower->fd, text + NEEDLE_MAX, READ_SIZE, MSG_DONTWAIT);

    if (got > 0)
        follower_search(follower, text + NEEDLE_MAX, (size_t)got, needle);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        follower_lost(follower);
}

static void step(int epoll, const char *needle, double end)
{
    struct epoll_event events[256];
    double left = end - now();
    int count = epoll_wait(epoll, events, 256, left > 0 ? (int)(left * 1000) + 1 : 0);

    for (int i = 0; i < count; i++)
        follower_read(events[i].data.ptr, needle);
}

static void wait_for_close(void)
{
    char bytes[64];

    while (read(STDIN_FILENO, bytes, sizeof(bytes)) > 0)
        continue;
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    const char *key = getenv("SANDBOX_API_KEY"), *needle;
    char request[2048];
    size_t count;
    double began, end;
    int epoll = epoll_create1(EPOLL_CLOEXEC);

    if (argc != 6 || !*argv[4] || strlen(argv[4]) >= NEEDLE_MAX || !key) {
        fputs("usage: SANDBOX_API_KEY=… followers PORT COUNT PATH NEEDLE SECONDS\n", stderr);
        return 2;
    }
    count = strtoul(argv[2], NULL, 10);
    needle = argv[4];
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    followers = calloc(count + 1, sizeof(*followers));
    if (!followers || epoll < 0)
        fail("start");
    if (snprintf(request, sizeof(request),
                 "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: "
                 "text/event-stream\r\n\r\n",
                 argv[3], key) >= (int)sizeof(request)) {
        fputs("followers: PATH or key is too long\n", stderr);
        return 2;
    }
    began = now();
    for (size_t i = 0; i < count; i++) {
        follower_open(&followers[i], atoi(argv[1]), request, epoll);
        while (i + 1 - headed - refused >= OPEN_AT_ONCE && now() < began + OPEN_MS / 1000.0)
            step(epoll, needle, began + OPEN_MS / 1000.0);
    }
    while (headed + refused < count && now() < began + OPEN_MS / 1000.0)
        step(epoll, needle, began + OPEN_MS / 1000.0);
    printf("open %zu %.6f %.6f\n", headed, began, now());
    fflush(stdout);
    end = now() + atof(argv[5]);
    while (seen + lost < count && now() < end)
        step(epoll, needle, end);
    printf("seen %zu %.6f %.6f\n", seen, first, last);
    fflush(stdout);
    wait_for_close();
    return 0;
}
