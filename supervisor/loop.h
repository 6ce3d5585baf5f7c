/* The one loop: descriptors that are watched, and points in time. Single-threaded; nothing in it
 * may block. */
#ifndef SUPERVISOR_LOOP_H
#define SUPERVISOR_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Part of what owns the descriptor. One event is handled at a time, so `ready` may free its owner,
 * or any other. */
struct watch {
    int fd; /* -1: not watched */
    void (*ready)(struct watch *watch, uint32_t events);
};

struct timer {
    int64_t at_ms; /* of loop_now */
    void (*due)(struct timer *timer);
    struct timer *next, **link; /* NULL: not set */
};

#define OWNER(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

int loop_open(struct error *err);
/* Watch for epoll(7) events. The descriptor stays the caller's until loop_close_watch. */
int loop_watch(struct watch *watch, int fd, uint32_t events,
               void (*ready)(struct watch *, uint32_t), struct error *err);
void loop_change(struct watch *watch, uint32_t events);
/* Hear nothing of it any more, for good; it stays open. */
void loop_silence(struct watch *watch);
/* Stop watching, and close the descriptor. */
void loop_close_watch(struct watch *watch);
/* Stop watching; the caller owns the descriptor, which may be -1. */
int loop_release(struct watch *watch);

/* Call `due` once, after so many milliseconds; set again, it moves. */
void loop_set(struct timer *timer, int64_t after_ms, void (*due)(struct timer *));
void loop_clear(struct timer *timer);
int64_t loop_now(void);

/* Handle what happens until *stop is set. */
void loop_run(const bool *stop);

#endif
