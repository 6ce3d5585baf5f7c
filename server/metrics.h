/* The numbers of metrics.def: counter_add(METRIC_streams_open, NULL, 1). */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "common/counters.h"

enum metric {
#define COUNTER(name, help, labels, values) METRIC_##name,
#define GAUGE(name, help, labels, values) METRIC_##name,
#define HISTOGRAM(name, help, labels, values, buckets) METRIC_##name,
#include "server/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
    METRICS
};

/* Map the counters for metrics.def; once, in the master. `handlers` is the list of values ("a|b|c")
 * of every label named `handler`. */
void metrics_open(const char *handlers);

#endif
