/* CivetWeb's side of the gate: what it calls to get connections and to read from them is ours.
 *
 * The program's definitions of bind, listen, accept, getsockname and recv take precedence over the
 * C library's for every library in the process (ld.so(8)), so each passes on at once what is not
 * about CivetWeb's own descriptors. CivetWeb "listens" on an eventfd, and "accepts" a seat: a
 * descriptor that is always readable, and stands for whichever connection sits there. recv on it
 * gives the head of one checked request. So CivetWeb may shut down and close what it was given as
 * it likes.
 *
 * A connection stays on its seat while its client asks at once for more and most threads are free:
 * then a request costs no hand-over at all. */
#undef _FORTIFY_SOURCE /* its inline recv is in the way of ours */
#include <civetweb.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "common/log.h"
#include "common/scope.h"
#include "http/connection.h"
#include "http/router.h"

enum {
    QUEUE = 16,  /* connections that CivetWeb holds while its threads are busy */
    STAY_MS = 5, /* how long a thread waits for its client's next request */
    TURNS = 16,  /* requests that a connection has in a row while others wait for a thread */
    DESCRIPTORS_MAX = 1 << 20,
    STACK_BYTES = 2 * 1024 * 1024,
};

enum seat_state { SEAT_FREE, SEAT_HEAD_DUE, SEAT_HEAD_GIVEN, SEAT_SERVED };

struct seat {
    struct connection *connection; /* NULL: it has left */
    enum seat_state state;
    int fd;    /* CivetWeb's */
    int turns; /* requests that were answered here */
    struct seat *next_free;
};

static struct mg_context *civet;
static struct seat *seats, *free_seats;
static pthread_mutex_t seats_lock = PTHREAD_MUTEX_INITIALIZER; /* guards free_seats */
static _Atomic(uint16_t) *seat_of; /* by descriptor: index of the seat + 1 */
static _Atomic int descriptors;    /* length of seat_of; 0: nothing is ours */
static _Atomic int listening = -1; /* CivetWeb's */
static _Atomic int taken_seats;
static _Atomic bool stopping;
static int doorbell = -1; /* readable: a connection waits for a thread */
static int stand_in = -1; /* what seats are duplicates of */
static int busy_limit;    /* beyond so many taken seats nobody stays */
static _Thread_local bool starting;

static struct seat *seat_at(int fd)
{
    uint16_t index;

    if (fd < 0 || fd >= atomic_load_explicit(&descriptors, memory_order_relaxed))
        return NULL;
    index = atomic_load_explicit(&seat_of[fd], memory_order_acquire);
    return index ? &seats[index - 1] : NULL;
}

static struct seat *seat_take(void)
{
    struct seat *seat;

    pthread_mutex_lock(&seats_lock);
    seat = free_seats;
    if (seat)
        free_seats = seat->next_free;
    pthread_mutex_unlock(&seats_lock);
    return seat;
}

static void seat_give(struct seat *seat)
{
    seat->state = SEAT_FREE;
    pthread_mutex_lock(&seats_lock);
    seat->next_free = free_seats;
    free_seats = seat;
    pthread_mutex_unlock(&seats_lock);
}

/* Whether the connection has another request for this thread; else it has left the seat. */
static bool seat_stays(struct seat *seat)
{
    struct connection *connection = seat->connection;
    enum progress progress = gate_advance(connection);
    bool turn_over = ++seat->turns >= TURNS && gate_waiting();

    if (progress == PROGRESS_IDLE && !turn_over && !gate_draining() &&
        atomic_load_explicit(&taken_seats, memory_order_relaxed) <= busy_limit) {
        struct pollfd client = {.fd = connection->exchange.fd, .events = POLLIN};

        if (poll(&client, 1, STAY_MS) > 0)
            progress = gate_advance(connection);
    }
    if (progress == PROGRESS_READY && !connection->large && !turn_over)
        return true;
    seat->connection = NULL;
    gate_settle(connection, progress);
    return false;
}

static ssize_t seat_receive(struct seat *seat, char *into, size_t size)
{
    struct connection *connection;
    struct head head;
    size_t scanned = 0;

    if (!seat->connection || seat->state == SEAT_HEAD_GIVEN || size < HEAD_WRITTEN_MAX)
        return 0;
    if (seat->state == SEAT_SERVED && !seat_stays(seat))
        return 0;
    connection = seat->connection;
    seat->state = SEAT_HEAD_GIVEN;
    if (head_check(connection->received.data, connection->head_length, &scanned, &head) !=
        HEAD_COMPLETE)
        return 0;
    return (ssize_t)head_write(&head, into);
}

