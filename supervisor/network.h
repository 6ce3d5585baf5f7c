/* The network of a sandbox: a namespace with nothing but loopback. */
#ifndef SUPERVISOR_NETWORK_H
#define SUPERVISOR_NETWORK_H

#include <stdbool.h>

#include "common/error.h"

/* Move the calling process into a new network namespace that is ready for a sandbox: the next clone
 * takes it along. Making one is the dearest part of a sandbox, so it is done ahead. It is owned by
 * the initial user namespace, over which a sandbox's root has no rights. -1 where the right to do
 * so is missing (CAP_NET_ADMIN): then the sandbox makes its own. */
int network_prepare(struct error *err);

/* Whether every sandbox could ping in a namespace that was made ahead: the kernel takes groups up
 * to 2^31 - 1 from outside (icmp(7), ping_group_range), and ID_BASE may be higher. */
bool network_pings_ahead(void);

#endif
