/* From one state to the next: start, stop, destroy, and finding what an earlier supervisor left. */
#ifndef SUPERVISOR_LIFECYCLE_H
#define SUPERVISOR_LIFECYCLE_H

#include <stdbool.h>

#include "common/error.h"

/* Read the state folder: take over what runs, end and remove what can't be taken over. */
void lifecycle_recover(void);
/* End every sandbox and wait for it; workspaces stay. For the end of the supervisor, outside of the
 * loop. */
void lifecycle_stop_all(void);

/* Kill what runs in the cgroups of that name, wait for its end, and remove them. `process` is its
 * first process's pidfd, or -1. */
bool lifecycle_kill(const char *name, int process);

#endif
