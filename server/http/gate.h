/* The gate: a connection costs a socket, not a thread.
 *
 * One epoll loop a worker accepts, waits for a whole head (and a small body) with deadlines, checks
 * it strictly, and only then lets CivetWeb have the request, through the `accept` and `recv` that
 * it calls, which are ours (see seats.c). CivetWeb never sees the client's socket, nor a byte that
 * was not checked. */
#ifndef HTTP_GATE_H
#define HTTP_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"

struct mg_connection;

/* One request on one connection, while a thread has it. CivetWeb's request info holds method,
 * target and fields as they came (nothing is decoded), but for what is the gate's business:
 * Content-Length, Transfer-Encoding, Connection, Keep-Alive and Expect are left out, a target of
 * absolute form has become a path, and the remote address is the one below. */
struct exchange {
    int fd;                 /* the client's socket, non-blocking */
    char peer[64];          /* address as text, without port */
    int64_t content_length; /* -1: no body, or chunked */
    bool chunked;
    bool expect_continue;
    bool keep_alive; /* the connection may be used again; the router clears it when its answer says
                        close */
    int64_t body_read; /* bytes of the body taken so far */
};

/* Read up to `size` bytes of the body, framing removed. Returns bytes, 0 at its end, -1 with
 * ERR_TIMEOUT (10 s and then a minimum rate of 1 KiB/s over the whole body), ERR_BAD_REQUEST (bad
 * chunk framing, client gone) or ERR_TOO_LARGE beyond `limit` bytes in all (told before anything is
 * read when the length is declared). After -1 `keep_alive` is false. */
int exchange_read(struct exchange *exchange, void *into, size_t size, int64_t limit,
                  struct error *err);
/* Whether everything the client sent of this request has been taken, or can be dropped without
 * waiting. When not, the answer must say close. */
bool exchange_complete(const struct exchange *exchange);
/* Write it all, waiting for a slow client as long as it takes at least 64 KiB in 30 s. -1 when the
 * client has gone or is too slow; the connection is closed then. */
int exchange_write(struct exchange *exchange, const void *bytes, size_t length);
/* The handler is about to wait for long. False: three quarters of the threads are held so, or by
 * large bodies, and the others are for those who ask little. Ends with the request. */
bool exchange_hold(struct exchange *exchange);
/* Take the socket away for good (a duplicate, close-on-exec, owned by the caller): the gate forgets
 * the connection. */
int exchange_take(struct exchange *exchange);

/* Run the gate and CivetWeb in this process until `stop_fd` is readable, then drain: no new
 * connections, requests in flight finished within `drain_seconds`, each answer saying close. Idle
 * connections are closed at once; when the byte on `stop_fd` is GATE_REPLACED (another worker goes
 * on) only after they had 6 s to be idle, so that no client meets a closing socket while it still
 * reuses one. Returns 0 when all were finished. `listen_fd` is the inherited socket, which is
 * closed when draining begins; `ready` (or NULL) is called once requests are served. */
enum { GATE_REPLACED = 'H' };
int gate_run(int listen_fd, int stop_fd, void (*ready)(void), struct error *err);

#endif
