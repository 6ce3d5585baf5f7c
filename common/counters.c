/* Counters and histograms in shared memory: see counters.h. */
#include "common/counters.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/scope.h"

enum { LABELS_MAX = 4, BUCKETS_MAX = 64, SHARES = 512 };
static const size_t cells_max = (size_t)8 << 20;

typedef _Atomic(uint64_t) cell;

/* Names and values, taken apart once. */
struct words {
    char *text; /* NULs where the separators were */
    const char **items;
    size_t count;
};

/* The samples of a family lie one behind the other. Each begins with a cell that says whether it
 * was ever touched; then its value, for a gauge one value a process (so that what a dead process
 * had added can be taken out), or for a histogram the sum (a double's bits) and one count a bucket,
 * the last of which is +Inf. */
struct layout {
    const struct counter_family *family;
    struct words labels;
    struct words values[LABELS_MAX];
    struct words buckets;
    double bounds[BUCKETS_MAX];
    size_t first, stride, samples; /* in cells, in cells, samples */
};

static struct layout *layouts;
static size_t layout_count;
static cell *cells;
static cell *owners;     /* pids: of whom each share of the gauges is */
static size_t own_share; /* 0: the master's, and of who never entered */

static void give_up(const char *name, const char *reason)
{
    fprintf(stderr, "counter %s: %s\n", name, reason);
    abort();
}

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

/* --- layout ---------------------------------------------------------------------------- */

static struct words split(const char *text, const char *separator)
{
    struct words words = {0};
    char *rest, *word;

    if (!text || !*text)
        return words;
    rest = words.text = must(strdup(text));
    while ((word = strsep(&rest, separator))) {
        words.items = must(realloc(words.items, (words.count + 1) * sizeof(*words.items)));
        words.items[words.count++] = word;
    }
    return words;
}

static void words_done(struct words *words)
{
    free(words->text);
    free(words->items);
}

static void lay_labels(struct layout *layout)
{
    const struct counter_family *family = layout->family;
    struct words lists = split(family->values, ",");

    layout->labels = split(family->labels, ",");
    if (layout->labels.count > LABELS_MAX || layout->labels.count != lists.count)
        give_up(family->name, "one list of values for each label, of which there may be four");
    layout->samples = 1;
    for (size_t i = 0; i < lists.count; i++) {
        layout->values[i] = split(lists.items[i], "|");
        if (layout->values[i].count == 0)
            give_up(family->name, "a label without values");
        layout->samples *= layout->values[i].count;
        if (layout->samples > cells_max)
            give_up(family->name, "too many samples");
    }
    words_done(&lists);
}

static void lay_buckets(struct layout *layout)
{
    const struct counter_family *family = layout->family;

    layout->stride = family->type == COUNTER_GAUGE ? 1 + SHARES : 2;
    if (family->type != COUNTER_HISTOGRAM)
        return;
    layout->buckets = split(family->buckets, " ");
    if (layout->buckets.count == 0 || layout->buckets.count > BUCKETS_MAX)
        give_up(family->name, "a histogram has 1 to 64 buckets");
    for (size_t i = 0; i < layout->buckets.count; i++) {
        char *end;

        layout->bounds[i] = strtod(layout->buckets.items[i], &end);
        if (*end || end == layout->buckets.items[i] || !isfinite(layout->bounds[i]) ||
            (i && layout->bounds[i] <= layout->bounds[i - 1]))
            give_up(family->name, "buckets are numbers, ascending");
    }
    layout->stride += layout->buckets.count + 1;
}

void counters_substitute(struct counter_family *families, size_t count, const char *mark,
                         const char *list)
{
    for (size_t i = 0; i < count; i++) {
        const char *at = families[i].values ? strstr(families[i].values, mark) : NULL;
        struct buffer values = {0};

        if (!at)
            continue;
        buffer_add(&values, families[i].values, (size_t)(at - families[i].values));
        buffer_text(&values, list);
        buffer_text(&values, at + strlen(mark));
        free(families[i].made);
        families[i].values = families[i].made = values.data;
    }
}

