/* What the supervisor says to the kernel over rtnetlink(7): see netlink.h. */
#include "supervisor/netlink.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MESSAGE_BYTES = 1024,
    BURST_MIN = 65536,     /* a whole packet of segmentation offload */
    BURST_PER_SECOND = 50, /* else so many bursts a second */
    QUEUE_PER_SECOND = 10, /* packets wait for a tenth of a second at most */
    PATIENCE_S = 5,
};

union message {
    struct nlmsghdr head;
    unsigned char bytes[MESSAGE_BYTES];
};

int netlink_open(void)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

/* --- messages -------------------------------------------------------------------------------- */

/* Append bytes, padded as the kernel wants them; there is room for all that is said here. */
static void *put(union message *message, const void *bytes, size_t length)
{
    unsigned char *at = message->bytes + NLMSG_ALIGN(message->head.nlmsg_len);

    memset(at, 0, NLMSG_ALIGN(length));
    if (bytes)
        memcpy(at, bytes, length);
    message->head.nlmsg_len =
        (uint32_t)(NLMSG_ALIGN(message->head.nlmsg_len) + NLMSG_ALIGN(length));
    return at;
}

static union message begin(uint16_t type, uint16_t flags, const void *body, size_t length)
{
    union message message = {
        .head = {.nlmsg_len = NLMSG_HDRLEN,
                 .nlmsg_type = type,
                 .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags)}};

    put(&message, body, length);
    return message;
}

static size_t open_attribute(union message *message, uint16_t type)
{
    const struct rtattr head = {.rta_type = type};
    size_t at = NLMSG_ALIGN(message->head.nlmsg_len);

    put(message, &head, sizeof(head));
    return at;
}

static void close_attribute(union message *message, size_t at)
{
    struct rtattr *head = (struct rtattr *)(void *)(message->bytes + at);

    head->rta_len = (uint16_t)(message->head.nlmsg_len - at);
}

static void put_attribute(union message *message, uint16_t type, const void *bytes, size_t length)
{
    size_t at = open_attribute(message, type);

    put(message, bytes, length);
    ((struct rtattr *)(void *)(message->bytes + at))->rta_len = (uint16_t)RTA_LENGTH(length);
}

static int ask(int netlink, const union message *message)
{
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } answer;
    const struct nlmsgerr *result;

    if (send(netlink, message, message->head.nlmsg_len, 0) < 0 ||
        recv(netlink, &answer, sizeof(answer), 0) < (ssize_t)NLMSG_LENGTH(sizeof(*result)))
        return -1;
    if (answer.head.nlmsg_type != NLMSG_ERROR) {
        errno = EPROTO;
        return -1;
    }
    result = NLMSG_DATA(&answer.head);
    errno = -result->error;
    return result->error ? -1 : 0;
}

static size_t length_of(const struct netlink_address *address)
{
    return address->family == AF_INET ? 4 : 16;
}

/* --- what is said ---------------------------------------------------------------------------- */

int netlink_make_pair(int netlink, const char *name, const unsigned char mac[MAC_LENGTH],
                      const char *peer, const unsigned char peer_mac[MAC_LENGTH], int network)
{
    const struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
    union message message = begin(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, sizeof(link));
    size_t info, data, other;

    put_attribute(&message, IFLA_IFNAME, name, strlen(name) + 1);
    put_attribute(&message, IFLA_ADDRESS, mac, MAC_LENGTH);
    info = open_attribute(&message, IFLA_LINKINFO);
    put_attribute(&message, IFLA_INFO_KIND, "veth", 4);
    data = open_attribute(&message, IFLA_INFO_DATA);
    other = open_attribute(&message, VETH_INFO_PEER);
    put(&message, &link, sizeof(link));
    put_attribute(&message, IFLA_IFNAME, peer, strlen(peer) + 1);
    put_attribute(&message, IFLA_ADDRESS, peer_mac, MAC_LENGTH);
    put_attribute(&message, IFLA_NET_NS_FD, &network, sizeof(network));
    close_attribute(&message, other);
    close_attribute(&message, data);
    close_attribute(&message, info);
    return ask(netlink, &message);
}

