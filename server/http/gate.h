/* The gate: a connection costs a socket, not a thread.
 *
 * One epoll loop a worker accepts, waits for a whole head (and a small body) with deadlines, checks it strictly, and only then lets
 * CivetWeb have the socket, through the `accept` that it calls. When a handler has answered, the socket comes back to the loop.
 * CivetWeb never sees a raw connection: its bind, listen, accept, getsockname and recv are resolved to ours (see gate.c). */
#ifndef HTTP_GATE_H
#define HTTP_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"

struct mg_connection;

/* One request on one connection, while a thread has it. */
struct exchange {
    int fd;                   /* the client's socket, non-blocking */
    char peer[64];            /* address as text, without port */
    int64_t content_length;   /* -1: no body, or chunked */
    bool chunked;
    bool expect_continue;
    bool keep_alive;          /* what the client allows; the response may still say close */
    int64_t body_read;        /* bytes of the body taken so far */
    /* the rest belongs to gate.c */
    bool body_done;
    int64_t chunk_left;
    int64_t body_deadline_ms;
};

/* Read up to `size` bytes of the body, framing removed. Returns bytes, 0 at its end, -1 with ERR_TIMEOUT (10 s and then a minimum rate of
 * 1 KiB/s over the whole body), ERR_BAD_REQUEST (bad chunk framing, client gone) or ERR_TOO_LARGE beyond `limit` bytes in all. */
int exchange_read(struct exchange *exchange, void *into, size_t size, int64_t limit, struct error *err);
/* Whether everything the client sent of this request has been taken. */
bool exchange_complete(const struct exchange *exchange);
/* Write it all, waiting for a slow client as long as it takes at least 64 KiB in 30 s. -1 when the client has gone or is too slow. */
int exchange_write(struct exchange *exchange, const void *bytes, size_t length);
/* Take the socket away for good (a duplicate, close-on-exec, owned by the caller): the connection's thread goes on with a dummy. */
int exchange_take(struct exchange *exchange);

/* Run the gate and CivetWeb in this process until `stop_fd` is readable, then drain: no new connections, idle ones closed, requests in
 * flight finished within `drain_seconds`. Returns 0 when all were. `listen_fd` is the inherited socket. */
int gate_run(int listen_fd, int stop_fd, struct error *err);

#endif
