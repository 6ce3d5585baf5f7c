/* Answers and errors as they go over the wire. */
#include <fcntl.h>

#include "common/json.h"
#include "tests/unit/http/served.h"

struct thing {
    const char *name;
};
static const struct field thing_fields[] = {{TEXT(thing, name)}};
SCHEMA(thing);

static int nothing(struct request *req, struct response *res, struct error *err)
{
    (void)req, (void)res, (void)err;
    return 0;
}

const struct route routes[] = {
    {METHOD_GET, "/api/things", nothing, "things_list", RULE_PROJECT, .query = &schema_thing},
    {METHOD_GET, "/metrics", nothing, "metrics", RULE_METRICS},
    {METHOD_POST, "/api/things", nothing, "things_create", RULE_PROJECT, .body_type = BODY_JSON,
     .body = &schema_thing},
};
const size_t route_count = COUNT(routes);

static const char *body_of(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");

    ck_assert_ptr_nonnull(end);
    return end + 4;
}

static void assert_has(const char *answer, const char *line)
{
    ck_assert_msg(strstr(answer, line) != NULL, "no %s in:\n%s", line, answer);
}

static void assert_lacks(const char *answer, const char *line)
{
    ck_assert_msg(strstr(answer, line) == NULL, "%s in:\n%s", line, answer);
}

START_TEST(every_answer_is_hardened)
{
    struct served served;
    const char *got;

    serve_begin(&served, "GET", "/api/things", NULL, NULL);
    settings.security_hsts_seconds = 60;
    response_header(&served.res, "X-Total-Count", "7");
    respond(&served.res, 201, &schema_thing, &(struct thing){"a"});
    got = serve_answer(&served);
    assert_has(got, "HTTP/1.1 201 Created\r\n");
    assert_has(got, "\r\nDate: ");
    assert_has(got, " GMT\r\nServer: ");
    assert_has(got, "\r\nContent-Type: application/json\r\n");
    assert_has(got, "\r\nContent-Length: 12\r\n");
    assert_has(got, "\r\nX-Content-Type-Options: nosniff\r\n");
    assert_has(got, "\r\nX-Frame-Options: DENY\r\n");
    assert_has(got, "\r\nReferrer-Policy: no-referrer\r\n");
    assert_has(got, "\r\nCross-Origin-Opener-Policy: same-origin\r\n");
    assert_has(got, "\r\nContent-Security-Policy: frame-ancestors 'none'; base-uri 'none'; "
                    "object-src 'none'\r\n");
    assert_has(got, "\r\nPermissions-Policy: geolocation=(), microphone=(), camera=()\r\n");
    assert_has(got, "\r\nStrict-Transport-Security: max-age=60\r\n");
    assert_has(got, "\r\nX-Request-Id: the-id\r\n");
    assert_has(got, "\r\nX-Total-Count: 7\r\n");
    assert_lacks(got, "Access-Control");
    assert_lacks(got, "Connection:");
    ck_assert_str_eq(body_of(got), "{\"name\":\"a\"}");
    settings.security_hsts_seconds = 0;
    serve_end(&served);
}
END_TEST

START_TEST(paths_outside_the_sessions_api_have_no_request_id)
{
    struct served served;
    const char *got;

    serve_begin(&served, "GET", "/apis", NULL, NULL);
    respond_nothing(&served.res);
    got = serve_answer(&served);
    assert_has(got, "HTTP/1.1 204 No Content\r\n");
    assert_lacks(got, "X-Request-Id");
    assert_lacks(got, "Content-Length");
    assert_lacks(got, "Content-Type:");
    assert_lacks(got, "Strict-Transport");
    ck_assert_str_eq(body_of(got), "");
    serve_end(&served);
}
END_TEST

START_TEST(head_has_a_length_and_no_body)
{
    struct served served;
    const char *got;

    serve_begin(&served, "HEAD", "/docs", NULL, NULL);
    response_plain(&served.res, 200, "text");
    got = serve_answer(&served);
    assert_has(got, "\r\nContent-Length: 4\r\n");
    ck_assert_str_eq(body_of(got), "");
    serve_end(&served);
}
END_TEST

