/* What the operator says about the network of sandboxes: see network_plan.h. */
#include "supervisor/network_plan.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/supervisor.h"

enum {
    LINK_BITS = 2, /* a /30 of IPv4, a /126 of IPv6: its own, two ends, broadcast */
    FOUR_BITS = 32,
    SIX_BITS = 128,
    LINKS_MAX = 1 << 20,
    TEXT_MAX = 64,
};

struct network_plan network_plan;

/* --- ranges ---------------------------------------------------------------------------------- */

static unsigned bits_of(const struct netlink_address *address)
{
    return address->family == AF_INET ? FOUR_BITS : SIX_BITS;
}

static void clear_behind(struct network_range *range)
{
    for (unsigned bit = range->prefix; bit < bits_of(&range->first); bit++)
        range->first.bytes[bit / 8] &= (unsigned char)~(0x80U >> (bit % 8));
}

bool network_range_read(const char *text, struct network_range *range)
{
    char address[TEXT_MAX];
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : strlen(text);
    char *end = NULL;

    *range = (struct network_range){0};
    if (length >= sizeof(address))
        return false;
    memcpy(address, text, length);
    address[length] = '\0';
    range->first.family = strchr(address, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(range->first.family, address, range->first.bytes) != 1)
        return false;
    range->prefix = bits_of(&range->first);
    if (slash) {
        unsigned long prefix;

        if (slash[1] < '0' || slash[1] > '9')
            return false;
        prefix = strtoul(slash + 1, &end, 10);
        if (*end || prefix > bits_of(&range->first))
            return false;
        range->prefix = (unsigned)prefix;
    }
    clear_behind(range);
    return true;
}

bool network_range_has(const struct network_range *range, const struct netlink_address *address)
{
    struct network_range other = {.first = *address, .prefix = range->prefix};

    if (address->family != range->first.family)
        return false;
    clear_behind(&other);
    return memcmp(other.first.bytes, range->first.bytes, bits_of(address) / 8) == 0;
}

bool network_list_read(const char *list, void (*each)(const struct network_range *, void *),
                       void *data)
{
    while (*(list += strspn(list, ", \t"))) {
        size_t length = strcspn(list, ", \t");
        char text[TEXT_MAX];
        struct network_range range;

        if (length >= sizeof(text))
            return false;
        memcpy(text, list, length);
        text[length] = '\0';
        if (!network_range_read(text, &range))
            return false;
        if (each)
            each(&range, data);
        list += length;
    }
    return true;
}

const char *network_text(const struct netlink_address *address)
{
    static char text[INET6_ADDRSTRLEN];

    return inet_ntop(address->family, address->bytes, text, sizeof(text)) ? text : "";
}

/* --- links ----------------------------------------------------------------------------------- */

static struct netlink_address add(const struct netlink_address *address, uint64_t number)
{
    struct netlink_address sum = *address;

    for (unsigned at = bits_of(address) / 8; at-- > 0 && number; number >>= 8) {
        number += sum.bytes[at];
        sum.bytes[at] = (unsigned char)number;
    }
    return sum;
}

struct network_ends network_ends_of(const struct network_range *range, int64_t link)
{
    uint64_t first = (uint64_t)(link + 1) << LINK_BITS; /* the first is the resolver's */

    return (struct network_ends){.host = add(&range->first, first + 1),
                                 .sandbox = add(&range->first, first + 2)};
}

static int64_t room_in(const struct network_range *range)
{
    unsigned free = bits_of(&range->first) - range->prefix;

    if (free <= LINK_BITS)
        return 0;
    free -= LINK_BITS;
    return (free > 20 ? LINKS_MAX : INT64_C(1) << free) - 1;
}

/* --- settings -------------------------------------------------------------------------------- */

static void check_room(const char *name, const struct network_range *range,
                       struct refusals *refusals)
{
    int64_t room = room_in(range), wanted = settings.sandboxes_max + settings.egress_pool;

