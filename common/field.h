/* Field tables: a struct is described once, and the JSON codec, the row reader, the packet codec,
 * the validation and /openapi.json all read that description.
 *
 *     struct session_create {
 *         const char *agent_id;
 *         const char *title;
 *         const int64_t *idle_seconds;      // behind a pointer: NULL is absent or null
 *     };
 *     static const struct field session_create_fields[] = {
 *         {TEXT(session_create, agent_id), .min = 1, .max = 64},
 *         {TEXT(session_create, title), .fallback = "\"\""},
 *         {MAYBE_NUMBER(session_create, idle_seconds), .min = 60, .max = 86400, .optional = true,
 * .nullable = true},
 *     };
 *     SCHEMA(session_create);
 */
#ifndef COMMON_FIELD_H
#define COMMON_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/scope.h"

struct error;
struct arena;

/* What the member is in C, and in JSON. */
enum field_type {
    FIELD_TEXT,    /* const char *     string                         wire: bytes without NUL; NULL
                      allowed */
    FIELD_NUMBER,  /* int64_t          integer, exact to 64 bits */
    FIELD_REAL,    /* double           number, finite */
    FIELD_FLAG,    /* bool             boolean */
    FIELD_TEXTS,   /* struct texts     array of strings               (columns: a JSON array) */
    FIELD_NUMBERS, /* struct numbers  array of integers              JSON only */
    FIELD_JSON,    /* const char *     any JSON, kept as compact text, checked by `shape` and
                      `element`; not on the wire */
};

/* How a FIELD_JSON value is checked, and normalised (defaults filled in, unknown keys left out). */
enum field_shape {
    SHAPE_ANY,    /* any JSON value */
    SHAPE_OBJECT, /* an object; with `element`, one that fits that schema */
    SHAPE_LIST,   /* an array; with `element`, of such objects; min/max count them */
    SHAPE_MAP, /* an object with free keys; with `element`, whose values fit it, else whose values
                  are strings */
};

struct texts {
    const char **items;
    size_t count;
};

struct numbers {
    int64_t *items;
    size_t count;
};

struct schema;

/* Look at one text (a string, an element of `texts`, a key of a map). NULL: fine; else what is
 * wrong, as a sentence that does not repeat the value ("Names have letters, digits and dashes"). */
typedef const char *field_check(const char *text);

struct field {
    const char *name;
    enum field_type type;
    uint16_t offset;
    bool indirect; /* NUMBER, REAL, FLAG: the member is a const pointer into the arena; NULL: absent
                      or null */
    bool optional; /* the key may be absent (a fallback implies it) */
    bool nullable; /* null is taken, and may be answered */
    enum field_shape shape;
    int64_t min, max; /* NUMBER, REAL, NUMBERS: the values'. TEXT: code points. TEXTS, LIST, MAP:
                       * items. Both 0: no bound; max 0 with a positive min: no upper bound */
    double above;     /* REAL: with `exclusive`, the value is > above */
    bool exclusive;
    const char *choices;  /* TEXT, TEXTS: "proxy|litellm|openai" */
    const char *pattern;  /* TEXT, TEXTS: a POSIX extended regular expression that the whole text
                             matches; it sees bytes */
    field_check *check;   /* TEXT, TEXTS, keys of a MAP: what a pattern can't say */
    const char *fallback; /* JSON used when the key is absent; also when null came and the field is
                           * not nullable but `null_is_fallback` is set */
    bool null_is_fallback;
    const struct schema *element; /* JSON: see enum field_shape */
    const char *about;            /* one sentence for /openapi.json and --help */
};

/* A JSON object of several kinds: `tag` names the member that tells which. */
struct variant {
    const char *value;
    const struct schema *schema;
};

struct schema {
    const char *name;
    const struct field *fields;
    size_t count;    /* at most 64: presence is one bit a field */
    size_t size;     /* of the struct */
    const char *tag; /* with variants: the member that chooses; `fields` is then empty */
    const struct variant *variants;
    size_t variant_count;
    /* What no single field can say. NULL: fine; else a sentence, and *field names the culprit
     * (NULL: the object). */
    const char *(*check)(const void *value, const char **field);
    bool closed; /* unknown keys are refused (the default is to ignore them) */
};

/* Whether the whole of `text` matches. Compiled once in a process; any thread. A pattern that does
 * not compile aborts. */
bool field_matches(const char *pattern, const char *text);
/* Whether `text` is one of `choices` ("a|b|c"). */
bool field_chooses(const char *choices, const char *text);
/* How `min` and `max` bound a value (of NUMBER and REAL) or a count (of the others). */
static inline bool field_has_min(const struct field *field)
{
    return field->min || field->max;
}
static inline bool field_has_max(const struct field *field)
{
    return field->max || field->min < 0;
}

/* Defines `schema_NAME` from `struct NAME` and `NAME_fields`. */
#define SCHEMA(owner)                                                     \
    extern const struct schema schema_##owner;                            \
    const struct schema schema_##owner = {.name = #owner,                 \
                                          .fields = owner##_fields,       \
                                          .count = COUNT(owner##_fields), \
                                          .size = sizeof(struct owner)}
/* The same with more members of struct schema set: SCHEMA_WITH(client_tool, .check =
 * client_tool_check); */
#define SCHEMA_WITH(owner, ...)                                           \
    extern const struct schema schema_##owner;                            \
    const struct schema schema_##owner = {.name = #owner,                 \
                                          .fields = owner##_fields,       \
                                          .count = COUNT(owner##_fields), \
                                          .size = sizeof(struct owner),   \
                                          __VA_ARGS__}
/* Defines `schema_NAME` from `NAME_variants[]`, told apart by the member `tag_name`. */
#define SCHEMA_UNION(owner, tag_name)                                   \
    extern const struct schema schema_##owner;                          \
    const struct schema schema_##owner = {.name = #owner,               \
                                          .tag = tag_name,              \
                                          .variants = owner##_variants, \
                                          .variant_count = COUNT(owner##_variants)}

/* Name, type and offset of a member; the compiler refuses a member of another C type. */
#define FIELD_OF(owner, member, ctype, kind)            \
    .name = #member,                                    \
    .type = _Generic(((struct owner *)0)->member, ctype \
                     : kind),                           \
    .offset = offsetof(struct owner, member)
#define TEXT(owner, member) FIELD_OF(owner, member, const char *, FIELD_TEXT)
#define NUMBER(owner, member) FIELD_OF(owner, member, int64_t, FIELD_NUMBER)
#define REAL(owner, member) FIELD_OF(owner, member, double, FIELD_REAL)
#define FLAG(owner, member) FIELD_OF(owner, member, bool, FIELD_FLAG)
#define TEXTS(owner, member) FIELD_OF(owner, member, struct texts, FIELD_TEXTS)
#define NUMBERS(owner, member) FIELD_OF(owner, member, struct numbers, FIELD_NUMBERS)
#define JSON(owner, member) FIELD_OF(owner, member, const char *, FIELD_JSON)
#define MAYBE_NUMBER(owner, member) \
    FIELD_OF(owner, member, const int64_t *, FIELD_NUMBER), .indirect = true
#define MAYBE_REAL(owner, member) \
    FIELD_OF(owner, member, const double *, FIELD_REAL), .indirect = true
#define MAYBE_FLAG(owner, member) \
    FIELD_OF(owner, member, const bool *, FIELD_FLAG), .indirect = true

#endif
