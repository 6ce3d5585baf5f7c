/* The document says what the tables say. */
#include "http/openapi.h"

#include <string.h>

#include "common/json.h"
#include "http/router.h"
#include "tests/unit/unit.h"

struct part {
    const char *kind;
    const int64_t *count;
};
static const struct field part_fields[] = {
    {TEXT(part, kind), .choices = "part"},
    {MAYBE_NUMBER(part, count), .min = 1, .max = 9, .nullable = true, .fallback = "null"},
};
SCHEMA(part);

static const struct variant piece_variants[] = {{"part", &schema_part}};
SCHEMA_UNION(piece, "kind");

struct thing_create {
    const char *name;
    const char *mode;
    double ratio;
    const char *pieces;
    const char *part;
};
static const struct field thing_create_fields[] = {
    {TEXT(thing_create, name), .min = 1, .max = 8, .pattern = "[a-z\"]+", .about = "a \"name\""},
    {TEXT(thing_create, mode), .choices = "a|b", .nullable = true, .fallback = "\"a\""},
    {REAL(thing_create, ratio), .exclusive = true, .above = 0, .max = 1, .optional = true},
    {JSON(thing_create, pieces), .shape = SHAPE_LIST, .element = &schema_piece, .fallback = "[]",
     .null_is_fallback = true, .max = 3},
    {JSON(thing_create, part), .shape = SHAPE_OBJECT, .element = &schema_part, .nullable = true,
     .optional = true},
};
SCHEMA_WITH(thing_create, .closed = true);

struct thing {
    const char *id;
    const char *part;
    const char *labels;
    bool fine;
};
static const struct field thing_fields[] = {
    {TEXT(thing, id), .nullable = true},
    {JSON(thing, part), .shape = SHAPE_OBJECT, .element = &schema_part},
    {JSON(thing, labels), .shape = SHAPE_MAP},
    {FLAG(thing, fine), .fallback = "true"},
};
SCHEMA(thing);

struct page {
    int64_t limit;
};
static const struct field page_fields[] = {
    {NUMBER(page, limit), .min = 0, .max = INT64_MAX, .fallback = "5"}};
SCHEMA(page);

static int nothing(struct request *req, struct response *res, struct error *err)
{
    (void)req, (void)res, (void)err;
    return 0;
}

const struct route routes[] = {
    {.room = "Things"},
    {METHOD_GET, "/api/things", nothing, "things_list", RULE_PROJECT, &schema_page, BODY_NONE, NULL,
     200, REPLY_MANY, &schema_thing, "All", NULL},
    {METHOD_POST, "/api/things", nothing, "things_create", RULE_OPERATOR, NULL, BODY_JSON,
     &schema_thing_create, 201, REPLY_ONE, &schema_thing, "Make", NULL},
    {METHOD_DELETE, "/api/things/{id}", nothing, "things_delete", RULE_ANY, NULL, BODY_NONE, NULL,
     204, REPLY_NOTHING, NULL, "Remove", NULL},
    {METHOD_POST, "/api/things/{id}", nothing, "things_upload", RULE_ANY, NULL, BODY_UPLOAD, NULL,
     201, REPLY_ONE, &schema_thing, "Upload", NULL},
    {METHOD_GET, "/docs", nothing, "docs", RULE_PUBLIC, NULL, BODY_NONE, NULL, 200, REPLY_TEXT,
     NULL, "This", NULL},
};
const size_t route_count = COUNT(routes);

/* The raw value at a path of member names, in the arena. */
static const char *at(struct arena *arena, const char *const *names)
{
    size_t length;
    const char *value = openapi_text(&length);

    for (; *names && value; names++)
        value = json_member(arena, value, *names);
    return value;
}
#define AT(...) at(&arena, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(it_is_json)
{
    size_t length;
    const char *text = openapi_text(&length);
    struct error err;

    ck_assert_msg(json_check(text, length, &err) == 0, "%s\n%s", err.message, text);
}
END_TEST

START_TEST(operations_are_rows)
{
    auto_arena struct arena arena = {0};

    ck_assert_str_eq(AT("openapi"), "\"3.1.0\"");
    ck_assert_str_eq(AT("paths", "/api/things", "get", "operationId"), "\"things_list\"");
    ck_assert_str_eq(AT("paths", "/api/things", "get", "tags"), "[\"Things\"]");
    ck_assert_str_eq(AT("paths", "/api/things", "post", "summary"), "\"Make\"");
    ck_assert_str_eq(AT("paths", "/api/things", "post", "security"), "[{\"HTTPBearer\":[]}]");
    ck_assert_ptr_nonnull(strstr(
        AT("paths", "/api/things", "get", "parameters"),
        "{\"name\":\"limit\",\"in\":\"query\",\"required\":false,\"schema\":{\"type\":\"integer\","
        "\"minimum\":0,\"maximum\":9223372036854775807,\"default\":5}}"));
    ck_assert_ptr_nonnull(strstr(AT("paths", "/api/things", "get", "parameters"), "X-Project"));
    ck_assert_ptr_null(AT("paths", "/api/things", "post", "parameters"));
    ck_assert_ptr_nonnull(strstr(AT("paths", "/api/things/{id}", "delete", "parameters"),
                                 "\"name\":\"id\",\"in\":\"path\""));
    ck_assert_ptr_nonnull(
        AT("paths", "/api/things/{id}", "post", "requestBody", "content", "multipart/form-data"));
    ck_assert_ptr_null(AT("paths", "/docs"));
}
END_TEST

