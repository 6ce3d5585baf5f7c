/* One client connection, as the files of the gate share it: gate.c (the loop), seats.c (CivetWeb's
 * side), exchange.c (the handler's side). A connection belongs to the loop while it is in one of
 * the loop's lists, and else to one thread. */
#ifndef HTTP_CONNECTION_H
#define HTTP_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "http/chunks.h"
#include "http/gate.h"
#include "http/head.h"

enum {
    BODY_WAITED = 64 * 1024, /* bodies up to this are waited for without a thread */
    DEADLINE_MS = 10 * 1000, /* of a head, of such a body, of the first bytes of a larger one, of
                                waiting for a thread */
    IDLE_MS = 76 * 1000,     /* the promise is 75 s */
    LINGER_MS = 2 * 1000,    /* without a byte from the client */
};

/* The loop's lists, each in the order of its deadlines. */
enum waiting {
    WAIT_IDLE, /* for the first byte of a request */
    WAIT_HEAD,
    WAIT_BODY,
    WAIT_THREAD, /* for a thread of CivetWeb: a queue */
    WAIT_LARGE,  /* for one of the threads that large bodies may hold: a queue */
    WAIT_LINGER, /* for the client to read our last words */
    WAITS,
    WAIT_NOTHING = WAITS, /* a thread has it */
};

/* The answer to what the gate won't have. */
struct refusal {
    int status;
    const char *reason;  /* a label of requests_refused_total */
    const char *problem; /* the sentence */
};

struct connection {
    struct exchange exchange; /* first: handlers know a connection by it */
    enum waiting waiting;
    struct connection *previous, *next; /* in the list of `waiting` */
    int64_t since_ms;                   /* when that began */
    struct address *address;            /* the client's, counted */
    struct buffer received;  /* bytes not yet done with: head, body, and what may follow */
    size_t capacity_counted; /* of `received`, in the gate's budget */
    size_t scanned;          /* of the head */
    size_t head_length;      /* 0: not whole yet */
    size_t body_at;          /* next byte of the body in `received` */
    struct chunks arriving;  /* how far a chunked body has come, in the loop */
    size_t arrived;          /* of `received`, up to where `arriving` has read */
    struct chunks chunks;    /* how far it was taken */
    bool body_done;
    bool large;              /* its body is read by the thread */
    bool holding;            /* its handler waits for long: exchange_hold */
    bool continued;          /* 100 Continue was sent */
    bool broken;             /* nothing more can be written */
    bool taken;              /* the socket has gone elsewhere */
    bool fresh;              /* an empty line in front of the request may be skipped */
    struct refusal refusal;  /* PROGRESS_REFUSED */
    int64_t linger_since_ms; /* when our last words were said; 0: not yet, or nothing came since */
    int64_t body_since_ms;   /* first call of exchange_read */
    int64_t write_since_ms;  /* when the window of exchange_write began; 0: it never waited */
    size_t written;          /* in that window */
};

/* How far the request on a connection has come. */
enum progress {
    PROGRESS_IDLE, /* nothing is there */
    PROGRESS_HEAD,
    PROGRESS_BODY,
    PROGRESS_READY,
    PROGRESS_REFUSED, /* the connection's `refusal` says why; nothing was answered yet */
    PROGRESS_GONE,
};

/* Read what is there and see how far it is. Never blocks. */
enum progress gate_advance(struct connection *connection);
/* Ready for more bytes in `received`; false when the worker's budget is used up. */
bool gate_make_room(struct connection *connection, size_t extra);
/* Forget the request that was answered. */
void gate_next_request(struct connection *connection);

/* What a thread (or the loop) does with a connection in the end; it may not touch it afterwards. */

/* Leave it to the loop, as far as it is: to wait, for a thread, to linger; or forget it. */
void gate_settle(struct connection *connection, enum progress progress);
/* Answer with an error of the gate, say that no more will come, and linger. `reason` is a label of
 * requests_refused_total. */
void gate_refuse(struct connection *connection, int status, const char *reason,
                 const char *problem);
/* Say that no more will come, having answered, and linger: bytes that nobody reads would reset the
 * connection, and the client might never see the answer (tcp(7), RFC 9112 9.6). */
void gate_finish(struct connection *connection);
void gate_drop(struct connection *connection);

/* A thread takes the next connection that waits for one, NULL when none does. */
struct connection *gate_take(void);
/* Whether any waits for a thread. */
bool gate_waiting(void);
/* A thread is done with the request. */
void gate_done(struct connection *connection);
/* Whether all is coming to an end, so that answers say close. */
bool gate_draining(void);
/* The socket has got another owner: stop watching it. */
void gate_forget(struct connection *connection);

/* Where the request ends in `received`, from what was not taken yet; 0 when not all has come. */
size_t exchange_end(const struct connection *connection);

/* --- seats: CivetWeb's side ------------------------------------------------------------------ */

/* Start CivetWeb with so many threads. */
int seats_start(int threads, struct error *err);
/* End every thread; they must have nothing to do. */
void seats_stop(void);
/* Something waits in WAIT_THREAD. */
void seats_wake(void);

#endif
