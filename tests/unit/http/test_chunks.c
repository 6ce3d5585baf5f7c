/* The chunked coding: bodies, refusals, and that pieces read as the whole does. */
#include "http/chunks.h"

#include <string.h>

#include "tests/unit/unit.h"

struct body_case {
    const char *text;
    const char *data; /* NULL: refused */
    size_t rest;      /* bytes behind the body */
};

#define X16 "xxxxxxxxxxxxxxxx"
#define X256 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16

static const struct body_case bodies[] = {
    {"0\r\n\r\n", "", 0},
    {"5\r\nhello\r\n0\r\n\r\n", "hello", 0},
    {"5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\nGET", "hello0123456789", 3},
    {"00000005\r\nhello\r\n000\r\n\r\n", "hello", 0},
    {"5;a=b\r\nhello\r\n0;c\r\n\r\n", "hello", 0},
    {"5\r\nhello\r\n0\r\nX: y\r\nZ: w\r\n\r\n", "hello", 0},
    {"1;" X256 "\r\na\r\n0\r\n\r\n", "a", 0},
    {"2\r\n\r\n\r\n0\r\n\r\n", "\r\n", 0},
    {"000000005\r\nhello\r\n0\r\n\r\n", NULL, 0},
    {"1;x" X256 "\r\na\r\n0\r\n\r\n", NULL, 0},
    {"\r\nhello\r\n0\r\n\r\n", NULL, 0},
    {"g\r\n", NULL, 0},
    {"-1\r\n", NULL, 0},
    {"+5\r\n", NULL, 0},
    {"0x5\r\nhello\r\n", NULL, 0},
    {" 5\r\nhello\r\n", NULL, 0},
    {"5 \r\nhello\r\n", NULL, 0},
    {"5\nhello\r\n0\r\n\r\n", NULL, 0},
    {"5\r\nhello\n0\r\n\r\n", NULL, 0},
    {"5\r\nhello!\r\n0\r\n\r\n", NULL, 0},
    {"5\r\nhell\r\n0\r\n\r\n", NULL, 0},
    {"5\rhello\r\n", NULL, 0},
    {"5;a\nb\r\nhello\r\n", NULL, 0},
    {"0\r\n X: y\r\n\r\n", NULL, 0},
    {"0\r\nX: y\n\r\n", NULL, 0},
    {"0\r\n\rx", NULL, 0},
};

/* Read the text in pieces of `step` bytes, with room for `step` bytes of data each time. */
static void read_in_steps(const struct body_case *row, size_t step)
{
    struct chunks chunks = {0};
    size_t length = strlen(row->text), at = 0, got = 0;
    char data[1024];
    int result = 0;

    while (at < length && result == 0 && !chunks.done) {
        size_t in = length - at < step ? length - at : step, out = step;

        result = chunks_read(&chunks, row->text + at, &in, data + got, &out);
        if (result < 0)
            break;
        at += in;
        got += out;
    }
    if (!row->data) {
        ck_assert_int_eq(result, -1);
        return;
    }
    ck_assert_int_eq(result, 0);
    ck_assert(chunks.done);
    ck_assert_uint_eq(got, strlen(row->data));
    ck_assert_mem_eq(data, row->data, got);
    ck_assert_uint_eq(length - at, row->rest);
}

START_TEST(a_body_reads_the_same_in_pieces_of_any_size)
{
    for (size_t step = 1; step < 40; step++)
        read_in_steps(&bodies[_i], step);
    read_in_steps(&bodies[_i], 1000);
}
END_TEST

START_TEST(data_can_be_skipped)
{
    static const char text[] = "5\r\nhello\r\n0\r\n\r\nrest";
    struct chunks chunks = {0};
    size_t in = sizeof(text) - 1, out = SIZE_MAX;

    ck_assert_int_eq(chunks_read(&chunks, text, &in, NULL, &out), 0);
    ck_assert(chunks.done);
    ck_assert_uint_eq(out, 5);
    ck_assert_uint_eq(in, sizeof(text) - 1 - 4);
}
END_TEST

START_TEST(trailers_end_somewhere)
{
    static const char line[] = "X: yyyyyyyyyyyyyyyyyyyyyyyyyy\r\n";
    struct chunks chunks = {0};
    size_t in = 3, out = 0, lines = 0;
    int result = chunks_read(&chunks, "0\r\n", &in, NULL, &out);

    while (result == 0 && lines++ < 1000) {
        in = sizeof(line) - 1;
        result = chunks_read(&chunks, line, &in, NULL, &out);
    }
    ck_assert_int_eq(result, -1);
    ck_assert_uint_le(lines * (sizeof(line) - 3), CHUNK_TRAILER_MAX + sizeof(line));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chunks");
    TCase *tests = unit_case(suite, "chunks");

    unit_table(tests, a_body_reads_the_same_in_pieces_of_any_size, bodies);
    tcase_add_test(tests, data_can_be_skipped);
    tcase_add_test(tests, trailers_end_somewhere);
    return unit_run(suite);
}
