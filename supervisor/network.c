/* Network: a namespace with nothing but loopback: see network.h. */
#include "supervisor/network.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/steps.h"
#include "supervisor/supervisor.h"

/* So that no capability is needed for what programs expect of root and users alike. The second
 * names groups as the writer sees them (icmp(7)): outside, all that any sandbox has. */
static const struct {
    const char *path, *inside, *outside;
} switches[] = {
    {"sys/net/ipv4/ip_unprivileged_port_start", "0", "0"},
    {"sys/net/ipv4/ping_group_range", "0 65534", "0 2147483647"},
};

static int set_up(int proc, bool outside, struct error *err)
{
    auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq loopback = {.ifr_name = "lo"};

    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &loopback) < 0)
        return error_set_errno(err, ERR_INTERNAL, "loopback");
    loopback.ifr_flags = (short)(loopback.ifr_flags | IFF_UP | IFF_RUNNING);
    if (ioctl(fd, SIOCSIFFLAGS, &loopback) < 0)
        return error_set_errno(err, ERR_INTERNAL, "loopback up");
    for (size_t i = 0; i < COUNT(switches); i++) {
        const char *value = outside ? switches[i].outside : switches[i].inside;
        auto_close int file = openat(proc, switches[i].path, O_WRONLY | O_CLOEXEC);
        size_t length = strlen(value);

        if (file < 0 || write(file, value, length) != (ssize_t)length)
            return error_set_errno(err, ERR_INTERNAL, "%s", switches[i].path);
    }
    return 0;
}

bool network_pings_ahead(void)
{
    return settings.id_base + (settings.sandboxes_max + 1) * ID_RANGE <= INT32_MAX;
}

int network_prepare(struct error *err)
{
    static int proc = -1;

    if (!capabilities_have(CAP_NET_ADMIN))
        return error_set(err, ERR_INTERNAL, "no right to make network namespaces ahead");
    if (proc < 0 && (proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "/proc");
    /* Safe: the process has no use for the network, and leaves nothing behind in the old one. */
    if (unshare(CLONE_NEWNET) < 0)
        return error_set_errno(err, ERR_INTERNAL, "network namespace");
    return set_up(proc, true, err);
}

int network_isolate(struct containment *containment, struct error *err)
{
    return containment->network_ready ? 0 : set_up(containment->proc, false, err);
}
