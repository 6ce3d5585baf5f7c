/* The few things the supervisor says to the kernel over rtnetlink(7): pairs of interfaces, their
 * addresses, routes, neighbours and rates. A descriptor speaks for the network namespace in which
 * it was opened, wherever the process is later. All return 0, or -1 with errno. */
#ifndef SUPERVISOR_NETLINK_H
#define SUPERVISOR_NETLINK_H

#include <stddef.h>
#include <stdint.h>

enum { MAC_LENGTH = 6 };

/* An address of either family. */
struct netlink_address {
    int family;
    unsigned char bytes[16];
};

int netlink_open(void);
/* veth(4): `name` here, `peer` in the network namespace `network`; both down. EEXIST. */
int netlink_make_pair(int netlink, const char *name, const unsigned char mac[MAC_LENGTH],
                      const char *peer, const unsigned char peer_mac[MAC_LENGTH], int network);
int netlink_set_up(int netlink, unsigned interface);
/* One that is there already is fine. */
int netlink_add_address(int netlink, unsigned interface, const struct netlink_address *address,
                        unsigned char prefix);
int netlink_remove_address(int netlink, unsigned interface, const struct netlink_address *address,
                           unsigned char prefix);
int netlink_add_neighbour(int netlink, unsigned interface, const struct netlink_address *address,
                          const unsigned char mac[MAC_LENGTH]);
int netlink_add_default_route(int netlink, unsigned interface,
                              const struct netlink_address *gateway);
/* What leaves through the interface waits for its turn, and is dropped when too much does. */
int netlink_limit_rate(int netlink, unsigned interface, uint64_t bytes_per_second);

#endif
