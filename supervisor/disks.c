/* The back ends of storage.h that need no more than a few lines: see disks.h. */
#include "supervisor/disks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/files.h"

/* --- plain ----------------------------------------------------------------------------------- */

static int plain_probe(const char *folder, struct error *err)
{
    (void)folder;
    (void)err;
    return 0;
}

static int plain_make(const char *folder, const struct disk *disk, struct error *err)
{
    (void)folder;
    (void)disk;
    (void)err;
    return 0;
}

static int plain_attach(const char *folder, struct error *err)
{
    (void)folder;
    (void)err;
    return 0;
}

/* --- tmpfs ----------------------------------------------------------------------------------- */

/* Only where the state is as short-lived itself. */
static int tmpfs_probe(const char *folder, struct error *err)
{
    struct statfs status;

    if (statfs(folder, &status) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", folder);
    if (status.f_type != TMPFS_MAGIC)
        return error_set(err, ERR_INVALID, "%s is not on tmpfs, and would outlive its disks",
                         folder);
    return 0;
}

int disk_mount(int mount, const char *folder, struct error *err)
{
    char path[PATH_MAX];

    /* The folder is the supervisor's, and no tenant can put anything there. */
    snprintf(path, sizeof(path), "%s/disk", folder);
    if (move_mount(mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mount a disk");
    return 0;
}

static int tmpfs_make(const char *folder, const struct disk *disk, struct error *err)
{
    auto_close int filesystem = fsopen("tmpfs", FSOPEN_CLOEXEC);
    char size[32], inodes[32];

    snprintf(size, sizeof(size), "%lld", (long long)disk->bytes);
    snprintf(inodes, sizeof(inodes), "%lld", (long long)disk->inodes);
    if (filesystem < 0 || fsconfig(filesystem, FSCONFIG_SET_STRING, "size", size, 0) < 0 ||
        fsconfig(filesystem, FSCONFIG_SET_STRING, "nr_inodes", inodes, 0) < 0 ||
        fsconfig(filesystem, FSCONFIG_SET_STRING, "mode", "0700", 0) < 0 ||
        fsconfig(filesystem, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "tmpfs");
    auto_close int mount =
        fsmount(filesystem, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (mount < 0)
        return error_set_errno(err, ERR_INTERNAL, "tmpfs");
    return disk_mount(mount, folder, err);
}

static int tmpfs_attach(const char *folder, struct error *err)
{
    (void)folder;
    return error_set(err, ERR_UNAVAILABLE,
                     "the sandbox's disk was in memory, and is gone with what held it");
}

/* --- all ------------------------------------------------------------------------------------- */

const struct disk_backend disk_backends[] = {
    [STORAGE_PLAIN] = {"plain", plain_probe, plain_make, plain_attach},
    [STORAGE_TMPFS] = {"tmpfs", tmpfs_probe, tmpfs_make, tmpfs_attach},
    [STORAGE_REFLINK] = {"reflink", reflink_probe, reflink_make, plain_attach},
    [STORAGE_IMAGE] = {"image", image_probe, image_make, image_attach},
};

static const struct disk_backend *backend(enum storage_kind kind, struct error *err)
{
    if ((size_t)kind < COUNT(disk_backends) && disk_backends[kind].make)
        return &disk_backends[kind];
    error_set(err, ERR_INTERNAL, "a disk of an unknown kind");
    return NULL;
}

static int make_folders(const char *folder, struct error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/disk", folder);
    auto_close int disk = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (disk < 0 || mkdirat(disk, "ws", 0755) < 0 || mkdirat(disk, "trash", 0700) < 0)
        return error_set_errno(err, ERR_INTERNAL, "folders of a disk");
    return 0;
}

int disk_make(const char *folder, const struct disk *disk, struct error *err)
{
    const struct disk_backend *kind = backend(disk->kind, err);
    char path[PATH_MAX];

    if (!kind)
        return -1;
    snprintf(path, sizeof(path), "%s/disk", folder);
    if (mkdir(path, 0700) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir of a disk");
    return kind->make(folder, disk, err) < 0 ? -1 : make_folders(folder, err);
}

int disk_attach(const char *folder, enum storage_kind kind, struct error *err)
{
    const struct disk_backend *backend_of_it = backend(kind, err);

    return backend_of_it ? backend_of_it->attach(folder, err) : -1;
}

int disk_detach(const char *folder, struct error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/disk", folder);
    /* At once for all but those who have something open in it. */
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL && errno != ENOENT)
        return error_set_errno(err, ERR_INTERNAL, "unmount a disk");
    return 0;
}

int disk_remove(const char *folder, struct error *err)
{
    char path[PATH_MAX];
    const char *name = strrchr(folder, '/') + 1;

    snprintf(path, sizeof(path), "%s/disk.img", folder);
    if (access(path, F_OK) == 0)
        image_forsake(folder);
    else
        reflink_remove(folder);
    if (disk_detach(folder, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "%.*s", (int)(name - folder), folder);
    auto_close int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", path);
    return files_delete_tree(parent, name, err);
}
