/* Networks that lead out, made ahead: see network_pool.h. */
#include "supervisor/network_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/netlink.h"
#include "supervisor/network.h"
#include "supervisor/network_dns.h"
#include "supervisor/network_plan.h"
#include "supervisor/network_rules.h"
#include "supervisor/packet.h"
#include "supervisor/supervisor.h"

enum {
    POOL_MAX = 256,
    PAUSE_MS = 1000,
    BITS_PER_BYTE = 8,
    MEGA = 1000000,
    SWITCHED_MAX = 32,
    END_MS = 5000,
    ALONE_MS = 3000,
};

/* What is asked of the process: a network, or that nothing be left of all this. */
enum { ASK_NETWORK = 'n', ASK_END = 'e' };

#define INSIDE "eth0"

static pid_t maker;
static int claims = -1; /* the spawner's end */

/* --- the process: one network ---------------------------------------------------------------- */

static int proc = -1, home = -1;
static int outside = -1; /* rtnetlink(7) of the host */
static int ready[POOL_MAX];
static int ready_count;
static int64_t next_link;
static char switched[SWITCHED_MAX][96]; /* paths beneath /proc */
static int switched_count;

static int write_switch(const char *path, const char *value)
{
    auto_close int fd = openat(proc, path, O_WRONLY | O_CLOEXEC);
    ssize_t length = (ssize_t)strlen(value);

    return fd >= 0 && write(fd, value, (size_t)length) == length ? 0 : -1;
}

static int write_interface_switch(const char *interface, const char *family, const char *name,
                                  const char *value)
{
    char path[128];

    snprintf(path, sizeof(path), "sys/net/%s/conf/%s/%s", family, interface, name);
    return write_switch(path, value);
}

/* Packets for sandboxes come in where the default routes go out; only there, and on the sandboxes'
 * own interfaces, are packets passed on. Where the host forwards anyway there is nothing to do.
 * What was switched on is switched off again in the end. */
static void forward(const char *interface, const char *family, const char *name)
{
    char path[sizeof(switched[0])], value = '1';

    snprintf(path, sizeof(path), "sys/net/%s/conf/%s/%s", family, interface, name);
    auto_close int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &value, 1) != 1 || value != '0')
        return;
    if (write_switch(path, "1") == 0 && switched_count < SWITCHED_MAX)
        memcpy(switched[switched_count++], path, sizeof(path));
}

static void forward_four(void)
{
    auto_fclose FILE *routes = fopen("/proc/net/route", "re");
    char line[256], name[IF_NAMESIZE];
    unsigned destination, gateway, flags, mask;

    while (routes && fgets(line, sizeof(line), routes))
        if (sscanf(line, "%15s %x %x %x %*d %*d %*d %x", name, &destination, &gateway, &flags,
                   &mask) == 5 &&
            destination == 0 && mask == 0)
            forward(name, "ipv4", "forwarding");
}

static void forward_six(void)
{
    auto_fclose FILE *routes = fopen("/proc/net/ipv6_route", "re");
    char line[256], destination[40], name[IF_NAMESIZE];
    unsigned prefix;

    while (routes && fgets(line, sizeof(line), routes))
        if (sscanf(line, "%39s %x %*s %*x %*s %*x %*x %*x %*x %15s", destination, &prefix, name) ==
                3 &&
            prefix == 0 && strcmp(name, "lo") != 0)
            forward(name, "ipv6", "force_forwarding");
}

static void forward_uplinks(void)
{
    forward_four();
    if (network_plan.has_six)
        forward_six();
}

/* Before Linux 6.17 IPv6 is passed on by all interfaces or none, and a host that passes on takes no
 * more routes from its routers: that is for the operator to choose. */
static int check_forwarding(struct error *err)
{
    auto_close int fd = openat(proc, "sys/net/ipv6/conf/all/forwarding", O_RDONLY | O_CLOEXEC);
    char value = '0';

    if (!network_plan.has_six || access("/proc/sys/net/ipv6/conf/all/force_forwarding", F_OK) == 0)
        return 0;
    if (fd < 0 || read(fd, &value, 1) != 1)
        return error_set_errno(err, ERR_INTERNAL, "EGRESS_RANGE6");
    if (value == '0')
        return error_set(err, ERR_INVALID,
                         "EGRESS_RANGE6: net.ipv6.conf.all.forwarding is 0 on this host");
    return 0;
}

