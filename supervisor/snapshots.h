/* Snapshots of workspaces: what the messages snapshot_* do, and the store that holds them.
 *
 * A snapshot is a folder `snapshots/<id>` with its content and `manifest`, which says what it is of
 * and has its SHA-256, and one of its own lines. It has its name when all of it is on the disk:
 * before that it has one that the next start sweeps. It depends on no sandbox, and can be restored
 * to a disk of any kind. Where the file system can share data between files, the whole disk is
 * cloned, in no time whatever is on it; else the files are packed. */
#ifndef SUPERVISOR_SNAPSHOTS_H
#define SUPERVISOR_SNAPSHOTS_H

#include <stdint.h>

#include "common/messages.h"
#include "supervisor/connection.h"
#include "supervisor/pack.h"
#include "supervisor/storage.h"

enum snapshot_kind {
    SNAPSHOT_PACK,  /* pack.h */
    SNAPSHOT_IMAGE, /* a clone of the image of the disk */
    SNAPSHOT_TREE,  /* a clone of the disk's subvolume */
};

struct snapshot {
    char sandbox[SANDBOX_ID_LENGTH + 1]; /* of which it was made */
    int64_t created_ns;
    struct disk disk; /* that it was on */
    enum snapshot_kind kind;
    struct pack_result content; /* SNAPSHOT_IMAGE: of the whole disk */
    char sha256[SHA256_TEXT];
};

/* Open the store and sweep it; in the namespace of the disks, before the first connection. */
int snapshots_open(struct error *err);
/* Read the manifest. ERR_NOT_FOUND, or ERR_CONFLICT when it is damaged. */
int snapshots_find(const char *id, struct snapshot *snapshot, struct error *err);
/* The peer went away; the work goes on. */
void snapshots_forget(const struct connection *connection);

/* --- snapshot_files.c: in a job, or a worker of the storekeeper --------------------------------
 */

/* `manifest` in a folder. */
int snapshot_read_manifest(int folder, struct snapshot *snapshot, struct error *err);
int snapshot_write_manifest(int folder, const struct snapshot *snapshot, struct error *err);
/* Copy the workspace of a sandbox, whose folder is `sandbox`, into `folder`; `copied` is called
 * once, as soon as the workspace may change again. `snapshot` has the disk. */
int snapshot_copy(int sandbox, int folder, pack_room *room, void (*copied)(void *data), void *data,
                  struct snapshot *snapshot, struct error *err);
/* Remove what is in the folder `name` of `store`, and it. */
int snapshot_delete(int store, const char *name, struct error *err);
/* Whether such a disk can be a clone of it. */
bool snapshot_is_whole(const struct snapshot *snapshot, const struct disk *disk);
/* Fill the disk in `folder` (a path) with the snapshot: one that is there and new, or one that is
 * `missing`. Gives up every right that this does not need. */
int snapshot_restore(const char *id, const char *folder, const struct disk *disk, bool missing,
                     struct error *err);

#endif
