/* The families behind metrics.def: here, so that every room can count. */
#include "common/scope.h"
#include "server/metrics.h"

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
#include "server/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
};

/* `@handlers` stands for the routes, which this room does not know. */
void metrics_open(const char *handlers)
{
    counters_substitute(families, COUNT(families), "@handlers", handlers);
    counters_open(families, COUNT(families));
}