/* What no interface of the namespace is to have, before there is one. */
static int prepare_inside(struct error *err)
{
    if (network_prepare(err) < 0)
        return -1;
    /* Kernels without IPv6 have no such switches. */
    if (access("/proc/sys/net/ipv6", F_OK) == 0 &&
        (write_interface_switch("default", "ipv6", "accept_ra", "0") < 0 ||
         write_interface_switch("default", "ipv6", "disable_ipv6",
                                network_plan.has_six ? "0" : "1") < 0))
        return error_set_errno(err, ERR_INTERNAL, "switches of IPv6");
    return 0;
}

/* Both ends know each other without asking, so nothing but IP passes between them. */
static int add_family(const struct network_range *range, int64_t link, int inside, unsigned inner,
                      unsigned outer, const unsigned char *host_mac,
                      const unsigned char *sandbox_mac)
{
    const struct network_ends ends = network_ends_of(range, link);
    unsigned char prefix = range->first.family == AF_INET ? 30 : 126;

    if (netlink_add_address(outside, outer, &ends.host, prefix) < 0 ||
        netlink_add_neighbour(outside, outer, &ends.sandbox, sandbox_mac) < 0 ||
        netlink_add_address(inside, inner, &ends.sandbox, prefix) < 0 ||
        netlink_add_neighbour(inside, inner, &ends.host, host_mac) < 0)
        return -1;
    return netlink_add_default_route(inside, inner, &ends.host);
}

static int find_inside(int any_socket, unsigned *index)
{
    struct ifreq interface = {.ifr_name = INSIDE};

    if (ioctl(any_socket, SIOCGIFINDEX, &interface) < 0)
        return -1;
    *index = (unsigned)interface.ifr_ifindex;
    return 0;
}

static int connect_ends(int64_t link, const char *name, int inside, unsigned inner,
                        const unsigned char *host_mac, const unsigned char *sandbox_mac)
{
    unsigned outer = if_nametoindex(name);
    uint64_t rate = (uint64_t)settings.egress_rate_mbit * MEGA / BITS_PER_BYTE;

    if (!outer)
        return -1;
    if (access("/proc/sys/net/ipv6", F_OK) == 0 &&
        (write_interface_switch(name, "ipv6", "accept_ra", "0") < 0 ||
         write_interface_switch(name, "ipv6", "disable_ipv6", network_plan.has_six ? "0" : "1") <
             0))
        return -1;
    if (write_interface_switch(name, "ipv4", "forwarding", "1") < 0)
        return -1;
    /* Since Linux 6.17; before, the host must forward everywhere: network_plan.c. */
    if (network_plan.has_six)
        write_interface_switch(name, "ipv6", "force_forwarding", "1");
    /* What the sandbox sends is bounded inside, where its root has no rights over it either. */
    if (rate && (netlink_limit_rate(outside, outer, rate) < 0 ||
                 netlink_limit_rate(inside, inner, rate) < 0))
        return -1;
    if (netlink_set_up(outside, outer) < 0 || netlink_set_up(inside, inner) < 0)
        return -1;
    if (add_family(&network_plan.four, link, inside, inner, outer, host_mac, sandbox_mac) < 0)
        return -1;
    return network_plan.has_six
               ? add_family(&network_plan.six, link, inside, inner, outer, host_mac, sandbox_mac)
               : 0;
}

/* The next number that no interface has. */
static int make_pair(int network, int64_t *link, char name[IF_NAMESIZE],
                     unsigned char host_mac[MAC_LENGTH], unsigned char sandbox_mac[MAC_LENGTH],
                     struct error *err)
{
    for (int64_t tries = 0; tries < network_plan.links; tries++) {
        *link = next_link;
        next_link = (next_link + 1) % network_plan.links;
        snprintf(name, IF_NAMESIZE, NETWORK_PREFIX "%lld", (long long)*link);
        for (size_t i = 0; i < 3; i++)
            host_mac[i + 3] = sandbox_mac[i + 3] =
                (unsigned char)(*link >> (BITS_PER_BYTE * (2 - i)));
        if (netlink_make_pair(outside, name, host_mac, INSIDE, sandbox_mac, network) == 0)
            return 0;
        if (errno != EEXIST)
            return error_set_errno(err, ERR_UNAVAILABLE, "veth");
    }
    return error_set(err, ERR_UNAVAILABLE, "every network of EGRESS_RANGE is in use");
}

/* Safe: nothing of a tenant has a part in it; until the pair is there the namespace is held by this
 * process alone, and all of it goes when it is closed. */