START_TEST(a_file_is_sent_whole_and_closed)
{
    struct served served;
    const char *got;
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), spare;

    ck_assert_int_eq(write(fd, "a\0b\r\n", 5), 5);
    lseek(fd, 0, SEEK_SET);
    serve_begin(&served, "GET", "/api/things", NULL, NULL);
    respond_file(&served.res, "application/octet-stream", fd, 5);
    got = serve_answer(&served);
    assert_has(got, "\r\nContent-Length: 5\r\n");
    assert_has(got, "\r\nContent-Type: application/octet-stream\r\n");
    ck_assert_mem_eq(body_of(got), "a\0b\r\n", 6);
    ck_assert(served.connection.exchange.keep_alive);
    serve_end(&served);
    spare = fcntl(fd, F_GETFD);
    ck_assert_int_eq(spare, -1);
}
END_TEST

START_TEST(a_file_that_became_shorter_ends_the_connection)
{
    struct served served;

    serve_begin(&served, "GET", "/api/things", NULL, NULL);
    respond_file(&served.res, "application/octet-stream", open("/dev/null", O_RDONLY | O_CLOEXEC),
                 5);
    serve_answer(&served);
    ck_assert(!served.connection.exchange.keep_alive);
    serve_end(&served);
}
END_TEST

START_TEST(an_unread_body_closes_the_connection)
{
    struct served served;

    serve_begin(&served, "POST", "/api/things", NULL, NULL);
    serve_body(&served, "ab", 2);
    served.connection.exchange.content_length = 100;
    respond_json(&served.res, 200, "[]");
    assert_has(serve_answer(&served), "\r\nConnection: close\r\n");
    ck_assert(!served.connection.exchange.keep_alive);
    serve_end(&served);
}
END_TEST

START_TEST(http_1_0_is_told_that_the_connection_stays)
{
    struct served served;

    serve_begin(&served, "GET", "/api/things", NULL, NULL);
    served.info.http_version = "1.0";
    respond_json(&served.res, 200, "[]");
    assert_has(serve_answer(&served), "\r\nConnection: keep-alive\r\n");
    serve_end(&served);
}
END_TEST

START_TEST(a_stream_begins_with_a_head_without_length)
{
    auto_buffer struct buffer head = {0};
    struct served served;

    serve_begin(&served, "GET", "/api/things", NULL,
                (const char *const[]){"Origin", "http://a", NULL});
    response_header(&served.res, "Cache-Control", "no-cache");
    response_stream_head(&served.req, &served.res, "text/event-stream; charset=utf-8", &head);
    assert_has(head.data, "HTTP/1.1 200 OK\r\n");
    assert_has(head.data, "\r\nContent-Type: text/event-stream; charset=utf-8\r\n");
    assert_has(head.data, "\r\nCache-Control: no-cache\r\n");
    assert_has(head.data, "\r\nAccess-Control-Allow-Origin: *\r\n");
    assert_has(head.data, "\r\nConnection: close\r\n\r\n");
    assert_lacks(head.data, "Content-Length");
    ck_assert_str_eq(body_of(head.data), "");
    serve_end(&served);
}
END_TEST

/* --- errors
 * ------------------------------------------------------------------------------------------------------------
 */

