/* Any bytes as a body: what is taken must be taken again after it was normalised, and a refusal
 * must be JSON itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

struct leaf {
    const char *word;
};

static const struct field leaf_fields[] = {{TEXT(leaf, word), .max = 3, .fallback = "\"w\""}};
SCHEMA_WITH(leaf, .closed = true);

struct repo {
    const char *kind;
    const char *url;
};

static const struct field repo_fields[] = {{TEXT(repo, kind)}, {TEXT(repo, url)}};
SCHEMA(repo);

static const struct variant source_variants[] = {{"r", &schema_repo}, {"l", &schema_leaf}};
SCHEMA_UNION(source, "kind");

struct body {
    const char *t;
    const int64_t *n;
    double r;
    bool f;
    struct texts ts;
    struct numbers ns;
    const char *a;
    const char *o;
    const char *l;
    const char *m;
    const char *u;
};

static const char *body_check(const void *value, const char **field)
{
    *field = "t";
    return ((const struct body *)value)->f ? "f is set" : NULL;
}

static const struct field body_fields[] = {
    {TEXT(body, t), .min = 1, .max = 5, .pattern = "[^x]*", .fallback = "\"\"",
     .null_is_fallback = true},
    {MAYBE_NUMBER(body, n), .min = -100, .max = 100, .optional = true, .nullable = true},
    {REAL(body, r), .above = 0, .exclusive = true, .optional = true},
    {FLAG(body, f), .fallback = "false"},
    {TEXTS(body, ts), .max = 3, .choices = "a|b", .optional = true},
    {NUMBERS(body, ns), .optional = true},
    {JSON(body, a), .optional = true},
    {JSON(body, o), .shape = SHAPE_OBJECT, .element = &schema_leaf, .fallback = "{}"},
    {JSON(body, l), .shape = SHAPE_LIST, .element = &schema_source, .optional = true},
    {JSON(body, m), .shape = SHAPE_MAP, .optional = true},
    {JSON(body, u), .shape = SHAPE_MAP, .element = &schema_source, .optional = true},
};
SCHEMA_WITH(body, .check = body_check);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static int visit(const char *key, const char *value, void *context)
{
    (void)key;
    (void)context;
    must(strlen(value) > 0);
    return 0;
}

/* The readers of single members take anything that ends in NUL. */
static void read_members(const char *text, struct arena *arena)
{
    json_member(arena, text, "t");
    json_member_text(arena, text, "t");
    json_member_number(arena, text, "n", 0);
    json_each(arena, text, visit, NULL);
}

static int visit_any(const char *key, const char *value, void *context)
{
    (void)key;
    (void)value;
    (void)context;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer quoted = {0}, encoded = {0};
    struct decoded out, again;
    struct error err;
    char *text = arena_copy(&arena, (const char *)data, size);

    if (json_check((const char *)data, size, &err) == 0)
        read_members(text, &arena);
    else
        json_each(&arena, text, visit_any, NULL);
    json_member_text(&arena, text, "t");
    json_string_n(&quoted, (const char *)data, size);
    must(json_check(quoted.data, quoted.length, &err) == 0);

    if (json_decode(&schema_body, "body", (const char *)data, size, &arena, &out, &err) < 0) {
        must(err.kind == ERR_INVALID);
        must(json_check(err.fields, strlen(err.fields), &err) == 0);
        return 0;
    }
    must(json_check(out.json, strlen(out.json), &err) == 0);
    json_encode(&encoded, &schema_body, out.value);
    must(json_check(encoded.data, encoded.length, &err) == 0);
    /* A fallback need not keep its own bounds, so that only what came is sure to be taken again. */
    if (out.given & 1 && !(out.nulls & 1)) {
        must(json_decode(&schema_body, "body", out.json, strlen(out.json), &arena, &again, &err) ==
             0);
        must(strcmp(out.json, again.json) == 0);
    }
    return 0;
}
