/* Bounds on what a process may hold: the sandbox's cgroups, and per-process limits (setrlimit(2)).
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/steps.h"

static const struct {
    int resource;
    const char *name;
    rlim_t soft, hard;
} limits[] = {
    /* Not 0: that keeps files from being written, but not a crash handler of the host from being
       fed (core(5)). */
    {RLIMIT_CORE, "core", 1, 1},
    {RLIMIT_NOFILE, "nofile", 1024, 16384},
    {RLIMIT_MEMLOCK, "memlock", 8 << 20, 8 << 20},
    {RLIMIT_MSGQUEUE, "msgqueue", 819200, 819200},
    {RLIMIT_SIGPENDING, "sigpending", 4096, 4096},
    {RLIMIT_RTPRIO, "rtprio", 0, 0},
    {RLIMIT_NICE, "nice", 0, 0},
};

/* v1 is joined by the process itself; it entered v2 when it was cloned. The files were opened by
 * the supervisor, whose right counts. */
int limits_join(struct containment *containment, struct error *err)
{
    for (size_t i = 0; i < containment->cgroups->count; i++)
        if (write(containment->cgroups->tasks[i], "0", 1) != 1)
            return error_set_errno(err, ERR_INTERNAL, "join cgroup");
    return 0;
}

static int limit(int resource, const char *name, struct rlimit wanted, struct error *err)
{
    struct rlimit now;

    if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", name);
    if (wanted.rlim_max > now.rlim_max)
        wanted.rlim_max = now.rlim_max;
    if (wanted.rlim_cur > wanted.rlim_max)
        wanted.rlim_cur = wanted.rlim_max;
    if (setrlimit((__rlimit_resource_t)resource, &wanted) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", name);
    return 0;
}

int limits_apply(struct containment *containment, struct error *err)
{
    const struct rlimit processes = {(rlim_t)containment->pids, (rlim_t)containment->pids};

    for (size_t i = 0; i < COUNT(limits); i++)
        if (limit(limits[i].resource, limits[i].name,
                  (struct rlimit){limits[i].soft, limits[i].hard}, err) < 0)
            return -1;
    /* For each user inside; for all of them together it is the pids controller. */
    return limit(RLIMIT_NPROC, "nproc", processes, err);
}