START_TEST(errors_follow_from_the_columns)
{
    auto_arena struct arena arena = {0};

    ck_assert_ptr_nonnull(AT("paths", "/api/things", "post", "responses", "201"));
    ck_assert_ptr_null(AT("paths", "/api/things", "post", "responses", "200"));
    ck_assert_ptr_nonnull(AT("paths", "/api/things", "post", "responses", "403"));
    ck_assert_ptr_nonnull(AT("paths", "/api/things", "post", "responses", "413"));
    ck_assert_ptr_nonnull(AT("paths", "/api/things", "post", "responses", "422"));
    ck_assert_ptr_null(AT("paths", "/api/things", "get", "responses", "403"));
    ck_assert_ptr_nonnull(AT("paths", "/api/things", "get", "responses", "404"));
    ck_assert_ptr_null(AT("paths", "/api/things/{id}", "delete", "responses", "422"));
    ck_assert_ptr_nonnull(AT("paths", "/api/things/{id}", "delete", "responses", "404"));
    ck_assert_str_eq(AT("paths", "/api/things/{id}", "delete", "responses", "204"),
                     "{\"description\":\"Done, and nothing to say\"}");
}
END_TEST

START_TEST(schemas_are_field_tables)
{
    auto_arena struct arena arena = {0};

    ck_assert_str_eq(AT("components", "schemas", "ThingCreate", "properties", "name"),
                     "{\"type\":\"string\",\"minLength\":1,\"maxLength\":8,\"pattern\":\"^(?:[a-"
                     "z\\\"]+)$\",\"description\":\"a \\\"name\\\"\"}");
    ck_assert_str_eq(
        AT("components", "schemas", "ThingCreate", "properties", "mode"),
        "{\"type\":[\"string\",\"null\"],\"enum\":[\"a\",\"b\",null],\"default\":\"a\"}");
    ck_assert_str_eq(AT("components", "schemas", "ThingCreate", "properties", "ratio"),
                     "{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}");
    ck_assert_str_eq(AT("components", "schemas", "ThingCreate", "properties", "pieces"),
                     "{\"type\":[\"array\",\"null\"],\"maxItems\":3,\"items\":{\"$ref\":\"#/"
                     "components/schemas/Piece\"},\"default\":[]}");
    ck_assert_str_eq(
        AT("components", "schemas", "ThingCreate", "properties", "part"),
        "{\"anyOf\":[{\"$ref\":\"#/components/schemas/PartInput\"},{\"type\":\"null\"}]}");
    ck_assert_str_eq(AT("components", "schemas", "ThingCreate", "required"), "[\"name\"]");
    ck_assert_str_eq(AT("components", "schemas", "ThingCreate", "additionalProperties"), "false");
    ck_assert_str_eq(
        AT("components", "schemas", "Piece", "discriminator"),
        "{\"propertyName\":\"kind\",\"mapping\":{\"part\":\"#/components/schemas/PartInput\"}}");
}
END_TEST

START_TEST(what_is_answered_is_all_there)
{
    auto_arena struct arena arena = {0};

    ck_assert_str_eq(AT("components", "schemas", "Thing", "required"),
                     "[\"id\",\"part\",\"labels\",\"fine\"]");
    ck_assert_str_eq(AT("components", "schemas", "Thing", "properties", "id"),
                     "{\"type\":[\"string\",\"null\"]}");
    ck_assert_str_eq(AT("components", "schemas", "Thing", "properties", "labels"),
                     "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}}");
    ck_assert_str_eq(AT("components", "schemas", "Thing", "properties", "fine"),
                     "{\"type\":\"boolean\"}");
    ck_assert_str_eq(AT("components", "schemas", "Part", "required"), "[\"kind\",\"count\"]");
    ck_assert_str_eq(AT("components", "schemas", "PartInput", "required"), "[\"kind\"]");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openapi");
    TCase *tests = unit_case(suite, "document");

    tcase_add_test(tests, it_is_json);
    tcase_add_test(tests, operations_are_rows);
    tcase_add_test(tests, errors_follow_from_the_columns);
    tcase_add_test(tests, schemas_are_field_tables);
    tcase_add_test(tests, what_is_answered_is_all_there);
    return unit_run(suite);
}