static const struct {
    size_t route;
    const char *path;
    struct error err;
    const char *line, *body, *header;
} errors[] = {
    {0,
     "/api/things",
     {.kind = ERR_NOT_FOUND, .message = "no \"thing\""},
     "HTTP/1.1 404 Not Found\r\n",
     "{\"detail\":\"no \\\"thing\\\"\"}",
     NULL},
    {0,
     "/api/things",
     {.kind = ERR_UNAVAILABLE, .retry_after_s = 3, .message = "later"},
     "HTTP/1.1 503 ",
     "{\"detail\":\"later\"}",
     "\r\nRetry-After: 3\r\n"},
    {0,
     "/api/things",
     {.kind = ERR_INTERNAL, .message = "column x of y"},
     "HTTP/1.1 500 ",
     "{\"detail\":\"internal error\"}",
     NULL},
    {0,
     "/api/things",
     {.kind = ERR_UNAUTHENTICATED, .message = "who?"},
     "HTTP/1.1 401 ",
     "{\"detail\":\"who?\"}",
     "\r\nWWW-Authenticate: Bearer\r\n"},
    {0,
     "/api/things",
     {.kind = ERR_INVALID, .fields = "[{\"loc\":[\"query\",\"a\"]}]"},
     "HTTP/1.1 422 ",
     "{\"detail\":[{\"loc\":[\"query\",\"a\"]}]}",
     NULL},
    {0,
     "/api/things",
     {.kind = ERR_INVALID, .message = "odd"},
     "HTTP/1.1 422 ",
     "{\"detail\":[{\"loc\":[\"query\"],\"msg\":\"odd\",\"type\":\"value_error\"}]}",
     NULL},
    {2,
     "/api/things",
     {.kind = ERR_INVALID, .message = "odd"},
     "HTTP/1.1 422 ",
     "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"odd\",\"type\":\"value_error\"}]}",
     NULL},
    {2,
     "/api/things",
     {.kind = ERR_TOO_LARGE, .message = "large"},
     "HTTP/1.1 413 ",
     "{\"detail\":\"large\"}",
     NULL},
    {1,
     "/metrics",
     {.kind = ERR_TOO_LARGE, .message = "large"},
     "HTTP/1.1 413 ",
     "Request body too large",
     "\r\nContent-Type: text/plain; charset=utf-8\r\n"},
    {1,
     "/metrics",
     {.kind = ERR_INTERNAL, .message = "column x of y"},
     "HTTP/1.1 500 ",
     "Internal Server Error",
     "\r\nContent-Type: text/plain; charset=utf-8\r\n"},
    {1,
     "/metrics",
     {.kind = ERR_UNAUTHENTICATED, .message = "who?"},
     "HTTP/1.1 401 ",
     "{\"detail\":\"who?\"}",
     "\r\nWWW-Authenticate: Bearer\r\n"},
};

START_TEST(an_error_becomes_an_answer)
{
    struct served served;
    const char *got;

    serve_begin(&served, "GET", errors[_i].path, NULL, NULL);
    served.req.route = &routes[errors[_i].route];
    /* What was answered before it failed is forgotten. */
    response_header(&served.res, "X-Half", "done");
    respond_json(&served.res, 200, "[1,2,");
    response_error(&served.req, &served.res, &errors[_i].err);
    got = serve_answer(&served);
    assert_has(got, errors[_i].line);
    assert_lacks(got, "X-Half");
    if (errors[_i].header)
        assert_has(got, errors[_i].header);
    ck_assert_str_eq(body_of(got), errors[_i].body);
    serve_end(&served);
}
END_TEST

/* --- request ids
 * ---------------------------------------------------------------------------------------------------------
 */

static const struct {
    const char *given;
    bool kept;
} ids[] = {
    {"abc-123", true},
    {"1234567890123456789012345678901234567890123456789012345678901234", true},
    {"12345678901234567890123456789012345678901234567890123456789012345", false},
    {"", false},
    {"a b", false},
    {"a\"b", false},
    {"\xC3\xA9", false},
    {NULL, false},
};

START_TEST(a_request_id_is_kept_when_it_is_one)
{
    const char *const headers[] = {"x-request-id", ids[_i].given, NULL};
    struct served served;
    const char *id;
    char fresh[37];

    serve_begin(&served, "GET", "/api/things", NULL, ids[_i].given ? headers : NULL);
    id = request_make_id(&served.req, fresh);
    if (ids[_i].kept)
        ck_assert_str_eq(id, ids[_i].given);
    else
        ck_assert_uint_eq(strlen(id), 36);
    serve_end(&served);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("response");
    TCase *tests = unit_case(suite, "answers");

    tcase_add_test(tests, every_answer_is_hardened);
    tcase_add_test(tests, paths_outside_the_sessions_api_have_no_request_id);
    tcase_add_test(tests, head_has_a_length_and_no_body);
    tcase_add_test(tests, a_file_is_sent_whole_and_closed);
    tcase_add_test(tests, a_file_that_became_shorter_ends_the_connection);
    tcase_add_test(tests, an_unread_body_closes_the_connection);
    tcase_add_test(tests, http_1_0_is_told_that_the_connection_stays);
    tcase_add_test(tests, a_stream_begins_with_a_head_without_length);
    tests = unit_case(suite, "errors");
    unit_table(tests, an_error_becomes_an_answer, errors);
    unit_table(tests, a_request_id_is_kept_when_it_is_one, ids);
    return unit_run(suite);
}
