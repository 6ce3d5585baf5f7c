/* Snapshots of workspaces: what the messages snapshot_* do, and the store that holds them.
 *
 * A snapshot is a folder `snapshots/<id>` with its content and `manifest`, which says what it is of
 * and has its SHA-256, and one of its own lines. It has its name when all of it is on the disk:
 * before that it has one that the next start sweeps. It depends on no sandbox, and its content does
 * not depend on what kind the disk is. */
#ifndef SUPERVISOR_SNAPSHOTS_H
#define SUPERVISOR_SNAPSHOTS_H

#include <stdint.h>

#include "common/messages.h"
#include "supervisor/connection.h"
#include "supervisor/pack.h"
#include "supervisor/storage.h"

struct snapshot {
    char sandbox[SANDBOX_ID_LENGTH + 1]; /* of which it was made */
    int64_t created_ns;
    struct disk disk; /* that it was on; its kind tells nothing */
    struct pack_result content;
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
/* Copy a workspace into a folder; `copied` is called as soon as the workspace may change again. */
int snapshot_copy(int workspace, int folder, pack_room *room, void (*copied)(void *data),
                  void *data, struct snapshot *snapshot, struct error *err);
/* Fill the disk at `disk` (a path), which is new, with the snapshot. Gives up every right that this
 * does not need. */
int snapshot_restore(const char *id, const char *disk, struct error *err);

#endif
