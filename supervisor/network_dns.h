/* Names for sandboxes: passes their questions on to the name servers of the host.
 *
 * A process with no right at all, under an id that nothing else has, since it reads what tenants
 * send. The host's own servers may be on its loopback, where no rule could send a sandbox; and a
 * sandbox learns nothing of which they are. Everything is bounded, in all and for each sandbox. */
#ifndef SUPERVISOR_NETWORK_DNS_H
#define SUPERVISOR_NETWORK_DNS_H

#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

/* Listen at the first address of EGRESS_RANGE, at a port that the kernel chooses (the rules lead
 * port 53 there), and fork the process; while this one still has its capabilities. */
int network_dns_open(uint16_t *port, struct error *err);
pid_t network_dns_pid(void);
void network_dns_close(void);

#endif
