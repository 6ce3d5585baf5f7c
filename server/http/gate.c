/* The gate's loop: who may connect, how long each may take, and what is refused before any thread
 * hears of it. */
#include "http/gate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/scope.h"
#include "common/token.h"
#include "http/connection.h"
#include "http/serve.h"
#include "server/metrics.h"
#include "server/settings.h"

enum {
    ADDRESS_BUCKETS = 4096,
    ACCEPTS = 16, /* of one round: other workers are to get some too */
    READ_ROOM = 4000,
    BUDGET_BYTES = 128 * 1024 * 1024, /* of all that was received and waits */
    LINGER_STEP = 1024 * 1024,
    LINGER_MAX_MS = 30 * 1000,
    EVICT_IDLE_MS = 6 * 1000, /* a client that reuses a connection does so within 5 s */
    PAUSE_MS = 100,
    TICK_MS = 1000,
    DRAIN_TICK_MS = 50, /* how soon the end is seen */
};

struct address {
    struct address *next; /* in its bucket */
    struct in6_addr name; /* IPv6 by /64: that is what one customer gets */
    int64_t connections;
};

struct list {
    struct connection *first, *last;
};

static struct {
    int epoll, listener;
    pthread_mutex_t lock; /* guards what follows, up to `held_limit` */
    struct list lists[WAITS];
    struct address *addresses[ADDRESS_BUCKETS];
    int64_t connections;
    int large, large_limit; /* threads that large bodies hold, and may hold */
    int held, held_limit;   /* and those together with exchange_hold */
    uint64_t seed;
    int64_t limit_ms[WAITS]; /* the loop's own */
    int64_t resume_ms;       /* when accepting goes on; 0: it does */
    _Atomic bool draining;
    _Atomic int queued; /* how many are in WAIT_THREAD */
    _Atomic int64_t buffered;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool gate_draining(void)
{
    return atomic_load_explicit(&gate.draining, memory_order_relaxed);
}

bool gate_waiting(void)
{
    return atomic_load_explicit(&gate.queued, memory_order_relaxed) > 0;
}

/* --- lists ----------------------------------------------------------------------------------- */

static void list_add(struct connection *connection, enum waiting waiting)
{
    struct list *list = &gate.lists[waiting];

    connection->waiting = waiting;
    connection->since_ms = clock_ms();
    connection->next = NULL;
    connection->previous = list->last;
    if (list->last)
        list->last->next = connection;
    else
        list->first = connection;
    list->last = connection;
    if (waiting == WAIT_THREAD)
        atomic_fetch_add_explicit(&gate.queued, 1, memory_order_relaxed);
}

static void list_remove(struct connection *connection)
{
    struct list *list;

    if (connection->waiting == WAIT_NOTHING)
        return;
    if (connection->waiting == WAIT_THREAD)
        atomic_fetch_sub_explicit(&gate.queued, 1, memory_order_relaxed);
    list = &gate.lists[connection->waiting];
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        list->first = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    else
        list->last = connection->previous;
    connection->previous = connection->next = NULL;
    connection->waiting = WAIT_NOTHING;
}

/* To a list of the loop. Once armed, the loop may have it before this returns. */
static void park(struct connection *connection, enum waiting waiting)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT,
                                .data.ptr = connection};

    pthread_mutex_lock(&gate.lock);
    if (connection->waiting != waiting) { /* else its deadline stays */
        list_remove(connection);
        list_add(connection, waiting);
    }
    if (epoll_ctl(gate.epoll, EPOLL_CTL_MOD, connection->exchange.fd, &event) < 0)
        LOG(ERROR, "gate_watch_failed", V("errno", errno));
    pthread_mutex_unlock(&gate.lock);
}

void gate_forget(struct connection *connection)
{
    epoll_ctl(gate.epoll, EPOLL_CTL_DEL, connection->exchange.fd, NULL);
}

/* --- addresses ------------------------------------------------------------------------------- */

static struct address **address_slot(const struct in6_addr *name)
{
    uint64_t hash = gate.seed, half[2];
    struct address **slot;

