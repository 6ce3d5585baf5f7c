/* What the supervisor counts (metrics.def), and the message that asks for it. */
#ifndef SUPERVISOR_STATISTICS_H
#define SUPERVISOR_STATISTICS_H

#include <stdint.h>

#include "common/counters.h"
#include "common/error.h"

struct sandbox;

enum statistic {
#define COUNTER(name, help, labels, values) STATISTIC_##name,
#define GAUGE(name, help, labels, values) STATISTIC_##name,
#define HISTOGRAM(name, help, labels, values, buckets) STATISTIC_##name,
#include "supervisor/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
    STATISTICS
};

/* As metrics.def spells them, in its order. */
enum start_way { START_COLD, START_CLAIMED, START_AHEAD };
enum recovery { RECOVERED_ADOPTED, RECOVERED_ENDED, RECOVERED_FOLDER, RECOVERED_CGROUP };

/* Begin to count; after the fork of what shall not share it. */
void statistics_open(void);
/* Seconds of a clock that no change of the date moves. */
double statistics_now(void);
/* One more of a counter whose label, if it has one, has that index. */
void statistics_count(enum statistic counter, int label);
/* The time since `begun` into a histogram. */
void statistics_observe(enum statistic histogram, int label, double begun);
/* A message was answered with that kind of error, or ERR_NONE. */
void statistics_answered(uint32_t message, enum error_kind kind, double begun);
/* Processes of the running sandbox that the kernel ended for want of memory; those that are new are
 * counted. */
int64_t statistics_oom_kills(struct sandbox *box);

#endif
