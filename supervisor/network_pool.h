/* Networks that lead out, made ahead.
 *
 * A process of their own has the right to it (CAP_NET_ADMIN), which neither the main loop nor the
 * spawner has. It makes a network namespace that the initial user namespace owns, so that a
 * sandbox's root has no rights over it; a pair of interfaces, `vsb<number>` outside and `eth0`
 * inside, with their addresses and rates; and hands the namespace to a worker of the spawner. It is
 * never used again: its interfaces go with its last process, and which numbers are in use is what
 * the kernel says, so nothing is kept that a crash could make wrong. */
#ifndef SUPERVISOR_NETWORK_POOL_H
#define SUPERVISOR_NETWORK_POOL_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

/* Where EGRESS is on: write the rules, start the resolver, make the first network and fork the
 * process; before the spawner, which claims from it. Where it is off: cut off what earlier
 * sandboxes have. */
int network_open(struct error *err);
/* End the processes; `whole`: no sandbox is left, so the rules go too, and what was switched on. */
void network_close(bool whole);
/* The pid of the process: 0 without EGRESS. */
pid_t network_pid(void);

/* For a worker of the spawner: a network namespace that nobody else has. The caller owns it. */
int network_claim(struct error *err);
/* Go into it; what was before is returned, for network_leave. */
int network_enter(int network, struct error *err);
void network_leave(int before);

/* The content of a sandbox's /etc/resolv.conf. */
const char *network_names(void);

#endif
