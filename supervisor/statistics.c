/* What the supervisor counts: see statistics.h. Its only writer is the main loop. */
#include "supervisor/statistics.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/messages.h"
#include "common/scope.h"
#include "supervisor/cgroup.h"
#include "supervisor/connection.h"
#include "supervisor/dispatch.h"
#include "supervisor/exec.h"
#include "supervisor/sandbox.h"

/* Values of the label of `sandboxes`, as metrics.def spells them. */
enum { CREATED, RUNNING, STOPPED, READY };

/* In the order of the label's values: messages that are none come first. */
enum {
    ORDER_UNKNOWN,
#define MESSAGE(number, name, states, descriptors, answer) ORDER_##name,
#include "common/messages.def"
#undef MESSAGE
};

static const int orders[] = {
#define MESSAGE(number, name, states, descriptors, answer) [number] = ORDER_##name,
#include "common/messages.def"
#undef MESSAGE
};

static const char *const operation_names[] = {
    "unknown",
#define MESSAGE(number, name, states, descriptors, answer) #name,
#include "common/messages.def"
#undef MESSAGE
};

static const char outcomes[] = "done|bad_request|unauthenticated|forbidden|not_found|method|"
                               "timeout|conflict|too_large|invalid|rate|internal|upstream|"
                               "unavailable";
_Static_assert(ERR_KINDS == 14, "a word for each kind of error");

static struct counter_family families[] = {
#define COUNTER(metric, text, label_names, label_values) \
    {.name = #metric,                                    \
     .help = text,                                       \
     .type = COUNTER_TOTAL,                              \
     .labels = label_names,                              \
     .values = label_values},
#define GAUGE(metric, text, label_names, label_values) \
    {.name = #metric,                                  \
     .help = text,                                     \
     .type = COUNTER_GAUGE,                            \
     .labels = label_names,                            \
     .values = label_values},
#define HISTOGRAM(metric, text, label_names, label_values, bounds) \
    {.name = #metric,                                              \
     .help = text,                                                 \
     .type = COUNTER_HISTOGRAM,                                    \
     .labels = label_names,                                        \
     .values = label_values,                                       \
     .buckets = bounds},
#include "supervisor/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
};

/* --- counting -------------------------------------------------------------------------------- */

void statistics_open(void)
{
    auto_buffer struct buffer operations = {0};

    for (size_t i = 0; i < COUNT(operation_names); i++)
        buffer_format(&operations, "%s%s", i ? "|" : "", operation_names[i]);
    buffer_add(&operations, "", 1);
    counters_substitute(families, COUNT(families), "@operations", operations.data);
    counters_substitute(families, COUNT(families), "@outcomes", outcomes);
    counters_open(families, COUNT(families));
}

double statistics_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void statistics_count(enum statistic counter, int label)
{
    counter_add(counter, &label, 1);
}

void statistics_observe(enum statistic histogram, int label, double begun)
{
    counter_observe(histogram, &label, statistics_now() - begun);
}

void statistics_answered(uint32_t message, enum error_kind kind, double begun)
{
    const int labels[] = {message < COUNT(orders) ? orders[message] : ORDER_UNKNOWN, (int)kind};

    counter_add(STATISTIC_sandbox_operations_total, labels, 1);
    statistics_observe(STATISTIC_sandbox_operation_seconds, labels[0], begun);
}

int64_t statistics_oom_kills(struct sandbox *box)
{
    int64_t kills = cgroup_oom_kills(box->cgroup);

    if (kills > box->oom_kills) {
        counter_add(STATISTIC_sandbox_oom_kills_total, NULL, kills - box->oom_kills);
        box->oom_kills = kills;
    }
    return kills;
}

/* --- what is, now ---------------------------------------------------------------------------- */

/* Gauges are added to, so what they were is kept. */
static void set(enum statistic gauge, int label, int64_t value)
{
    static int64_t before[STATISTICS][READY + 1];

    counter_add(gauge, &label, value - before[gauge][label]);
    before[gauge][label] = value;
}

static void set_sandboxes(void)
{
    int64_t counts[READY + 1] = {0}, bytes = 0;

    for (const struct sandbox *box = sandbox_first(); box; box = box->next) {
        bytes += box->disk.bytes;
        if (box->spare)
            counts[READY] += box->warm;
        else if (!box->destroyed)
            counts[box->state == SANDBOX_RUNNING   ? RUNNING
                   : box->state == SANDBOX_STOPPED ? STOPPED
                                                   : CREATED]++;
    }
    for (int i = 0; i <= READY; i++)
        set(STATISTIC_sandboxes, i, counts[i]);
    set(STATISTIC_sandbox_disk_bytes, 0, bytes);
    set(STATISTIC_sandbox_commands_running, 0, exec_running());
}

static void set_process(void)
{
    auto_fclose FILE *file = fopen("/proc/self/statm", "re");
    long long pages = 0, files = 0;
    DIR *folder = opendir("/proc/self/fd");

    if (file && fscanf(file, "%*d %lld", &pages) == 1)
        set(STATISTIC_sandbox_supervisor_memory_bytes, 0, pages * sysconf(_SC_PAGESIZE));
    while (folder && readdir(folder))
        files++;
    if (folder)
        closedir(folder);
    if (files > 3)
        set(STATISTIC_sandbox_supervisor_open_fds, 0, files - 3); /* ".", ".." and this one */
}

int operation_statistics(struct request *request, struct error *err)
{
    static const struct nothing nothing;
    auto_buffer struct buffer text = {0};
    auto_close int file = memfd_create("statistics", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (file < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "statistics");
    set_sandboxes();
    set_process();
    counters_text(&text);
    if (write(file, text.data, text.length) != (ssize_t)text.length ||
        fcntl(file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "statistics");
    connection_answer(request->connection, &schema_nothing, &nothing, file);
    return 0;
}
