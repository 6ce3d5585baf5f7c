/* Landlock: a second fence behind the mounts, the capabilities and the filter (landlock(7)).
 *
 * It takes only what nobody inside needs, so that a walk to the root of the tree is paid by few
 * calls: making devices, ioctl(2) on devices beyond /dev, and what any domain loses: to mount, and
 * to trace, signal or reach by an abstract socket whoever is not in it. Init and all its commands
 * are in the same domain. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/steps.h"

/* Newer than the headers that this is built with. */
enum { ABI_REFER = 2, ABI_IOCTL = 5, ABI_SCOPE = 6, ABI_LOG = 7 };
#define FS_IOCTL_DEV (UINT64_C(1) << 15)
#define SCOPE_ABSTRACT_SOCKETS UINT64_C(1)
#define SCOPE_SIGNALS UINT64_C(2)
#define LOG_SAME_EXEC_OFF 1U
#define LOG_SUBDOMAINS_OFF 4U

struct ruleset {
    uint64_t files, network, scopes;
};

static int allow_beneath(int ruleset, const char *path, uint64_t rights, struct error *err)
{
    auto_close int place = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = place};

    if (place < 0 ||
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "landlock: %s", path);
    return 0;
}

int landlock_restrict(struct containment *containment, struct error *err)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct ruleset rules = {.files = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                                     LANDLOCK_ACCESS_FS_REFER};

    (void)containment;
    /* A kernel without it, or with the first one, in which nothing can be moved between directories
     * (EXDEV), has the other fences. Whatever else goes wrong ends the start. */
    if ((abi < 0 && (errno == ENOSYS || errno == EOPNOTSUPP)) || (abi >= 0 && abi < ABI_REFER))
        return 0;
    if (abi < 0)
        return error_set_errno(err, ERR_INTERNAL, "landlock");
    if (abi >= ABI_IOCTL)
        rules.files |= FS_IOCTL_DEV;
    if (abi >= ABI_SCOPE)
        rules.scopes = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS;
    auto_close int ruleset =
        (int)syscall(SYS_landlock_create_ruleset, &rules,
                     abi >= ABI_SCOPE ? sizeof(rules) : sizeof(rules.files), 0);
    if (ruleset < 0)
        return error_set_errno(err, ERR_INTERNAL, "landlock: rules");
    if (allow_beneath(ruleset, "/", LANDLOCK_ACCESS_FS_REFER, err) < 0 ||
        (abi >= ABI_IOCTL && allow_beneath(ruleset, "/dev", FS_IOCTL_DEV, err) < 0))
        return -1;
    /* What is refused is the tenant's affair: it must not fill the audit log of the host. */
    if (syscall(SYS_landlock_restrict_self, ruleset,
                abi >= ABI_LOG ? LOG_SAME_EXEC_OFF | LOG_SUBDOMAINS_OFF : 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "landlock");
    return 0;
}
