/* Sockets into the sandboxes, for previews.
 *
 * A small process, forked with the spawner, makes them: a TCP socket belongs for good to the
 * network namespace in which it was made, so whoever gets it reaches the programs of that sandbox
 * and nothing of the host. It is handed out unconnected, so that the supervisor never waits for a
 * tenant's program; unlike one that init made, no process of the tenant has it too. */
#ifndef SUPERVISOR_PORTS_H
#define SUPERVISOR_PORTS_H

#include <sys/types.h>

#include "common/error.h"

struct connection;

/* Fork the process, while this one still has its capabilities. */
int ports_open(struct error *err);
/* Listen to it; after loop_open. */
int ports_watch(struct error *err);
/* Its pid: without it no port can be opened. */
pid_t ports_pid(void);
void ports_close(void);
/* Nobody waits for the answer any more. */
void ports_forget(const struct connection *connection);

#endif
