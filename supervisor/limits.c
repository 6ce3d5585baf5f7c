/* Bounds on what a process may hold: the sandbox's cgroups, and per-process limits (setrlimit(2)).
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/steps.h"

enum { WEIGHT = 100, OPEN_FILES = 16384, OPEN_FILES_MIN = 32, OPEN_FILES_SOFT = 1024, SCORE = 500 };

static const struct {
    int resource;
    const char *name;
    rlim_t soft, hard;
} fixed[] = {
    /* Not 0: that keeps files from being written, but not a crash handler of the host from being
       fed (core(5)). */
    {RLIMIT_CORE, "core", 1, 1},
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
    const rlim_t pids = (rlim_t)containment->limits->pids;
    const rlim_t files = (rlim_t)containment->limits->open_files;
    const struct rlimit processes = {pids, pids};
    /* More by default breaks programs that close all that they might have (select(2)). */
    const struct rlimit open = {files < OPEN_FILES_SOFT ? files : OPEN_FILES_SOFT, files};

    for (size_t i = 0; i < COUNT(fixed); i++)
        if (limit(fixed[i].resource, fixed[i].name, (struct rlimit){fixed[i].soft, fixed[i].hard},
                  err) < 0)
            return -1;
    if (limit(RLIMIT_NOFILE, "nofile", open, err) < 0)
        return -1;
    /* For each user inside; for all of them together it is the pids controller. */
    return limit(RLIMIT_NPROC, "nproc", processes, err);
}

static int64_t or_usual(int64_t asked, int64_t usual)
{
    return asked ? asked : usual;
}

int limits_of(const struct start *start, struct limits *limits, struct error *err)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return error_set_errno(err, ERR_INTERNAL, "nofile");
    if (start->open_files && start->open_files < OPEN_FILES_MIN)
        return error_set(err, ERR_BAD_REQUEST, "open_files: nothing runs with less than %d",
                         OPEN_FILES_MIN);
    if (start->open_files > (int64_t)files.rlim_max)
        return error_set(err, ERR_BAD_REQUEST,
                         "open_files: a process of this host has at most %lld (RLIMIT_NOFILE of "
                         "the supervisor)",
                         (long long)files.rlim_max);
    if (start->oom_score && start->oom_score < LIMITS_INIT_SCORE)
        return error_set(err, ERR_BAD_REQUEST, "oom_score: init has %d, and goes last",
                         LIMITS_INIT_SCORE);
    /* Nobody is to believe that he has it. */
    if (start->oom_group && !cgroup_memory_is_unified())
        return error_set(err, ERR_BAD_REQUEST,
                         "oom_group: the memory controller of this host is not of cgroups 2");
    *limits = (struct limits){
        .memory_bytes = start->memory_bytes,
        .swap_bytes = start->swap_bytes,
        .oom_group = start->oom_group,
        .pids = start->pids,
        .cpu_percent = start->cpu_percent,
        .cpu_weight = or_usual(start->cpu_weight, WEIGHT),
        .open_files = or_usual(start->open_files, OPEN_FILES),
        .tmp_bytes = start->tmp_bytes,
        .nice = start->nice,
        .oom_score = or_usual(start->oom_score, SCORE),
    };
    return 0;
}
