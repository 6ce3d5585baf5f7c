/* Network: a namespace with nothing but loopback. */
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/steps.h"

/* So that no capability is needed for what programs expect of root and users alike. */
static const struct {
    const char *path, *value;
} switches[] = {
    {"sys/net/ipv4/ip_unprivileged_port_start", "0"},
    {"sys/net/ipv4/ping_group_range", "0 65534"},
};

int network_isolate(struct containment *containment, struct error *err)
{
    auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq loopback = {.ifr_name = "lo"};

    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &loopback) < 0)
        return error_set_errno(err, ERR_INTERNAL, "loopback");
    loopback.ifr_flags = (short)(loopback.ifr_flags | IFF_UP | IFF_RUNNING);
    if (ioctl(fd, SIOCSIFFLAGS, &loopback) < 0)
        return error_set_errno(err, ERR_INTERNAL, "loopback up");
    for (size_t i = 0; i < COUNT(switches); i++) {
        auto_close int file = openat(containment->proc, switches[i].path, O_WRONLY | O_CLOEXEC);
        size_t length = strlen(switches[i].value);

        if (file < 0 || write(file, switches[i].value, length) != (ssize_t)length)
            return error_set_errno(err, ERR_INTERNAL, "%s", switches[i].path);
    }
    return 0;
}
