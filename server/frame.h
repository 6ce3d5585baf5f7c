/* Bytes on their way to followers, shared by all who get them. Counted by the streamer's loop
 * alone. */
#ifndef SERVER_FRAME_H
#define SERVER_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct frame {
    struct frame *next; /* in a page, or among the held deltas */
    int references;
    int64_t seq;     /* stored event; 0: delta, ping or head */
    int64_t after;   /* delta */
    uint64_t serial; /* delta */
    bool message;    /* an agent.message: ends the deltas before it */
    size_t length;
    char bytes[];
};

/* A copy of the bytes, with one reference: the caller's. */
static inline struct frame *frame_new(const void *bytes, size_t length)
{
    struct frame *frame = malloc(sizeof(*frame) + length);

    if (!frame)
        abort();
    *frame = (struct frame){.references = 1, .length = length};
    memcpy(frame->bytes, bytes, length);
    return frame;
}

static inline void frame_release(struct frame *frame)
{
    if (frame && --frame->references == 0)
        free(frame);
}

/* A whole list. */
static inline void frames_release(struct frame *frame)
{
    while (frame) {
        struct frame *next = frame->next;

        frame_release(frame);
        frame = next;
    }
}

#endif
