/* Names for sandboxes: see network_dns.h. */
#include "supervisor/network_dns.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/scope.h"
#include "supervisor/network_plan.h"
#include "supervisor/supervisor.h"

enum {
    NAMES_PORT = 53,
    SERVERS_MAX = 3, /* as resolv.conf(5) */
    QUERIES_MAX = 512,
    QUERIES_EACH = 32, /* of one sandbox */
    QUERY_BYTES = 1500,
    HEADER_BYTES = 12, /* RFC 1035, 4.1.1 */
    ANSWER_BYTES = 65535,
    TRY_MS = 2000,
    TRIES = 3,
    STREAMS_MAX = 64,
    STREAMS_EACH = 4,
    STREAM_MS = 15000,
    STREAM_BYTES = 4096,
    PORT_TRIES = 16,
    LOOK_MS = 1000, /* at resolv.conf, at most so often */
};

/* A question that was passed on, over a socket of its own: what comes over it is from the server
 * that was asked, and to guess its port is as hard as the kernel makes it. */
struct query {
    int fd; /* -1: free */
    struct sockaddr_in client;
    uint16_t id, asked_id; /* the client's, and ours */
    int tries;
    int64_t deadline;
    size_t length;
    unsigned char bytes[QUERY_BYTES];
};

/* Bytes on their way from one end to the other. */
struct half {
    int from; /* index of an end */
    bool ended;
    size_t length, sent;
    char bytes[STREAM_BYTES];
};

struct stream {
    int ends[2]; /* client, server; -1: free */
    struct sockaddr_in client;
    int64_t deadline;
    struct half halves[2];
};

static struct netlink_address servers[SERVERS_MAX];
static size_t server_count;
static struct query queries[QUERIES_MAX];
static struct stream streams[STREAMS_MAX];
static int datagrams, connections;
static pid_t keeper;

/* --- the servers ----------------------------------------------------------------------------- */

static void add_server(const struct network_range *range, void *data)
{
    (void)data;
    if (server_count < SERVERS_MAX)
        servers[server_count++] = range->first;
}

static void read_resolv_conf(void)
{
    auto_fclose FILE *file = fopen("/etc/resolv.conf", "re");
    char line[256], text[64];
    struct network_range range;

    server_count = 0;
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, " nameserver %63s", text) == 1 && network_range_read(text, &range))
            add_server(&range, NULL);
}

/* It changes when the host's network does. */
static void find_servers(void)
{
    static struct timespec seen;
    static int64_t looked;
    struct stat status = {0};

    if (settings.egress_dns[0] && !server_count)
        network_list_read(settings.egress_dns, add_server, NULL);
    if (settings.egress_dns[0] || (looked && clock_ms() - looked < LOOK_MS))
        return;
    looked = clock_ms();
    stat("/etc/resolv.conf", &status);
    if (server_count && status.st_mtim.tv_sec == seen.tv_sec &&
        status.st_mtim.tv_nsec == seen.tv_nsec)
        return;
    seen = status.st_mtim;
    read_resolv_conf();
}

/* A socket that is on its way to a server; non-blocking. */
static int connect_server(const struct netlink_address *server, int type)
{
    auto_close int fd = socket(server->family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(NAMES_PORT)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(NAMES_PORT)};
    bool is_four = server->family == AF_INET;

    memcpy(&four.sin_addr, server->bytes, sizeof(four.sin_addr));
    memcpy(&six.sin6_addr, server->bytes, sizeof(six.sin6_addr));
    if (fd < 0 || (connect(fd, is_four ? (struct sockaddr *)&four : (struct sockaddr *)&six,
                           is_four ? sizeof(four) : sizeof(six)) < 0 &&
                   errno != EINPROGRESS))
        return -1;
    return take_fd(&fd);
}

/* --- questions in datagrams ------------------------------------------------------------------ */

static void query_end(struct query *query)
{
    scope_close(&query->fd);
    query->fd = -1;
}

