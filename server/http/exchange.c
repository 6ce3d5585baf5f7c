/* The handler's side of a connection: the body, without its framing, and the answer. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "http/connection.h"

enum {
    RATE_BYTES =
        1024, /* a body has to come at so many bytes a second, after its first DEADLINE_MS */
    WINDOW_BYTES = 64 * 1024, /* an answer has to leave at so many bytes */
    WINDOW_MS = 30 * 1000,    /* in so long */
    CHUNKED_ROOM = 16 * 1024,
};

static struct connection *connection_of(struct exchange *exchange)
{
    return (struct connection *)exchange;
}

size_t exchange_end(const struct connection *connection)
{
    const struct exchange *exchange = &connection->exchange;
    size_t left = connection->received.length - connection->body_at;
    struct chunks chunks = connection->chunks;
    size_t skipped = SIZE_MAX;

    if (connection->body_done)
        return connection->body_at;
    if (!exchange->chunked)
        return (int64_t)left >= exchange->content_length - exchange->body_read
                   ? connection->body_at + (size_t)(exchange->content_length - exchange->body_read)
                   : 0;
    if (chunks_read(&chunks, connection->received.data + connection->body_at, &left, NULL,
                    &skipped) < 0 ||
        !chunks.done)
        return 0;
    return connection->body_at + left;
}

bool exchange_complete(const struct exchange *exchange)
{
    return exchange_end((const struct connection *)exchange) > 0;
}

static int refuse(struct exchange *exchange, struct error *err, enum error_kind kind,
                  const char *sentence)
{
    exchange->keep_alive = false;
    return error_set(err, kind, "%s", sentence);
}

/* How long the client has until it is too slow; at most 0 when it is. */
static int64_t patience_ms(struct connection *connection)
{
    int64_t now_ms = clock_ms();

    if (!connection->body_since_ms)
        connection->body_since_ms = now_ms;
    return connection->body_since_ms + DEADLINE_MS +
           connection->exchange.body_read * 1000 / RATE_BYTES - now_ms;
}

/* Some bytes from the client, waiting for them; as exchange_read, but 0 never. */
static ssize_t receive(struct connection *connection, void *into, size_t size, struct error *err)
{
    struct exchange *exchange = &connection->exchange;

    for (;;) {
        ssize_t got = read(exchange->fd, into, size);
        struct pollfd client = {.fd = exchange->fd, .events = POLLIN};
        int64_t left_ms;

        if (got > 0)
            return got;
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            return refuse(exchange, err, ERR_BAD_REQUEST,
                          "The connection ended before the body did");
        left_ms = patience_ms(connection);
        if (left_ms <= 0)
            return refuse(exchange, err, ERR_TIMEOUT, "The request body came too slowly");
        poll(&client, 1, left_ms < 60 * 1000 ? (int)left_ms : 60 * 1000);
    }
}

static ssize_t read_counted(struct connection *connection, void *into, size_t size,
                            struct error *err)
{
    struct exchange *exchange = &connection->exchange;
    int64_t left = exchange->content_length - exchange->body_read;
    size_t buffered = connection->received.length - connection->body_at;
    ssize_t got = (ssize_t)buffered;

    if ((int64_t)size > left)
        size = (size_t)left;
    if (buffered > 0) {
        if ((size_t)got > size)
            got = (ssize_t)size;
        memcpy(into, connection->received.data + connection->body_at, (size_t)got);
        connection->body_at += (size_t)got;
    } else if ((got = receive(connection, into, size, err)) < 0) {
        return -1;
    }
    exchange->body_read += got;
    connection->body_done = exchange->body_read == exchange->content_length;
    return got;
}

static ssize_t read_chunked(struct connection *connection, void *into, size_t size,
                            struct error *err)
{
    struct exchange *exchange = &connection->exchange;
    struct buffer *received = &connection->received;

    for (;;) {
        size_t used = received->length - connection->body_at, got = size;
        ssize_t more;

        if (chunks_read(&connection->chunks, received->data + connection->body_at, &used, into,
                        &got) < 0)
            return refuse(exchange, err, ERR_BAD_REQUEST,
                          "The request body's chunks are malformed");
        connection->body_at += used;
        connection->body_done = connection->chunks.done;
        exchange->body_read += (int64_t)got;
        if (got > 0 || connection->body_done) {
            /* What follows in the buffer is another request, which is not answered here. */
            if (connection->body_done && received->length > connection->body_at)
                exchange->keep_alive = false;
            return (ssize_t)got;
        }
        received->length = connection->body_at = connection->head_length;
        if (!gate_make_room(connection, CHUNKED_ROOM))
            return refuse(exchange, err, ERR_UNAVAILABLE,
                          "The server has no memory for the request body");
        more = receive(connection, received->data + received->length, CHUNKED_ROOM, err);
        if (more < 0)
            return -1;
        received->length += (size_t)more;
        /* Chunks of a byte, each with its framing, are slow too. */
        if (patience_ms(connection) <= 0)
            return refuse(exchange, err, ERR_TIMEOUT, "The request body came too slowly");
    }
}

int exchange_read(struct exchange *exchange, void *into, size_t size, int64_t limit,
                  struct error *err)
{
    static const char invitation[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct connection *connection = connection_of(exchange);
    ssize_t got;

    if (exchange->content_length > limit)
        return refuse(exchange, err, ERR_TOO_LARGE, "Request body too large");
    if (connection->body_done || size == 0)
        return 0;
    if (exchange->expect_continue && !connection->continued && !exchange_complete(exchange)) {
        connection->continued = true;
        if (exchange_write(exchange, invitation, sizeof(invitation) - 1) < 0)
            return refuse(exchange, err, ERR_BAD_REQUEST,
                          "The connection ended before the body did");
    }
    if (size > INT32_MAX)
        size = INT32_MAX;
    got = exchange->chunked ? read_chunked(connection, into, size, err)
                            : read_counted(connection, into, size, err);
    if (got < 0)
        return -1;
    if (exchange->body_read > limit)
        return refuse(exchange, err, ERR_TOO_LARGE, "Request body too large");
    return (int)got;
}

int exchange_write(struct exchange *exchange, const void *bytes, size_t length)
{
    struct connection *connection = connection_of(exchange);
    const char *at = bytes;

    while (length > 0 && !connection->broken && !connection->taken) {
        ssize_t sent = send(exchange->fd, at, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        struct pollfd client = {.fd = exchange->fd, .events = POLLOUT};
        int64_t now_ms;

        if (sent > 0) {
            at += sent;
            length -= (size_t)sent;
            connection->written += (size_t)sent;
            continue;
        }
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN) {
            connection->broken = true;
            break;
        }
        now_ms = clock_ms();
        if (!connection->write_since_ms || connection->written >= WINDOW_BYTES) {
            connection->write_since_ms = now_ms;
            connection->written = 0;
        }
        if (now_ms - connection->write_since_ms >= WINDOW_MS) {
            connection->broken = true;
            break;
        }
        poll(&client, 1, (int)(connection->write_since_ms + WINDOW_MS - now_ms));
    }
    if (!connection->broken && !connection->taken)
        return 0;
    exchange->keep_alive = false;
    return -1;
}

int exchange_take(struct exchange *exchange)
{
    struct connection *connection = connection_of(exchange);
    int fd = fcntl(exchange->fd, F_DUPFD_CLOEXEC, 3);

    /* The loop's registration belongs to the socket, not to our descriptor, and would outlive it
     * (epoll(7)). */
    gate_forget(connection);
    connection->taken = true;
    exchange->keep_alive = false;
    return fd;
}
