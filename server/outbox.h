/* Frames on their way to one non-blocking socket. Empty, it holds no memory: most followers are
 * idle most of the time. */
#ifndef SERVER_OUTBOX_H
#define SERVER_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/frame.h"

/* Zero-initialised is empty. */
struct outbox {
    struct frame **queue; /* a ring of `room` */
    uint32_t first, count, room;
    size_t sent;      /* of the first frame */
    size_t bytes;     /* not sent yet */
    int64_t moved_ms; /* when the socket last took something, or the box began to fill */
};

/* Put a frame behind the others; the box takes a reference of its own. */
void outbox_add(struct outbox *box, struct frame *frame, int64_t now_ms);
/* Send what the socket takes. 0: all of it is sent; 1: the rest waits until the socket is writable;
 * -1: the peer is gone. */
int outbox_flush(struct outbox *box, int fd, int64_t now_ms);
void outbox_done(struct outbox *box);

#endif
