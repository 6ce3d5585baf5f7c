/* Paths → routes, query strings and bodies → structs, hosts and origins. */
#include "http/router.h"

#include "common/json.h"
#include "tests/unit/http/served.h"

static int nothing(struct request *req, struct response *res, struct error *err)
{
    (void)req, (void)res, (void)err;
    return 0;
}

struct filter {
    const char *name;
    int64_t limit;
    bool all;
    struct texts tags;
};

static const struct field filter_fields[] = {
    {TEXT(filter, name), .optional = true, .max = 5},
    {NUMBER(filter, limit), .min = 0, .max = INT64_MAX, .fallback = "10"},
    {FLAG(filter, all), .fallback = "false"},
    {TEXTS(filter, tags), .optional = true},
};
SCHEMA(filter);

#define ROW(verb, template, rule, reply, ...)                                                      \
    {                                                                                              \
        METHOD_##verb, template, nothing, "handler", RULE_##rule, .status = 200,                   \
                                                                  .reply_type = reply, __VA_ARGS__ \
    }

const struct route routes[] = {
    {.room = "First"},
    ROW(GET, "/", PUBLIC, REPLY_ONE),
    ROW(GET, "/page", PUBLIC, REPLY_TEXT),
    ROW(GET, "/secret", METRICS, REPLY_TEXT),
    {.room = "Second"},
    ROW(GET, "/api/things", PROJECT, REPLY_MANY, .query = &schema_filter),
    ROW(POST, "/api/things", PROJECT, REPLY_ONE, .body_type = BODY_JSON, .body = &schema_filter),
    ROW(GET, "/api/things/{id}", PROJECT, REPLY_ONE),
    ROW(GET, "/api/things/{id}/parts/{part}", PROJECT, REPLY_ONE),
    ROW(POST, "/api/things/{id}/file", PROJECT, REPLY_ONE, .body_type = BODY_UPLOAD),
};
const size_t route_count = COUNT(routes);

/* --- matching
 * ---------------------------------------------------------------------------------------------------------
 */

static const struct {
    const char *method, *path, *route, *allow, *first, *second;
} matches[] = {
    {"GET", "/", "/", NULL, NULL, NULL},
    {"GET", "/page", "/page", NULL, NULL, NULL},
    {"HEAD", "/page", "/page", NULL, NULL, NULL},
    {"HEAD", "/secret", NULL, "GET", NULL, NULL},
    {"POST", "/page", NULL, "GET, HEAD", NULL, NULL},
    {"GET", "/%70age", "/page", NULL, NULL, NULL},
    {"GET", "/Page", NULL, NULL, NULL, NULL},
    {"GET", "//page", NULL, NULL, NULL, NULL},
    {"GET", "/page/", NULL, NULL, NULL, NULL},
    {"GET", "", NULL, NULL, NULL, NULL},
    {"OPTIONS", "*", NULL, NULL, NULL, NULL},
    {"GET", "page", NULL, NULL, NULL, NULL},
    {"GET", "/api/things", "/api/things", NULL, NULL, NULL},
    {"DELETE", "/api/things", NULL, "GET, POST", NULL, NULL},
    {"OPTIONS", "/api/things", NULL, "GET, POST", NULL, NULL},
    {"get", "/api/things", NULL, "GET, POST", NULL, NULL},
    {"GET", "/api/things/", NULL, NULL, NULL, NULL},
    {"GET", "/api/things/a%20b", "/api/things/{id}", NULL, "a b", NULL},
    {"GET", "/api/things/a+b", "/api/things/{id}", NULL, "a+b", NULL},
    {"GET", "/api/things/a%2Fb", "/api/things/{id}", NULL, "a/b", NULL},
    {"GET", "/api/things/%c3%A9", "/api/things/{id}", NULL, "\xC3\xA9", NULL},
    {"GET", "/api/things/%", "/api/things/{id}", NULL, "%", NULL},
    {"GET", "/api/things/%4", "/api/things/{id}", NULL, "%4", NULL},
    {"GET", "/api/things/%zz", "/api/things/{id}", NULL, "%zz", NULL},
    {"GET", "/api/things/%25zz", "/api/things/{id}", NULL, "%zz", NULL},
    {"GET", "/api/things/..", "/api/things/{id}", NULL, "..", NULL},
    {"GET", "/api/things/a%00b", NULL, NULL, NULL, NULL},
    {"GET", "/api/things/%ff", NULL, NULL, NULL, NULL},
    {"GET", "/api/things/%ed%a0%80", NULL, NULL, NULL, NULL},
    {"GET", "/api/things/1/parts/2", "/api/things/{id}/parts/{part}", NULL, "1", "2"},
    {"GET", "/api/things//parts/2", NULL, NULL, NULL, NULL},
    {"GET", "/api/things/1/parts/", NULL, NULL, NULL, NULL},
    {"GET", "/api/things/1/parts/2/3", NULL, NULL, NULL, NULL},
    {"GET", "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18", NULL, NULL, NULL, NULL},
};

