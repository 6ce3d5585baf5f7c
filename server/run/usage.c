/* Adding up what turns cost. */
#include "run/usage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

static const struct {
    const char *name;
    size_t offset;
} counts[] = {
    {"requests", offsetof(struct usage, requests)},
    {"input_tokens", offsetof(struct usage, input_tokens)},
    {"cached_input_tokens", offsetof(struct usage, cached_input_tokens)},
    {"output_tokens", offsetof(struct usage, output_tokens)},
    {"reasoning_tokens", offsetof(struct usage, reasoning_tokens)},
    {"total_tokens", offsetof(struct usage, total_tokens)},
};

static int64_t *count_of(struct usage *usage, size_t count)
{
    return (int64_t *)((char *)usage + counts[count].offset);
}

static struct usage read_usage(struct arena *arena, const char *object)
{
    const char *seconds = json_member(arena, object, "active_seconds");
    struct usage usage = {.active_seconds = seconds ? strtod(seconds, NULL) : 0};

    for (size_t i = 0; i < COUNT(counts); i++)
        *count_of(&usage, i) = json_member_number(arena, object, counts[i].name, 0);
    return usage;
}

static void add_counts(struct usage *to, const struct usage *more)
{
    struct usage addend = *more;

    for (size_t i = 0; i < COUNT(counts); i++)
        if (__builtin_add_overflow(*count_of(to, i), *count_of(&addend, i), count_of(to, i)))
            *count_of(to, i) = INT64_MAX;
    to->active_seconds += more->active_seconds;
}

/* The members, without the braces. */
static void write_counts(struct usage *usage, struct buffer *out)
{
    for (size_t i = 0; i < COUNT(counts); i++)
        buffer_format(out, "\"%s\":%lld,", counts[i].name, (long long)*count_of(usage, i));
    buffer_text(out, "\"active_seconds\":");
    json_real(out, round(usage->active_seconds * 1e6) / 1e6);
}

/* A map of names to usages, on its way from the stored text to the new one. */
struct parts {
    struct arena *arena;
    struct buffer *out;
    const char *name; /* to which `more` is added; NULL: done, or nowhere */
    const struct usage *more;
    bool any;
};

static int write_part(const char *key, const char *value, void *context)
{
    struct parts *parts = context;
    struct usage usage = read_usage(parts->arena, value);

    if (parts->name && strcmp(parts->name, key) == 0) {
        add_counts(&usage, parts->more);
        parts->name = NULL;
    }
    if (parts->any)
        buffer_char(parts->out, ',');
    parts->any = true;
    json_string(parts->out, key);
    buffer_text(parts->out, ":{");
    write_counts(&usage, parts->out);
    buffer_char(parts->out, '}');
    return 0;
}

static void write_parts(struct arena *arena, const char *stored, const char *map, const char *name,
                        const struct usage *more, struct buffer *out)
{
    const char *old = json_member(arena, stored, map);
    struct parts parts = {.arena = arena, .out = out, .name = name, .more = more};

    buffer_format(out, ",\"%s\":{", map);
    if (old && *old == '{')
        json_each(arena, old, write_part, &parts);
    if (parts.name)
        write_part(parts.name, "{}", &parts);
    buffer_char(out, '}');
}

void usage_add(struct arena *arena, const char *stored, const struct usage *more, const char *model,
               const char *agent, struct buffer *out)
{
    struct usage whole = read_usage(arena, stored), rest = *more;

    if (model)
        rest.active_seconds = 0;
    add_counts(&whole, &rest);
    buffer_char(out, '{');
    write_counts(&whole, out);
    write_parts(arena, stored, "by_model", model, more, out);
    write_parts(arena, stored, "by_agent", agent, &rest, out);
    buffer_char(out, '}');
}
