/* JSON: what is taken and refused, what a table makes of it, and how it is written. */
#include "common/json.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "tests/unit/unit.h"

/* --- syntax ---------------------------------------------------------------------------- */

static const char *const well_formed[] = {
    "{}",
    "[]",
    "0",
    "-0",
    "1.5e-7",
    "1e308",
    "1E+2",
    "\"\"",
    "true",
    "false",
    "null",
    " \t\r\n{ \"a\" : [ 1 , 2 , { } ] }\n",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"",
    "\"h\xC3\xA9llo \xF0\x9F\x98\x80 \xEF\xBB\xBF\"",
    "{\"a\":1,\"b\":{\"a\":1}}",
    "[[[[[]]]]]",
    "{\"\":0}",
    "1.7976931348623157e308",
    "0e999999999999999999",
    "1e-999999",
    "0.0000000000000000000000000000000000000000000000000000000000000001e330",
    "[\"\\u0001\"]",
};

START_TEST(what_is_json_is_taken)
{
    struct error err;

    ck_assert_int_eq(json_check(well_formed[_i], strlen(well_formed[_i]), &err), 0);
}
END_TEST

static const struct {
    const char *text, *reason;
    int position; /* in characters */
} malformed[] = {
    {" ", "Expecting value", 1},
    {"{", "Expecting property name enclosed in double quotes", 1},
    {"[", "Expecting value", 1},
    {"{\"a\"", "Expecting ':' delimiter", 4},
    {"{\"\xC3\xA9\"", "Expecting ':' delimiter", 4},
    {"{\"a\" 1}", "Expecting ':' delimiter", 5},
    {"{\"a\":}", "Expecting value", 5},
    {"{\"a\":1", "Expecting ',' delimiter", 6},
    {"{\"a\":1 \"b\":2}", "Expecting ',' delimiter", 7},
    {"{\"a\":1,}", "Expecting property name enclosed in double quotes", 7},
    {"{a:1}", "Expecting property name enclosed in double quotes", 1},
    {"[1,]", "Expecting value", 3},
    {"[1}", "Expecting ',' delimiter", 2},
    {"{\"a\":1]", "Expecting ',' delimiter", 6},
    {"]", "Expecting value", 0},
    {"1 2", "Extra data", 2},
    {"{} x", "Extra data", 3},
    {"nul", "Expecting value", 0},
    {"NaN", "Expecting value", 0},
    {"Infinity", "Expecting value", 0},
    {"-", "Expecting value", 0},
    {"01", "Expecting value", 0},
    {"+1", "Expecting value", 0},
    {".5", "Expecting value", 0},
    {"1.", "Extra data", 1},
    {"1e", "Expecting value", 0},
    {"0x10", "Extra data", 1},
    {"1e400", "Number out of range", 0},
    {"-1e309", "Number out of range", 0},
    {"1.7976931348623159e308", "Number out of range", 0},
    {"1e99999999999999999999999", "Number out of range", 0},
    {"'a'", "Expecting value", 0},
    {"\"a", "Unterminated string starting at", 0},
    {"\"a\\", "Unterminated string starting at", 0},
    {"[\"\xC3\xA9\",\"a", "Unterminated string starting at", 5},
    {"\"a\nb\"", "Invalid control character at", 2},
    {"\"\\x41\"", "Invalid \\escape", 1},
    {"\"\\u12g4\"", "Invalid \\uXXXX escape", 2},
    {"\"\\u12", "Invalid \\uXXXX escape", 2},
    {"\"\\u0000\"", "U+0000 is not allowed", 1},
    {"\"\\ud800\"", "Lone surrogate", 1},
    {"\"\\udc00\"", "Lone surrogate", 1},
    {"\"\\ud800\\u0041\"", "Lone surrogate", 1},
    {"\"\\ud800\\ud800\"", "Lone surrogate", 1},
    {"\"\x80\"", "Invalid UTF-8", 1},
    {"\"\xC0\xAF\"", "Invalid UTF-8", 1},
    {"\"\xE0\x80\x80\"", "Invalid UTF-8", 1},
    {"\"\xED\xA0\x80\"", "Invalid UTF-8", 1},
    {"\"\xF4\x90\x80\x80\"", "Invalid UTF-8", 1},
    {"\"\xE2\x82\"", "Invalid UTF-8", 1},
    {"\xEF\xBB\xBF{}", "Unexpected byte order mark", 0},
    {"{\"a\":1,\"a\":2}", "Duplicate key", 7},
    {"{\"a\":1,\"\\u0061\":2}", "Duplicate key", 7},
    {"{\"\xC3\xA9\":1,\"\\u00e9\":2}", "Duplicate key", 7},
    {"{\"\xF0\x9F\x98\x80\":1,\"\\ud83d\\ude00\":2}", "Duplicate key", 7},
    {"{\"\\n\":1,\"\\u000A\":2}", "Duplicate key", 8},
    {"[{\"a\":{\"b\":1,\"c\":2,\"b\":3}}]", "Duplicate key", 19},
    {"{\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0,\"7\":0,\"8\":0,\"9\":0,\"3\":0}",
     "Duplicate key", 55},
};

START_TEST(what_is_no_json_is_refused_with_reason_and_place)
{
    size_t length = strlen(malformed[_i].text);
    auto_free char *exact = malloc(length); /* no NUL, so that a sanitizer sees who reads on */
    char expected[160];
    struct error err;

    snprintf(expected, sizeof(expected), "JSON decode error: %s (character %d)",
             malformed[_i].reason, malformed[_i].position);
    memcpy(exact, malformed[_i].text, length);
    ck_assert_int_eq(json_check(exact, length, &err), -1);
    ck_assert_str_eq(err.message, expected);
    ck_assert_int_eq(err.kind, ERR_INVALID);
}
END_TEST

