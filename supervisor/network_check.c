/* Whether this host can give sandboxes a network: see network_check.h. */
#include "supervisor/network_check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "common/kernel.h"
#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/netlink.h"
#include "supervisor/network_plan.h"
#include "supervisor/network_rules.h"
#include "supervisor/supervisor.h"

/* Their exit status is an errno. Both ends of the pair are in the one namespace. */
static int try_pair(void)
{
    const unsigned char one[MAC_LENGTH] = {0x02, 0x76}, other[MAC_LENGTH] = {0x06, 0x76};
    auto_close int netlink = netlink_open();
    auto_close int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    if (netlink < 0 || here < 0 ||
        netlink_make_pair(netlink, NETWORK_PREFIX "0", one, "eth0", other, here) < 0)
        return errno;
    return settings.egress_rate_mbit &&
                   netlink_limit_rate(netlink, if_nametoindex("eth0"), 1000000) < 0
               ? errno
               : 0;
}

static int try_rules(void)
{
    auto_buffer struct buffer rules = {0};
    struct error error;

    network_rules_text(&rules, 1);
    return network_rules_write(&rules, &error) < 0 ? EOPNOTSUPP : 0;
}

void network_check(struct refusals *refusals)
{
    size_t before = refusals->count;
    int result;

    network_plan_check(refusals);
    if (!settings.egress)
        return;
    if (access(NFT_PROGRAM, X_OK) < 0)
        refusal_add(refusals, "EGRESS: %s: %s; install nftables, or set EGRESS=0", NFT_PROGRAM,
                    strerror(errno));
    if (!capabilities_have(CAP_NET_ADMIN))
        refusal_add(refusals,
                    "EGRESS: CAP_NET_ADMIN is missing (capabilities(7)), or set EGRESS=0");
    if (refusals->count > before)
        return;
    if ((result = kernel_try(CLONE_NEWNET, try_pair)) != 0)
        refusal_add(refusals,
                    "EGRESS: no pair of interfaces can be made: %s; needed: a kernel with "
                    "CONFIG_VETH and CONFIG_NET_SCH_TBF",
                    strerror(result < 0 ? errno : result));
    else if (kernel_try(CLONE_NEWNET, try_rules) != 0)
        refusal_add(refusals,
                    "EGRESS: nft takes no such rules; needed: nftables 1.0, a kernel with "
                    "CONFIG_NF_TABLES_INET, NFT_CT, NFT_NAT, NFT_MASQ, NFT_REJECT, NFT_FIB_INET");
}
