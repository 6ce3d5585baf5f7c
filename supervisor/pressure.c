/* Memory that the kernel counts for nobody: see pressure.h. */
#include "supervisor/pressure.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/cgroup.h"
#include "supervisor/loop.h"
#include "supervisor/sandbox.h"
#include "supervisor/supervisor.h"

enum {
    CALM_MS = 1000, /* half a GB can be gone by then */
    SHORT_MS = 200,
    RESERVE_SHARE = 16, /* of all memory */
    BLAMED_BYTES = 32 << 20,
};

static struct timer next_look;
static int meminfo = -1;

static bool read_kb(const char *text, const char *name, int64_t *kb)
{
    const char *found = strstr(text, name);
    long long value;

    if (!found || sscanf(found + strlen(name), " %lld", &value) != 1)
        return false;
    *kb = value;
    return true;
}

static bool machine_is_short(void)
{
    char text[1024];
    int64_t total, available, reserve = settings.memory_reserve_mb << 10;
    ssize_t length = pread(meminfo, text, sizeof(text) - 1, 0);
    if (length <= 0)
        return false;
    text[length] = '\0';
    if (!read_kb(text, "MemTotal:", &total) || !read_kb(text, "MemAvailable:", &available))
        return false;
    return available < (reserve ? reserve : total / RESERVE_SHARE);
}

/* Safe: only numbers are taken from the table, which is the kernel's. That of another process,
 * should init have ended and its pid be in use again, is told apart by the pidfd. */
static int64_t bytes_waiting(const struct sandbox *box)
{
    struct pollfd process = {.fd = box->process.fd, .events = POLLIN};
    char path[64], line[256];
    int64_t sum = 0;

    snprintf(path, sizeof(path), "/proc/%d/net/netlink", box->pid);
    auto_fclose FILE *file = fopen(path, "re");
    if (!file || poll(&process, 1, 0) != 0)
        return 0;
    while (fgets(line, sizeof(line), file)) {
        long long received;

        /* socket, protocol, port, groups, received */
        if (sscanf(line, "%*s %*d %*u %*x %lld", &received) == 1 && received > 0)
            sum += received;
    }
    return sum;
}

static void end_the_worst(void)
{
    struct sandbox *worst = NULL;
    int64_t most = BLAMED_BYTES;

    for (struct sandbox *box = sandbox_first(); box; box = box->next) {
        int64_t bytes =
            box->state == SANDBOX_RUNNING && box->process.fd >= 0 ? bytes_waiting(box) : 0;

        if (bytes >= most) {
            most = bytes;
            worst = box;
        }
    }
    if (!worst)
        return;
    LOG(WARNING, "memory_taken", V("sandbox", (const char *)worst->id), V("bytes", (long)most),
        V("reason", "the machine is short of memory, and this is counted for nobody"));
    cgroup_kill(worst->cgroup); /* the pidfd tells the rest */
}

static void look(struct timer *timer)
{
    bool is_short = machine_is_short();

    if (is_short)
        end_the_worst();
    loop_set(timer, is_short ? SHORT_MS : CALM_MS, look);
}

void pressure_watch(void)
{
    meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    loop_set(&next_look, CALM_MS, look);
}
