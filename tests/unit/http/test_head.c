/* The strict reading of a head: what passes, what is refused and why, and that pieces read as the
 * whole does. */
#include "http/head.h"

#include <string.h>

#include "tests/unit/unit.h"

#define HOST "Host: a\r\n"
#define GET "GET / HTTP/1.1\r\n" HOST

struct refusal_case {
    const char *text;
    size_t length; /* 0: strlen */
    int status;
};

/* A text with a NUL in it. */
#define RAW(text, status)              \
    {                                  \
        text, sizeof(text) - 1, status \
    }

static const struct refusal_case refusals[] = {
    /* request line */
    {"GET /\r\n\r\n", 0, 400},
    {"GET  / HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {" GET / HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET / HTTP/1.1 \r\n" HOST "\r\n", 0, 400},
    {"GET / x HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET\t/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET / HTTP/1.2\r\n" HOST "\r\n", 0, 400},
    {"GET / HTTP/2.0\r\n" HOST "\r\n", 0, 400},
    {"GET / HTTP/0.9\r\n" HOST "\r\n", 0, 400},
    {"GET / http/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET / HTTP/1.10\r\n" HOST "\r\n", 0, 400},
    {"GET / HTTP/01.1\r\n" HOST "\r\n", 0, 400},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, 400},
    {"G@T / HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"get / HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"BREW / HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"TRACE / HTTP/1.1\r\n" HOST "\r\n", 0, 405},
    {"\r\n\r\n", 0, 400},
    /* target */
    {"GET a HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET * HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET /%00 HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET /a?b=%00 HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET /%zz HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET /% HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET /%4 HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET /%4?1 HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET /a#b HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET /\xC3\xA9 HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET /\x7F HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    RAW("GET /\0 HTTP/1.1\r\n" HOST "\r\n", 400),
    {"GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET http://b/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET http:///x HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET http://u@a/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"GET http://a:99x/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    /* line ends and controls */
    {"GET / HTTP/1.1\n" HOST "\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: a\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: a\r\n\n", 0, 400},
    {"GET / HTTP/1.1\r" HOST "\r\n", 0, 400},
    {GET "X: a\rb\r\n\r\n", 0, 400},
    {GET "X: a\x01\r\n\r\n", 0, 400},
    {GET "X: a\x7F\r\n\r\n", 0, 400},
    RAW(GET "X: a\0b\r\n\r\n", 400),
    RAW(GET "X\0: a\r\n\r\n", 400),
    {"\x16\x03\x01\x02", 0, 400},
    /* fields */
    {"GET / HTTP/1.1\r\n " HOST "\r\n", 0, 400},
    {GET "X: a\r\n b\r\n\r\n", 0, 400},
    {GET "X: a\r\n\tb\r\n\r\n", 0, 400},
    {GET "X : a\r\n\r\n", 0, 400},
    {GET "X\t: a\r\n\r\n", 0, 400},
    {GET ": a\r\n\r\n", 0, 400},
    {GET "X\r\n\r\n", 0, 400},
    {GET "X(: a\r\n\r\n", 0, 400},
    {GET "X\xC3: a\r\n\r\n", 0, 400},
    /* Host */
    {"GET / HTTP/1.1\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: [x]\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", 0, 400},
    {"GET / HTTP/1.1\r\nHost: \xC3\xA9\r\n\r\n", 0, 400},
    {GET HOST "\r\n", 0, 400},
    {GET "HOST: b\r\n\r\n", 0, 400},
    {"GET / HTTP/1.0\r\n" HOST HOST "\r\n", 0, 400},
    /* framing */
    {GET "Content-Length: +5\r\n\r\n", 0, 400},
    {GET "Content-Length: -5\r\n\r\n", 0, 400},
    {GET "Content-Length: 0x5\r\n\r\n", 0, 400},
    {GET "Content-Length: 5 5\r\n\r\n", 0, 400},
    {GET "Content-Length: 5,5\r\n\r\n", 0, 400},
    {GET "Content-Length: 5.0\r\n\r\n", 0, 400},
    {GET "Content-Length: 5x\r\n\r\n", 0, 400},
    {GET "Content-Length:\r\n\r\n", 0, 400},
    {GET "Content-Length: 9223372036854775808\r\n\r\n", 0, 400},
    {GET "Content-Length: 4611686018427387913\r\n\r\n", 0, 400},
    {GET "Content-Length: 00000000000000000005\r\n\r\n", 0, 400},
    {GET "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 0, 400},
    {GET "Content-Length: 5\r\ncontent-length: 6\r\n\r\n", 0, 400},
    {GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding: chunked, chunked\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding: gzip, chunked\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding: identity\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding: xchunked\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding: \"chunked\"\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding: chunked;q=1\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding:\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding : chunked\r\n\r\n", 0, 400},
    {GET "Transfer-Encoding: \x0B"
         "chunked\r\n\r\n",
     0, 400},
    {"GET / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 0, 400},
    /* the rest that the gate knows */
    {GET "Connection: a b\r\n\r\n", 0, 400},
    {GET "Connection: \"close\"\r\n\r\n", 0, 400},
    {GET "Upgrade: a b\r\n\r\n", 0, 400},
    {GET "Expect: 200-ok\r\n\r\n", 0, 417},
    {GET "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 0, 400},
    {GET "X-Project: a\r\nx-project: b\r\n\r\n", 0, 400},
};

START_TEST(what_has_two_meanings_is_refused)
{
    const struct refusal_case *row = &refusals[_i];
    size_t length = row->length ? row->length : strlen(row->text), scanned = 0;
    struct head head;

    ck_assert_int_eq(head_check(row->text, length, &scanned, &head), HEAD_REFUSED);
    ck_assert_int_eq(head.status, row->status);
    ck_assert_ptr_nonnull(head.problem);
}
END_TEST

struct passing_case {
    const char *text;
    const char *written; /* as head_write gives it */
    bool keep_alive, chunked;
    int64_t content_length;
};

static const struct passing_case passing[] = {
    {GET "\r\n", GET "\r\n", true, false, -1},
    {"GET /a?b=c%20d&e=[] HTTP/1.1\r\n" HOST "\r\n", "GET /a?b=c%20d&e=[] HTTP/1.1\r\n" HOST "\r\n",
     true, false, -1},
    {"GET /a?b=% HTTP/1.1\r\n" HOST "\r\n", "GET /a?b=% HTTP/1.1\r\n" HOST "\r\n", true, false, -1},
    {"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS /* HTTP/1.1\r\n" HOST "\r\n", true, false, -1},
    {"GET http://A/x HTTP/1.1\r\n" HOST "\r\n", "GET /x HTTP/1.1\r\n" HOST "\r\n", true, false, -1},
    {"GET http://a:80 HTTP/1.1\r\n" HOST "\r\n", "GET / HTTP/1.1\r\n" HOST "\r\n", true, false, -1},
    {"GET https://a?b HTTP/1.1\r\nHost: a:443\r\n\r\n", "GET /?b HTTP/1.1\r\nHost: a:443\r\n\r\n",
     true, false, -1},
    {"GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n", "GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n",
     true, false, -1},
    {"GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", false, false, -1},
    {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", true, false, -1},
    {GET "Connection: close\r\n\r\n", GET "\r\n", false, false, -1},
    {GET "Connection: keep-alive, , Close\r\n\r\n", GET "\r\n", false, false, -1},
    {GET "Connection: keep-alive\r\nConnection: close\r\n\r\n", GET "\r\n", false, false, -1},
    {GET "Content-Length:5\r\n\r\n", GET "\r\n", true, false, 5},
    {GET "Content-Length: \t007 \r\n\r\n", GET "\r\n", true, false, 7},
    {GET "Transfer-Encoding: \tCHUNKED \t\r\n\r\n", GET "\r\n", true, true, -1},
    {GET "Expect: 100-Continue\r\nKeep-Alive: 5\r\n\r\n", GET "\r\n", true, false, -1},
    {GET "X:\ta\tb\t\r\nY:\r\n\r\n", GET "X: a b\r\nY: \r\n\r\n", true, false, -1},
    {GET "X: \xC3\xA9\r\nCookie: a\r\nCookie: b\r\n\r\n",
     GET "X: \xC3\xA9\r\nCookie: a\r\nCookie: b\r\n\r\n", true, false, -1},
    {GET "Upgrade: websocket\r\n\r\n", GET "\r\n", true, false, -1},
    {GET "Upgrade: websocket/13\r\nConnection: Upgrade\r\n\r\n",
     GET "Upgrade: websocket/13\r\n\r\n", true, false, -1},
};

START_TEST(a_clean_head_passes_and_is_written_for_a_lenient_parser)
{
    const struct passing_case *row = &passing[_i];
    char written[HEAD_WRITTEN_MAX];
    size_t scanned = 0, length;
    struct head head;

    ck_assert_int_eq(head_check(row->text, strlen(row->text), &scanned, &head), HEAD_COMPLETE);
    ck_assert_uint_eq(head.length, strlen(row->text));
    ck_assert_int_eq(head.keep_alive, row->keep_alive);
    ck_assert_int_eq(head.chunked, row->chunked);
    ck_assert_int_eq(head.content_length, row->content_length);
    length = head_write(&head, written);
    ck_assert_uint_eq(length, strlen(row->written));
    ck_assert_mem_eq(written, row->written, length);
    /* What was written is a clean head itself. */
    scanned = 0;
    ck_assert_int_eq(head_check(written, length, &scanned, &head), HEAD_COMPLETE);
}
END_TEST

START_TEST(what_follows_the_head_is_left_alone)
{
    static const char text[] = GET "\r\nGET /smuggled HTTP/1.1\r\n";
    size_t scanned = 0;
    struct head head;

    ck_assert_int_eq(head_check(text, sizeof(text) - 1, &scanned, &head), HEAD_COMPLETE);
    ck_assert_uint_eq(head.length, strlen(GET "\r\n"));
}
END_TEST

START_TEST(a_head_in_pieces_reads_as_the_whole)
{
    const struct refusal_case *row = &refusals[_i];
    size_t length = row->length ? row->length : strlen(row->text), scanned = 0;
    enum head_state state = HEAD_PARTIAL;
    struct head head;

    for (size_t i = 1; i <= length && state == HEAD_PARTIAL; i++)
        state = head_check(row->text, i, &scanned, &head);
    ck_assert_int_eq(state, HEAD_REFUSED);
    ck_assert_int_eq(head.status, row->status);
}
END_TEST

START_TEST(each_beginning_of_a_clean_head_is_partial)
{
    const struct passing_case *row = &passing[_i];
    size_t length = strlen(row->text), scanned = 0;
    struct head head;

    for (size_t i = 0; i < length; i++)
        ck_assert_int_eq(head_check(row->text, i, &scanned, &head), HEAD_PARTIAL);
    ck_assert_int_eq(head_check(row->text, length, &scanned, &head), HEAD_COMPLETE);
}
END_TEST

/* `fields` fields in all, the last padded so that the head has `total` bytes. */
static size_t make_head(char *out, int fields, size_t total)
{
    char *at = stpcpy(out, GET);

    for (int i = 1; i < fields - 1; i++)
        at += sprintf(at, "X%d: y\r\n", i);
    at = stpcpy(at, "Pad: ");
    while ((size_t)(at - out) + 4 < total)
        *at++ = 'p';
    at = stpcpy(at, "\r\n\r\n");
    return (size_t)(at - out);
}

START_TEST(there_are_64_fields_and_no_more)
{
    static char text[HEAD_BYTES_MAX * 2];
    size_t scanned = 0;
    struct head head;

    ck_assert_int_eq(head_check(text, make_head(text, 64, 0), &scanned, &head), HEAD_COMPLETE);
    ck_assert_uint_eq(head.field_count, 64);
    scanned = 0;
    ck_assert_int_eq(head_check(text, make_head(text, 65, 0), &scanned, &head), HEAD_REFUSED);
    ck_assert_int_eq(head.status, 431);
}
END_TEST

START_TEST(a_head_has_32_kib_and_no_more)
{
    static char text[HEAD_BYTES_MAX * 2];
    size_t scanned = 0;
    struct head head;

    ck_assert_int_eq(head_check(text, make_head(text, 3, HEAD_BYTES_MAX), &scanned, &head),
                     HEAD_COMPLETE);
    scanned = 0;
    ck_assert_int_eq(head_check(text, make_head(text, 3, HEAD_BYTES_MAX + 1), &scanned, &head),
                     HEAD_REFUSED);
    ck_assert_int_eq(head.status, 431);
    scanned = 0;
    ck_assert_int_eq(head_check(text, HEAD_BYTES_MAX, &scanned, &head), HEAD_REFUSED);
    ck_assert_int_eq(head.status, 431);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head");
    TCase *tests = unit_case(suite, "head");

    unit_table(tests, what_has_two_meanings_is_refused, refusals);
    unit_table(tests, a_head_in_pieces_reads_as_the_whole, refusals);
    unit_table(tests, a_clean_head_passes_and_is_written_for_a_lenient_parser, passing);
    unit_table(tests, each_beginning_of_a_clean_head_is_partial, passing);
    tcase_add_test(tests, what_follows_the_head_is_left_alone);
    tcase_add_test(tests, there_are_64_fields_and_no_more);
    tcase_add_test(tests, a_head_has_32_kib_and_no_more);
    return unit_run(suite);
}
