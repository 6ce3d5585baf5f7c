/* JSON (RFC 8259), strictly: one pass checks the whole text, then field tables read it.
 *
 * Why not cJSON for what comes from outside: it keeps numbers as doubles (2^53), takes duplicate
 * keys, and its depth is fixed when it is compiled. Never linked into the supervisor.
 *
 * Refused: nesting beyond JSON_DEPTH_MAX, duplicate keys, a byte order mark, bytes that are not
 * UTF-8, lone surrogates, U+0000 anywhere (PostgreSQL can't store it), numbers that overflow a
 * double. */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/field.h"

enum { JSON_DEPTH_MAX = 64 };

/* What a decoded object was. */
struct decoded {
    void *value;    /* the struct, in the arena */
    uint64_t given; /* bit i: the key of field i was there (null counts) */
    uint64_t nulls; /* bit i: … and was null */
    const char
        *json; /* the object again, compact: known keys that were given, or that have a fallback */
};

/* Decode `length` bytes as an object of `schema`. On failure ERR_INVALID with `err->fields` set to
 * the list
 * [{"loc":["body","name",0],"msg":…,"type":…},…] of every failure, in field order; `where` is the
 * first element of each loc
 * ("body", "query"). Messages never repeat what came in. Of more than 100 failures the first are
 * listed, and a key in a loc is cut at 128 bytes. A text that does not parse gives the one entry
 * {"loc":["body",POSITION],"msg":"JSON decode error: …","type":"json_invalid"}, with POSITION in
 * characters; an empty one gives
 * {"loc":["body"],"msg":"Field required","type":"missing"}.
 * A fallback is the program's: its bounds are not checked; one that does not fit its type is
 * ERR_INTERNAL. Types: missing, string_type, int_type, int_from_float, int_parsing_size,
 * float_type, bool_type, list_type, dict_type, string_too_short, string_too_long,
 * string_pattern_mismatch, literal_error, greater_than_equal, less_than_equal, greater_than,
 * too_short, too_long, value_error, union_tag_invalid, extra_forbidden, json_invalid. An integer
 * field takes 1.0 and 1e2, never "1" or true. */
int json_decode(const struct schema *schema, const char *where, const char *text, size_t length,
                struct arena *arena, struct decoded *out, struct error *err);

/* Append one element of the list in `err->fields` (a comma in front unless `list` is empty or ends
 * in `[`; no brackets), for failures found outside json_decode (query parameters, path values,
 * references). `loc` is printed as given, a JSON array: "[\"query\",\"limit\"]". */
void json_field_error(struct buffer *list, const char *loc, const char *type, const char *message);

/* Check that `text` is JSON by the rules above. */
int json_check(const char *text, size_t length, struct error *err);

/* Append: a string in quotes, escaped (NULL: null). Bytes that are not UTF-8, and NUL, become
 * U+FFFD. `/` and non-ASCII stay as they are. */
void json_string(struct buffer *out, const char *text);
void json_string_n(struct buffer *out, const char *bytes, size_t length);
void json_number(struct buffer *out, int64_t value);
/* The shortest text that reads back the same; null when it is not finite. */
void json_real(struct buffer *out, double value);
/* Append the object that `schema` and `value` describe. A NULL text or pointer is null if the field
 * is nullable, else its fallback, else left out if optional, else the empty value of its type. A
 * value of a union must have its tag as a member. */
void json_encode(struct buffer *out, const struct schema *schema, const void *value);

/* Small builders, for event payloads and the like: json_format(out, "{\"path\":%s,\"size\":%d}", …)
 * with %s a string that is quoted and escaped (NULL: null), %j raw JSON text, %d an int64_t (cast
 * an int!), %f a double, %b an int as true/false, %% itself. */
void json_format(struct buffer *out, const char *format, ...);

/* Read single members of an object known to be JSON (a payload of ours, a jsonb column): the raw
 * text of the member's value in the arena, or NULL when it is not there. */
const char *json_member(struct arena *arena, const char *object, const char *name);
/* … its text when it is a string, else NULL. */
const char *json_member_text(struct arena *arena, const char *object, const char *name);
/* … its value when it is an integer, else `fallback`. */
int64_t json_member_number(struct arena *arena, const char *object, const char *name,
                           int64_t fallback);
/* Walk an array or object of ours: calls `each` with the key (NULL in arrays) and the raw value;
 * stops and returns its value when it is not 0. */
int json_each(struct arena *arena, const char *container,
              int (*each)(const char *key, const char *value, void *context), void *context);

#endif