static void assert_text(const char *got, const char *want)
{
    if (want)
        ck_assert_str_eq(got, want);
    else
        ck_assert_ptr_null(got);
}

START_TEST(a_path_finds_its_route)
{
    auto_arena struct arena arena = {0};
    const char *values[PATH_VALUES_MAX], *allow;
    const struct route *route =
        router_match(matches[_i].method, matches[_i].path, &arena, values, &allow);

    assert_text(route ? route->path : NULL, matches[_i].route);
    assert_text(allow, matches[_i].allow);
    if (!route)
        return;
    assert_text(values[0], matches[_i].first);
    assert_text(values[1], matches[_i].second);
    ck_assert_ptr_null(values[2]);
}
END_TEST

START_TEST(labels_name_each_path_once)
{
    ck_assert_str_eq(router_labels(), "none|/|/page|/secret|/api/things|/api/things/{id}|"
                                      "/api/things/{id}/parts/{part}|/api/things/{id}/file");
}
END_TEST

/* --- query strings
 * ------------------------------------------------------------------------------------------------------
 */

static const struct {
    const char *query;
    const char *want; /* the struct as JSON, or NULL: 422 */
    const char *blamed;
} queries[] = {
    {NULL, "{\"limit\":10,\"all\":false,\"tags\":[]}", NULL},
    {"", "{\"limit\":10,\"all\":false,\"tags\":[]}", NULL},
    {"&&unknown=1&limit", NULL, "\"limit\""},
    {"limit=0", "{\"limit\":0,\"all\":false,\"tags\":[]}", NULL},
    {"limit=007", "{\"limit\":7,\"all\":false,\"tags\":[]}", NULL},
    {"limit=-0", "{\"limit\":0,\"all\":false,\"tags\":[]}", NULL},
    {"limit=9223372036854775807", "{\"limit\":9223372036854775807,\"all\":false,\"tags\":[]}",
     NULL},
    {"limit=9223372036854775808", NULL, "\"limit\""},
    {"limit=18446744073709551616", NULL, "\"limit\""},
    {"limit=-1", NULL, "\"limit\""},
    {"limit=-", NULL, "\"limit\""},
    {"limit=", NULL, "\"limit\""},
    {"limit=1.0", NULL, "\"limit\""},
    {"limit=1.5", NULL, "\"limit\""},
    {"limit=1e3", NULL, "\"limit\""},
    {"limit=0x1", NULL, "\"limit\""},
    {"limit=+1", NULL, "\"limit\""},
    {"limit=%201", NULL, "\"limit\""},
    {"limit=true", NULL, "\"limit\""},
    {"limit=1]", NULL, "\"limit\""},
    {"limit=1&limit=2", "{\"limit\":2,\"all\":false,\"tags\":[]}", NULL},
    {"all=true", "{\"limit\":10,\"all\":true,\"tags\":[]}", NULL},
    {"all=1", NULL, "\"all\""},
    {"all=True", NULL, "\"all\""},
    {"name=a+b%2B", "{\"name\":\"a b+\",\"limit\":10,\"all\":false,\"tags\":[]}", NULL},
    {"name=%22%5C", "{\"name\":\"\\\"\\\\\",\"limit\":10,\"all\":false,\"tags\":[]}", NULL},
    {"na%6de=x", "{\"name\":\"x\",\"limit\":10,\"all\":false,\"tags\":[]}", NULL},
    {"name=a=b", "{\"name\":\"a=b\",\"limit\":10,\"all\":false,\"tags\":[]}", NULL},
    {"name=123456", NULL, "\"name\""},
    {"name=%00", NULL, "\"name\""},
    {"name=%ff", NULL, "\"name\""},
    {"name=true", "{\"name\":\"true\",\"limit\":10,\"all\":false,\"tags\":[]}", NULL},
    {"other=%ff", "{\"limit\":10,\"all\":false,\"tags\":[]}", NULL},
    {"tags=a&tags=b&limit=1", "{\"limit\":1,\"all\":false,\"tags\":[\"a\",\"b\"]}", NULL},
};

