/* The syntax of JSON: a text is checked once, then walked without further checks. Inside json*.c
 * only. */
#ifndef COMMON_JSON_SCAN_H
#define COMMON_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"

struct json_fault {
    const char *reason; /* as Python's json names it, where it has a name */
    size_t position;    /* in characters, from 0 */
};

/* Check a whole text by the rules of json.h: 0, or -1 with *fault. */
int json_scan(const char *text, size_t length, struct json_fault *fault);

/* The rest takes a place in a text that was checked. None reads past a NUL, so a NUL-terminated
 * text that is no JSON gives nonsense at worst. */

const char *json_space(const char *at);
/* Behind the value at `at`. */
const char *json_skip(const char *at);
/* The string in quotes at `at`, decoded, in the arena; *length (may be NULL) without its NUL. */
char *json_unquote(struct arena *arena, const char *at, size_t *length);
/* Whether the string in quotes at `at` is `text`. */
bool json_quoted_is(const char *at, const char *text);
/* The value without white space. */
void json_compact(struct buffer *out, const char *at);

enum json_integer { INTEGER_EXACT, INTEGER_FRACTION, INTEGER_TOO_LARGE };
/* The number at `at`, exactly. */
enum json_integer json_integer(const char *at, int64_t *value);
double json_double(const char *at);

/* One step through an array or object. Begin with {.at = the bracket}; true while there is a
 * member. */
struct json_walk {
    const char *at;
    const char *key; /* in quotes; NULL in arrays */
    const char *value;
};
bool json_walk(struct json_walk *walk);

#endif
