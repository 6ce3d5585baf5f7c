/* Counters and histograms in memory that all processes of the server share, made by the master
 * before its first fork. A process that dies takes nothing with it, so no counter goes down.
 *
 * The rows come from the program's metrics.def:
 *     COUNTER(jobs_total, "Jobs finished", "kind,outcome", "boot|turn,done|failed|dead")
 *     GAUGE(streams_open, "Followers connected now", NULL, NULL)
 *     HISTOGRAM(boot_seconds, "Session boot", NULL, NULL, "0.01 0.05 0.1 0.5 1 5 30")
 * Labels are closed sets, so a counter is an index into an array. */
#ifndef COMMON_COUNTERS_H
#define COMMON_COUNTERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/arena.h"

enum counter_type { COUNTER_TOTAL, COUNTER_GAUGE, COUNTER_HISTOGRAM };

struct counter_family {
    const char *name;
    const char *help;
    enum counter_type type;
    const char *labels;  /* "handler,method", or NULL */
    const char *values;  /* per label its values: "a|b,GET|POST"; samples: their product */
    const char *buckets; /* histograms: upper bounds, ascending, without +Inf */
    char *made;          /* `values`, where they were substituted; else NULL */
};

/* Put `list` ("a|b|c") where the families' values have `mark` ("@handlers"): for what another table
 * names. Before counters_open; what it makes is kept as long as the process. */
void counters_substitute(struct counter_family *families, size_t count, const char *mark,
                         const char *list);
/* Map the memory for `count` families, which must live as long as the process. Once, before any
 * fork; aborts when it can't. Before it nothing is counted. */
void counters_open(const struct counter_family *families, size_t count);
/* What this process adds to gauges from now on is its own share of them. Once in each child, after
 * the fork. */
void counters_enter(void);
/* A process has ended: its share of every gauge is taken out. Called by who waited for it. */
void counters_leave(pid_t pid);
/* Add to the sample at `labels` (indexes into each label's values, in order; -1 and out of range
 * are dropped, and so is a negative amount of a COUNTER). `labels` may be NULL for a family
 * without. */
void counter_add(size_t family, const int *labels, int64_t amount);
/* One observation of a histogram, in its unit. */
void counter_observe(size_t family, const int *labels, double value);
/* The index of `value` among the values of a family's label, or -1. */
int counter_label(size_t family, size_t label, const char *value);
/* Everything in the Prometheus text format 0.0.4. Samples that were never touched are left out, but
 * for families without labels. */
void counters_text(struct buffer *out);

#endif