static const struct route *route_of(const char *path, enum route_method method)
{
    for (size_t i = 0; i < route_count; i++)
        if (routes[i].run && routes[i].method == method && strcmp(routes[i].path, path) == 0)
            return &routes[i];
    return NULL;
}

START_TEST(a_query_string_fits_its_table)
{
    auto_buffer struct buffer out = {0};
    struct served served;
    struct error err = {0};

    serve_begin(&served, "GET", "/api/things", queries[_i].query, NULL);
    served.req.route = route_of("/api/things", METHOD_GET);
    if (queries[_i].want) {
        ck_assert_msg(request_read_query(&served.req, &err) == 0, "%s: %s", queries[_i].query,
                      err.message);
        json_encode(&out, &schema_filter, served.req.query);
        ck_assert_str_eq(out.data, queries[_i].want);
    } else {
        ck_assert_int_eq(request_read_query(&served.req, &err), -1);
        ck_assert_int_eq(err.kind, ERR_INVALID);
        ck_assert_ptr_nonnull(err.fields);
        ck_assert_ptr_nonnull(strstr(err.fields, queries[_i].blamed));
        ck_assert_ptr_nonnull(strstr(err.fields, "[\"query\","));
    }
    serve_end(&served);
}
END_TEST

/* --- bodies
 * ------------------------------------------------------------------------------------------------------------------
 */

START_TEST(a_json_body_is_decoded)
{
    static const char body[] = "{\"name\":\"abc\",\"limit\":3,\"more\":null}";
    const struct filter *filter;
    struct served served;
    struct error err;

    serve_begin(&served, "POST", "/api/things", NULL, NULL);
    served.req.route = route_of("/api/things", METHOD_POST);
    serve_body(&served, body, strlen(body));
    ck_assert_int_eq(request_read_body(&served.req, &err), 0);
    filter = served.req.body;
    ck_assert_str_eq(filter->name, "abc");
    ck_assert_int_eq(filter->limit, 3);
    ck_assert_uint_eq(served.req.given, 3);
    ck_assert_uint_eq(served.req.nulls, 0);
    ck_assert_str_eq(served.req.body_json, "{\"name\":\"abc\",\"limit\":3,\"all\":false}");
    ck_assert(exchange_complete(served.req.exchange));
    serve_end(&served);
}
END_TEST

static const struct {
    const char *body;
    enum error_kind kind;
} bad_bodies[] = {{"", ERR_INVALID},
                  {"{", ERR_INVALID},
                  {"[]", ERR_INVALID},
                  {"null", ERR_INVALID},
                  {"{\"name\":1}", ERR_INVALID},
                  {"\xFF", ERR_INVALID},
                  {"{} {}", ERR_INVALID},
                  {"\"\xED\xA0\x80\"", ERR_INVALID}};

START_TEST(a_bad_body_is_refused)
{
    struct served served;
    struct error err;

    serve_begin(&served, "POST", "/api/things", NULL, NULL);
    served.req.route = route_of("/api/things", METHOD_POST);
    serve_body(&served, bad_bodies[_i].body, strlen(bad_bodies[_i].body));
    ck_assert_int_eq(request_read_body(&served.req, &err), -1);
    ck_assert_int_eq(err.kind, bad_bodies[_i].kind);
    ck_assert_ptr_nonnull(err.fields);
    serve_end(&served);
}
END_TEST

START_TEST(a_body_too_large_is_refused_unread)
{
    struct served served;
    struct error err;

    serve_begin(&served, "POST", "/api/things", NULL, NULL);
    served.req.route = route_of("/api/things", METHOD_POST);
    serve_body(&served, "{}", 2);
    served.connection.exchange.content_length = JSON_BYTES_MAX + 1;
    ck_assert_int_eq(request_read_body(&served.req, &err), -1);
    ck_assert_int_eq(err.kind, ERR_TOO_LARGE);
    ck_assert_int_eq(served.connection.exchange.body_read, 0);
    ck_assert(!served.connection.exchange.keep_alive);
    serve_end(&served);
}
END_TEST

START_TEST(a_body_that_nobody_wants_is_dropped)
{
    struct served served;
    struct error err;

    serve_begin(&served, "GET", "/api/things/1", NULL, NULL);
    served.req.route = route_of("/api/things/{id}", METHOD_GET);
    serve_body(&served, "{malformed", 10);
    ck_assert_int_eq(request_read_body(&served.req, &err), 0);
    ck_assert_ptr_null(served.req.body);
    ck_assert(exchange_complete(served.req.exchange));
    ck_assert(served.connection.exchange.keep_alive);
    serve_end(&served);
}
END_TEST

/* --- hosts and origins
 * -----------------------------------------------------------------------------------------------------------
 */

