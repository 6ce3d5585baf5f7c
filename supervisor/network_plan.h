/* What the operator says about the network of sandboxes, read once: the addresses that each of them
 * has, and what they may reach. */
#ifndef SUPERVISOR_NETWORK_PLAN_H
#define SUPERVISOR_NETWORK_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/refusal.h"
#include "supervisor/netlink.h"

#define NETWORK_PREFIX "vsb" /* of the names of the interfaces outside */

struct network_range {
    struct netlink_address first;
    unsigned prefix;
};

struct network_plan {
    struct network_range four, six; /* where the sandboxes' addresses are from */
    bool has_six;
    int64_t links;                   /* how many sandboxes have room in them */
    struct netlink_address resolver; /* the first address: who answers for names */
};

extern struct network_plan network_plan;

/* The ends of link number 0, 1, 2 ...: the host's and the sandbox's. */
struct network_ends {
    struct netlink_address host, sandbox;
};

/* An address, or a range as 192.0.2.0/24; bits behind the prefix are dropped. */
bool network_range_read(const char *text, struct network_range *range);
bool network_range_has(const struct network_range *range, const struct netlink_address *address);
/* Each of a list, separated by commas or blanks. False when one is none. */
bool network_list_read(const char *list, void (*each)(const struct network_range *, void *),
                       void *data);
struct network_ends network_ends_of(const struct network_range *range, int64_t link);
/* As text, in a static buffer. */
const char *network_text(const struct netlink_address *address);

/* Fill network_plan from the settings. */
void network_plan_check(struct refusals *refusals);

#endif
