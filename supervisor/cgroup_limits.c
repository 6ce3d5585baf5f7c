/* The limits of a sandbox's cgroups, one file a row: see cgroup_limits.h. */
#include "supervisor/cgroup_limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/scope.h"

enum { PERIOD_US = 100000, SOCKET_SHARE = 8, WEIGHT_DEFAULT = 100, SHARES_DEFAULT = 1024 };

/* What goes into the file; nothing: it stays as it is. */
typedef void limit_text(const struct limits *limits, bool unified, char *text, size_t size);

static void number(char *text, size_t size, int64_t value)
{
    snprintf(text, size, "%lld", (long long)value);
}

static void memory(const struct limits *limits, bool unified, char *text, size_t size)
{
    (void)unified;
    number(text, size, limits->memory_bytes);
}

/* v1 bounds both together. */
static void swap(const struct limits *limits, bool unified, char *text, size_t size)
{
    number(text, size, limits->swap_bytes + (unified ? 0 : limits->memory_bytes));
}

static void swappiness(const struct limits *limits, bool unified, char *text, size_t size)
{
    (void)unified;
    if (!limits->swap_bytes)
        number(text, size, 0);
}

static void sockets(const struct limits *limits, bool unified, char *text, size_t size)
{
    (void)unified;
    number(text, size, limits->memory_bytes / SOCKET_SHARE);
}

static void oom_group(const struct limits *limits, bool unified, char *text, size_t size)
{
    (void)unified;
    number(text, size, limits->oom_group);
}

static void pids(const struct limits *limits, bool unified, char *text, size_t size)
{
    (void)unified;
    number(text, size, limits->pids);
}

static void cpu(const struct limits *limits, bool unified, char *text, size_t size)
{
    snprintf(text, size, unified ? "%lld %d" : "%lld",
             (long long)limits->cpu_percent * (PERIOD_US / 100), PERIOD_US);
}

static void weight(const struct limits *limits, bool unified, char *text, size_t size)
{
    number(text, size,
           unified ? limits->cpu_weight : limits->cpu_weight * SHARES_DEFAULT / WEIGHT_DEFAULT);
}

static const struct {
    unsigned controller;
    const char *v2, *v1; /* NULL: there is none */
    limit_text *text;
    bool may_lack; /* kernels are built without it, or started so */
} rows[] = {
    {CONTROLLER_MEMORY, "memory.max", "memory.limit_in_bytes", memory},
    {CONTROLLER_MEMORY, "memory.swap.max", "memory.memsw.limit_in_bytes", swap, true},
    {CONTROLLER_MEMORY, NULL, "memory.swappiness", swappiness, true},
    /* v1 does not count the buffers of sockets as memory: they have a limit of their own, where it
     * exists, and none unless it is set. */
    {CONTROLLER_MEMORY, NULL, "memory.kmem.tcp.limit_in_bytes", sockets, true},
    {CONTROLLER_MEMORY, "memory.oom.group", NULL, oom_group},
    {CONTROLLER_PIDS, "pids.max", "pids.max", pids},
    {CONTROLLER_CPU, "cpu.max", "cpu.cfs_quota_us", cpu},
    {CONTROLLER_CPU, "cpu.weight", "cpu.shares", weight},
};

static int file_write(const char *folder, const char *name, const char *text, bool may_lack,
                      struct error *err)
{
    char path[PATH_MAX];
    size_t length = strlen(text);

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && may_lack)
        return 0;
    if (fd < 0 || write(fd, text, length) != (ssize_t)length)
        return error_set_errno(err, ERR_INTERNAL, "write %s to %s", text, path);
    return 0;
}

int cgroup_limits_write(const char *folder, unsigned controllers, bool unified,
                        const struct limits *limits, struct error *err)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *name = unified ? rows[i].v2 : rows[i].v1;
        char text[64] = "";

        if (!(controllers & rows[i].controller) || !name)
            continue;
        rows[i].text(limits, unified, text, sizeof(text));
        if (text[0] && file_write(folder, name, text, rows[i].may_lack, err) < 0)
            return -1;
    }
    return 0;
}

static bool ends_in(const char *name, const char *ending)
{
    size_t length = strlen(name), tail = strlen(ending);

    return length >= tail && strcmp(name + length - tail, ending) == 0;
}

int cgroup_limits_forbid_huge_pages(const char *folder, bool unified, struct error *err)
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    int result = 0;

    if (!directory)
        return error_set_errno(err, ERR_INTERNAL, "%s", folder);
    /* One for each size that the kernel has, and one each for what is reserved. */
    while (result == 0 && (entry = readdir(directory)))
        if (strncmp(entry->d_name, "hugetlb.", strlen("hugetlb.")) == 0 &&
            ends_in(entry->d_name, unified ? ".max" : ".limit_in_bytes"))
            result = file_write(folder, entry->d_name, "0", false, err);
    closedir(directory);
    return result;
}
