/* What need not last, between the processes of one machine: wake-ups for followers, deltas of a
 * message being written, cancelled runs. Unix datagram sockets in the run folder; a message that
 * nobody takes is lost, and every receiver also polls. */
#ifndef STORE_BUS_H
#define STORE_BUS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum bus_kind {
    BUS_WAKE = 1, /* session: look at its log (or it is gone) */
    BUS_DELTA,    /* session, and a whole SSE frame to pass on as it is */
};

enum { BUS_MESSAGE_MAX = 128 * 1024 };

struct bus_message {
    enum bus_kind kind;
    char session[37];
    int64_t after; /* BUS_DELTA: it comes behind the stored event with this seq, and before the next
                      agent.message */
    const char *frame; /* BUS_DELTA */
    size_t length;
};

/* Where the streamer listens. Once per process, before the first bus_send; the path is kept. */
void bus_init(const char *socket_path);
/* The streamer's end, non-blocking; replaces an old socket file. */
int bus_receive_open(struct error *err);
/* 1 with a message (frame valid until the next call on this thread), 0 when nothing is there. */
int bus_receive(int socket, struct bus_message *message);
/* Thread-safe. Waits at most 100 ms for a full receiver; says nothing when there is none. */
void bus_send(enum bus_kind kind, const char *session, int64_t after, const char *frame,
              size_t length);

#endif