START_TEST(a_raw_nul_is_refused)
{
    struct error err;

    ck_assert_int_eq(json_check("\"a\0b\"", 5, &err), -1);
    ck_assert_int_eq(json_check("{}\0", 3, &err), -1);
    ck_assert_int_eq(json_check("", 0, &err), -1);
}
END_TEST

static int check_nested(int depth, char open, char close)
{
    auto_buffer struct buffer text = {0};
    struct error err;

    for (int i = 0; i < depth; i++)
        buffer_text(&text, open == '{' && i ? "\"a\":{" : open == '{' ? "{" : "[");
    for (int i = 0; i < depth; i++)
        buffer_char(&text, close);
    return json_check(text.data, text.length, &err);
}

START_TEST(nesting_has_a_limit)
{
    ck_assert_int_eq(check_nested(JSON_DEPTH_MAX, '[', ']'), 0);
    ck_assert_int_eq(check_nested(JSON_DEPTH_MAX, '{', '}'), 0);
    ck_assert_int_eq(check_nested(JSON_DEPTH_MAX + 1, '[', ']'), -1);
    ck_assert_int_eq(check_nested(JSON_DEPTH_MAX + 1, '{', '}'), -1);
    ck_assert_int_eq(check_nested(1000000, '[', ']'), -1);
}
END_TEST