static int make_network(struct error *err)
{
    /* Locally administered. */
    unsigned char host_mac[MAC_LENGTH] = {0x02, 0x76}, sandbox_mac[MAC_LENGTH] = {0x06, 0x76};
    auto_close int network = -1, inside = -1, any_socket = -1;
    int prepared = prepare_inside(err), failure;
    char name[IF_NAMESIZE];
    unsigned inner;
    int64_t link;

    if (prepared == 0) {
        network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        inside = netlink_open();
        any_socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    }
    failure = errno;
    if (setns(home, CLONE_NEWNET) < 0)
        _exit(EXIT_FAILURE);
    if (prepared < 0)
        return -1;
    errno = failure;
    if (network < 0 || inside < 0 || any_socket < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "network namespace");
    if (make_pair(network, &link, name, host_mac, sandbox_mac, err) < 0)
        return -1;
    if (find_inside(any_socket, &inner) < 0 ||
        connect_ends(link, name, inside, inner, host_mac, sandbox_mac) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "%s", name);
    return take_fd(&network);
}

/* --- the process: all of them ---------------------------------------------------------------- */

static void hand_over(int to)
{
    struct error result = {0};
    auto_close int network = -1;

    if (ready_count > 0)
        network = ready[--ready_count];
    else
        network = make_network(&result);
    packet_send(to, &result, sizeof(result), &network, network >= 0, 0);
}

