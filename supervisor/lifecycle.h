/* From one state to the next: start, stop, destroy, and finding what an earlier supervisor left. */
#ifndef SUPERVISOR_LIFECYCLE_H
#define SUPERVISOR_LIFECYCLE_H

#include <stdbool.h>

#include "common/error.h"
#include "supervisor/sandbox.h"
#include "supervisor/spawn.h"

/* Read the state folder: take over what runs, end and remove what can't be taken over. */
void lifecycle_recover(void);
/* End every sandbox and wait for it; workspaces stay. For the end of the supervisor, outside of the
 * loop. */
void lifecycle_stop_all(void);

/* Begin to start its init, as asked for; `request` gets what is the sandbox's own. */
int lifecycle_begin(struct sandbox *box, struct spawn_request *request, struct error *err);
/* It runs: tell who asked. */
void lifecycle_started(struct sandbox *box);
/* It does not; all that was made is removed. */
void lifecycle_failed(struct sandbox *box, const struct error *failure);
void lifecycle_overdue(struct timer *timer); /* of its deadline */
/* Remove one that nobody asked for. */
void lifecycle_discard(struct sandbox *box, const char *reason);
/* Settled in a state: tell the asker, then let those who waited have their turn. `box` may be gone
 * after this. */
void lifecycle_settle(struct sandbox *box, const struct error *failure);

/* Kill what runs in the cgroups of that name, wait for its end, and remove them. `process` is its
 * first process's pidfd, or -1. */
bool lifecycle_kill(const char *name, int process);

#endif
