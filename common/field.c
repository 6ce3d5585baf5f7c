/* What a text must be, for every codec: see field.h. */
#include "common/field.h"

#include <pthread.h>
#include <regex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"

/* Compiled patterns stay until the process ends; their number is that of the tables' rows. */
struct compiled {
    struct compiled *next;
    char *pattern;
    regex_t regex;
};

static _Atomic(struct compiled *) all_compiled;
static pthread_mutex_t compiling = PTHREAD_MUTEX_INITIALIZER;

static struct compiled *find_compiled(const char *pattern)
{
    struct compiled *at = atomic_load_explicit(&all_compiled, memory_order_acquire);

    while (at && strcmp(at->pattern, pattern) != 0)
        at = at->next;
    return at;
}

static struct compiled *compile(const char *pattern)
{
    auto_buffer struct buffer whole = {0};
    struct compiled *new = calloc(1, sizeof(*new));
    char reason[160];
    int failure;

    if (!new || !(new->pattern = strdup(pattern)))
        abort();
    buffer_format(&whole, "^(%s)$", pattern);
    failure = regcomp(&new->regex, whole.data, REG_EXTENDED | REG_NOSUB);
    if (failure) {
        regerror(failure, &new->regex, reason, sizeof(reason));
        fprintf(stderr, "pattern %s of a field table: %s\n", pattern, reason);
        abort();
    }
    new->next = atomic_load_explicit(&all_compiled, memory_order_relaxed);
    atomic_store_explicit(&all_compiled, new, memory_order_release);
    return new;
}

bool field_matches(const char *pattern, const char *text)
{
    struct compiled *compiled = find_compiled(pattern);

    if (!compiled) {
        pthread_mutex_lock(&compiling);
        compiled = find_compiled(pattern);
        if (!compiled)
            compiled = compile(pattern);
        pthread_mutex_unlock(&compiling);
    }
    return regexec(&compiled->regex, text, 0, NULL, 0) == 0;
}

bool field_chooses(const char *choices, const char *text)
{
    size_t length = strlen(text);

    for (;;) {
        size_t choice = strcspn(choices, "|");

        if (choice == length && memcmp(choices, text, length) == 0)
            return true;
        if (!choices[choice])
            return false;
        choices += choice + 1;
    }
}