START_TEST(a_million_keys_are_told_apart_in_time)
{
    auto_buffer struct buffer text = {0};
    struct timespec start, end;
    struct error err;

    buffer_char(&text, '{');
    for (int i = 0; i < 1000000; i++)
        buffer_format(&text, "%s\"%x\":1", i ? "," : "", (unsigned)i);
    clock_gettime(CLOCK_MONOTONIC, &start);
    buffer_char(&text, '}');
    ck_assert_int_eq(json_check(text.data, text.length, &err), 0);
    text.length--;
    buffer_text(&text, ",\"7777\":1}");
    ck_assert_int_eq(json_check(text.data, text.length, &err), -1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    ck_assert_int_lt(end.tv_sec - start.tv_sec, 15); /* sanitizers included */
}
END_TEST

START_TEST(a_number_may_be_long)
{
    auto_buffer struct buffer text = {0};
    struct error err;

    buffer_text(&text, "0.");
    for (int i = 0; i < 1000000; i++)
        buffer_char(&text, '3');
    ck_assert_int_eq(json_check(text.data, text.length, &err), 0);
    buffer_text(&text, "e1000000");
    ck_assert_int_eq(json_check(text.data, text.length, &err), -1);
    text.length -= strlen("e1000000");
    buffer_text(&text, "e309");
    ck_assert_int_eq(json_check(text.data, text.length, &err), -1);
    text.length--;
    buffer_text(&text, "8");
    ck_assert_int_eq(json_check(text.data, text.length, &err), 0);
}
END_TEST

/* --- decoding -------------------------------------------------------------------------- */

struct tool {
    const char *name;
    int64_t size;
    const char *inner;
};

struct leaf {
    const char *word;
};

static const struct field leaf_fields[] = {{TEXT(leaf, word), .max = 3}};
SCHEMA_WITH(leaf, .closed = true);

static const struct field tool_fields[] = {
    {TEXT(tool, name), .min = 1, .max = 8, .pattern = "[a-z]+"},
    {NUMBER(tool, size), .min = 0, .max = 100, .fallback = "7"},
    {JSON(tool, inner), .shape = SHAPE_LIST, .element = &schema_leaf, .max = 3, .fallback = "[]"},
};

static const char *tool_check(const void *value, const char **field)
{
    const struct tool *tool = value;

    if (strcmp(tool->name, "whole") == 0)
        return "The whole is wrong";
    if (strcmp(tool->name, "part") != 0)
        return NULL;
    *field = "size";
    return "This part is wrong";
}
SCHEMA_WITH(tool, .check = tool_check);

struct repo {
    const char *kind;
    const char *url;
};

static const struct field repo_fields[] = {{TEXT(repo, kind)}, {TEXT(repo, url)}};
SCHEMA(repo);

struct inline_source {
    const char *text;
};

static const struct field inline_source_fields[] = {
    {TEXT(inline_source, text), .fallback = "\"\""}};
SCHEMA_WITH(inline_source, .closed = true);

static const struct variant source_variants[] = {{"repo", &schema_repo},
                                                 {"inline", &schema_inline_source}};
SCHEMA_UNION(source, "kind");

struct everything {
    const char *text;
    int64_t number;
    double real;
    bool flag;
    struct texts texts;
    struct numbers numbers;
    const char *any;
    const char *object;
    const char *list;
    const char *map;
    const char *tools_map;
    const char *source;
    const char *tool;
    const int64_t *maybe_number;
    const double *maybe_real;
    const bool *maybe_flag;
};

static const char *no_spaces(const char *text)
{
    return strchr(text, ' ') ? "No spaces here" : NULL;
}

static const struct field everything_fields[] = {
    {TEXT(everything, text), .min = 2, .max = 4, .check = no_spaces, .optional = true},
    {NUMBER(everything, number), .min = -5, .max = 5, .optional = true},
    {REAL(everything, real), .max = 10, .above = 0.5, .exclusive = true, .optional = true},
    {FLAG(everything, flag), .optional = true},
    {TEXTS(everything, texts), .min = 1, .max = 2, .choices = "a|bb", .optional = true},
    {NUMBERS(everything, numbers), .min = 1, .max = 9, .optional = true},
    {JSON(everything, any), .optional = true, .nullable = true},
    {JSON(everything, object), .shape = SHAPE_OBJECT, .optional = true},
    {JSON(everything, list), .shape = SHAPE_LIST, .element = &schema_tool, .min = 1, .max = 3,
     .optional = true},
    {JSON(everything, map), .shape = SHAPE_MAP, .check = no_spaces, .max = 2, .optional = true},
    {JSON(everything, tools_map), .shape = SHAPE_MAP, .element = &schema_tool, .optional = true},
    {JSON(everything, source), .shape = SHAPE_OBJECT, .element = &schema_source, .optional = true},
    {JSON(everything, tool), .shape = SHAPE_OBJECT, .element = &schema_tool, .optional = true},
    {MAYBE_NUMBER(everything, maybe_number), .min = 1, .optional = true, .nullable = true},
    {MAYBE_REAL(everything, maybe_real), .optional = true, .nullable = true},
    {MAYBE_FLAG(everything, maybe_flag), .optional = true, .nullable = true},
};
SCHEMA(everything);

static int decode(const struct schema *schema, const char *text, struct arena *arena,
                  struct decoded *out, struct error *err)
{
    auto_free char *exact = malloc(strlen(text) + !*text);

    memcpy(exact, text, strlen(text));
    return json_decode(schema, "body", exact, strlen(text), arena, out, err);
}

static const struct {
    const char *text, *json;
} accepted[] = {
    {"{}", "{}"},
    {"{\"unknown\":[1,{\"x\":null}]}", "{}"},
    {"{\"text\":\"ab\"}", "{\"text\":\"ab\"}"},
    {"{\"te\\u0078t\":\"\\u0061b\"}", "{\"text\":\"ab\"}"},
    /* Four characters, of up to four bytes. */
    {"{\"text\":\"\xC3\xA9\\u20ac\\ud83d\\ude00\xF0\x9F\x98\x80\"}",
     "{\"text\":\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xF0\x9F\x98\x80\"}"},
    {"{\"text\":\"\\\"\\n\"}", "{\"text\":\"\\\"\\n\"}"},
    {"{\"number\":-5}", "{\"number\":-5}"},
    {"{\"number\":1.0}", "{\"number\":1}"},
    {"{\"number\":50e-1}", "{\"number\":5}"},
    {"{\"number\":-0.0e5}", "{\"number\":0}"},
    {"{\"number\":0.5e1}", "{\"number\":5}"},
    {"{\"real\":1}", "{\"real\":1}"},
    {"{\"real\":0.1e1}", "{\"real\":1}"},
    {"{\"real\":2.5}", "{\"real\":2.5}"},
    {"{\"flag\":false}", "{\"flag\":false}"},
    {"{\"texts\":[\"a\", \"bb\"]}", "{\"texts\":[\"a\",\"bb\"]}"},
    {"{\"numbers\":[1, 2.0 ,9]}", "{\"numbers\":[1,2,9]}"},
    {"{\"numbers\":[]}", "{\"numbers\":[]}"},
    {"{\"any\":null}", "{\"any\":null}"},
    {"{\"any\": [ 1 , \"a b\\\" c\" , { \"x\" : 1e2 } ] }",
     "{\"any\":[1,\"a b\\\" c\",{\"x\":1e2}]}"},
    {"{\"object\":{ \"a\" : { } }}", "{\"object\":{\"a\":{}}}"},
    {"{\"list\":[{\"name\":\"a\"},{\"name\":\"b\",\"size\":1e1,\"more\":0}]}",
     "{\"list\":[{\"name\":\"a\",\"size\":7,\"inner\":[]},{\"name\":\"b\",\"size\":10,\"inner\":[]}"
     "]}"},
    {"{\"list\":[{\"inner\":[{\"word\":\"x\"}],\"name\":\"a\"}]}",
     "{\"list\":[{\"name\":\"a\",\"size\":7,\"inner\":[{\"word\":\"x\"}]}]}"},
    {"{\"map\":{\"k\":\"v\",\"\\u006c\" : \"w\"}}", "{\"map\":{\"k\":\"v\",\"l\":\"w\"}}"},
    {"{\"tools_map\":{\"k\":{\"name\":\"a\"}}}",
     "{\"tools_map\":{\"k\":{\"name\":\"a\",\"size\":7,\"inner\":[]}}}"},
    {"{\"source\":{\"url\":\"u\",\"kind\":\"repo\"}}",
     "{\"source\":{\"kind\":\"repo\",\"url\":\"u\"}}"},
    {"{\"source\":{\"kind\":\"inline\"}}", "{\"source\":{\"kind\":\"inline\",\"text\":\"\"}}"},
    {"{\"tool\":{\"name\":\"a\",\"size\":0}}",
     "{\"tool\":{\"name\":\"a\",\"size\":0,\"inner\":[]}}"},
    {"{\"maybe_number\":null,\"maybe_real\":null,\"maybe_flag\":null}",
     "{\"maybe_number\":null,\"maybe_real\":null,\"maybe_flag\":null}"},
    {"{\"maybe_flag\":true,\"maybe_number\":9223372036854775807,\"maybe_real\":-1e-3}",
     "{\"maybe_number\":9223372036854775807,\"maybe_real\":-0.001,\"maybe_flag\":true}"},
};

START_TEST(what_fits_is_taken_and_normalised)
{
    auto_arena struct arena arena = {0};
    struct decoded out;
    struct error err = {0};

    ck_assert_msg(decode(&schema_everything, accepted[_i].text, &arena, &out, &err) == 0, "%s",
                  err.fields ? err.fields : err.message);
    ck_assert_str_eq(out.json, accepted[_i].json);
    ck_assert_int_eq(json_check(out.json, strlen(out.json), &err), 0);
}
END_TEST

static const struct {
    const char *text, *loc, *type, *msg;
} refused[] = {
    {"[]", "[\"body\"]", "dict_type", "Input should be a valid dictionary"},
    {"5", "[\"body\"]", "dict_type", "Input should be a valid dictionary"},
    {"null", "[\"body\"]", "dict_type", "Input should be a valid dictionary"},
    {"", "[\"body\"]", "missing", "Field required"},
    {"{\"text\":1,}", "[\"body\",10]", "json_invalid",
     "JSON decode error: Expecting property name enclosed in double quotes"},
    {"{\"text\":null}", "[\"body\",\"text\"]", "string_type", "Input should be a valid string"},
    {"{\"text\":5}", "[\"body\",\"text\"]", "string_type", "Input should be a valid string"},
    {"{\"text\":\"\xF0\x9F\x98\x80\"}", "[\"body\",\"text\"]", "string_too_short",
     "String should have at least 2 characters"},
    {"{\"text\":\"abcde\"}", "[\"body\",\"text\"]", "string_too_long",
     "String should have at most 4 characters"},
    {"{\"text\":\"a b\"}", "[\"body\",\"text\"]", "value_error", "Value error, No spaces here"},
    {"{\"number\":null}", "[\"body\",\"number\"]", "int_type", "Input should be a valid integer"},
    {"{\"number\":\"1\"}", "[\"body\",\"number\"]", "int_type", "Input should be a valid integer"},
    {"{\"number\":true}", "[\"body\",\"number\"]", "int_type", "Input should be a valid integer"},
    {"{\"number\":1.5}", "[\"body\",\"number\"]", "int_from_float",
     "Input should be a valid integer, got a number with a fractional part"},
    {"{\"number\":1e-1}", "[\"body\",\"number\"]", "int_from_float",
     "Input should be a valid integer, got a number with a fractional part"},
    {"{\"number\":1e300}", "[\"body\",\"number\"]", "int_parsing_size",
     "Unable to parse input string as an integer, exceeded maximum size"},
    {"{\"number\":9223372036854775808}", "[\"body\",\"number\"]", "int_parsing_size",
     "Unable to parse input string as an integer, exceeded maximum size"},
    {"{\"number\":-6}", "[\"body\",\"number\"]", "greater_than_equal",
     "Input should be greater than or equal to -5"},
    {"{\"number\":6}", "[\"body\",\"number\"]", "less_than_equal",
     "Input should be less than or equal to 5"},
    {"{\"real\":\"1\"}", "[\"body\",\"real\"]", "float_type", "Input should be a valid number"},
    {"{\"real\":0.5}", "[\"body\",\"real\"]", "greater_than", "Input should be greater than 0.5"},
    {"{\"real\":10.01}", "[\"body\",\"real\"]", "less_than_equal",
     "Input should be less than or equal to 10"},
    {"{\"flag\":1}", "[\"body\",\"flag\"]", "bool_type", "Input should be a valid boolean"},
    {"{\"flag\":null}", "[\"body\",\"flag\"]", "bool_type", "Input should be a valid boolean"},
    {"{\"texts\":\"a\"}", "[\"body\",\"texts\"]", "list_type", "Input should be a valid list"},
    {"{\"texts\":[]}", "[\"body\",\"texts\"]", "too_short",
     "List should have at least 1 item after validation, not 0"},
    {"{\"texts\":[\"a\",\"a\",\"a\"]}", "[\"body\",\"texts\"]", "too_long",
     "List should have at most 2 items after validation, not 3"},
    {"{\"texts\":[\"a\",1]}", "[\"body\",\"texts\",1]", "string_type",
     "Input should be a valid string"},
    {"{\"texts\":[\"a\",\"b\"]}", "[\"body\",\"texts\",1]", "literal_error",
     "Input should be 'a' or 'bb'"},
    {"{\"numbers\":[1,0]}", "[\"body\",\"numbers\",1]", "greater_than_equal",
     "Input should be greater than or equal to 1"},
    {"{\"numbers\":{}}", "[\"body\",\"numbers\"]", "list_type", "Input should be a valid list"},
    {"{\"object\":[]}", "[\"body\",\"object\"]", "dict_type", "Input should be a valid dictionary"},
    {"{\"list\":{}}", "[\"body\",\"list\"]", "list_type", "Input should be a valid list"},
    {"{\"list\":[]}", "[\"body\",\"list\"]", "too_short",
     "List should have at least 1 item after validation, not 0"},
    {"{\"list\":[{\"name\":\"a\"},7]}", "[\"body\",\"list\",1]", "dict_type",
     "Input should be a valid dictionary"},
    {"{\"list\":[{}]}", "[\"body\",\"list\",0,\"name\"]", "missing", "Field required"},
    {"{\"list\":[{\"name\":\"A\"}]}", "[\"body\",\"list\",0,\"name\"]", "string_pattern_mismatch",
     "String should match pattern '^[a-z]+$'"},
    {"{\"list\":[{\"name\":\"a\",\"inner\":[{\"word\":\"x\"},{\"word\":\"long\"}]}]}",
     "[\"body\",\"list\",0,\"inner\",1,\"word\"]", "string_too_long",
     "String should have at most 3 characters"},
    {"{\"list\":[{\"name\":\"a\",\"inner\":[{\"word\":\"x\",\"y\":1}]}]}",
     "[\"body\",\"list\",0,\"inner\",0,\"y\"]", "extra_forbidden",
     "Extra inputs are not permitted"},
    {"{\"list\":[{\"name\":\"whole\"}]}", "[\"body\",\"list\",0]", "value_error",
     "Value error, The whole is wrong"},
    {"{\"tool\":{\"name\":\"part\"}}", "[\"body\",\"tool\",\"size\"]", "value_error",
     "Value error, This part is wrong"},
    {"{\"map\":{\"k\":null}}", "[\"body\",\"map\",\"k\"]", "string_type",
     "Input should be a valid string"},
    {"{\"map\":{\"a b\":\"v\"}}", "[\"body\",\"map\",\"a b\"]", "value_error",
     "Value error, No spaces here"},
    {"{\"map\":{\"a\":\"v\",\"b\":\"v\",\"c\":\"v\"}}", "[\"body\",\"map\"]", "too_long",
     "Dictionary should have at most 2 items after validation, not 3"},
    {"{\"map\":[]}", "[\"body\",\"map\"]", "dict_type", "Input should be a valid dictionary"},
    {"{\"tools_map\":{\"\\u00e9\":{}}}", "[\"body\",\"tools_map\",\"\xC3\xA9\",\"name\"]",
     "missing", "Field required"},
    {"{\"source\":{}}", "[\"body\",\"source\",\"kind\"]", "missing", "Field required"},
    {"{\"source\":{\"kind\":\"secret stuff\"}}", "[\"body\",\"source\"]", "union_tag_invalid",
     "Input tag found using 'kind' does not match any of the expected tags: 'repo', 'inline'"},
    {"{\"source\":{\"kind\":7}}", "[\"body\",\"source\"]", "union_tag_invalid",
     "Input tag found using 'kind' does not match any of the expected tags: 'repo', 'inline'"},
    {"{\"source\":{\"kind\":\"repo\"}}", "[\"body\",\"source\",\"url\"]", "missing",
     "Field required"},
    {"{\"source\":{\"kind\":\"inline\",\"url\":1}}", "[\"body\",\"source\",\"url\"]",
     "extra_forbidden", "Extra inputs are not permitted"},
    {"{\"maybe_number\":0}", "[\"body\",\"maybe_number\"]", "greater_than_equal",
     "Input should be greater than or equal to 1"},
};

START_TEST(what_does_not_fit_is_refused_with_its_place)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer expected = {0};
    struct decoded out;
    struct error err;

    json_format(&expected, "[{\"loc\":%j,\"msg\":%s,\"type\":%s}]", refused[_i].loc,
                refused[_i].msg, refused[_i].type);
    ck_assert_int_eq(decode(&schema_everything, refused[_i].text, &arena, &out, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
    ck_assert_ptr_nonnull(err.fields);
    ck_assert_str_eq(err.fields, expected.data);
    ck_assert_int_eq(json_check(err.fields, strlen(err.fields), &err), 0);
}
END_TEST

START_TEST(the_struct_holds_the_values)
{
    static const char text[] =
        "{\"text\":\"ab\",\"number\":3,\"real\":1.25,\"flag\":true,\"texts\":[\"a\",\"bb\"],"
        "\"numbers\":[4,5],\"any\":[1, 2],\"map\":{\"k\":\"v\"},\"maybe_number\":6,"
        "\"maybe_real\":7.5,\"maybe_flag\":false}";
    auto_arena struct arena arena = {0};
    const struct everything *value;
    struct decoded out;
    struct error err;

    ck_assert_int_eq(decode(&schema_everything, text, &arena, &out, &err), 0);
    value = out.value;
    ck_assert_str_eq(value->text, "ab");
    ck_assert_int_eq(value->number, 3);
    ck_assert(value->real == 1.25);
    ck_assert(value->flag);
    ck_assert_uint_eq(value->texts.count, 2);
    ck_assert_str_eq(value->texts.items[1], "bb");
    ck_assert_uint_eq(value->numbers.count, 2);
    ck_assert_int_eq(value->numbers.items[1], 5);
    ck_assert_str_eq(value->any, "[1,2]");
    ck_assert_str_eq(value->map, "{\"k\":\"v\"}");
    ck_assert_ptr_null(value->list);
    ck_assert_int_eq(*value->maybe_number, 6);
    ck_assert(*value->maybe_real == 7.5);
    ck_assert(!*value->maybe_flag);
}
END_TEST

START_TEST(presence_and_null_are_one_bit_a_field)
{
    auto_arena struct arena arena = {0};
    struct decoded out;
    struct error err;

    ck_assert_int_eq(decode(&schema_everything, "{\"maybe_number\":null,\"number\":1,\"any\":null}",
                            &arena, &out, &err),
                     0);
    ck_assert_uint_eq(out.given, 1u << 1 | 1u << 6 | 1u << 13);
    ck_assert_uint_eq(out.nulls, 1u << 6 | 1u << 13);
    ck_assert_ptr_null(((const struct everything *)out.value)->maybe_number);
    ck_assert_ptr_null(((const struct everything *)out.value)->any);
}
END_TEST

START_TEST(every_failure_is_told_in_field_order)
{
    static const char expected[] =
        "[{\"loc\":[\"query\",\"name\"],\"msg\":\"Field required\",\"type\":\"missing\"},"
        "{\"loc\":[\"query\",\"size\"],\"msg\":\"Input should be less than or equal to 100\","
        "\"type\":\"less_than_equal\"},"
        "{\"loc\":[\"query\",\"inner\",0,\"word\"],\"msg\":\"Field "
        "required\",\"type\":\"missing\"},"
        "{\"loc\":[\"query\",\"inner\",0,\"b\"],\"msg\":\"Extra inputs are not permitted\","
        "\"type\":\"extra_forbidden\"},"
        "{\"loc\":[\"query\",\"inner\",0,\"a\"],\"msg\":\"Extra inputs are not permitted\","
        "\"type\":\"extra_forbidden\"}]";
    static const char text[] = "{\"inner\":[{\"b\":1,\"a\":2}],\"size\":101}";
    auto_arena struct arena arena = {0};
    struct decoded out;
    struct error err;

    ck_assert_int_eq(json_decode(&schema_tool, "query", text, strlen(text), &arena, &out, &err),
                     -1);
    ck_assert_str_eq(err.fields, expected);
}
END_TEST

static int count_entry(const char *key, const char *value, void *count)
{
    (void)key;
    (void)value;
    ++*(int *)count;
    return 0;
}

START_TEST(a_flood_of_failures_is_bounded)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer text = {0};
    struct decoded out;
    struct error err;
    int count = 0;

    buffer_text(&text, "{\"numbers\":[0");
    for (int i = 0; i < 100000; i++)
        buffer_text(&text, ",0");
    buffer_text(&text, "]}");
    ck_assert_int_eq(decode(&schema_everything, text.data, &arena, &out, &err), -1);
    json_each(&arena, err.fields, count_entry, &count);
    ck_assert_int_eq(count, 100);
}
END_TEST

START_TEST(a_long_key_is_cut_in_a_place)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer text = {0};
    struct decoded out;
    struct error err;

    buffer_text(&text, "{\"map\":{\"");
    for (int i = 0; i < 100000; i++)
        buffer_text(&text, "\xC3\xA9");
    buffer_text(&text, "\":1}}");
    ck_assert_int_eq(decode(&schema_everything, text.data, &arena, &out, &err), -1);
    ck_assert_uint_lt(strlen(err.fields), 300);
    ck_assert_int_eq(json_check(err.fields, strlen(err.fields), &err), 0);
}
END_TEST