static const struct {
    const char *allowed, *host;
    bool answered;
} hosts[] = {
    {"*", NULL, true},
    {"*", "anything", true},
    {"", "anything", true},
    {"example.com", "example.com", true},
    {"example.com", "example.com:8000", true},
    {"example.com", "EXAMPLE.com", true},
    {"example.com", "example.com.evil", false},
    {"example.com", "xexample.com", false},
    {"example.com", "sub.example.com", false},
    {"example.com", "localhost:1", true},
    {"example.com", "127.0.0.1", true},
    {"example.com", "[::1]:8000", false},
    {"example.com", "", false},
    {"example.com", NULL, false},
    {" a.org , *.example.com ", "a.org", true},
    {"*.example.com", "sub.example.com", true},
    {"*.example.com", "a.b.example.com:80", true},
    {"*.example.com", "example.com", false},
    {"*.example.com", ".example.com", false},
    {"*.example.com", "subexample.com", false},
};

START_TEST(hosts_are_answered_by_the_list)
{
    ck_assert_msg(origin_host_allowed(hosts[_i].allowed, hosts[_i].host) == hosts[_i].answered,
                  "%s with %s", hosts[_i].host, hosts[_i].allowed);
}
END_TEST

static const struct {
    const char *origins, *origin, *method, *headers;
    int status;
    const char *has, *lacks;
} preflights[] = {
    {"*", "http://a", "GET", NULL, 200, "Access-Control-Max-Age: 600", "Allow-Headers"},
    {"*", "http://a", "PATCH", "x-one, x-two", 200, "Access-Control-Allow-Headers: x-one, x-two",
     "Vary"},
    {"*", "http://a", "BREW", NULL, 400, "Disallowed CORS method", "Vary"},
    {"http://a, http://b", "http://b", "GET", NULL, 200, "Access-Control-Allow-Origin: http://b",
     "Disallowed"},
    {"http://a, http://b", "http://b", "GET", NULL, 200, "Vary: Origin", "Disallowed"},
    {"http://a, http://b", "http://c", "GET", NULL, 400, "Disallowed CORS origin", "Allow-Origin"},
    {"http://a", "http://c", "GET", NULL, 400, "Access-Control-Allow-Credentials: true",
     "Allow-Origin"},
    {"", "http://c", "GET", NULL, 400, "Vary: Origin", "Allow-Origin"},
};

START_TEST(a_preflight_is_answered)
{
    const char *const headers[] = {"Origin",
                                   preflights[_i].origin,
                                   "Access-Control-Request-Method",
                                   preflights[_i].method,
                                   preflights[_i].headers ? "Access-Control-Request-Headers" : NULL,
                                   preflights[_i].headers,
                                   NULL};
    struct served served;
    const char *got;

    serve_begin(&served, "OPTIONS", "/nothing", NULL, headers);
    settings.cors_origins = preflights[_i].origins;
    ck_assert_int_eq(origin_preflight(&served.req, &served.res), 1);
    ck_assert_int_eq(served.res.status, preflights[_i].status);
    got = serve_answer(&served);
    ck_assert_ptr_nonnull(strstr(got, preflights[_i].has));
    ck_assert_ptr_null(strstr(got, preflights[_i].lacks));
    ck_assert_ptr_nonnull(strstr(
        got, "Access-Control-Allow-Methods: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT\r\n"));
    serve_end(&served);
}
END_TEST

START_TEST(other_options_are_no_preflight)
{
    const char *const headers[] = {"Origin", "http://a", NULL};
    struct served served;

    serve_begin(&served, "OPTIONS", "/page", NULL, headers);
    ck_assert_int_eq(origin_preflight(&served.req, &served.res), 0);
    serve_end(&served);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("router");
    TCase *tests = unit_case(suite, "matching");

    unit_table(tests, a_path_finds_its_route, matches);
    tcase_add_test(tests, labels_name_each_path_once);
    tests = unit_case(suite, "input");
    unit_table(tests, a_query_string_fits_its_table, queries);
    tcase_add_test(tests, a_json_body_is_decoded);
    unit_table(tests, a_bad_body_is_refused, bad_bodies);
    tcase_add_test(tests, a_body_too_large_is_refused_unread);
    tcase_add_test(tests, a_body_that_nobody_wants_is_dropped);
    tests = unit_case(suite, "origin");
    unit_table(tests, hosts_are_answered_by_the_list, hosts);
    unit_table(tests, a_preflight_is_answered, preflights);
    tcase_add_test(tests, other_options_are_no_preflight);
    return unit_run(suite);
}