/* Nothing of it is needed, and nothing has changed that the host had before. */
static _Noreturn void end(void)
{
    auto_buffer struct buffer rules = {0};
    struct error error;

    while (ready_count > 0)
        close(ready[--ready_count]);
    for (int i = 0; i < switched_count; i++)
        write_switch(switched[i], "0");
    netlink_remove_address(outside, if_nametoindex("lo"), &network_plan.resolver, 32);
    network_rules_none(&rules);
    _exit(network_rules_write(&rules, &error) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

static _Noreturn void serve(int socket)
{
    struct error error;
    bool failed = false;

    for (;;) {
        struct pollfd event = {.fd = socket, .events = POLLIN};
        bool full = ready_count >= settings.egress_pool;
        int to;
        char byte;

        if (poll(&event, 1, full ? -1 : failed ? PAUSE_MS : 0) <= 0) {
            int made = full ? -1 : make_network(&error);

            failed = !full && made < 0;
            if (made >= 0)
                ready[ready_count++] = made;
            forward_uplinks();
            continue;
        }
        ssize_t length = packet_receive(socket, &byte, 1, &to, 1);
        auto_close int reply = to;
        if (length == 0 || (length < 0 && errno != EINTR))
            _exit(EXIT_SUCCESS); /* the main loop is gone, and the spawner with it */
        if (length == 1 && byte == ASK_END)
            end();
        if (reply >= 0)
            hand_over(reply);
    }
}

/* Rules and names of interfaces are those of the host: two would undo each other's. Names of this
 * kind belong to a network namespace, as they do (unix(7), abstract). Anybody may take one, so only
 * another root's counts; the last supervisor's may be about to end. */
static int be_alone(struct error *err)
{
    static const char name[] = "\0agent-sandbox-egress";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const socklen_t size = offsetof(struct sockaddr_un, sun_path) + sizeof(name) - 1;
    int64_t deadline = clock_ms() + ALONE_MS;
    auto_close int own = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, name, sizeof(name) - 1);
    while (bind(own, (struct sockaddr *)&address, size) < 0 || listen(own, 1) < 0) {
        auto_close int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct ucred peer = {.uid = (uid_t)-1};
        socklen_t length = sizeof(peer);

        if (errno != EADDRINUSE)
            return error_set_errno(err, ERR_INTERNAL, "name of the network");
        if (connect(other, (struct sockaddr *)&address, size) == 0 &&
            getsockopt(other, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid != 0)
            return 0;
        if (clock_ms() >= deadline)
            return error_set(err, ERR_CONFLICT,
                             "another supervisor of this host has it on; 0 for this one");
        poll(NULL, 0, 10);
    }
    take_fd(&own); /* until the process ends */
    return 0;
}

static int set_up(uint16_t port, struct error *err)
{
    static const int kept[] = {CAP_NET_ADMIN, CAP_SYS_ADMIN};
    auto_buffer struct buffer rules = {0};
    int first;

    if (capabilities_keep(kept, COUNT(kept), err) < 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "no_new_privs");
    proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    outside = netlink_open();
    if (proc < 0 || home < 0 || outside < 0)
        return error_set_errno(err, ERR_INTERNAL, "network");
    if (be_alone(err) < 0 || check_forwarding(err) < 0)
        return -1;
    /* Nothing is let through before the rules are there. */
    network_rules_text(&rules, port);
    if (network_rules_write(&rules, err) < 0)
        return -1;
    if (netlink_add_address(outside, if_nametoindex("lo"), &network_plan.resolver, 32) < 0)
        return error_set_errno(err, ERR_INTERNAL, "address of the resolver");
    forward_uplinks();
    first = make_network(err);
    if (first < 0)
        return -1;
    ready[ready_count++] = first;
    return 0;
}

static _Noreturn void run(int socket, uint16_t port)
{
    struct error result = {0};

    prctl(PR_SET_NAME, "network");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The terminal's signals are for the main loop. */
    for (size_t i = 0; i < 3; i++)
        signal((const int[]){SIGINT, SIGTERM, SIGHUP}[i], SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    if (set_up(port, &result) < 0) {
        packet_send(socket, &result, sizeof(result), NULL, 0, 0);
        _exit(EXIT_FAILURE);
    }
    result.kind = ERR_NONE;
    packet_send(socket, &result, sizeof(result), NULL, 0, 0);
    serve(socket);
}

/* --- those who ask --------------------------------------------------------------------------- */

/* Of an earlier supervisor that had EGRESS on, whose sandboxes still run. */
static int cut_off(struct error *err)
{
    struct if_nameindex *all = if_nameindex();
    auto_buffer struct buffer rules = {0};
    bool found = false;

    for (size_t i = 0; all && all[i].if_index; i++)
        found |= strncmp(all[i].if_name, NETWORK_PREFIX, strlen(NETWORK_PREFIX)) == 0;
    if_freenameindex(all);
    if (!found)
        return 0;
    LOG(WARNING, "network_cut_off", V("reason", "EGRESS is off, and sandboxes have a network"));
    network_rules_cut(&rules);
    return network_rules_write(&rules, err);
}

int network_open(struct error *err)
{
    struct error result;
    uint16_t port;
    int sockets[2];

    if (!settings.egress)
        return cut_off(err);
    if (network_dns_open(&port, err) < 0)
        return error_add_context(err, "EGRESS");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    maker = fork();
    if (maker < 0)
        return error_set_errno(err, ERR_INTERNAL, "fork");
    if (maker == 0) {
        close(sockets[0]);
        run(sockets[1], port);
    }
    close(sockets[1]);
    claims = sockets[0];
    if (packet_receive(claims, &result, sizeof(result), NULL, 0) != sizeof(result))
        return error_set(err, ERR_INTERNAL, "EGRESS: the process for networks ended");
    if (result.kind == ERR_NONE)
        return 0;
    *err = result;
    return error_add_context(err, "EGRESS");
}

void network_close(bool whole)
{
    network_dns_close();
    if (maker > 0 && whole && packet_send(claims, &(char){ASK_END}, 1, NULL, 0, 0) == 0) {
        int64_t deadline = clock_ms() + END_MS;

        while (waitpid(maker, NULL, WNOHANG) == 0) {
            if (clock_ms() >= deadline) {
                LOG(ERROR, "network_left_over");
                break;
            }
            poll(NULL, 0, 1);
        }
    } else if (maker > 0) {
        kill(maker, SIGKILL);
        waitpid(maker, NULL, 0);
    }
    maker = 0;
}

pid_t network_pid(void)
{
    return maker;
}

int network_claim(struct error *err)
{
    struct error result;
    int sockets[2], network;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    auto_close int ours = sockets[0], theirs = sockets[1];
    if (claims < 0 || packet_send(claims, &(char){ASK_NETWORK}, 1, &theirs, 1, 0) < 0)
        return error_set(err, ERR_UNAVAILABLE, "no network can be had");
    close(take_fd(&theirs));
    if (packet_receive(ours, &result, sizeof(result), &network, 1) != sizeof(result))
        return error_set(err, ERR_UNAVAILABLE, "no network can be had");
    if (network < 0)
        *err = result;
    return network;
}

int network_enter(int network, struct error *err)
{
    auto_close int before = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    if (before < 0 || setns(network, CLONE_NEWNET) < 0)
        return error_set_errno(err, ERR_INTERNAL, "network namespace");
    return take_fd(&before);
}

/* One that stayed would hold the sandbox's network when it is gone. */
void network_leave(int before)
{
    if (setns(before, CLONE_NEWNET) < 0)
        _exit(EXIT_FAILURE);
}

const char *network_names(void)
{
    static char text[128];

    snprintf(text, sizeof(text), "nameserver %s\noptions timeout:3 attempts:2\n",
             network_text(&network_plan.resolver));
    return text;
}