    if (room < wanted)
        refusal_add(refusals,
                    "%s has room for %lld sandboxes of 4 addresses; SANDBOXES_MAX and EGRESS_POOL "
                    "together are %lld",
                    name, (long long)room, (long long)wanted);
    if (room < network_plan.links)
        network_plan.links = room;
}

/* Which an earlier supervisor has left: alone in its network, on loopback. */
static bool is_our_resolver(const struct ifaddrs *one, const struct netlink_address *address)
{
    const struct sockaddr_in *mask = (const struct sockaddr_in *)(void *)one->ifa_netmask;

    return memcmp(address, &network_plan.resolver, sizeof(*address)) == 0 &&
           strcmp(one->ifa_name, "lo") == 0 && mask && mask->sin_addr.s_addr == INADDR_BROADCAST;
}

/* Two networks with the same addresses: what is meant for one would reach the other. */
static void check_overlap(const char *name, const struct network_range *range,
                          struct refusals *refusals)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) < 0)
        return;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        struct netlink_address address = {0};

        if (!one->ifa_addr || strncmp(one->ifa_name, NETWORK_PREFIX, strlen(NETWORK_PREFIX)) == 0)
            continue;
        address.family = one->ifa_addr->sa_family;
        if (address.family == AF_INET)
            memcpy(address.bytes, &((const struct sockaddr_in *)(void *)one->ifa_addr)->sin_addr,
                   4);
        else if (address.family == AF_INET6)
            memcpy(address.bytes, &((const struct sockaddr_in6 *)(void *)one->ifa_addr)->sin6_addr,
                   16);
        else
            continue;
        if (is_our_resolver(one, &address))
            continue;
        if (network_range_has(range, &address))
            refusal_add(refusals, "%s: the host itself has %s, on %s", name, network_text(&address),
                        one->ifa_name);
    }
    freeifaddrs(all);
}

static void check_six(struct refusals *refusals)
{
    if (!settings.egress_range6[0])
        return;
    if (!network_range_read(settings.egress_range6, &network_plan.six) ||
        network_plan.six.first.family != AF_INET6) {
        refusal_add(refusals, "EGRESS_RANGE6 must be an IPv6 range such as fd5b::/64, or empty");
        return;
    }
    network_plan.has_six = true;
    check_room("EGRESS_RANGE6", &network_plan.six, refusals);
    check_overlap("EGRESS_RANGE6", &network_plan.six, refusals);
}

static void check_server(const struct network_range *range, void *data)
{
    if (range->prefix != bits_of(&range->first))
        refusal_add(data, "EGRESS_DNS must be addresses, not ranges");
}

void network_plan_check(struct refusals *refusals)
{
    static const struct {
        const char *name;
        size_t offset;
    } lists[] = {
        {"EGRESS_ALLOW", offsetof(struct supervisor_settings, egress_allow)},
        {"EGRESS_DENY", offsetof(struct supervisor_settings, egress_deny)},
        {"EGRESS_DNS", offsetof(struct supervisor_settings, egress_dns)},
    };

    if (!settings.egress)
        return;
    network_plan = (struct network_plan){.links = LINKS_MAX};
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        if (!network_list_read(
                *(const char *const *)(const void *)((const char *)&settings + lists[i].offset),
                NULL, NULL))
            refusal_add(refusals, "%s must be addresses, or ranges such as 192.0.2.0/24",
                        lists[i].name);
    if (!network_range_read(settings.egress_range, &network_plan.four) ||
        network_plan.four.first.family != AF_INET) {
        refusal_add(refusals, "EGRESS_RANGE must be an IPv4 range such as 10.207.0.0/16");
        return;
    }
    network_plan.resolver = add(&network_plan.four.first, 1);
    check_room("EGRESS_RANGE", &network_plan.four, refusals);
    check_overlap("EGRESS_RANGE", &network_plan.four, refusals);
    check_six(refusals);
    network_list_read(settings.egress_dns, check_server, refusals);
}
