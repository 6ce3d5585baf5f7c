/* Turns in flight in this process, and how to end what they wait for. */
#ifndef RUN_CANCEL_H
#define RUN_CANCEL_H

#include <stdatomic.h>

#include "common/arena.h"
#include "common/error.h"

/* Ordered: a stronger reason takes the place of a weaker one. */
enum cancel_reason {
    CANCEL_NONE,
    CANCEL_PAUSE, /* this process ends: give the turn back at the next seam; what runs may end first
                   */
    CANCEL_GIVE_BACK, /* … at once */
    CANCEL_ENDED,     /* somebody ended the run, or leased its job */
};

struct cancel {
    char run_id[37];
    int fd; /* readable from CANCEL_GIVE_BACK on */
    _Atomic int reason;
    struct cancel *previous, *next;
};

/* Enlist: from now on it can be cancelled. It must stay where it is until cancel_close. */
int cancel_open(struct cancel *cancel, const char *run_id, struct error *err);
void cancel_close(struct cancel *cancel);
#define auto_cancel __attribute__((cleanup(cancel_close)))

/* Cancel the turns of this run. Any thread. */
void cancel_run(const char *run_id, enum cancel_reason reason);
/* Cancel every turn, and every one that is opened later. */
void cancel_all(enum cancel_reason reason);
/* The runs in flight, as a PostgreSQL array. Returns how many. */
size_t cancel_runs(struct buffer *array);

#endif
