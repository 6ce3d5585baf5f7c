/* Threads that read the log for the streamer, whose loop never waits for the database. */
#ifndef SERVER_FETCHER_H
#define SERVER_FETCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/field.h"
#include "server/frame.h"

enum fetch_kind {
    FETCH_PAGE,  /* what follows a cursor of a session, as ready frames */
    FETCH_HEADS, /* of these sessions those that exist, each with its newest event */
    FETCH_KEYS,  /* of these keys those that still authenticate */
};

/* A question, and later its answer. */
struct fetch {
    struct fetch *next;
    enum fetch_kind kind;
    char session[37]; /* PAGE */
    int64_t after;    /* PAGE */
    uint64_t wakes;   /* the asker's */
    char *ids;        /* HEADS, KEYS: a PostgreSQL array, on the heap */
    /* the answer */
    bool failed;          /* the database did not answer */
    bool gone;            /* PAGE: the session does not exist any more */
    bool more;            /* PAGE: there may be more behind it */
    struct frame *frames; /* PAGE: a list, owned by the fetch */
    struct texts found;   /* HEADS, KEYS */
    int64_t *heads;       /* HEADS: one for each of `found` */
    struct arena arena;
};

struct fetcher;

struct fetch *fetch_new(enum fetch_kind kind);
void fetch_free(struct fetch *fetch);

/* Start the threads. `url` as pool_open takes it. */
int fetcher_open(struct fetcher **fetcher, const char *url, struct error *err);
/* Ends the threads; what was asked and not taken is freed. */
void fetcher_close(struct fetcher *fetcher);
/* Readable when there are answers: an eventfd(2) of the fetcher's. */
int fetcher_fd(const struct fetcher *fetcher);
/* Ask. The fetch belongs to the fetcher until fetcher_take gives it back. */
void fetcher_ask(struct fetcher *fetcher, struct fetch *fetch);
/* Take the oldest answer, NULL when there is none (the descriptor is then no longer readable). */
struct fetch *fetcher_take(struct fetcher *fetcher);

#endif
