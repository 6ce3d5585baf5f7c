/* Under which name a runner leases jobs, and how the next one on this machine finds out that it has
 * died. */
#ifndef RUN_OWNER_H
#define RUN_OWNER_H

#include "common/error.h"
#include "common/token.h"
#include "store/database.h"

/* A new name, and a locked file in STATE_DIR/run that stands for it. The kernel gives the lock back
 * when the process ends, however it ends (flock(2)); the descriptor is the caller's. */
int owner_claim(char owner[UUID_SIZE], struct error *err);
/* The name is not used any more: its file goes. Its descriptor stays the caller's. */
void owner_drop(const char *owner);
/* Let the leases of runners that died run out now. Those of other machines run out by themselves.
 */
int owner_sweep(struct database *db, struct error *err);

#endif