    memcpy(half, name, sizeof(half));
    for (size_t i = 0; i < COUNT(half); i++) {
        hash = (hash ^ half[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    slot = &gate.addresses[hash % ADDRESS_BUCKETS];
    while (*slot && memcmp(&(*slot)->name, name, sizeof(*name)))
        slot = &(*slot)->next;
    return slot;
}

/* Under the lock. NULL: this address has as many as it may. */
static struct address *address_enter(const struct in6_addr *name)
{
    struct address **slot = address_slot(name);

    if (!*slot) {
        *slot = calloc(1, sizeof(**slot));
        if (!*slot)
            abort();
        (*slot)->name = *name;
    }
    if ((*slot)->connections >= settings.address_connections)
        return NULL;
    (*slot)->connections++;
    return *slot;
}

static void address_leave(struct address *address)
{
    struct address **slot;

    if (--address->connections > 0)
        return;
    slot = address_slot(&address->name);
    *slot = address->next;
    free(address);
}

/* --- memory ---------------------------------------------------------------------------------- */

static void count_memory(struct connection *connection)
{
    atomic_fetch_add_explicit(&gate.buffered,
                              (int64_t)connection->received.capacity -
                                  (int64_t)connection->capacity_counted,
                              memory_order_relaxed);
    connection->capacity_counted = connection->received.capacity;
}

bool gate_make_room(struct connection *connection, size_t extra)
{
    buffer_reserve(&connection->received, extra);
    count_memory(connection);
    return atomic_load_explicit(&gate.buffered, memory_order_relaxed) <= BUDGET_BYTES;
}

static void release_memory(struct connection *connection)
{
    buffer_done(&connection->received);
    connection->received = (struct buffer){0};
    count_memory(connection);
}

void gate_next_request(struct connection *connection)
{
    struct exchange *exchange = &connection->exchange;

    connection->received.length = 0;
    connection->scanned = connection->head_length = connection->body_at = connection->arrived = 0;
    connection->arriving = connection->chunks = (struct chunks){0};
    connection->body_done = connection->large = connection->continued = false;
    connection->fresh = true;
    connection->body_since_ms = connection->write_since_ms = 0;
    connection->written = 0;
    exchange->content_length = -1;
    exchange->chunked = exchange->expect_continue = exchange->keep_alive = false;
    exchange->body_read = 0;
}

void gate_drop(struct connection *connection)
{
    pthread_mutex_lock(&gate.lock);
    list_remove(connection);
    address_leave(connection->address);
    gate.connections--;
    pthread_mutex_unlock(&gate.lock);
    close(connection->exchange.fd);
    release_memory(connection);
    free(connection);
    counter_add(METRIC_connections_open, NULL, -1);
}

/* --- refusals -------------------------------------------------------------------------------- */

static void send_refusal(int fd, int status, const char *reason, const char *problem,
                         bool with_body)
{
    int labels[] = {counter_label(METRIC_requests_refused_total, 0, reason)};
    auto_buffer struct buffer body = {0};
    auto_buffer struct buffer answer = {0};

    counter_add(METRIC_requests_refused_total, labels, 1);
    buffer_format(&body, "{\"detail\":\"%s\"}", problem); /* sentences of ours: nothing to escape */
    buffer_format(
        &answer,
        "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n",
        status, response_reason(status), response_date(), body.length);
#define HEADER(name, value) buffer_text(&answer, name ": " value "\r\n");
#include "http/hardening.def"
#undef HEADER
    if (settings.security_hsts_seconds > 0)
        buffer_format(&answer, "Strict-Transport-Security: max-age=%lld\r\n",
                      (long long)settings.security_hsts_seconds);
    if (status == 405)
        buffer_text(&answer, "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n");
    if (status == 503)
        buffer_text(&answer, "Retry-After: 1\r\n");
    buffer_text(&answer, "Connection: close\r\n\r\n");
    if (with_body)
        buffer_add(&answer, body.data, body.length);
    /* It fits any socket's buffer, unless the client reads nothing: then it does not read this
     * either. */
    if (send(fd, answer.data, answer.length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return;
}

void gate_finish(struct connection *connection)
{
    shutdown(connection->exchange.fd, SHUT_WR);
    park(connection, WAIT_LINGER);
}

void gate_refuse(struct connection *connection, int status, const char *reason, const char *problem)
{
    const struct buffer *received = &connection->received;
    bool head_only = received->length >= 5 && !memcmp(received->data, "HEAD ", 5);

    send_refusal(connection->exchange.fd, status, reason, problem, !head_only);
    gate_finish(connection);
}

/* --- a request's progress -------------------------------------------------------------------- */

/* What gate_advance found wrong; told when the connection is settled. */
static enum progress refused(struct connection *connection, int status, const char *reason,
                             const char *problem)
{
    connection->refusal = (struct refusal){status, reason, problem};
    return PROGRESS_REFUSED;
}

static enum progress judge_head(struct connection *connection)
{
    struct exchange *exchange = &connection->exchange;
    struct buffer *received = &connection->received;
    struct head head;

    /* RFC 9112, 2.2: one empty line in front of a request is skipped. */
    if (connection->fresh && received->length >= 2 && !memcmp(received->data, "\r\n", 2)) {
        received->length -= 2;
        memmove(received->data, received->data + 2, received->length);
        connection->scanned = 0;
        connection->fresh = false;
    }
    if (received->length == 0)
        return PROGRESS_IDLE;
    switch (head_check(received->data, received->length, &connection->scanned, &head)) {
    case HEAD_PARTIAL:
        return PROGRESS_HEAD;
    case HEAD_REFUSED:
        return refused(connection, head.status, "head", head.problem);
    case HEAD_COMPLETE:
        break;
    }
    connection->head_length = connection->body_at = connection->arrived = head.length;
    exchange->content_length = head.content_length;
    exchange->chunked = head.chunked;
    exchange->expect_continue = head.expect_continue;
    exchange->keep_alive = head.keep_alive;
    connection->body_done = !head.chunked && head.content_length <= 0;
    return PROGRESS_BODY;
}

static enum progress judge_chunks(struct connection *connection)
{
    const struct buffer *received = &connection->received;
    size_t used = received->length - connection->arrived, skipped = SIZE_MAX;

    if (chunks_read(&connection->arriving, received->data + connection->arrived, &used, NULL,
                    &skipped) < 0)
        return refused(connection, 400, "body", "The request body's chunks are malformed");
    connection->arrived += used;
    if (connection->arriving.done)
        return PROGRESS_READY;
    return PROGRESS_BODY;
}

static enum progress judge_body(struct connection *connection)
{
    static const char invitation[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct exchange *exchange = &connection->exchange;
    size_t come = connection->received.length - connection->head_length;
    enum progress progress = PROGRESS_BODY;

    if (connection->body_done || (!exchange->chunked && (int64_t)come >= exchange->content_length))
        return PROGRESS_READY;
    if (exchange->chunked)
        progress = judge_chunks(connection);
    if (progress != PROGRESS_BODY)
        return progress;
    /* Who sends more than is waited for holds a thread, and who declares more is told at once
     * whether it may. */
    if (come >= BODY_WAITED || exchange->content_length > BODY_WAITED) {
        connection->large = true;
        return PROGRESS_READY;
    }
    if (exchange->expect_continue && !connection->continued) {
        connection->continued = true;
        if (send(exchange->fd, invitation, sizeof(invitation) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            return PROGRESS_GONE;
    }
    return PROGRESS_BODY;
}

static enum progress judge(struct connection *connection)
{
    enum progress progress = connection->head_length ? PROGRESS_BODY : judge_head(connection);
    size_t end;

    if (progress == PROGRESS_BODY)
        progress = judge_body(connection);
    if (progress != PROGRESS_READY || connection->large)
        return progress;
    /* Another request behind it is not answered: the client sees the close and asks again. */
    end = exchange_end(connection);
    if (end < connection->received.length)
        connection->exchange.keep_alive = false;
    return progress;
}

enum progress gate_advance(struct connection *connection)
{
    struct buffer *received = &connection->received;

    for (;;) {
        enum progress progress;
        size_t room;
        ssize_t got;

        if (!gate_make_room(connection, READ_ROOM))
            return refused(connection, 503, "memory", "The server has no memory for the request");
        room = received->capacity - received->length - 1;
        got = read(connection->exchange.fd, received->data + received->length, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return PROGRESS_GONE;
        if (got > 0)
            received->length += (size_t)got;
        progress = judge(connection);
        if (progress >= PROGRESS_READY || got < 0 || (size_t)got < room)
            return progress;
    }
}

/* Under the lock: one more thread for a large body. */
static bool take_large(void)
{
    if (gate.large >= gate.large_limit || gate.held >= gate.held_limit)
        return false;
    gate.large++;
    gate.held++;
    return true;
}

/* To the threads; a large body only to one of those that may have such. */
static void enqueue(struct connection *connection)
{
    bool waits;

    pthread_mutex_lock(&gate.lock);
    waits = connection->large && !take_large();
    list_remove(connection);
    list_add(connection, waits ? WAIT_LARGE : WAIT_THREAD);
    pthread_mutex_unlock(&gate.lock);
    if (!waits)
        seats_wake();
}

void gate_settle(struct connection *connection, enum progress progress)
{
    switch (progress) {
    case PROGRESS_IDLE:
        release_memory(connection);
        park(connection, WAIT_IDLE);
        return;
    case PROGRESS_HEAD:
        park(connection, WAIT_HEAD);
        return;
    case PROGRESS_BODY:
        park(connection, WAIT_BODY);
        return;
    case PROGRESS_READY:
        enqueue(connection);
        return;
    case PROGRESS_REFUSED:
        gate_refuse(connection, connection->refusal.status, connection->refusal.reason,
                    connection->refusal.problem);
        return;
    case PROGRESS_GONE:
        gate_drop(connection);
        return;
    }
}

struct connection *gate_take(void)
{
    struct connection *connection;

    pthread_mutex_lock(&gate.lock);
    connection = gate.lists[WAIT_THREAD].first;
    if (connection)
        list_remove(connection);
    pthread_mutex_unlock(&gate.lock);
    return connection;
}

void gate_done(struct connection *connection)
{
    struct connection *next;
    bool more = false;

    if (!connection->large && !connection->holding)
        return;
    pthread_mutex_lock(&gate.lock);
    gate.large -= connection->large;
    gate.held -= connection->large + connection->holding;
    connection->large = connection->holding = false;
    while ((next = gate.lists[WAIT_LARGE].first) && take_large()) {
        list_remove(next);
        list_add(next, WAIT_THREAD);
        more = true;
    }
    pthread_mutex_unlock(&gate.lock);
    if (more)
        seats_wake();
}

bool exchange_hold(struct exchange *exchange)
{
    struct connection *connection = (struct connection *)exchange;

    pthread_mutex_lock(&gate.lock);
    if (!connection->holding && gate.held < gate.held_limit) {
        connection->holding = true;
        gate.held++;
    }
    pthread_mutex_unlock(&gate.lock);
    return connection->holding;
}

/* --- accepting ------------------------------------------------------------------------------- */

static void listen_on(void)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = &gate.listener};

    if (epoll_ctl(gate.epoll, EPOLL_CTL_ADD, gate.listener, &event) < 0)
        LOG(ERROR, "gate_listen_failed", V("errno", errno));
    gate.resume_ms = 0;
}

static void listen_off(int64_t resume_ms)
{
    epoll_ctl(gate.epoll, EPOLL_CTL_DEL, gate.listener, NULL);
    gate.resume_ms = resume_ms;
}

/* Room for one more: the connection that has been idle longest goes, unless its client may be about
 * to use it. */
static bool make_place(void)
{
    struct connection *oldest;
    bool room;

    pthread_mutex_lock(&gate.lock);
    room = gate.connections < settings.worker_connections;
    oldest = room ? NULL : gate.lists[WAIT_IDLE].first;
    if (oldest && clock_ms() - oldest->since_ms < EVICT_IDLE_MS)
        oldest = NULL;
    if (oldest)
        list_remove(oldest);
    pthread_mutex_unlock(&gate.lock);
    if (oldest)
        gate_drop(oldest);
    return room || oldest;
}

/* Fill the text and the name by which connections are counted. */
static void name_peer(const struct sockaddr_storage *from, struct exchange *exchange,
                      struct in6_addr *name)
{
    *name = (struct in6_addr){0};
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;

        name->s6_addr[10] = name->s6_addr[11] = 0xFF;
        memcpy(&name->s6_addr[12], &v4->sin_addr, 4);
    } else if (from->ss_family == AF_INET6) {
        *name = ((const struct sockaddr_in6 *)from)->sin6_addr;
    }
    if (IN6_IS_ADDR_V4MAPPED(name)) {
        inet_ntop(AF_INET, &name->s6_addr[12], exchange->peer, sizeof(exchange->peer));
        return;
    }
    inet_ntop(AF_INET6, name, exchange->peer, sizeof(exchange->peer));
    memset(&name->s6_addr[8], 0, 8);
}

static void admit(int fd, const struct sockaddr_storage *from)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT,
                                .data.ptr = connection};
    struct in6_addr name;
    char dropped[4096];

    if (!connection)
        abort();
    connection->exchange.fd = fd;
    connection->waiting = WAIT_NOTHING;
    name_peer(from, &connection->exchange, &name);
    gate_next_request(connection);
    pthread_mutex_lock(&gate.lock);
    connection->address = address_enter(&name);
    if (connection->address) {
        gate.connections++;
        list_add(connection, WAIT_IDLE);
    }
    pthread_mutex_unlock(&gate.lock);
    if (!connection->address) {
        /* No lingering for who has too many already; but what it has sent is taken, so that it may
         * see the answer. */
        send_refusal(fd, 503, "address", "Too many connections from this address", true);
        shutdown(fd, SHUT_WR);
        while (read(fd, dropped, sizeof(dropped)) == sizeof(dropped))
            continue;
        close(fd);
        free(connection);
        return;
    }
    counter_add(METRIC_connections_total, NULL, 1);
    counter_add(METRIC_connections_open, NULL, 1);
    if (epoll_ctl(gate.epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        LOG(ERROR, "gate_watch_failed", V("errno", errno));
        gate_drop(connection);
    }
}

static void accept_some(void)
{
    for (int i = 0; i < ACCEPTS; i++) {
        struct sockaddr_storage from = {0};
        socklen_t length = sizeof(from);
        int fd;

        if (!make_place()) {
            listen_off(clock_ms() + PAUSE_MS);
            return;
        }
        fd =
            accept4(gate.listener, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            admit(fd, &from);
            continue;
        }
        if (errno == EAGAIN)
            return;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            LOG(WARNING, "gate_accept_failed", V("errno", errno));
            listen_off(clock_ms() + PAUSE_MS);
            return;
        }
        /* Anything else is about a connection that ended before we had it (accept(2)). */
    }
}

/* --- deadlines ------------------------------------------------------------------------------- */

/* The next that is late in its list, taken out of it; NULL when none is. */
static struct connection *late(enum waiting waiting, int64_t now_ms)
{
    struct connection *connection;

    pthread_mutex_lock(&gate.lock);
    connection = gate.lists[waiting].first;
    if (connection && now_ms - connection->since_ms < gate.limit_ms[waiting])
        connection = NULL;
    if (connection)
        list_remove(connection);
    pthread_mutex_unlock(&gate.lock);
    return connection;
}

static void expire(int64_t now_ms)
{
    struct connection *connection;

    for (enum waiting waiting = 0; waiting < WAITS; waiting++)
        while ((connection = late(waiting, now_ms))) {
            switch (waiting) {
            case WAIT_HEAD:
                gate_refuse(connection, 408, "head_timeout", "The request's head came too slowly");
                break;
            case WAIT_BODY:
                gate_refuse(connection, 408, "body_timeout", "The request body came too slowly");
                break;
            case WAIT_THREAD:
                gate_done(connection);
                gate_refuse(connection, 503, "busy", "The server is busy");
                break;
            case WAIT_LARGE:
                connection->large = false; /* it never counted */
                gate_refuse(connection, 503, "busy", "The server is busy");
                break;
            default:
                gate_drop(connection);
                break;
            }
        }
}

/* Until the next deadline. Threads add to lists meanwhile, but with deadlines that are further than
 * a tick. */
static int wait_ms(int64_t now_ms)
{
    int64_t next_ms = now_ms + (gate_draining() ? DRAIN_TICK_MS : TICK_MS);

    pthread_mutex_lock(&gate.lock);
    for (enum waiting waiting = 0; waiting < WAITS; waiting++) {
        const struct connection *first = gate.lists[waiting].first;

        if (first && first->since_ms + gate.limit_ms[waiting] < next_ms)
            next_ms = first->since_ms + gate.limit_ms[waiting];
    }
    pthread_mutex_unlock(&gate.lock);
    if (gate.resume_ms && gate.resume_ms < next_ms)
        next_ms = gate.resume_ms;
    return next_ms > now_ms ? (int)(next_ms - now_ms) : 0;
}

/* --- the loop -------------------------------------------------------------------------------- */

/* Drop what a client still sends behind our last words: many read the answer only when they have
 * sent everything. */
static void linger(struct connection *connection)
{
    /* tcp(7): MSG_TRUNC drops without copying. */
    ssize_t got = recv(connection->exchange.fd, NULL, LINGER_STEP, MSG_TRUNC | MSG_DONTWAIT);

    if (!connection->linger_since_ms)
        connection->linger_since_ms = connection->since_ms;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) ||
        clock_ms() - connection->linger_since_ms > LINGER_MAX_MS) {
        gate_drop(connection);
        return;
    }
    if (got > 0) {
        pthread_mutex_lock(&gate.lock);
        list_remove(connection); /* so that its deadline moves on */
        pthread_mutex_unlock(&gate.lock);
    }
    park(connection, WAIT_LINGER);
}

static int64_t connections_left(void)
{
    int64_t left;

    pthread_mutex_lock(&gate.lock);
    left = gate.connections;
    pthread_mutex_unlock(&gate.lock);
    return left;
}

static void start_draining(int stop_fd)
{
    char byte = 0;
    bool replaced = read(stop_fd, &byte, 1) == 1 && byte == GATE_REPLACED;

    /* Closed, since the address is wanted by whoever starts when our master was killed. */
    listen_off(0);
    close(gate.listener);
    atomic_store(&gate.draining, true);
    gate.limit_ms[WAIT_IDLE] = replaced ? EVICT_IDLE_MS : 0;
    LOG(INFO, "gate_drains", V("connections", connections_left()), V("replaced", replaced));
}

static int gate_open(int listen_fd, int stop_fd, struct error *err)
{
    static const int64_t limits[WAITS] = {
        [WAIT_IDLE] = IDLE_MS,       [WAIT_HEAD] = DEADLINE_MS,  [WAIT_BODY] = DEADLINE_MS,
        [WAIT_THREAD] = DEADLINE_MS, [WAIT_LARGE] = DEADLINE_MS, [WAIT_LINGER] = LINGER_MS,
    };
    struct epoll_event stop = {.events = EPOLLIN, .data.ptr = NULL};

    gate.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (gate.epoll < 0)
        return error_set_errno(err, ERR_INTERNAL, "epoll_create1");
    if (epoll_ctl(gate.epoll, EPOLL_CTL_ADD, stop_fd, &stop) < 0)
        return error_set_errno(err, ERR_INTERNAL, "epoll_ctl");
    gate.listener = listen_fd;
    gate.large_limit = (int)settings.worker_threads / 2;
    gate.held_limit = (int)settings.worker_threads * 3 / 4;
    memcpy(gate.limit_ms, limits, sizeof(limits));
    token_random(&gate.seed, sizeof(gate.seed));
    atomic_store(&gate.draining, false);
    return seats_start((int)settings.worker_threads, err);
}

int gate_run(int listen_fd, int stop_fd, void (*ready)(void), struct error *err)
{
    struct epoll_event events[256];
    int64_t give_up_ms = INT64_MAX, left;

    if (gate_open(listen_fd, stop_fd, err) < 0)
        return -1;
    listen_on();
    if (ready)
        ready();
    for (;;) {
        int count = epoll_wait(gate.epoll, events, COUNT(events), wait_ms(clock_ms()));
        bool accepting = false;

        if (count < 0 && errno != EINTR)
            return error_set_errno(err, ERR_INTERNAL, "epoll_wait");
        /* A thread parks a connection under the lock: once it is free, all that was written to it
         * is here. */
        pthread_mutex_lock(&gate.lock);
        pthread_mutex_unlock(&gate.lock);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;

            if (events[i].data.ptr == &gate.listener) {
                accepting = true; /* last, since it may drop a connection that has an event here */
            } else if (!connection) {
                epoll_ctl(gate.epoll, EPOLL_CTL_DEL, stop_fd, NULL);
                start_draining(stop_fd);
                give_up_ms = clock_ms() + settings.drain_seconds * 1000;
            } else if (connection->waiting == WAIT_LINGER) {
                linger(connection);
            } else {
                gate_settle(connection, gate_advance(connection));
            }
        }
        if (accepting && !gate_draining())
            accept_some();
        expire(clock_ms());
        if (gate.resume_ms && clock_ms() >= gate.resume_ms)
            listen_on();
        left = gate_draining() ? connections_left() : 1;
        if (left == 0)
            break;
        if (clock_ms() >= give_up_ms)
            return error_set(err, ERR_TIMEOUT, "%lld connections were not done in time",
                             (long long)left);
    }
    seats_stop();
    close(gate.epoll);
    return 0;
}
