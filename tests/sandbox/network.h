/* What tests of the network have in common: a network namespace of their own, and netprobe. */
#ifndef TESTS_SANDBOX_NETWORK_H
#define TESTS_SANDBOX_NETWORK_H

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "tests/sandbox/fixture.h"

/* A namespace of its own, so that what the test does to its network is nobody else's. */
static inline void enter_own_network(void)
{
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    auto_close int fd = -1;

    if (unshare(CLONE_NEWNET) < 0)
        fixture_skip("no network namespace can be made");
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (ioctl(fd, SIOCSIFFLAGS, &loopback) < 0)
        fixture_skip("no loopback");
}

static inline void install_netprobe(void)
{
    if (fixture_shell("cp %s/tests/sandbox/netprobe %s/images/base/", fixture_build,
                      fixture_root) != 0)
        fixture_skip("netprobe is not built");
}

/* A program that goes on when the command that began it has ended. */
static inline void background(const char *id, const char *command)
{
    char line[256];

    snprintf(line, sizeof(line), "setsid %s >/dev/null 2>&1 </dev/null &", command);
    ck_prints(id, line, "");
}

#endif
