/* The message `create`, and the way back of a disk that was put away. */
#ifndef SUPERVISOR_CREATE_H
#define SUPERVISOR_CREATE_H

#include "common/error.h"
#include "supervisor/sandbox.h"

/* Make the folder of a new sandbox with its disk: 1 when it is made, 0 when `done` will be called
 * with `box` and then calls create_finish, -1. */
int create_disk(struct sandbox *box, store_done *done, struct error *err);
int create_finish(struct sandbox *box, const struct error *result, struct error *err);
/* Begin to mount the disk of a settled sandbox, which is busy until then. -1: it failed a moment
 * ago. */
int create_attach(struct sandbox *box, struct error *err);

/* From now on, unmount the disks of sandboxes that do not run after a minute without use. */
void create_open(void);

#endif
