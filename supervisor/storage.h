/* Where what a sandbox writes is kept, within a number of bytes and of files that the kernel holds
 * it to.
 *
 * Each sandbox has a disk of its own at `sandboxes/<id>/disk`, with the workspace `ws`, the layers
 * of the boot that runs `l`, and `trash`. Disks are mounted in a mount namespace that only the
 * supervisor sees; the main loop lives in it, but only the storekeeper (storekeeper.h) and the
 * spawner's workers may mount. */
#ifndef SUPERVISOR_STORAGE_H
#define SUPERVISOR_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/refusal.h"

/* The back ends; their names are in `state` and in STORAGE. */
enum storage_kind {
    STORAGE_NONE,
    STORAGE_PLAIN,   /* a folder, without a limit */
    STORAGE_TMPFS,   /* memory */
    STORAGE_IMAGE,   /* ext4 in a file */
    STORAGE_REFLINK, /* a subvolume of btrfs */
};

/* What a sandbox may write. */
struct disk {
    enum storage_kind kind;
    int64_t bytes, inodes;
};

struct disk_usage {
    int64_t bytes, bytes_limit; /* a limit of 0: none */
    int64_t inodes, inodes_limit;
};

const char *storage_name(enum storage_kind kind);
enum storage_kind storage_kind_of(const char *name);

/* What STORAGE would choose for the folder `folder`, which exists; refused when nothing fits. */
void storage_check(const char *folder, struct refusals *refusals);
/* The namespace of the disks: the one that an earlier supervisor left, or a new one. Before the
 * spawner is forked, whose workers enter it. `state` is the state folder. */
int storage_open(int state, struct error *err);
/* Fork the storekeeper, and live in the namespace from now on. */
int storage_enter(struct error *err);
/* Listen to the storekeeper; after loop_open. */
int storage_watch(struct error *err);
/* Let go of the namespace, unless a disk would be lost with it. */
void storage_close(void);
/* The back end, for the log. */
const char *storage_describe(void);

/* A disk as it was asked for, 0 for what was not said; refused beyond the settings. */
int storage_size(int64_t bytes, int64_t inodes, struct disk *disk, struct error *err);
/* The folder `name` in `place` ("sandboxes", "spares") with a disk in it, mounted and empty; waits.
 */
int storage_make(const char *place, const char *name, const struct disk *disk, struct error *err);
/* Remove the folder with its disk, whatever state it is in; waits. Missing is fine. */
int storage_remove(const char *place, const char *name, struct error *err);
/* What kind a disk is, of which nothing is written any more. */
enum storage_kind storage_guess(const char *place, const char *name);
/* Whether the disk can be used as it is. */
bool storage_attached(const char *place, const char *name, enum storage_kind kind);

/* In the loop, once; err->kind is ERR_NONE when it was done. */
typedef void store_done(void *data, const struct error *err);
/* The same, without waiting; and the disk of a folder is mounted, or unmounted. */
int storage_make_begin(const char *place, const char *name, const struct disk *disk,
                       store_done *done, void *data, struct error *err);
/* False where it is the loop's own to do. */
bool storage_remove_begin(const char *place, const char *name, const struct disk *disk,
                          store_done *done, void *data);
int storage_attach_begin(const char *place, const char *name, enum storage_kind kind,
                         store_done *done, void *data, struct error *err);
int storage_detach_begin(const char *place, const char *name, enum storage_kind kind,
                         store_done *done, void *data, struct error *err);

/* A new disk with a snapshot in its workspace, or as a clone of the `whole` disk. */
int storage_restore_begin(const char *place, const char *name, const struct disk *disk,
                          const char *snapshot, bool whole, store_done *done, void *data,
                          struct error *err);
/* Remove the folder with its disk, of any kind and in any state; false when nobody can be told to.
 */
bool storage_clear_begin(const char *place, const char *name, store_done *done, void *data);

/* For a worker of the spawner: empty layers, and clones of them and of the workspace, detached and
 * id-mapped. */
int storage_map(const char *sandbox, int userns, int *layers, int *workspace, struct error *err);

/* --- disks that are made ahead ---------------------------------------------------------------- */

/* Sweep what an earlier supervisor had, and begin to make some. */
int storage_spares_open(struct error *err);
/* Make the sandbox's folder of one that fits; false when there is none. */
bool storage_take_spare(const char *id, const struct disk *disk);

#endif
