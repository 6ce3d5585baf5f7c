/* Mounts, all of them detached until a sandbox attaches them: nothing ever appears in the host's
 * table. */
#ifndef SUPERVISOR_MOUNTS_H
#define SUPERVISOR_MOUNTS_H

#include <sys/types.h>

#include "common/error.h"

/* The shared /dev: real device nodes on a read-only tmpfs. Made once; sandboxes get clones. Returns
 * a mount. */
int mounts_devices(struct error *err);
/* Another mount of the tree at `directory` (a descriptor). Returns it. */
int mounts_clone(int directory, struct error *err);
/* The same, in which the ids on disk (0..65535) are those of the user namespace `userns`: nothing
 * is ever chowned. */
int mounts_idmap(int directory, int userns, struct error *err);
/* An overlay of `upper` over `lower`, two id-mapped mounts; `upper` has the folders u and w.
 * `root_id` is the sandbox's root. */
int mounts_overlay(int lower, int upper, uid_t root_id, struct error *err);

#endif