int netlink_set_up(int netlink, unsigned interface)
{
    const struct ifinfomsg link = {.ifi_family = AF_UNSPEC,
                                   .ifi_index = (int)interface,
                                   .ifi_flags = IFF_UP,
                                   .ifi_change = IFF_UP};
    union message message = begin(RTM_NEWLINK, 0, &link, sizeof(link));

    return ask(netlink, &message);
}

int netlink_add_address(int netlink, unsigned interface, const struct netlink_address *address,
                        unsigned char prefix)
{
    const struct ifaddrmsg body = {.ifa_family = (unsigned char)address->family,
                                   .ifa_prefixlen = prefix,
                                   .ifa_flags = address->family == AF_INET6 ? IFA_F_NODAD : 0,
                                   .ifa_index = interface};
    union message message = begin(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body, sizeof(body));

    put_attribute(&message, IFA_LOCAL, address->bytes, length_of(address));
    put_attribute(&message, IFA_ADDRESS, address->bytes, length_of(address));
    return ask(netlink, &message);
}

int netlink_remove_address(int netlink, unsigned interface, const struct netlink_address *address,
                           unsigned char prefix)
{
    const struct ifaddrmsg body = {.ifa_family = (unsigned char)address->family,
                                   .ifa_prefixlen = prefix,
                                   .ifa_index = interface};
    union message message = begin(RTM_DELADDR, 0, &body, sizeof(body));

    put_attribute(&message, IFA_LOCAL, address->bytes, length_of(address));
    return ask(netlink, &message);
}

int netlink_add_neighbour(int netlink, unsigned interface, const struct netlink_address *address,
                          const unsigned char mac[MAC_LENGTH])
{
    const struct ndmsg body = {.ndm_family = (unsigned char)address->family,
                               .ndm_ifindex = (int)interface,
                               .ndm_state = NUD_PERMANENT};
    union message message = begin(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &body, sizeof(body));

    put_attribute(&message, NDA_DST, address->bytes, length_of(address));
    put_attribute(&message, NDA_LLADDR, mac, MAC_LENGTH);
    return ask(netlink, &message);
}

int netlink_add_default_route(int netlink, unsigned interface,
                              const struct netlink_address *gateway)
{
    const struct rtmsg body = {.rtm_family = (unsigned char)gateway->family,
                               .rtm_table = RT_TABLE_MAIN,
                               .rtm_protocol = RTPROT_STATIC,
                               .rtm_scope = RT_SCOPE_UNIVERSE,
                               .rtm_type = RTN_UNICAST};
    union message message = begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &body, sizeof(body));

    put_attribute(&message, RTA_GATEWAY, gateway->bytes, length_of(gateway));
    put_attribute(&message, RTA_OIF, &interface, sizeof(interface));
    return ask(netlink, &message);
}

/* tc-tbf(8). Its table of rates is not needed where the link layer is told. */
int netlink_limit_rate(int netlink, unsigned interface, uint64_t bytes_per_second)
{
    const struct tcmsg body = {
        .tcm_family = AF_UNSPEC, .tcm_ifindex = (int)interface, .tcm_parent = TC_H_ROOT};
    uint32_t burst = (uint32_t)(bytes_per_second / BURST_PER_SECOND) + BURST_MIN;
    const struct tc_tbf_qopt options = {
        .rate = {.linklayer = TC_LINKLAYER_ETHERNET,
                 .rate = bytes_per_second > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes_per_second},
        .limit = (uint32_t)(bytes_per_second / QUEUE_PER_SECOND) + burst,
    };
    union message message = begin(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, &body, sizeof(body));
    size_t nest;

    put_attribute(&message, TCA_KIND, "tbf", sizeof("tbf"));
    nest = open_attribute(&message, TCA_OPTIONS);
    put_attribute(&message, TCA_TBF_PARMS, &options, sizeof(options));
    put_attribute(&message, TCA_TBF_BURST, &burst, sizeof(burst));
    if (bytes_per_second > UINT32_MAX)
        put_attribute(&message, TCA_TBF_RATE64, &bytes_per_second, sizeof(bytes_per_second));
    close_attribute(&message, nest);
    return ask(netlink, &message);
}
