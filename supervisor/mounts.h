/* Mounts, all of them detached until a sandbox attaches them: nothing ever appears in the host's
 * table. */
#ifndef SUPERVISOR_MOUNTS_H
#define SUPERVISOR_MOUNTS_H

#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"

/* A /dev for one sandbox: real device nodes on a read-only tmpfs. Not shared, since whoever can
 * open an inode can watch what others do to it (inotify(7)) and lock it. Returns a mount. */
int mounts_devices(struct error *err);
/* A mount of the tree at `directory` (a descriptor), in which the ids on disk (0..65535) are those
 * of the user namespace `userns`: nothing is ever chowned. Returns it. */
int mounts_idmap(int directory, int userns, struct error *err);
/* An overlay of `upper` over `lowers`, the lowest first, all of them id-mapped mounts; `upper` has
 * the folders u and w. `root_id` is the sandbox's root. */
int mounts_overlay(const int *lowers, size_t count, int upper, uid_t root_id, struct error *err);

#endif
