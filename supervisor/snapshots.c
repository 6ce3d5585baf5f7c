/* The messages of snapshots, and their store: see snapshots.h. */
#include "supervisor/snapshots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/cgroup.h"
#include "supervisor/dispatch.h"
#include "supervisor/file_jobs.h"
#include "supervisor/job.h"
#include "supervisor/sandbox.h"

enum { SLOTS = 16, SECONDS = 290, NAME_LENGTH = 64, NICE = 10, RETRY_AFTER_S = 2 };

/* What is being done for a message. */
struct work {
    struct connection *connection; /* NULL: it went away */
    char sandbox[SANDBOX_ID_LENGTH + 1], id[SANDBOX_ID_LENGTH + 1];
    char name[NAME_LENGTH]; /* of the folder, which counts for nothing */
    char cgroup[SANDBOX_ID_LENGTH + 1];
    struct disk disk;
    bool running;
    int slot;
    struct work *next;
};

/* How much there is, for all jobs to see: those that write count themselves. */
struct ledger {
    int64_t stored;
    int64_t writing[SLOTS];
};

static const struct nothing no_body;
static int folder = -1;
static struct ledger *ledger;
static bool taken[SLOTS];
static struct work *works;

/* --- the store -------------------------------------------------------------------------------- */

static int64_t size_of(const char *id)
{
    struct snapshot snapshot;
    struct error error;
    auto_close int own = openat(folder, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return own >= 0 && snapshot_read_manifest(own, &snapshot, &error) == 0 ? snapshot.content.size
                                                                           : 0;
}

int snapshots_open(struct error *err)
{
    struct dirent *entry;
    struct error error;

    folder = sandbox_open_place("snapshots", err);
    if (folder < 0)
        return -1;
    ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ledger == MAP_FAILED)
        return error_set_errno(err, ERR_INTERNAL, "mmap");
    DIR *directory = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (entry->d_name[0] != '.')
            ledger->stored += size_of(entry->d_name);
        else if (snapshot_delete(folder, entry->d_name, &error) < 0)
            LOG(ERROR, "sweep", V("folder", (const char *)entry->d_name),
                V("reason", (const char *)error.message));
    }
    if (directory)
        closedir(directory);
    return 0;
}

