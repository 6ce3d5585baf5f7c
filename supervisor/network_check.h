/* Whether this host can give sandboxes a network, found out by trying it in a namespace apart. */
#ifndef SUPERVISOR_NETWORK_CHECK_H
#define SUPERVISOR_NETWORK_CHECK_H

#include "common/refusal.h"

/* Fill network_plan; nothing more is looked at unless EGRESS is on. */
void network_check(struct refusals *refusals);

#endif