/* --- what CivetWeb calls --------------------------------------------------------------------- */

int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t length)
{
    if (!starting)
        return (int)syscall(SYS_bind, fd, address.__sockaddr__, length);
    if (dup3(doorbell, fd, O_CLOEXEC) < 0)
        return -1;
    atomic_store(&listening, fd);
    return 0;
}

int listen(int fd, int backlog)
{
    if (fd == atomic_load_explicit(&listening, memory_order_relaxed))
        return 0;
    return (int)syscall(SYS_listen, fd, backlog);
}

int getsockname(int fd, __SOCKADDR_ARG address, socklen_t *restrict length)
{
    bool ours = fd == atomic_load_explicit(&listening, memory_order_relaxed);
    const struct sockaddr_in name = {.sin_family = ours ? AF_INET : AF_UNSPEC,
                                     .sin_port = htons(1)};

    /* A seat has no family, so that CivetWeb sets no TCP options on it. */
    if (!ours && !seat_at(fd))
        return (int)syscall(SYS_getsockname, fd, address.__sockaddr__, length);
    memcpy(address.__sockaddr__, &name, *length < sizeof(name) ? *length : sizeof(name));
    *length = sizeof(name);
    return 0;
}

static int accept_seat(struct sockaddr *address, socklen_t *length)
{
    struct connection *connection = gate_take();
    struct sockaddr_in name = {.sin_family = AF_INET};
    struct seat *seat;
    uint64_t rung;

    if (!connection && !atomic_load(&stopping)) {
        /* The bell first, the queue again afterwards: what came in between would be forgotten. */
        if (read(doorbell, &rung, sizeof(rung)) < 0 && errno != EAGAIN)
            return -1;
        connection = gate_take();
    }
    if (!connection) {
        errno = EAGAIN;
        return -1;
    }
    seat = seat_take();
    seat->fd = fcntl(stand_in, F_DUPFD_CLOEXEC, 3);
    if (seat->fd < 0 || seat->fd >= atomic_load(&descriptors)) {
        if (seat->fd >= 0)
            close(seat->fd);
        seat_give(seat);
        gate_done(connection);
        gate_refuse(connection, 503, "busy", "The server has too many connections");
        errno = EMFILE;
        return -1;
    }
    seat->connection = connection;
    seat->state = SEAT_HEAD_DUE;
    seat->turns = 0;
    atomic_fetch_add_explicit(&taken_seats, 1, memory_order_relaxed);
    atomic_store_explicit(&seat_of[seat->fd], (uint16_t)(seat - seats + 1), memory_order_release);
    /* The callbacks know the seat by its port. */
    name.sin_port = htons((uint16_t)(seat - seats));
    memcpy(address, &name, *length < sizeof(name) ? *length : sizeof(name));
    *length = sizeof(name);
    return seat->fd;
}

int accept(int fd, __SOCKADDR_ARG address, socklen_t *restrict length)
{
    if (fd != atomic_load_explicit(&listening, memory_order_relaxed))
        return (int)syscall(SYS_accept, fd, address.__sockaddr__, length);
    return accept_seat(address.__sockaddr__, length);
}

ssize_t recv(int fd, void *into, size_t size, int flags)
{
    struct seat *seat = seat_at(fd);

    if (!seat)
        return syscall(SYS_recvfrom, fd, into, size, flags, NULL, NULL);
    return seat_receive(seat, into, size);
}

/* CivetWeb's threads have 100 KiB, which is little for what runs on them, and too little for a
 * sanitizer. */
int pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size)
{
    int (*real)(pthread_attr_t *, size_t);

    *(void **)&real = dlsym(RTLD_NEXT, "pthread_attr_setstacksize");
    return real(attributes, starting ? STACK_BYTES : size);
}

/* --- callbacks ------------------------------------------------------------------------------- */

static struct seat *seat_of_request(const struct mg_connection *request)
{
    return &seats[mg_get_request_info(request)->remote_port];
}

static void served(struct seat *seat)
{
    struct connection *connection = seat->connection;
    size_t end = exchange_end(connection);
    bool clean = end > 0 && end == connection->received.length;

    gate_done(connection);
    if (clean && connection->exchange.keep_alive) {
        gate_next_request(connection);
        return;
    }
    seat->connection = NULL;
    if (connection->taken || connection->broken || clean)
        gate_drop(connection);
    else
        gate_finish(connection);
}

