/* The variables of every command in a sandbox. */
#ifndef RUN_ENVIRONMENT_H
#define RUN_ENVIRONMENT_H

#include "common/arena.h"
#include "common/field.h"

/* "NAME=value" of `manifest` (an object of texts). Nothing of the server's own goes in. */
struct texts environment_make(struct arena *arena, const char *manifest);
/* What a command has besides, unless the manifest or the image says otherwise. */
struct texts environment_defaults(void);

#endif