/* --- fallbacks ------------------------------------------------------------------------- */

struct defaults {
    const char *text;
    int64_t number;
    double real;
    bool flag;
    struct texts texts;
    const char *object;
    const int64_t *maybe;
};

static const struct field defaults_fields[] = {
    {TEXT(defaults, text), .min = 3, .fallback = "\"\"", .null_is_fallback = true},
    {NUMBER(defaults, number), .fallback = "12"},
    {REAL(defaults, real), .fallback = "0.5"},
    {FLAG(defaults, flag), .fallback = "true", .null_is_fallback = true},
    {TEXTS(defaults, texts), .min = 1, .fallback = "[]"},
    {JSON(defaults, object), .shape = SHAPE_OBJECT, .element = &schema_inline_source,
     .fallback = " { } ", .null_is_fallback = true},
    {MAYBE_NUMBER(defaults, maybe), .nullable = true, .fallback = "null"},
};
SCHEMA(defaults);

static const struct {
    const char *text, *json;
} filled_in[] = {
    {"{}", "{\"text\":\"\",\"number\":12,\"real\":0.5,\"flag\":true,\"texts\":[],"
           "\"object\":{\"text\":\"\"},\"maybe\":null}"},
    {"{\"text\":null,\"flag\":null,\"object\":null,\"maybe\":3}",
     "{\"text\":\"\",\"number\":12,\"real\":0.5,\"flag\":true,\"texts\":[],"
     "\"object\":{\"text\":\"\"},\"maybe\":3}"},
    {"{\"text\":\"abc\",\"number\":1,\"real\":2,\"flag\":false,\"texts\":[\"t\"],"
     "\"object\":{\"text\":\"o\"},\"maybe\":null}",
     "{\"text\":\"abc\",\"number\":1,\"real\":2,\"flag\":false,\"texts\":[\"t\"],"
     "\"object\":{\"text\":\"o\"},\"maybe\":null}"},
};