/* No server answers: the client hears so, rather than wait. */
static void query_fail(struct query *query)
{
    query->bytes[2] |= 0x80;    /* an answer */
    query->bytes[3] = 0x80 | 2; /* recursion is available; server failure */
    sendto(datagrams, query->bytes, query->length, MSG_DONTWAIT,
           (const struct sockaddr *)&query->client, sizeof(query->client));
    query_end(query);
}

static void set_id(unsigned char *bytes, uint16_t id)
{
    bytes[0] = (unsigned char)(id >> 8);
    bytes[1] = (unsigned char)id;
}

/* Ask the next server. */
static void query_ask(struct query *query)
{
    query_end(query);
    while (server_count && query->tries < TRIES) {
        const struct netlink_address *server = &servers[(size_t)query->tries++ % server_count];
        unsigned char copy[QUERY_BYTES];

        if (getrandom(&query->asked_id, sizeof(query->asked_id), 0) !=
            (ssize_t)sizeof(query->asked_id))
            break;
        memcpy(copy, query->bytes, query->length);
        set_id(copy, query->asked_id);
        query->fd = connect_server(server, SOCK_DGRAM);
        if (query->fd >= 0 &&
            send(query->fd, copy, query->length, MSG_DONTWAIT) == (ssize_t)query->length) {
            query->deadline = clock_ms() + TRY_MS;
            return;
        }
        query_end(query);
    }
    query_fail(query);
}

static void query_answered(struct query *query)
{
    static unsigned char answer[ANSWER_BYTES];
    ssize_t length = recv(query->fd, answer, sizeof(answer), MSG_DONTWAIT);

    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length < 0) { /* refused, unreachable */
        query_ask(query);
        return;
    }
    if (length < HEADER_BYTES || !(answer[2] & 0x80) ||
        (answer[0] << 8 | answer[1]) != query->asked_id)
        return;
    set_id(answer, query->id);
    sendto(datagrams, answer, (size_t)length, MSG_DONTWAIT, (const struct sockaddr *)&query->client,
           sizeof(query->client));
    query_end(query);
}

/* A free one, unless this sandbox has enough under way. */
static struct query *query_new(const struct sockaddr_in *client)
{
    struct query *free = NULL;
    int same = 0;

    for (size_t i = 0; i < QUERIES_MAX; i++) {
        if (queries[i].fd < 0)
            free = &queries[i];
        else if (queries[i].client.sin_addr.s_addr == client->sin_addr.s_addr)
            same++;
    }
    return same < QUERIES_EACH ? free : NULL;
}

static void take_datagram(void)
{
    struct query *query;
    unsigned char bytes[QUERY_BYTES + 1];
    struct sockaddr_in client = {0};
    socklen_t size = sizeof(client);
    ssize_t length =
        recvfrom(datagrams, bytes, sizeof(bytes), MSG_DONTWAIT, (struct sockaddr *)&client, &size);

    /* A question, and not an answer to a made-up one. */
    if (length < HEADER_BYTES || length > QUERY_BYTES || (bytes[2] & 0x80) ||
        size != sizeof(client) || !(query = query_new(&client)))
        return;
    find_servers();
    query->client = client;
    query->tries = 0;
    query->length = (size_t)length;
    query->id = (uint16_t)(bytes[0] << 8 | bytes[1]);
    memcpy(query->bytes, bytes, query->length);
    query_ask(query);
}

/* --- questions over TCP: bytes there and back ------------------------------------------------- */

static void stream_end(struct stream *stream)
{
    for (size_t i = 0; i < 2; i++) {
        scope_close(&stream->ends[i]);
        stream->ends[i] = -1;
    }
}

static struct stream *stream_new(const struct sockaddr_in *client)
{
    struct stream *free = NULL;
    int same = 0;

