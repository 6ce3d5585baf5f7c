/* What a sandbox uses: see usage.h. */
#include "supervisor/usage.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/btrfs.h"
#include "common/scope.h"
#include "supervisor/cgroup.h"
#include "supervisor/cgroup_limits.h"
#include "supervisor/dispatch.h"
#include "supervisor/sandbox.h"
#include "supervisor/statistics.h"

/* A limit that no machine reaches is none. */
#define ENDLESS (INT64_C(1) << 60)

static const struct {
    unsigned controller; /* 0: of every cgroup of version 2 */
    const char *unified, *old;
    const char *key; /* of the line that is meant; NULL: the file is the number */
    size_t offset;
} numbers[] = {
    {CONTROLLER_MEMORY, "memory.current", "memory.usage_in_bytes", NULL,
     offsetof(struct sandbox_usage, memory_bytes)},
    {CONTROLLER_MEMORY, "memory.peak", "memory.max_usage_in_bytes", NULL,
     offsetof(struct sandbox_usage, memory_peak_bytes)},
    {CONTROLLER_MEMORY, "memory.max", "memory.limit_in_bytes", NULL,
     offsetof(struct sandbox_usage, memory_limit_bytes)},
    {CONTROLLER_PIDS, "pids.current", "pids.current", NULL, offsetof(struct sandbox_usage, pids)},
    {CONTROLLER_PIDS, "pids.max", "pids.max", NULL, offsetof(struct sandbox_usage, pids_limit)},
    {0, "cpu.stat", NULL, "usage_usec ", offsetof(struct sandbox_usage, cpu_us)},
};

static int64_t number_of(const char *text, const char *key)
{
    const char *at = key ? strstr(text, key) : text;
    int64_t number = at ? strtoll(at + (key ? strlen(key) : 0), NULL, 10) : 0;

    return number >= ENDLESS ? 0 : number; /* "max" is 0, too */
}

void usage_read_cgroups(const char *cgroup, struct sandbox_usage *usage)
{
    char text[1024];

    for (size_t i = 0; i < COUNT(numbers); i++) {
        int64_t *number = (int64_t *)(void *)((char *)usage + numbers[i].offset);

        *number = cgroup_read(cgroup, numbers[i].controller, numbers[i].unified, numbers[i].old,
                              text, sizeof(text))
                      ? number_of(text, numbers[i].key)
                      : 0;
    }
}

/* Each disk but a plain one is a file system of its own, which counts by itself. */
static int read_disk(const struct sandbox *box, struct sandbox_usage *usage, struct error *err)
{
    struct statvfs status;

    usage->disk_bytes = usage->disk_inodes = -1;
    if (box->disk.kind == STORAGE_PLAIN)
        return 0;
    auto_close int workspace = sandbox_open_workspace(box->id, err);
    if (workspace < 0)
        return -1;
    if (box->disk.kind == STORAGE_REFLINK) {
        btrfs_usage(workspace, &usage->disk_bytes, &usage->disk_bytes_limit);
        return 0;
    }
    if (fstatvfs(workspace, &status) < 0)
        return error_set_errno(err, ERR_INTERNAL, "disk of the sandbox");
    usage->disk_bytes = (int64_t)((status.f_blocks - status.f_bfree) * status.f_frsize);
    usage->disk_bytes_limit = (int64_t)(status.f_blocks * status.f_frsize);
    usage->disk_inodes = (int64_t)(status.f_files - status.f_ffree);
    usage->disk_inodes_limit = (int64_t)status.f_files;
    return 0;
}

int operation_resources(struct request *request, struct error *err)
{
    struct sandbox *box = request->box;
    struct sandbox_usage usage = {0};

    if (read_disk(box, &usage, err) < 0)
        return -1;
    if (box->state == SANDBOX_RUNNING) {
        usage_read_cgroups(box->cgroup, &usage);
        usage.oom_kills = statistics_oom_kills(box);
    }
    connection_answer(request->connection, &schema_sandbox_usage, &usage, -1);
    return 0;
}
