/* Counters of every process, and what the processes use, in the Prometheus text format. */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include "api/handlers.h"
#include "common/counters.h"
#include "common/scope.h"
#include "run/sandbox.h"

/* --- what the processes use
 * --------------------------------------------------------------------------------------------------
 */

struct usage {
    uint64_t virtual_bytes, resident_bytes;
    double cpu_seconds;
    double start_seconds; /* since the epoch, of the oldest */
    int64_t open_fds;
};

static bool read_file(const char *path, char *into, size_t size)
{
    auto_fclose FILE *file = fopen(path, "re");
    size_t length = file ? fread(into, 1, size - 1, file) : 0;

    into[length] = '\0';
    return length > 0;
}

static int64_t count_fds(pid_t pid)
{
    char path[64];
    int64_t count = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    folder = opendir(path);
    if (!folder)
        return 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count > 2 ? count - 2 : 0; /* "." and ".." */
}

static double boot_seconds(void)
{
    char text[16 * 1024];
    const char *line = read_file("/proc/stat", text, sizeof(text)) ? strstr(text, "btime ") : NULL;

    return line ? strtod(line + strlen("btime "), NULL) : 0;
}

/* Add what /proc/PID/stat says (proc(5)); the name in it may hold anything, so fields are counted
 * from its end. */
static void add_process(struct usage *usage, pid_t pid)
{
    double ticks = (double)sysconf(_SC_CLK_TCK), start;
    unsigned long user, kernel, virtual_bytes;
    long dead_user, dead_kernel; /* of its children that have ended */
    unsigned long long begin;
    char path[64], text[4096];
    const char *at;
    long pages;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    at = read_file(path, text, sizeof(text)) ? strrchr(text, ')') : NULL;
    if (!at ||
        sscanf(at + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld %*d %*d %*d %*d %llu "
               "%lu %ld",
               &user, &kernel, &dead_user, &dead_kernel, &begin, &virtual_bytes, &pages) != 7)
        return;
    start = boot_seconds() + (double)begin / ticks;
    usage->cpu_seconds += ((double)(user + kernel) + (double)(dead_user + dead_kernel)) / ticks;
    usage->virtual_bytes += virtual_bytes;
    usage->resident_bytes += (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (usage->start_seconds <= 0 || start < usage->start_seconds)
        usage->start_seconds = start;
    usage->open_fds += count_fds(pid);
}

static bool is_same_program(pid_t pid)
{
    char path[64], theirs[PATH_MAX], ours[PATH_MAX];
    ssize_t length, our_length = readlink("/proc/self/exe", ours, sizeof(ours));

    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    length = readlink(path, theirs, sizeof(theirs));
    return length > 0 && length == our_length && memcmp(theirs, ours, (size_t)length) == 0;
}

/* The master and its children: every process of the server. One that is started otherwise tells of
 * itself alone. */
static struct usage server_usage(void)
{
    struct usage usage = {0};
    pid_t master = getppid();
    char path[64], children[16 * 1024];
    char *at = children, *end;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)master, (int)master);
    if (!is_same_program(master) || !read_file(path, children, sizeof(children))) {
        add_process(&usage, getpid());
        return usage;
    }
    add_process(&usage, master);
    for (;; at = end) {
        pid_t child = (pid_t)strtol(at, &end, 10);

        if (end == at)
            break;
        add_process(&usage, child);
    }
    return usage;
}

static void add_family(struct buffer *out, const char *name, const char *type, const char *help)
{
    buffer_format(out, "# HELP %s %s\n# TYPE %s %s\n%s ", name, help, name, type, name);
}

static void add_usage(struct buffer *out)
{
    struct usage usage = server_usage();
    struct rlimit files;

    add_family(out, "process_virtual_memory_bytes", "gauge",
               "Virtual memory of the server's processes");
    buffer_format(out, "%" PRIu64 "\n", usage.virtual_bytes);
    add_family(out, "process_resident_memory_bytes", "gauge",
               "Resident memory of the server's processes");
    buffer_format(out, "%" PRIu64 "\n", usage.resident_bytes);
    add_family(out, "process_start_time_seconds", "gauge",
               "When the server was started, since the epoch");
    buffer_format(out, "%.2f\n", usage.start_seconds);
    add_family(out, "process_cpu_seconds_total", "counter",
               "Processor time of the server's processes");
    buffer_format(out, "%.2f\n", usage.cpu_seconds);
    add_family(out, "process_open_fds", "gauge", "Open descriptors of the server's processes");
    buffer_format(out, "%" PRId64 "\n", usage.open_fds);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        add_family(out, "process_max_fds", "gauge", "Descriptors that each process may open");
        buffer_format(out, "%" PRIu64 "\n", (uint64_t)files.rlim_cur);
    }
}

/* A supervisor that is away is told by a sample, not by an error: the rest still counts. */
static void add_supervisor(struct buffer *out, struct sandbox_link *link)
{
    auto_buffer struct buffer text = {0};
    struct error error;
    bool up = sandbox_statistics(link, &text, &error) == 0;

    add_family(out, "sandbox_supervisor_up", "gauge",
               "Whether the supervisor answered this scrape");
    buffer_format(out, "%d\n", up);
    if (up)
        buffer_add(out, text.data, text.length);
}

int metrics_show(struct request *req, struct response *res, struct error *err)
{
    (void)err;
    res->status = 200;
    res->content_type = "text/plain; version=1.0.0; charset=utf-8";
    counters_text(&res->body);
    add_usage(&res->body);
    add_supervisor(&res->body, req->supervisor);
    return 0;
}
