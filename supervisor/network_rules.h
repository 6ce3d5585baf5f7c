/* The one nftables table `inet sandbox`: what leaves a sandbox, and what may reach one.
 *
 * It is written once, at the start, in one transaction, by nft(8) from a text that has nothing of a
 * tenant in it; sandboxes are matched by the prefix of their interfaces, so that none of them adds
 * to it. A program of the system's own rather than netlink messages of ours: an operator can read
 * the same text with `nft list table inet sandbox`, and it runs before anything is served. */
#ifndef SUPERVISOR_NETWORK_RULES_H
#define SUPERVISOR_NETWORK_RULES_H

#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"

/* The rules of network_plan and the settings; `port` is where the resolver listens. */
void network_rules_text(struct buffer *text, uint16_t port);
/* Those that let nothing of any sandbox through. */
void network_rules_cut(struct buffer *text);
/* No rules at all, of ours. */
void network_rules_none(struct buffer *text);
/* Run nft; with CAP_NET_ADMIN. */
int network_rules_write(const struct buffer *text, struct error *err);

#endif
