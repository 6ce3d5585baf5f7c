/* What btrfs says of itself: see btrfs.h. */
#include "common/btrfs.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/scope.h"

enum { PATH_SIZE = 160 };

bool btrfs_is(int folder)
{
    struct statfs status;

    return fstatfs(folder, &status) == 0 && status.f_type == BTRFS_SUPER_MAGIC;
}

/* A file of a quota group, as btrfs(5) numbers them: that of a subvolume has its number. */
static bool group_path(int folder, uint64_t subvolume, const char *name, char path[PATH_SIZE])
{
    struct btrfs_ioctl_fs_info_args info = {0};
    const unsigned char *id = info.fsid;

    if (ioctl(folder, BTRFS_IOC_FS_INFO, &info) < 0)
        return false;
    snprintf(path, PATH_SIZE,
             "/sys/fs/btrfs/%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x/"
             "qgroups/0_%llu/%s",
             id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11],
             id[12], id[13], id[14], id[15], (unsigned long long)subvolume, name);
    return true;
}

bool btrfs_has_quotas(int folder)
{
    char path[PATH_SIZE];

    return group_path(folder, BTRFS_FS_TREE_OBJECTID, "referenced", path) &&
           access(path, F_OK) == 0;
}

static int64_t read_number(const char *path)
{
    char text[32];
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    text[length < 0 ? 0 : length] = '\0';
    return strtoll(text, NULL, 10);
}

void btrfs_usage(int folder, int64_t *bytes, int64_t *limit)
{
    struct btrfs_ioctl_ino_lookup_args lookup = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
    char path[PATH_SIZE];

    *bytes = *limit = 0;
    if (ioctl(folder, BTRFS_IOC_INO_LOOKUP, &lookup) < 0)
        return;
    if (group_path(folder, lookup.treeid, "referenced", path))
        *bytes = read_number(path);
    if (group_path(folder, lookup.treeid, "max_referenced", path))
        *limit = read_number(path);
}
