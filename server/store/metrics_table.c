/* The families behind metrics.def: here, so that every room can count. */
#include <string.h>

#include "common/arena.h"
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

/* `@handlers` among a family's values stands for the routes, which this room does not know. */
void metrics_open(const char *handlers)
{
    static const char mark[] = "@handlers";

    for (size_t i = 0; i < COUNT(families); i++) {
        const char *at = families[i].values ? strstr(families[i].values, mark) : NULL;
        struct buffer values = {0}; /* kept as long as the process */

        if (!at)
            continue;
        buffer_add(&values, families[i].values, (size_t)(at - families[i].values));
        buffer_text(&values, handlers);
        buffer_text(&values, at + sizeof(mark) - 1);
        families[i].values = values.data;
    }
    counters_open(families, COUNT(families));
}
