/* The variables of every command in a sandbox. */
#include "run/environment.h"

#include <stdint.h>

#include "common/json.h"
#include "common/scope.h"

static const char *const base[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "USER=root",
    "LOGNAME=root",
    "SHELL=/bin/sh",
    "LANG=C.UTF-8",
};

struct variables {
    struct arena *arena;
    struct texts all;
};

static int count_variable(const char *key, const char *value, void *context)
{
    (void)key, (void)value;
    ++*(size_t *)context;
    return 0;
}

static int set_variable(const char *key, const char *value, void *context)
{
    struct variables *variables = context;
    struct arena *arena = variables->arena;
    const char *text = json_member_text(arena, arena_text(arena, "{\"v\":%s}", value), "v");

    variables->all.items[variables->all.count++] =
        arena_text(arena, "%s=%s", key, text ? text : "");
    return 0;
}

struct texts environment_make(struct arena *arena, const char *manifest)
{
    struct variables variables = {.arena = arena};
    size_t count = 0;

    json_each(arena, manifest, count_variable, &count);
    variables.all.items = arena_alloc(arena, (count + 1) * sizeof(*variables.all.items));
    json_each(arena, manifest, set_variable, &variables);
    return variables.all;
}

struct texts environment_defaults(void)
{
    return (struct texts){(const char **)(uintptr_t)base, COUNT(base)};
}
