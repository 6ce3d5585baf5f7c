/* The variables of every command in a sandbox. */
#ifndef RUN_ENVIRONMENT_H
#define RUN_ENVIRONMENT_H

#include "common/arena.h"
#include "common/field.h"

/* "NAME=value": ours, and those of `manifest` (an object of texts), which win. Nothing of the
 * server's own goes in. */
struct texts environment_make(struct arena *arena, const char *manifest);

#endif