    for (size_t i = 0; i < STREAMS_MAX; i++) {
        if (streams[i].ends[0] < 0)
            free = &streams[i];
        else if (streams[i].client.sin_addr.s_addr == client->sin_addr.s_addr)
            same++;
    }
    return same < STREAMS_EACH ? free : NULL;
}

static void take_connection(void)
{
    struct sockaddr_in client = {0};
    socklen_t size = sizeof(client);
    auto_close int fd =
        accept4(connections, (struct sockaddr *)&client, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct stream *stream;

    if (fd < 0 || !(stream = stream_new(&client)))
        return;
    find_servers();
    for (size_t i = 0; i < server_count; i++) {
        int server = connect_server(&servers[i], SOCK_STREAM);

        if (server < 0)
            continue;
        *stream = (struct stream){.ends = {take_fd(&fd), server},
                                  .client = client,
                                  .deadline = clock_ms() + STREAM_MS,
                                  .halves = {{.from = 0}, {.from = 1}}};
        return;
    }
}

/* False when the stream is of no more use. */
static bool half_move(struct half *half, const int *ends)
{
    ssize_t moved;

    if (half->length == half->sent && !half->ended) {
        moved = recv(ends[half->from], half->bytes, sizeof(half->bytes), MSG_DONTWAIT);
        if (moved < 0)
            return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
        half->length = (size_t)moved;
        half->sent = 0;
        half->ended = moved == 0;
    }
    if (half->sent < half->length) {
        moved = send(ends[!half->from], half->bytes + half->sent, half->length - half->sent,
                     MSG_DONTWAIT | MSG_NOSIGNAL);
        if (moved < 0)
            return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
        half->sent += (size_t)moved;
    }
    if (half->ended && half->sent == half->length)
        shutdown(ends[!half->from], SHUT_WR);
    return true;
}

static short stream_events(const struct stream *stream, int end)
{
    const struct half *from = &stream->halves[end], *to = &stream->halves[!end];

    return (short)((from->length == from->sent && !from->ended ? POLLIN : 0) |
                   (to->sent < to->length ? POLLOUT : 0));
}

static void stream_move(struct stream *stream)
{
    for (size_t i = 0; i < 2; i++) {
        if (!half_move(&stream->halves[i], stream->ends)) {
            stream_end(stream);
            return;
        }
    }
    if (stream->halves[0].ended && stream->halves[1].ended)
        stream_end(stream);
}

/* --- the process ----------------------------------------------------------------------------- */

enum {
    AT_QUERIES = 2,
    AT_STREAMS = AT_QUERIES + QUERIES_MAX,
    AT_END = AT_STREAMS + 2 * STREAMS_MAX
};

static int fill(struct pollfd events[AT_END])
{
    int64_t next = INT64_MAX, now = clock_ms();

    events[0] = (struct pollfd){.fd = datagrams, .events = POLLIN};
    events[1] = (struct pollfd){.fd = connections, .events = POLLIN};
    for (size_t i = 0; i < QUERIES_MAX; i++) {
        events[AT_QUERIES + i] = (struct pollfd){.fd = queries[i].fd, .events = POLLIN};
        if (queries[i].fd >= 0 && queries[i].deadline < next)
            next = queries[i].deadline;
    }
    for (size_t i = 0; i < STREAMS_MAX; i++) {
        for (int end = 0; end < 2; end++)
            events[AT_STREAMS + 2 * i + (size_t)end] = (struct pollfd){
                .fd = streams[i].ends[end], .events = stream_events(&streams[i], end)};
        if (streams[i].ends[0] >= 0 && streams[i].deadline < next)
            next = streams[i].deadline;
    }
    return next == INT64_MAX ? -1 : next <= now ? 0 : (int)(next - now);
}

static _Noreturn void serve(void)
{
    static struct pollfd events[AT_END];

    for (size_t i = 0; i < QUERIES_MAX; i++)
        queries[i].fd = -1;
    for (size_t i = 0; i < STREAMS_MAX; i++)
        streams[i].ends[0] = streams[i].ends[1] = -1;
    for (;;) {
        int64_t now;

        if (poll(events, AT_END, fill(events)) < 0 && errno != EINTR)
            _exit(EXIT_FAILURE);
        now = clock_ms();
        for (size_t i = 0; i < QUERIES_MAX; i++) {
            if (queries[i].fd < 0)
                continue;
            if (events[AT_QUERIES + i].revents)
                query_answered(&queries[i]);
            else if (queries[i].deadline <= now)
                query_ask(&queries[i]);
        }
        for (size_t i = 0; i < STREAMS_MAX; i++) {
            const struct pollfd *ends = &events[AT_STREAMS + 2 * i];

            if (streams[i].ends[0] < 0)
                continue;
            if (streams[i].deadline <= now)
                stream_end(&streams[i]);
            else if (ends[0].revents || ends[1].revents)
                stream_move(&streams[i]);
        }
        if (events[0].revents)
            take_datagram();
        if (events[1].revents)
            take_connection();
    }
}

/* The last of the ids from which the owners of sandboxes are: no slot is that high. */
static int drop_everything(void)
{
    const struct rlimit none = {0, 0};
    id_t own = (id_t)(settings.id_base + ID_RANGE - 1);

    if (setgroups(0, NULL) < 0 || setresgid(own, own, own) < 0 || setresuid(own, own, own) < 0)
        return -1;
    setrlimit(RLIMIT_FSIZE, &none);
    setrlimit(RLIMIT_CORE, &none);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || chdir("/") < 0)
        return -1;
    return 0;
}

