/* Identity: root inside is nobody outside. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/packet.h"
#include "supervisor/steps.h"

/* Only the process itself may open its user namespace without CAP_SYS_PTRACE, since the namespace's
 * owner is an id that nobody else has. The worker answers when it has written the id maps; one that
 * died has closed its end. */
static int map_ids(int report, struct error *err)
{
    auto_close int userns = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    char mapped;

    if (userns < 0 || packet_send(report, "", 1, &userns, 1, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "user namespace");
    if (packet_receive(report, &mapped, 1, NULL, 0) != 1)
        return error_set(err, ERR_INTERNAL, "the spawner is gone");
    return 0;
}

/* The cgroup namespace comes now, since its root is where the
 * process is: earlier, and /proc/self/cgroup would show the host's paths. */
int userns_enter(struct containment *containment, struct error *err)
{
    static const char no_domain[] = "(none)"; /* a copy of the host's, till now */

    if (map_ids(containment->report, err) < 0)
        return -1;
    if (unshare(CLONE_NEWCGROUP) < 0)
        return error_set_errno(err, ERR_INTERNAL, "unshare cgroup namespace");
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "setresuid");
    if (setsid() < 0 && errno != EPERM)
        return error_set_errno(err, ERR_INTERNAL, "setsid");
    /* Keyrings have no namespace: a session keyring of its own, before keyctl(2) is refused.
     * Kernels without keys need none. */
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
        return error_set_errno(err, ERR_INTERNAL, "session keyring");
    if (sethostname(containment->hostname, strlen(containment->hostname)) < 0 ||
        setdomainname(no_domain, strlen(no_domain)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "sethostname");
    return 0;
}

/* Half of all privilege escalations start in a user namespace. The filter refuses them too; this
 * holds without it. */
int userns_forbid(struct containment *containment, struct error *err)
{
    auto_close int fd =
        openat(containment->proc, "sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "0", 1) != 1)
        return error_set_errno(err, ERR_INTERNAL, "max_user_namespaces");
    return 0;
}