START_TEST(a_fallback_stands_for_what_is_absent)
{
    auto_arena struct arena arena = {0};
    struct decoded out;
    struct error err = {0};

    ck_assert_msg(decode(&schema_defaults, filled_in[_i].text, &arena, &out, &err) == 0, "%s",
                  err.fields ? err.fields : err.message);
    ck_assert_str_eq(out.json, filled_in[_i].json);
}
END_TEST

START_TEST(null_is_a_fallback_only_where_the_table_says_so)
{
    auto_arena struct arena arena = {0};
    struct decoded out;
    struct error err;

    ck_assert_int_eq(decode(&schema_defaults, "{\"number\":null}", &arena, &out, &err), -1);
    ck_assert_int_eq(decode(&schema_defaults, "{\"text\":null}", &arena, &out, &err), 0);
    ck_assert_uint_eq(out.given, 1);
    ck_assert_uint_eq(out.nulls, 1);
    ck_assert_str_eq(((const struct defaults *)out.value)->text, "");
    ck_assert_int_eq(((const struct defaults *)out.value)->number, 12);
}
END_TEST

struct broken {
    const char *text;
};

static const struct field broken_type_fields[] = {{TEXT(broken, text), .fallback = "5"}};
static const struct field broken_syntax_fields[] = {{TEXT(broken, text), .fallback = "\"x"}};
static const struct schema broken_schemas[] = {
    {.name = "broken", .fields = broken_type_fields, .count = 1, .size = sizeof(struct broken)},
    {.name = "broken", .fields = broken_syntax_fields, .count = 1, .size = sizeof(struct broken)},
};

