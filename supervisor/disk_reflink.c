/* A disk that is a subvolume of btrfs: its quota group counts bytes, and a clone of it takes no
 * time. Files are bounded by the bytes that they take themselves: btrfs has no count of them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/btrfs.h"
#include "common/scope.h"
#include "supervisor/disks.h"

enum { SUBVOLUME_INODE = 256 /* BTRFS_FIRST_FREE_OBJECTID, of the root of each */ };

#define DISK "disk"

bool reflink_is(int at, const char *path)
{
    auto_close int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd >= 0 && btrfs_is(fd);
}

/* --- whether there can be any ----------------------------------------------------------------- */

int reflink_probe(const char *folder, struct error *err)
{
    auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", folder);
    if (!btrfs_is(fd))
        return error_set(err, ERR_INVALID, "reflink: %s is not on btrfs", folder);
    if (!btrfs_has_quotas(fd))
        return error_set(err, ERR_INVALID,
                         "reflink: no quota groups; needed: btrfs quota enable on the file system "
                         "of %s",
                         folder);
    return 0;
}

/* --- disks ------------------------------------------------------------------------------------ */

static int set_limit(int subvolume, const struct disk *disk, struct error *err)
{
    struct btrfs_ioctl_qgroup_limit_args limit = {
        .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = (uint64_t)disk->bytes}};

    /* The group of the subvolume that is open. */
    if (ioctl(subvolume, BTRFS_IOC_QGROUP_LIMIT, &limit) < 0)
        return error_set_errno(err, ERR_INTERNAL, "limit of a disk");
    return fchmod(subvolume, 0700) < 0 ? error_set_errno(err, ERR_INTERNAL, "root of a disk") : 0;
}

static int open_new(int folder, const struct disk *disk, struct error *err)
{
    auto_close int subvolume =
        openat(folder, DISK, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (subvolume < 0)
        return error_set_errno(err, ERR_INTERNAL, "subvolume of a disk");
    return set_limit(subvolume, disk, err);
}

int reflink_make(const char *folder, const struct disk *disk, struct error *err)
{
    struct btrfs_ioctl_vol_args new = {.name = DISK};
    auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    /* In the place of the folder that others are mounted on. */
    if (fd < 0 || unlinkat(fd, DISK, AT_REMOVEDIR) < 0 ||
        ioctl(fd, BTRFS_IOC_SUBVOL_CREATE, &new) < 0)
        return error_set_errno(err, ERR_INTERNAL, "subvolume of a disk");
    return open_new(fd, disk, err);
}

int reflink_clone(int disk_of, int folder, const char *name)
{
    struct btrfs_ioctl_vol_args_v2 clone = {.fd = disk_of};

    snprintf(clone.name, sizeof(clone.name), "%s", name);
    return ioctl(folder, BTRFS_IOC_SNAP_CREATE_V2, &clone);
}

int reflink_make_clone(int disk_of, const char *folder, const struct disk *disk, struct error *err)
{
    auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || reflink_clone(disk_of, fd, DISK) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "clone a disk");
    return open_new(fd, disk, err);
}

void reflink_remove(const char *folder)
{
    struct btrfs_ioctl_vol_args old = {.name = DISK};
    auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    /* What is none, and what could not be removed so, is removed file by file. */
    if (fd >= 0 && btrfs_is(fd) && fstatat(fd, DISK, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_ino == SUBVOLUME_INODE)
        ioctl(fd, BTRFS_IOC_SNAP_DESTROY, &old);
}
