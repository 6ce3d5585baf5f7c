/* The message `create`, and the way back of a disk that was put away. */
#include "supervisor/create.h"

#include "common/log.h"
#include "supervisor/dispatch.h"
#include "supervisor/lifecycle.h"
#include "supervisor/loop.h"
#include "supervisor/pool.h"
#include "supervisor/snapshots.h"

enum { IDLE_MS = 60 * 1000, ATTACH_PAUSE_MS = 1000, RETRY_AFTER_S = 10 };

static const struct nothing no_body;
static const struct error none;

/* --- create ---------------------------------------------------------------------------------- */

/* What was promised counts, not what is in use: nobody is to find the host full later. */
static int check_total(const struct disk *disk, struct error *err)
{
    int64_t total = disk->bytes;

    if (!settings.disk_total_mb)
        return 0;
    for (struct sandbox *box = sandbox_first(); box; box = box->next)
        total += box->spare ? 0 : box->disk.bytes;
    if (total <= settings.disk_total_mb << 20)
        return 0;
    error_set(err, ERR_UNAVAILABLE,
              "the disks of all sandboxes would have more than the %lld MiB of DISK_TOTAL_MB",
              (long long)settings.disk_total_mb);
    err->retry_after_s = RETRY_AFTER_S;
    return -1;
}

int create_disk(struct sandbox *box, store_done *done, struct error *err)
{
    if (storage_take_spare(box->id, &box->disk)) {
        box->attached = true;
        box->used_ms = loop_now();
        return 1;
    }
    if (sandbox_begin(box, done, err) < 0)
        return -1;
    if (box->disk.kind != STORAGE_PLAIN)
        return 0;
    return create_finish(box, &none, err) < 0 ? -1 : 1;
}

int create_finish(struct sandbox *box, const struct error *result, struct error *err)
{
    if (result->kind != ERR_NONE) {
        *err = *result;
        return -1;
    }
    box->attached = sandbox_complete(box, err) == 0;
    box->used_ms = loop_now();
    return box->attached ? 0 : -1;
}

static void left_over(const char *sandbox, const char *reason)
{
    LOG(ERROR, "sandbox_left_over", V("sandbox", sandbox), V("reason", reason));
}

static void undone(void *data, const struct error *result)
{
    struct sandbox *box = data;

    if (result->kind != ERR_NONE)
        left_over(box->id, result->message);
    lifecycle_settle(box, &box->failure);
}

static void create_done(void *data, const struct error *result)
{
    struct sandbox *box = data;
    struct error error = none;

    box->destroyed = create_finish(box, result, &error) < 0;
    box->failure = error;
    if (!box->destroyed || !sandbox_undo(box, undone))
        lifecycle_settle(box, &error);
}

static int begin_restored(struct sandbox *box, const char *id, struct error *err)
{
    struct snapshot snapshot;

    if (snapshots_find(id, &snapshot, err) < 0)
        return -1;
    return sandbox_begin_restored(box, id, snapshot_is_whole(&snapshot, &box->disk), create_done,
                                  err);
}

static int create_cold(struct request *request, const struct disk *disk, struct error *err)
{
    const char *snapshot = ((const struct create *)request->body)->snapshot;
    struct sandbox *box = sandbox_add(request->sandbox, SANDBOX_CREATED);
    int made;

    box->disk = *disk;
    made = snapshot ? begin_restored(box, snapshot, err) : create_disk(box, create_done, err);
    if (made < 0) {
        sandbox_forget(box);
        return -1;
    }
    if (made) {
        connection_answer(request->connection, &schema_nothing, &no_body, -1);
        return 0;
    }
    /* Absent to all until it is whole. */
    box->busy = box->destroyed = true;
    box->asker = request->connection;
    return 0;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* That of the snapshot, where none is asked for. */
static int size_disk(const struct create *body, struct disk *disk, struct error *err)
{
    int64_t bytes = body->disk_bytes, inodes = body->disk_inodes;
    struct snapshot snapshot;

    if (!body->snapshot)
        return storage_size(bytes, inodes, disk, err);
    if (snapshots_find(body->snapshot, &snapshot, err) < 0)
        return -1;
    if (!bytes)
        bytes = least(snapshot.disk.bytes, settings.sandbox_disk_mb << 20);
    if (!inodes)
        inodes = least(snapshot.disk.inodes, settings.sandbox_disk_inodes);
    return storage_size(bytes, inodes, disk, err);
}

int operation_create(struct request *request, struct error *err)
{
    const struct create *body = request->body;
    struct sandbox *spare;
    struct disk disk;

    if (size_disk(body, &disk, err) < 0 || check_total(&disk, err) < 0)
        return -1;
    spare = body->snapshot ? NULL : pool_take(&disk);
    if (!spare)
        return create_cold(request, &disk, err);
    if (sandbox_rename(spare, request->sandbox, err) < 0)
        return -1;
    spare->spare = false;
    connection_answer(request->connection, &schema_nothing, &no_body, -1);
    return 0;
}

/* --- disks that come back -------------------------------------------------------------------- */

static void attach_failed(const char *sandbox, const char *reason)
{
    LOG(ERROR, "disk_attach", V("sandbox", sandbox), V("reason", reason));
}

static void attach_done(void *data, const struct error *result)
{
    struct sandbox *box = data;

    box->attached = result->kind == ERR_NONE;
    if (!box->attached) {
        attach_failed(box->id, result->message);
        box->attach_error = *result;
        box->attach_after_ms = loop_now() + ATTACH_PAUSE_MS;
    }
    lifecycle_settle(box, NULL);
}

int create_attach(struct sandbox *box, struct error *err)
{
    if (loop_now() < box->attach_after_ms) {
        *err = box->attach_error;
        return -1;
    }
    if (storage_attach_begin("sandboxes", box->id, box->disk.kind, attach_done, box, err) < 0)
        return -1;
    box->busy = true;
    return 0;
}

/* --- disks that are put away ----------------------------------------------------------------- */

static struct timer look;

static void detach_done(void *data, const struct error *result)
{
    struct sandbox *box = data;

    box->attached = storage_attached("sandboxes", box->id, box->disk.kind);
    if (result->kind != ERR_NONE)
        LOG(WARNING, "disk_detach", V("reason", (const char *)result->message));
    lifecycle_settle(box, NULL);
}

/* A device and a mounted file system are much to keep for who does not run. What was written is on
 * the host's disk then. */
static void put_away(struct timer *timer)
{
    int64_t idle_since = loop_now() - IDLE_MS;
    struct error error;

    for (struct sandbox *box = sandbox_first(); box; box = box->next)
        if (box->disk.kind == STORAGE_IMAGE && box->attached && !box->busy && !box->copying &&
            !box->spare && box->state != SANDBOX_RUNNING && box->slot < 0 &&
            box->used_ms < idle_since &&
            storage_detach_begin("sandboxes", box->id, box->disk.kind, detach_done, box, &error) ==
                0) {
            box->busy = true;
            box->attached = false;
        }
    loop_set(timer, IDLE_MS / 4, put_away);
}

void create_open(void)
{
    loop_set(&look, IDLE_MS / 4, put_away);
}
