/* The variables of commands: those that are asked for, then those of the image, then defaults. */
#ifndef SUPERVISOR_ENVIRONMENT_H
#define SUPERVISOR_ENVIRONMENT_H

#include "common/arena.h"
#include "supervisor/sandbox.h"

/* Keep what the image says ("NAME=value", each with its NUL) in `folder`, the sandbox's, for this
 * boot; the next supervisor finds it there. */
int environment_keep(int folder, const struct buffer *variables, struct error *err);
/* Append to a packet, each with its NUL. Returns how many. */
uint32_t environment_add(struct sandbox *box, const struct exec *body, struct buffer *packet);
/* Another boot may have another image. */
void environment_forget(struct sandbox *box);

#endif
