/* Where what a sandbox writes is kept: see storage.h. */
#include "supervisor/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/disks.h"
#include "supervisor/files.h"
#include "supervisor/mounts.h"
#include "supervisor/sandbox.h"
#include "supervisor/storekeeper.h"
#include "supervisor/supervisor.h"

static enum storage_kind chosen = STORAGE_PLAIN;
static int namespace = -1; /* of the disks */
static int state_folder = -1;

/* --- which ----------------------------------------------------------------------------------- */

/* The best first. */
static const enum storage_kind preferred[] = {STORAGE_TMPFS, STORAGE_REFLINK, STORAGE_IMAGE,
                                              STORAGE_PLAIN};

const char *storage_name(enum storage_kind kind)
{
    return disk_backends[kind].name ? disk_backends[kind].name : "none";
}

enum storage_kind storage_kind_of(const char *name)
{
    for (size_t i = 0; i < COUNT(preferred); i++)
        if (strcmp(disk_backends[preferred[i]].name, name) == 0)
            return preferred[i];
    return STORAGE_NONE;
}

/* Why it can't be; 0 when it can. */
static int consider(enum storage_kind kind, const char *folder, struct error *err)
{
    if (kind == STORAGE_PLAIN && settings.quota_required)
        return error_set(err, ERR_INVALID,
                         "a plain folder has no limit that the kernel holds a sandbox to; "
                         "QUOTA_REQUIRED=0 would do without");
    return disk_backends[kind].probe(folder, err);
}

/* The error of `auto` tells of the one that works most anywhere. */
static int choose(const char *folder, struct error *err)
{
    bool any = strcmp(settings.storage, "auto") == 0;
    enum storage_kind named = storage_kind_of(settings.storage);
    struct error reason;

    if (!any && named == STORAGE_NONE)
        return error_set(err, ERR_INVALID, "STORAGE must be auto, reflink, image, tmpfs or plain");
    for (size_t i = 0; i < COUNT(preferred); i++) {
        if (!any && preferred[i] != named)
            continue;
        if (consider(preferred[i], folder, &reason) == 0) {
            chosen = preferred[i];
            return 0;
        }
        if (!any || preferred[i] == STORAGE_IMAGE)
            *err = reason;
    }
    return error_add_context(err, "STORAGE=%s", settings.storage);
}

void storage_check(const char *folder, struct refusals *refusals)
{
    struct error error;

    if (choose(folder, &error) < 0)
        refusal_add(refusals, "%s", error.message);
}

const char *storage_describe(void)
{
    return storage_name(chosen);
}

int storage_size(int64_t bytes, int64_t inodes, struct disk *disk, struct error *err)
{
    int64_t bytes_max = settings.sandbox_disk_mb << 20, inodes_max = settings.sandbox_disk_inodes;

    if (bytes > bytes_max || inodes > inodes_max)
        return error_set(err, ERR_BAD_REQUEST,
                         "a disk may have %lld MiB and %lld files at most (SANDBOX_DISK_MB, "
                         "SANDBOX_DISK_INODES)",
                         (long long)settings.sandbox_disk_mb, (long long)inodes_max);
    *disk = (struct disk){
        .kind = chosen, .bytes = bytes ? bytes : bytes_max, .inodes = inodes ? inodes : inodes_max};
    return 0;
}

/* --- the namespace --------------------------------------------------------------------------- */

int storage_open(int state, struct error *err)
{
    if ((mkdirat(state, "spares", 0700) < 0 && errno != EEXIST) ||
        (mkdirat(state, "snapshots", 0700) < 0 && errno != EEXIST))
        return error_set_errno(err, ERR_INTERNAL, "mkdir spares and snapshots");
    namespace = keeper_open(state, err);
    return namespace < 0 ? -1 : 0;
}

int storage_enter(struct error *err)
{
    if (storekeeper_open(namespace, err) < 0)
        return -1;
    if (setns(namespace, CLONE_NEWNS) < 0)
        return error_set_errno(err, ERR_INTERNAL, "enter the mount namespace of the disks");
    /* What was opened before is in the host's, where no disk is mounted. */
    state_folder = open(settings.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state_folder < 0)
        return error_set_errno(err, ERR_INTERNAL, "SUPERVISOR_STATE %s", settings.state);
    return sandbox_reopen(state_folder, err);
}