START_TEST(a_fallback_that_does_not_fit_is_our_defect)
{
    auto_arena struct arena arena = {0};
    struct decoded out;
    struct error err;

    ck_assert_int_eq(decode(&broken_schemas[_i], "{}", &arena, &out, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INTERNAL);
    ck_assert_str_eq(err.message, "broken.text: the fallback does not fit");
}
END_TEST

/* --- numbers --------------------------------------------------------------------------- */

static const struct {
    const char *text;
    int64_t value;
} integers[] = {
    {"9223372036854775807", INT64_MAX},
    {"-9223372036854775808", INT64_MIN},
    {"9007199254740993", INT64_C(9007199254740993)},
    {"922337203685477580.7e1", INT64_MAX},
    {"9223372036854775807000e-3", INT64_MAX},
    {"0.000000000000000000000000000009e30", 9},
    {"100000000000000000000e-20", 1},
    {"1E2", 100},
    {"0e999999999999", 0},
    {"-0", 0},
    {"1.0000000000000000000000000000000000000000000", 1},
};

START_TEST(an_integer_is_exact)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer object = {0};

    buffer_format(&object, "{\"n\":%s}", integers[_i].text);
    ck_assert_int_eq(json_member_number(&arena, object.data, "n", 42), integers[_i].value);
}
END_TEST

