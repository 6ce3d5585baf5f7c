/* Commands in running sandboxes: handed to init with their descriptors, and answered when init
 * tells how they ended. */
#ifndef SUPERVISOR_EXEC_H
#define SUPERVISOR_EXEC_H

#include "supervisor/sandbox.h"

struct command;

/* Connect to init and say hello; `ready` is called at its answer, once. */
int exec_connect(struct sandbox *box, void (*ready)(struct sandbox *box), struct error *err);
/* Tell init another host name for the files in /etc; `named` is called when it has written them, or
 * with the errno for which it has not. */
void exec_name(struct sandbox *box, const char *hostname,
               void (*named)(struct sandbox *box, int status));
/* Commands that init has, or is to be given. */
int64_t exec_running(void);
/* The peer went away: the command and its tree are ended. */
void exec_abandon(struct command *command);
/* Init has ended by itself: commands during which the kernel killed for want of memory are answered
 * so. */
void exec_end_short_of_memory(struct sandbox *box);
/* The sandbox is ending: answer everybody who waits for a command in it. */
void exec_end_all(struct sandbox *box, const struct error *reason);

#endif