static int on_request(struct mg_connection *request)
{
    struct seat *seat = seat_of_request(request);
    struct connection *connection = seat->connection;

    if (gate_draining())
        connection->exchange.keep_alive = false;
    router_serve(request, &connection->exchange);
    seat->state = SEAT_SERVED;
    served(seat);
    return 200; /* answered */
}

/* CivetWeb closes the seat: because the connection left it, or HTTP/1.0 ends there, or it would not
 * have the head. */
static void on_close(const struct mg_connection *request)
{
    struct seat *seat = seat_of_request(request);
    struct connection *connection = seat->connection;
    bool unserved = seat->state != SEAT_SERVED;

    seat->connection = NULL;
    atomic_store_explicit(&seat_of[seat->fd], 0, memory_order_release);
    atomic_fetch_sub_explicit(&taken_seats, 1, memory_order_relaxed);
    seat_give(seat);
    if (!connection)
        return;
    if (!unserved) {
        gate_settle(connection, PROGRESS_IDLE);
        return;
    }
    LOG(ERROR, "gate_and_parser_differ", V("peer", connection->exchange.peer));
    gate_done(connection);
    gate_refuse(connection, 400, "head", "The request is malformed");
}

static int on_log(const struct mg_connection *request, const char *message)
{
    (void)request;
    LOG(WARNING, "civetweb", V("message", message));
    return 1;
}

/* --- start and stop -------------------------------------------------------------------------- */

static int open_stand_in(struct error *err)
{
    int pair[2];

    /* The end of a socket whose other end is closed is always readable. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    close(pair[1]);
    stand_in = pair[0];
    doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (doorbell < 0)
        return error_set_errno(err, ERR_INTERNAL, "eventfd");
    return 0;
}

int seats_start(int threads, struct error *err)
{
    char thread_count[16], head_size[16], queue[16];
    /* clang-format off */
    const char *options[] = {
        "listening_ports",    "127.0.0.1:1", /* never bound: see bind */
        "num_threads",        thread_count,
        "connection_queue",   queue,
        "max_request_size",   head_size,
        "enable_keep_alive",  "yes",
        "request_timeout_ms", "60000",
        "decode_url",         "no",
        NULL,
    };
    /* clang-format on */
    const struct mg_callbacks callbacks = {
        .begin_request = on_request, .connection_close = on_close, .log_message = on_log};
    size_t count = (size_t)threads + QUEUE + 2;
    struct rlimit limit;

    if (open_stand_in(err) < 0)
        return -1;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return error_set_errno(err, ERR_INTERNAL, "getrlimit");
    if (limit.rlim_cur > DESCRIPTORS_MAX)
        limit.rlim_cur = DESCRIPTORS_MAX;
    seats = calloc(count, sizeof(*seats));
    seat_of = calloc((size_t)limit.rlim_cur, sizeof(*seat_of));
    if (!seats || !seat_of)
        abort();
    for (size_t i = 0; i < count; i++)
        seat_give(&seats[i]);
    atomic_store(&stopping, false);
    atomic_store(&descriptors, (int)limit.rlim_cur);
    busy_limit = threads * 3 / 4;
    snprintf(thread_count, sizeof(thread_count), "%d", threads);
    snprintf(queue, sizeof(queue), "%d", QUEUE);
    snprintf(head_size, sizeof(head_size), "%d", HEAD_WRITTEN_MAX + 1024);
    mg_init_library(0);
    starting = true;
    civet = mg_start(&callbacks, NULL, options);
    starting = false;
    if (!civet)
        return error_set(err, ERR_INTERNAL, "CivetWeb does not start");
    return 0;
}

void seats_wake(void)
{
    const uint64_t one = 1;

    if (write(doorbell, &one, sizeof(one)) < 0)
        LOG(ERROR, "gate_wake_failed", V("errno", errno));
}

void seats_stop(void)
{
    atomic_store(&stopping, true);
    seats_wake(); /* CivetWeb looks at its flag only when its poll returns */
    mg_stop(civet);
    mg_exit_library();
    civet = NULL;
    atomic_store(&listening, -1);
    atomic_store(&descriptors, 0);
    free(seats);
    free(seat_of);
    free_seats = NULL;
    close(doorbell);
    close(stand_in);
}