void counters_open(const struct counter_family *families, size_t count)
{
    size_t total = SHARES; /* the owners come first */

    layouts = must(calloc(count + 1, sizeof(*layouts)));
    for (size_t i = 0; i < count; i++) {
        struct layout *layout = &layouts[i];

        layout->family = &families[i];
        lay_labels(layout);
        lay_buckets(layout);
        layout->first = total;
        total += layout->samples * layout->stride;
        if (total > cells_max)
            give_up(families[i].name, "too many samples");
    }
    cells = mmap(NULL, total * sizeof(*cells), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    if (cells == MAP_FAILED)
        abort();
    owners = cells;
    layout_count = count;
}

/* --- whose gauges ----------------------------------------------------------------------- */

void counters_enter(void)
{
    own_share = 0;
    for (size_t share = 1; owners && share < SHARES; share++) {
        uint64_t nobody = 0;

        if (atomic_compare_exchange_strong(&owners[share], &nobody, (uint64_t)getpid())) {
            own_share = share;
            return;
        }
    }
}

static void clear_share(size_t share)
{
    for (size_t i = 0; i < layout_count; i++)
        for (size_t sample = 0; sample < layouts[i].samples; sample++)
            if (layouts[i].family->type == COUNTER_GAUGE)
                atomic_store_explicit(cells + layouts[i].first + sample * layouts[i].stride + 1 +
                                          share,
                                      0, memory_order_relaxed);
}

void counters_leave(pid_t pid)
{
    for (size_t share = 1; owners && share < SHARES; share++)
        if (atomic_load(&owners[share]) == (uint64_t)pid) {
            clear_share(share);
            atomic_store(&owners[share], 0);
        }
}

/* --- counting -------------------------------------------------------------------------- */

/* The cells of a sample, or NULL. */
static cell *find_sample(size_t family, const int *labels, enum counter_type *type)
{
    const struct layout *layout;
    size_t index = 0;

    if (family >= layout_count)
        return NULL;
    layout = &layouts[family];
    if (layout->labels.count && !labels)
        return NULL;
    for (size_t i = 0; i < layout->labels.count; i++) {
        if (labels[i] < 0 || (size_t)labels[i] >= layout->values[i].count)
            return NULL;
        index = index * layout->values[i].count + (size_t)labels[i];
    }
    *type = layout->family->type;
    return cells + layout->first + index * layout->stride;
}

static void touch(cell *sample)
{
    if (!atomic_load_explicit(&sample[0], memory_order_relaxed))
        atomic_store_explicit(&sample[0], 1, memory_order_relaxed);
}

void counter_add(size_t family, const int *labels, int64_t amount)
{
    enum counter_type type;
    cell *sample = find_sample(family, labels, &type);

    if (!sample || type == COUNTER_HISTOGRAM || (type == COUNTER_TOTAL && amount < 0))
        return;
    atomic_fetch_add_explicit(&sample[type == COUNTER_GAUGE ? 1 + own_share : 1], (uint64_t)amount,
                              memory_order_relaxed);
    touch(sample);
}

static double real_of(uint64_t bits)
{
    double real;

    memcpy(&real, &bits, sizeof(real));
    return real;
}

static void add_real(cell *sum, double value)
{
    uint64_t old = atomic_load_explicit(sum, memory_order_relaxed), new;
    double total;

    do {
        total = real_of(old) + value;
        memcpy(&new, &total, sizeof(new));
    } while (!atomic_compare_exchange_weak_explicit(sum, &old, new, memory_order_relaxed,
                                                    memory_order_relaxed));
}

void counter_observe(size_t family, const int *labels, double value)
{
    enum counter_type type;
    cell *sample = find_sample(family, labels, &type);
    size_t bucket = 0;

    if (!sample || type != COUNTER_HISTOGRAM || !isfinite(value))
        return;
    while (bucket < layouts[family].buckets.count && value > layouts[family].bounds[bucket])
        bucket++;
    add_real(&sample[1], value);
    atomic_fetch_add_explicit(&sample[2 + bucket], 1, memory_order_relaxed);
    touch(sample);
}

int counter_label(size_t family, size_t label, const char *value)
{
    if (family >= layout_count || label >= layouts[family].labels.count || !value)
        return -1;
    for (size_t i = 0; i < layouts[family].values[label].count; i++)
        if (strcmp(layouts[family].values[label].items[i], value) == 0)
            return (int)i;
    return -1;
}

/* --- text ------------------------------------------------------------------------------ */

static uint64_t read_cell(const cell *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

static void add_escaped(struct buffer *out, const char *text, bool quotes)
{
    for (; *text; text++) {
        if (*text == '\n') {
            buffer_text(out, "\\n");
            continue;
        }
        if (*text == '\\' || (quotes && *text == '"'))
            buffer_char(out, '\\');
        buffer_char(out, *text);
    }
}

static void add_pair(struct buffer *out, const char *name, const char *value)
{
    buffer_format(out, "%s%s=\"", out->data[out->length - 1] == '{' ? "" : ",", name);
    add_escaped(out, value, true);
    buffer_char(out, '"');
}

/* "name_suffix{labels} ", with `le` when it is a bucket. */
static void add_name(struct buffer *out, const struct layout *layout, size_t sample,
                     const char *suffix, const char *bound)
{
    size_t below = layout->samples;

    buffer_format(out, "%s%s", layout->family->name, suffix);
    if (layout->labels.count || bound) {
        buffer_char(out, '{');
        for (size_t i = 0; i < layout->labels.count; i++) {
            below /= layout->values[i].count;
            add_pair(out, layout->labels.items[i], layout->values[i].items[sample / below]);
            sample %= below;
        }
        if (bound)
            add_pair(out, "le", bound);
        buffer_char(out, '}');
    }
    buffer_char(out, ' ');
}

/* The count is the sum of the buckets as they are read, so that it always equals the one of +Inf.
 */
static void add_histogram(struct buffer *out, const struct layout *layout, size_t sample,
                          const cell *at)
{
    uint64_t count = 0;

    for (size_t i = 0; i <= layout->buckets.count; i++) {
        count += read_cell(&at[2 + i]);
        add_name(out, layout, sample, "_bucket",
                 i < layout->buckets.count ? layout->buckets.items[i] : "+Inf");
        buffer_format(out, "%" PRIu64 "\n", count);
    }
    add_name(out, layout, sample, "_sum", NULL);
    buffer_format(out, "%.17g\n", real_of(read_cell(&at[1])));
    add_name(out, layout, sample, "_count", NULL);
    buffer_format(out, "%" PRIu64 "\n", count);
}

static int64_t read_gauge(const cell *at)
{
    uint64_t sum = 0;

    for (size_t share = 0; share < SHARES; share++)
        sum += read_cell(&at[1 + share]);
    return (int64_t)sum;
}

static void add_sample(struct buffer *out, const struct layout *layout, size_t sample)
{
    const cell *at = cells + layout->first + sample * layout->stride;

    if (layout->labels.count && !read_cell(&at[0]))
        return;
    if (layout->family->type == COUNTER_HISTOGRAM) {
        add_histogram(out, layout, sample, at);
        return;
    }
    add_name(out, layout, sample, "", NULL);
    buffer_format(out, "%" PRId64 "\n",
                  layout->family->type == COUNTER_GAUGE ? read_gauge(at)
                                                        : (int64_t)read_cell(&at[1]));
}

void counters_text(struct buffer *out)
{
    static const char *const types[] = {
        [COUNTER_TOTAL] = "counter", [COUNTER_GAUGE] = "gauge", [COUNTER_HISTOGRAM] = "histogram"};

    for (size_t i = 0; i < layout_count; i++) {
        const struct counter_family *family = layouts[i].family;

        buffer_format(out, "# HELP %s ", family->name);
        add_escaped(out, family->help, false);
        buffer_format(out, "\n# TYPE %s %s\n", family->name, types[family->type]);
        for (size_t sample = 0; sample < layouts[i].samples; sample++)
            add_sample(out, &layouts[i], sample);
    }
}
