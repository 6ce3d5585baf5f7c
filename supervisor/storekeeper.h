/* The storekeeper: a process that lives with the disks and may mount, so that the main loop need
 * not; and the keeper, a process that does nothing but hold their mount namespace, so that they
 * outlive every supervisor. */
#ifndef SUPERVISOR_STOREKEEPER_H
#define SUPERVISOR_STOREKEEPER_H

#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "supervisor/storage.h"
#include "supervisor/supervisor.h"

enum {
    STORE_PATH_LENGTH = 96,
    STORE_SECONDS = 120,
    STORE_COMMIT_SECONDS = 900,
    STORE_RESTORE_SECONDS = 290,
    STORE_IMAGE_LENGTH = 65
};

enum store_work {
    STORE_MAKE, /* a new disk in the folder `path`, which exists; with the snapshot in it, if any */
    STORE_RESTORE, /* the snapshot in the disk that is there, which is new */
    STORE_ATTACH,  /* mount the one that is there */
    STORE_DETACH,  /* unmount it */
    STORE_REMOVE,  /* unmount it, and remove the folder */
    STORE_SPARES,  /* `count` new ones in the folder `path`, their names from `first` on */
    STORE_COMMIT,  /* the layers of the boot that ended, in `path`: see image_commit.h */
};

struct store_request {
    enum store_work work;
    char path[STORE_PATH_LENGTH]; /* a folder, beneath the state folder */
    struct disk disk;
    unsigned first, count;
    uint64_t serial;                /* comes back with the answer */
    uint64_t base;                  /* the inode of the image that the layers lie on */
    char image[STORE_IMAGE_LENGTH]; /* the name of the new one */
    char snapshot[SANDBOX_ID_LENGTH + 1];
};

/* The mount namespace of the disks (a descriptor), with a keeper: found again or made. */
int keeper_open(int state, struct error *err);
/* End the keeper; what nobody else holds is unmounted. */
void keeper_close(int state);

/* Fork the storekeeper; it enters `disks`, a mount namespace. */
int storekeeper_open(int disks, struct error *err);
/* Listen to it; after loop_open. */
int storekeeper_watch(struct error *err);
/* Before the end: let what was begun be done, so that what comes next finds no disk half made. */
void storekeeper_settle(int patience_ms);
void storekeeper_close(void);
/* Its pid: without it there are no disks. */
pid_t storekeeper_pid(void);
/* Have something done; `done` is called from the loop. */
int storekeeper_begin(const struct store_request *request, store_done *done, void *data,
                      struct error *err);
/* Have something done, and wait for it: for jobs and for the start, since the loop never waits. */
int storekeeper_ask(const struct store_request *request, struct error *err);

/* In the storekeeper's worker: what STORE_SPARES asks for. */
int spares_make(const char *folder, const struct store_request *request, struct error *err);

#endif
