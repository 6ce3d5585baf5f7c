/* How builds of images went: the state and the log of the latest one of each name. A build holds
 * the lock of its log for as long as it goes on, so that one that was cut off is known. */
#ifndef SERVER_IMAGES_RECORD_H
#define SERVER_IMAGES_RECORD_H

#include "images/store.h"

enum record_kind { RECORD_NONE, RECORD_BUILDING, RECORD_READY, RECORD_FAILED };

struct record {
    enum record_kind kind;
    char text[512]; /* what it is made in (see build.c), the digest, or the reason */
    bool cut_off;   /* it failed with its builder */
};

const char *record_name(enum record_kind kind);
int record_read(const struct store *store, const char *name, struct record *record);
/* Calls `call` for every name that was ever built. */
int record_each(const struct store *store,
                int (*call)(const char *name, void *context, struct error *err), void *context,
                struct error *err);
int record_print(const struct store *store, const char *name, FILE *out, struct error *err);
void record_remove(const struct store *store, const char *name);

/* One that goes on. */
struct record_writer {
    int folder;
    int log; /* locked */
    char name[IMAGE_NAME_MAX + 1];
    int64_t bytes;
};

/* ERR_CONFLICT: the image is being built. The lock of the store is not needed. */
int record_open(int images, const char *name, struct record_writer *writer, struct error *err);
/* Into the log, up to a bound, and to stderr. A sandbox_hear. */
void record_add(const char *bytes, size_t length, void *writer);
int record_set(const struct record_writer *writer, enum record_kind kind, const char *text,
               struct error *err);
void record_close(struct record_writer *writer);
#define auto_record __attribute__((cleanup(record_close)))

#endif
