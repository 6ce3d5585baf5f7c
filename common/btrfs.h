/* What btrfs says of itself: its quota groups, as /sys shows them. */
#ifndef COMMON_BTRFS_H
#define COMMON_BTRFS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the file system of the open folder is btrfs, and whether it counts by quota groups. */
bool btrfs_is(int folder);
bool btrfs_has_quotas(int folder);
/* Bytes of the subvolume that the folder is in, as of the last commit, and their limit; 0 for what
 * can't be told. */
void btrfs_usage(int folder, int64_t *bytes, int64_t *limit);

#endif
