/* Commands in running sandboxes: handed to init with their descriptors, and answered when init
 * tells how they ended. */
#ifndef SUPERVISOR_EXEC_H
#define SUPERVISOR_EXEC_H

#include "supervisor/sandbox.h"

struct command;

/* Connect to init and say hello; `ready` is called at its answer, once. */
int exec_connect(struct sandbox *box, void (*ready)(struct sandbox *box), struct error *err);
/* The peer went away: the command and its tree are ended. */
void exec_abandon(struct command *command);
/* The sandbox is ending: answer everybody who waits for a command in it. */
void exec_end_all(struct sandbox *box, const struct error *reason);

#endif