int storage_watch(struct error *err)
{
    return storekeeper_watch(err);
}

void storage_close(void)
{
    bool needed = false;

    if (namespace < 0)
        return;
    storekeeper_close();
    for (struct sandbox *box = sandbox_first(); box; box = box->next)
        needed |= box->disk.kind == STORAGE_TMPFS;
    if (!needed)
        keeper_close(state_folder);
}

/* --- disks ----------------------------------------------------------------------------------- */

static int path_of(char path[STORE_PATH_LENGTH], const char *place, const char *name,
                   struct error *err)
{
    if (snprintf(path, STORE_PATH_LENGTH, "%s/%s", place, name) >= STORE_PATH_LENGTH)
        return error_set(err, ERR_INTERNAL, "the name of a folder is too long");
    return 0;
}

/* A mount has another device than the folder that it is in. */
static bool is_mount(const char *path)
{
    char disk[STORE_PATH_LENGTH + 8];
    struct stat inner, outer;

    snprintf(disk, sizeof(disk), "%s/disk", path);
    return fstatat(state_folder, path, &outer, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(state_folder, disk, &inner, AT_SYMLINK_NOFOLLOW) == 0 &&
           inner.st_dev != outer.st_dev;
}

int storage_make(const char *place, const char *name, const struct disk *disk, struct error *err)
{
    struct store_request request = {.work = STORE_MAKE, .disk = *disk};

    if (path_of(request.path, place, name, err) < 0)
        return -1;
    if (mkdirat(state_folder, request.path, 0700) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir %s", request.path);
    if (disk->kind != STORAGE_PLAIN)
        return storekeeper_ask(&request, err);
    /* With nothing to mount there is nothing to ask for. */
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", settings.state, request.path);
    return disk_make(path, disk, err);
}

bool storage_attached(const char *place, const char *name, enum storage_kind kind)
{
    char path[STORE_PATH_LENGTH];
    struct error error;

    return kind == STORAGE_PLAIN || (path_of(path, place, name, &error) == 0 && is_mount(path));
}

enum storage_kind storage_guess(const char *place, const char *name)
{
    char path[STORE_PATH_LENGTH];
    struct error error;

    char image[STORE_PATH_LENGTH + 16];

    if (path_of(path, place, name, &error) < 0)
        return STORAGE_PLAIN;
    snprintf(image, sizeof(image), "%s/disk.img", path);
    if (faccessat(state_folder, image, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return STORAGE_IMAGE;
    if (!is_mount(path))
        return STORAGE_PLAIN;
    snprintf(image, sizeof(image), "%s/disk", path);
    return reflink_is(state_folder, image) ? STORAGE_REFLINK : STORAGE_TMPFS;
}

int storage_remove(const char *place, const char *name, struct error *err)
{
    struct store_request request = {.work = STORE_REMOVE};

    if (path_of(request.path, place, name, err) < 0)
        return -1;
    if (is_mount(request.path))
        return storekeeper_ask(&request, err);
    auto_close int folder =
        openat(state_folder, place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", place);
    return files_delete_tree(folder, name, err);
}

bool storage_remove_begin(const char *place, const char *name, const struct disk *disk,
                          store_done *done, void *data)
{
    struct store_request request = {.work = STORE_REMOVE, .disk = *disk};
    struct error error;

    return disk->kind != STORAGE_PLAIN && path_of(request.path, place, name, &error) == 0 &&
           storekeeper_begin(&request, done, data, &error) == 0;
}

int storage_make_begin(const char *place, const char *name, const struct disk *disk,
                       store_done *done, void *data, struct error *err)
{
    struct store_request request = {.work = STORE_MAKE, .disk = *disk};

    if (path_of(request.path, place, name, err) < 0)
        return -1;
    if (mkdirat(state_folder, request.path, 0700) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir %s", request.path);
    return storekeeper_begin(&request, done, data, err);
}

static int begin(enum store_work work, const char *place, const char *name, enum storage_kind kind,
                 store_done *done, void *data, struct error *err)
{
    struct store_request request = {.work = work, .disk.kind = kind};

    return path_of(request.path, place, name, err) < 0
               ? -1
               : storekeeper_begin(&request, done, data, err);
}

int storage_attach_begin(const char *place, const char *name, enum storage_kind kind,
                         store_done *done, void *data, struct error *err)
{
    return begin(STORE_ATTACH, place, name, kind, done, data, err);
}

int storage_detach_begin(const char *place, const char *name, enum storage_kind kind,
                         store_done *done, void *data, struct error *err)
{
    return begin(STORE_DETACH, place, name, kind, done, data, err);
}

/* One that is made ahead saves the making. */
int storage_restore_begin(const char *place, const char *name, const struct disk *disk,
                          const char *snapshot, bool whole, store_done *done, void *data,
                          struct error *err)
{
    struct store_request request = {.work = STORE_RESTORE, .disk = *disk};

    if (path_of(request.path, place, name, err) < 0)
        return -1;
    snprintf(request.snapshot, sizeof(request.snapshot), "%s", snapshot);
    if (whole || !storage_take_spare(name, disk)) {
        request.work = STORE_MAKE;
        if (mkdirat(state_folder, request.path, 0700) < 0)
            return error_set_errno(err, ERR_INTERNAL, "mkdir %s", request.path);
    }
    return storekeeper_begin(&request, done, data, err);
}

bool storage_clear_begin(const char *place, const char *name, store_done *done, void *data)
{
    struct store_request request = {.work = STORE_REMOVE};
    struct error error;

    return path_of(request.path, place, name, &error) == 0 &&
           storekeeper_begin(&request, done, data, &error) == 0;
}

/* --- a worker of the spawner ----------------------------------------------------------------- */

static int open_disk(const char *sandbox, struct error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/sandboxes/%s/disk", settings.state, sandbox);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? error_set_errno(err, ERR_INTERNAL, "disk of the sandbox") : fd;
}

/* In the namespace of the disks: only a mount of one's own namespace can be cloned. */
static int map_disk(const char *sandbox, int userns, int *layers, int *workspace, struct error *err)
{
    enum { PLACE = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
    auto_close int disk = open_disk(sandbox, err);

    if (disk < 0)
        return -1;
    /* What is there is of an earlier boot, whose disk could not be cleared. */
    if (files_delete_tree(disk, "l", err) < 0)
        return -1;
    if (mkdirat(disk, "l", 0755) < 0 || mkdirat(disk, "l/u", 0755) < 0 ||
        mkdirat(disk, "l/w", 0755) < 0)
        return errno == ENOSPC || errno == EDQUOT
                   ? error_set(err, ERR_CONFLICT, "the sandbox's disk is full")
                   : error_set_errno(err, ERR_INTERNAL, "layers");
    auto_close int l = openat(disk, "l", PLACE);
    auto_close int ws = openat(disk, "ws", PLACE);
    if (l < 0 || ws < 0)
        return error_set_errno(err, ERR_INTERNAL, "layers");
    auto_close int upper = mounts_idmap(l, userns, err);
    *workspace = upper < 0 ? -1 : mounts_idmap(ws, userns, err);
    if (*workspace < 0)
        return -1;
    *layers = take_fd(&upper);
    return 0;
}

int storage_map(const char *sandbox, int userns, int *layers, int *workspace, struct error *err)
{
    static int own = -1;
    int result;

    if (own < 0)
        own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    /* Nothing of a tenant runs in this process, or is reached by path while it is there. */
    if (own < 0 || setns(namespace, CLONE_NEWNS) < 0)
        return error_set_errno(err, ERR_INTERNAL, "enter the mount namespace of the disks");
    result = map_disk(sandbox, userns, layers, workspace, err);
    /* A sandbox that was cloned there would see the disks of all, if only until it pivots. */
    if (setns(own, CLONE_NEWNS) < 0)
        abort();
    return result;
}