int snapshots_find(const char *id, struct snapshot *snapshot, struct error *err)
{
    auto_close int own = openat(folder, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (own < 0)
        return error_set(err, ERR_NOT_FOUND, "there is no such snapshot");
    return snapshot_read_manifest(own, snapshot, err);
}

static int check_room(int64_t more, struct error *err)
{
    int64_t most = settings.snapshots_total_mb << 20, sum = ledger->stored + more;

    for (int i = 0; i < SLOTS; i++)
        sum += __atomic_load_n(&ledger->writing[i], __ATOMIC_RELAXED);
    if (!most || sum <= most)
        return 0;
    return error_set(err, ERR_UNAVAILABLE,
                     "the snapshots would have more than the %lld MiB of SNAPSHOTS_TOTAL_MB",
                     (long long)settings.snapshots_total_mb);
}

/* --- works ------------------------------------------------------------------------------------ */

static struct work *work_new(const struct request *request, const char *id)
{
    struct work *work = calloc(1, sizeof(*work));
    static unsigned serial;

    if (!work)
        abort();
    work->connection = request->connection;
    work->slot = -1;
    snprintf(work->sandbox, sizeof(work->sandbox), "%s", request->sandbox);
    snprintf(work->id, sizeof(work->id), "%s", id);
    snprintf(work->name, sizeof(work->name), ".%u-%s", ++serial, id);
    work->next = works;
    works = work;
    return work;
}

/* Whoever asked, or NULL. */
static struct connection *work_end(struct work *work)
{
    struct connection *connection = work->connection;
    struct work **at = &works;

    while (*at != work)
        at = &(*at)->next;
    *at = work->next;
    if (work->slot >= 0) {
        ledger->writing[work->slot] = 0;
        taken[work->slot] = false;
    }
    free(work);
    return connection;
}

void snapshots_forget(const struct connection *connection)
{
    for (struct work *work = works; work; work = work->next)
        if (work->connection == connection)
            work->connection = NULL;
}

/* --- remove ----------------------------------------------------------------------------------- */

static int remove_work(void *data, struct error *err)
{
    const struct work *work = data;

    setpriority(PRIO_PROCESS, 0, NICE);
    return snapshot_delete(folder, work->name, err);
}

static void removed(void *data, const struct error *result)
{
    struct connection *connection = work_end(data);

    if (result->kind != ERR_NONE)
        LOG(ERROR, "snapshot_left_over", V("reason", (const char *)result->message));
    /* It has no name any more, and what is left of it goes at the next start. */
    if (connection)
        connection_answer(connection, &schema_nothing, &no_body, -1);
}

int operation_snapshot_remove(struct request *request, struct error *err)
{
    const struct snapshot_remove *body = request->body;
    int64_t size = size_of(body->snapshot);
    struct work *work = work_new(request, body->snapshot);

    if (renameat(folder, body->snapshot, folder, work->name) < 0) {
        int result = errno == ENOENT ? 0 : error_set_errno(err, ERR_INTERNAL, "remove a snapshot");

        work_end(work);
        if (result == 0)
            connection_answer(request->connection, &schema_nothing, &no_body, -1);
        return result;
    }
    ledger->stored -= size;
    LOG(INFO, "snapshot_removed", V("snapshot", body->snapshot));
    if (job_begin("snapshot_remove", SECONDS, remove_work, removed, work, err))
        return 0;
    work_end(work);
    return -1;
}

/* --- make ------------------------------------------------------------------------------------- */

static int room(void *data, int64_t bytes, struct error *err)
{
    const struct work *work = data;

    __atomic_add_fetch(&ledger->writing[work->slot], bytes, __ATOMIC_RELAXED);
    return check_room(0, err);
}

static void thaw(const struct work *work)
{
    struct error error;

    if (work->running && cgroup_freeze(work->cgroup, false, &error) < 0)
        LOG(ERROR, "thaw", V("sandbox", (const char *)work->sandbox),
            V("reason", (const char *)error.message));
}

/* From here on there is time. */
static void copied(void *data)
{
    thaw(data);
    setpriority(PRIO_PROCESS, 0, NICE);
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What is to be written when it is cloned is little then, and it is frozen the shorter for it. */
static void write_ahead(int sandbox)
{
    auto_close int disk = openat(sandbox, "disk", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (disk >= 0)
        syncfs(disk);
}

/* Nothing of the sandbox runs while it is copied: what is in the snapshot is how it was at one
 * moment. */
static int make_work(void *data, struct error *err)
{
    struct work *work = data;
    struct snapshot snapshot = {.created_ns = now_ns(), .disk = work->disk};
    auto_close int sandbox = sandbox_open_folder(work->sandbox, err);

    if (sandbox < 0)
        return -1;
    if (mkdirat(folder, work->name, 0700) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "make a snapshot");
    auto_close int own =
        openat(folder, work->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (own < 0)
        return error_set_errno(err, ERR_INTERNAL, "make a snapshot");
    memcpy(snapshot.sandbox, work->sandbox, sizeof(snapshot.sandbox));
    if (work->disk.kind == STORAGE_IMAGE || work->disk.kind == STORAGE_REFLINK)
        write_ahead(sandbox);
    if (work->running && cgroup_freeze(work->cgroup, true, err) < 0) {
        thaw(work);
        return -1;
    }
    if (snapshot_copy(sandbox, own, room, copied, work, &snapshot, err) < 0)
        return -1;
    if (renameat2(folder, work->name, folder, work->id, RENAME_NOREPLACE) < 0)
        return errno == EEXIST ? error_set(err, ERR_CONFLICT, "the snapshot exists")
                               : error_set_errno(err, ERR_INTERNAL, "make a snapshot");
    return fsync(folder) < 0 ? error_set_errno(err, ERR_UNAVAILABLE, "write a snapshot") : 0;
}

static struct snapshot_entry entry_of(const char *id, const struct snapshot *snapshot)
{
    return (struct snapshot_entry){.snapshot = id,
                                   .sandbox = snapshot->sandbox[0] ? snapshot->sandbox : NULL,
                                   .created_ns = snapshot->created_ns,
                                   .size_bytes = snapshot->content.size,
                                   .content_bytes = snapshot->content.bytes,
                                   .entries = snapshot->content.entries,
                                   .disk_bytes = snapshot->disk.bytes,
                                   .disk_inodes = snapshot->disk.inodes};
}

static void answer(struct connection *connection, const char *id, const struct snapshot *snapshot)
{
    const struct snapshot_entry entry = entry_of(id, snapshot);

    connection_answer(connection, &schema_snapshot_entry, &entry, -1);
}

/* What a failed one has left. */
static void clean_up(struct work *work, const struct error *result)
{
    struct connection *connection = work->connection;
    struct error error;

    work->connection = NULL;
    if (!job_begin("snapshot_remove", SECONDS, remove_work, removed, work, &error)) {
        LOG(ERROR, "snapshot_left_over", V("reason", (const char *)error.message));
        work_end(work);
    }
    if (connection)
        connection_refuse(connection, result);
}

static void made(void *data, const struct error *result)
{
    struct work *work = data;
    struct sandbox *box = sandbox_find(work->sandbox);
    struct connection *connection = work->connection;
    char sandbox[sizeof(work->sandbox)];
    struct snapshot snapshot;
    struct error error = *result;

    memcpy(sandbox, work->sandbox, sizeof(sandbox));
    if (error.kind != ERR_NONE)
        thaw(work); /* which the job may have been kept from */
    if (error.kind == ERR_NONE && snapshots_find(work->id, &snapshot, &error) == 0) {
        ledger->stored += snapshot.content.size;
        LOG(INFO, "snapshot_made", V("sandbox", (const char *)work->sandbox),
            V("snapshot", (const char *)work->id), V("bytes", (long)snapshot.content.size));
        if (connection)
            answer(connection, work->id, &snapshot);
        work_end(work);
    } else {
        clean_up(work, &error);
    }
    if (box) {
        box->copying = false;
        connection_resume(sandbox);
    }
}

static int take_slot(struct error *err)
{
    for (int i = 0; i < SLOTS; i++)
        if (!taken[i]) {
            taken[i] = true;
            return i;
        }
    error_set(err, ERR_UNAVAILABLE, "%d snapshots are being made already", SLOTS);
    err->retry_after_s = RETRY_AFTER_S;
    return -1;
}

int operation_snapshot_make(struct request *request, struct error *err)
{
    const struct snapshot_make *body = request->body;
    struct sandbox *box = request->box;
    struct work *work;
    struct stat status;

    if (fstatat(folder, body->snapshot, &status, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, ERR_CONFLICT, "the snapshot exists");
    if (check_room(1, err) < 0)
        return -1;
    work = work_new(request, body->snapshot);
    memcpy(work->cgroup, box->cgroup, sizeof(work->cgroup));
    work->running = box->state == SANDBOX_RUNNING;
    work->disk = box->disk;
    work->slot = take_slot(err);
    if (work->slot >= 0 && job_begin("snapshot_make", SECONDS, make_work, made, work, err)) {
        box->copying = true;
        return 0;
    }
    work_end(work);
    return -1;
}

/* --- list ------------------------------------------------------------------------------------- */

#define NOBODY "00000000-0000-0000-0000-000000000000"

static int list_one(const char *id, const char *sandbox, struct stream *stream, struct error *err)
{
    struct snapshot snapshot = {0};
    struct snapshot_entry entry;
    struct error error;
    bool damaged = snapshots_find(id, &snapshot, &error) < 0;

    if (damaged && error.kind == ERR_NOT_FOUND)
        return 0;
    if (damaged)
        snapshot = (struct snapshot){0};
    entry = entry_of(id, &snapshot);
    entry.damaged = damaged;
    if (strcmp(sandbox, NOBODY) != 0 && strcmp(sandbox, snapshot.sandbox) != 0)
        return 0;
    return stream_add(stream, &schema_snapshot_entry, &entry, err);
}

int snapshots_list(const char *sandbox, struct stream *stream, struct error *err)
{
    DIR *directory = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *entry;
    int result = directory ? 0 : error_set_errno(err, ERR_INTERNAL, "snapshots");

    while (result == 0 && (entry = readdir(directory)))
        if (entry->d_name[0] != '.' && strlen(entry->d_name) == SANDBOX_ID_LENGTH)
            result = list_one(entry->d_name, sandbox, stream, err);
    if (directory)
        closedir(directory);
    return result;
}