/* Should what a tenant sends ever end it, another goes on. */
static _Noreturn void keep_serving(void)
{
    prctl(PR_SET_NAME, "names");
    /* The terminal's signals are for the main loop. */
    for (size_t i = 0; i < 3; i++)
        signal((const int[]){SIGINT, SIGTERM, SIGHUP}[i], SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    if (drop_everything() < 0)
        _exit(EXIT_FAILURE);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which a change of id clears */
    for (;;) {
        pid_t pid = fork();

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            serve();
        }
        if (pid > 0)
            waitpid(pid, NULL, 0);
        sleep(1);
    }
}

/* Both kinds at one port; the address need not be there yet. */
static int listen_both(uint16_t *port, struct error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const struct sockaddr *generic = (const struct sockaddr *)&address;
    socklen_t size = sizeof(address);
    int one = 1;

    memcpy(&address.sin_addr, network_plan.resolver.bytes, sizeof(address.sin_addr));
    for (int i = 0; i < PORT_TRIES; i++) {
        auto_close int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        auto_close int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        address.sin_port = 0;
        setsockopt(udp, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one));
        setsockopt(tcp, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one));
        if (bind(udp, generic, sizeof(address)) < 0 ||
            getsockname(udp, (struct sockaddr *)&address, &size) < 0)
            break;
        if (bind(tcp, generic, sizeof(address)) < 0 || listen(tcp, STREAMS_MAX) < 0)
            continue;
        *port = ntohs(address.sin_port);
        datagrams = take_fd(&udp);
        connections = take_fd(&tcp);
        return 0;
    }
    return error_set_errno(err, ERR_INTERNAL, "resolver");
}

int network_dns_open(uint16_t *port, struct error *err)
{
    if (listen_both(port, err) < 0)
        return -1;
    keeper = fork();
    if (keeper < 0)
        return error_set_errno(err, ERR_INTERNAL, "fork");
    if (keeper == 0)
        keep_serving();
    close(datagrams);
    close(connections);
    return 0;
}

pid_t network_dns_pid(void)
{
    return keeper;
}

void network_dns_close(void)
{
    if (keeper > 0) {
        kill(keeper, SIGKILL);
        waitpid(keeper, NULL, 0);
    }
    keeper = 0;
}