static const char *const no_integers[] = {
    "9223372036854775808",
    "-9223372036854775809",
    "1e19",
    "1e300",
    "1.5",
    "99999999999999999999999999",
    "1e-1",
    "\"1\"",
    "true",
    "null",
    "[1]",
    "1.0000000000000000000000000000000000000000001",
};

START_TEST(what_is_no_integer_gives_the_fallback)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer object = {0};

    buffer_format(&object, "{\"n\":%s}", no_integers[_i]);
    ck_assert_int_eq(json_member_number(&arena, object.data, "n", 42), 42);
}
END_TEST

/* --- writing --------------------------------------------------------------------------- */

static const struct {
    const char *bytes;
    size_t length;
    const char *json;
} strings[] = {
    {"", 0, "\"\""},
    {"plain /", 7, "\"plain /\""},
    {"\"\\\b\f\n\r\t", 7, "\"\\\"\\\\\\b\\f\\n\\r\\t\""},
    {"\x01\x1F\x7F", 3, "\"\\u0001\\u001f\x7F\""},
    {"\xC3\xA9\xF0\x9F\x98\x80", 6, "\"\xC3\xA9\xF0\x9F\x98\x80\""},
    {"a\xFF"
     "b\xC3",
     4,
     "\"a\xEF\xBF\xBD"
     "b\xEF\xBF\xBD\""},
    {"a\0b", 3,
     "\"a\xEF\xBF\xBD"
     "b\""},
    {"\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
};

START_TEST(a_string_is_escaped_and_always_utf8)
{
    auto_buffer struct buffer out = {0};
    struct error err;

    json_string_n(&out, strings[_i].bytes, strings[_i].length);
    ck_assert_str_eq(out.data, strings[_i].json);
    ck_assert_int_eq(json_check(out.data, out.length, &err), 0);
}
END_TEST

static const struct {
    double value;
    const char *json;
} reals[] = {
    {0.1, "0.1"},
    {1, "1"},
    {-2.5, "-2.5"},
    {1e300, "1e+300"},
    {1.0 / 3, "0.3333333333333333"},
    {INFINITY, "null"},
    {NAN, "null"},
    {5e-324, "4.94065645841247e-324"},
};

START_TEST(a_real_reads_back_the_same)
{
    auto_buffer struct buffer out = {0};

    json_real(&out, reals[_i].value);
    ck_assert_str_eq(out.data, reals[_i].json);
    if (isfinite(reals[_i].value))
        ck_assert(strtod(out.data, NULL) == reals[_i].value);
}
END_TEST

START_TEST(a_format_builds_json)
{
    auto_buffer struct buffer out = {0};

    json_format(&out, "{\"s\":%s,\"n\":%s,\"j\":%j,\"d\":%d,\"f\":%f,\"b\":[%b,%b],\"p\":\"%%\"}",
                "a\"b", NULL, "[1]", INT64_MIN, 0.25, 1, 0);
    ck_assert_str_eq(out.data, "{\"s\":\"a\\\"b\",\"n\":null,\"j\":[1],\"d\":-9223372036854775808,"
                               "\"f\":0.25,\"b\":[true,false],\"p\":\"%\"}");
}
END_TEST

START_TEST(a_struct_is_written_by_its_table)
{
    auto_buffer struct buffer out = {0};
    const int64_t six = 6;
    const struct everything value = {
        .text = "a\"",
        .number = INT64_MAX,
        .real = 0.5,
        .flag = true,
        .texts = {(const char *[]){"x", "y"}, 2},
        .numbers = {(int64_t[]){1, 2}, 2},
        .object = "{\"a\":1}",
        .list = "",
        .maybe_number = &six,
    };

    json_encode(&out, &schema_everything, &value);
    ck_assert_str_eq(
        out.data, "{\"text\":\"a\\\"\",\"number\":9223372036854775807,\"real\":0.5,\"flag\":true,"
                  "\"texts\":[\"x\",\"y\"],\"numbers\":[1,2],\"any\":null,\"object\":{\"a\":1},"
                  "\"maybe_number\":6,\"maybe_real\":null,\"maybe_flag\":null}");
}
END_TEST

START_TEST(a_field_that_must_be_there_is_never_null)
{
    auto_buffer struct buffer out = {0};

    json_encode(&out, &schema_tool, &(const struct tool){0});
    ck_assert_str_eq(out.data, "{\"name\":\"\",\"size\":0,\"inner\":[]}");
}
END_TEST

START_TEST(a_union_is_written_as_what_its_tag_says)
{
    auto_buffer struct buffer out = {0};

    json_encode(&out, &schema_source, &(const struct repo){.kind = "repo", .url = "u"});
    ck_assert_str_eq(out.data, "{\"kind\":\"repo\",\"url\":\"u\"}");
}
END_TEST

START_TEST(field_errors_make_a_list)
{
    auto_buffer struct buffer list = {0};

    json_field_error(&list, "[\"query\",\"limit\"]", "int_type", "no \"number\"");
    json_field_error(&list, "[\"path\",\"id\"]", "missing", "Field required");
    ck_assert_str_eq(
        list.data,
        "{\"loc\":[\"query\",\"limit\"],\"msg\":\"no \\\"number\\\"\",\"type\":\"int_type\"},"
        "{\"loc\":[\"path\",\"id\"],\"msg\":\"Field required\",\"type\":\"missing\"}");
}
END_TEST

/* --- members --------------------------------------------------------------------------- */

START_TEST(single_members_are_read)
{
    static const char object[] = " { \"a\" : \"x\\u00e9\\n\" , \"b\\u0062\" : { \"a\" : [1, 2] } , "
                                 "\"n\" : 12 , \"e\" : \"\" } ";
    auto_arena struct arena arena = {0};

    ck_assert_str_eq(json_member_text(&arena, object, "a"), "x\xC3\xA9\n");
    ck_assert_str_eq(json_member(&arena, object, "a"), "\"x\\u00e9\\n\"");
    ck_assert_str_eq(json_member(&arena, object, "bb"), "{ \"a\" : [1, 2] }");
    ck_assert_int_eq(json_member_number(&arena, object, "n", 0), 12);
    ck_assert_str_eq(json_member_text(&arena, object, "e"), "");
    ck_assert_ptr_null(json_member(&arena, object, "b"));
    ck_assert_ptr_null(json_member(&arena, object, ""));
    ck_assert_ptr_null(json_member_text(&arena, object, "n"));
    ck_assert_ptr_null(json_member(&arena, "[1]", "a"));
    ck_assert_ptr_null(json_member(&arena, NULL, "a"));
}
END_TEST

struct seen {
    struct buffer text;
    int stop_at;
};

static int see(const char *key, const char *value, void *context)
{
    struct seen *seen = context;

    buffer_format(&seen->text, "%s=%s;", key ? key : "-", value);
    return --seen->stop_at == 0 ? 7 : 0;
}

static const struct {
    const char *container, *seen;
    int stop_at, result;
} walks[] = {
    {"{ \"a\" : 1 , \"\\u0062\":[ 2 ] }", "a=1;b=[ 2 ];", 0, 0},
    {"[1, \"x\" ,{}]", "-=1;-=\"x\";-={};", 0, 0},
    {"[1,2,3]", "-=1;-=2;", 2, 7},
    {"[]", "", 0, 0},
    {" {} ", "", 0, 0},
    {"5", "", 0, 0},
};

START_TEST(a_container_is_walked)
{
    auto_arena struct arena arena = {0};
    struct seen seen = {.stop_at = walks[_i].stop_at};

    buffer_text(&seen.text, "");
    ck_assert_int_eq(json_each(&arena, walks[_i].container, see, &seen), walks[_i].result);
    ck_assert_str_eq(seen.text.data, walks[_i].seen);
    buffer_done(&seen.text);
}
END_TEST

static const char *const nonsense[] = {
    "",
    "{",
    "{\"",
    "{\"a",
    "{\"a\"",
    "{\"a\":",
    "{\"a\":\"",
    "{\"a\":\"\\",
    "[",
    "[[[[",
    "[1,",
    "{\"a\":[",
    "{a:1}",
    "[\"\\u12",
    "{\"\\",
    "{\"\xF0\x9F\":1",
    "{\"\\u0000\":1,\"a\":2}",
    "{\"a\":\"\\u\xFF\xFF\xFF\"}",
};

START_TEST(members_of_nonsense_are_read_without_harm)
{
    auto_arena struct arena arena = {0};
    auto_free char *exact = strdup(nonsense[_i]);
    struct seen seen = {0};

    json_member(&arena, exact, "a");
    json_member(&arena, exact, "");
    json_member_text(&arena, exact, "a");
    json_member_number(&arena, exact, "a", 0);
    json_each(&arena, exact, see, &seen);
    buffer_done(&seen.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json");
    TCase *syntax = unit_case(suite, "syntax");
    TCase *decoding = unit_case(suite, "decoding");
    TCase *writing = unit_case(suite, "writing");
    TCase *members = unit_case(suite, "members");

    tcase_set_timeout(syntax, 30);
    unit_table(syntax, what_is_json_is_taken, well_formed);
    unit_table(syntax, what_is_no_json_is_refused_with_reason_and_place, malformed);
    tcase_add_test(syntax, a_raw_nul_is_refused);
    tcase_add_test(syntax, nesting_has_a_limit);
    tcase_add_test(syntax, a_million_keys_are_told_apart_in_time);
    tcase_add_test(syntax, a_number_may_be_long);

    unit_table(decoding, what_fits_is_taken_and_normalised, accepted);
    unit_table(decoding, what_does_not_fit_is_refused_with_its_place, refused);
    tcase_add_test(decoding, the_struct_holds_the_values);
    tcase_add_test(decoding, presence_and_null_are_one_bit_a_field);
    tcase_add_test(decoding, every_failure_is_told_in_field_order);
    tcase_add_test(decoding, a_flood_of_failures_is_bounded);
    tcase_add_test(decoding, a_long_key_is_cut_in_a_place);
    unit_table(decoding, a_fallback_stands_for_what_is_absent, filled_in);
    tcase_add_test(decoding, null_is_a_fallback_only_where_the_table_says_so);
    unit_table(decoding, a_fallback_that_does_not_fit_is_our_defect, broken_schemas);
    unit_table(decoding, an_integer_is_exact, integers);
    unit_table(decoding, what_is_no_integer_gives_the_fallback, no_integers);

    unit_table(writing, a_string_is_escaped_and_always_utf8, strings);
    unit_table(writing, a_real_reads_back_the_same, reals);
    tcase_add_test(writing, a_format_builds_json);
    tcase_add_test(writing, a_struct_is_written_by_its_table);
    tcase_add_test(writing, a_field_that_must_be_there_is_never_null);
    tcase_add_test(writing, a_union_is_written_as_what_its_tag_says);
    tcase_add_test(writing, field_errors_make_a_list);

    tcase_add_test(members, single_members_are_read);
    unit_table(members, a_container_is_walked, walks);
    unit_table(members, members_of_nonsense_are_read_without_harm, nonsense);
    return unit_run(suite);
}
