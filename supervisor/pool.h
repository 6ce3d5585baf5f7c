/* Sandboxes that are started ahead of anybody's wish: a create takes one over, and the start that
 * follows finds its init running.
 *
 * A spare is a sandbox like any other under a name that no peer can ask for, so whatever an earlier
 * supervisor left of one is swept. They are made as the latest sandboxes were; a start that wants
 * anything else is a cold one. */
#ifndef SUPERVISOR_POOL_H
#define SUPERVISOR_POOL_H

#include <stdbool.h>

#include "supervisor/connection.h"
#include "supervisor/sandbox.h"
#include "supervisor/spawn.h"

/* Remember what is asked for. */
void pool_learn(const struct spawn_request *wanted);
/* One that runs, on such a disk, or NULL; it counts as the caller's, who renames it. */
struct sandbox *pool_take(const struct disk *disk);
/* Whether the idle init of `box` is what is asked for, on the image that the name means now. */
bool pool_fits(const struct sandbox *box, const struct spawn_request *wanted);
/* Give it the host name that is asked for: it is running then. */
int pool_claim(struct sandbox *box, const struct spawn_request *wanted, struct error *err);
/* A spare runs, or it did not start. */
void pool_ready(struct sandbox *box);
void pool_failed(void);
/* End what nobody has asked for; waits. */
void pool_close(void);

#endif
