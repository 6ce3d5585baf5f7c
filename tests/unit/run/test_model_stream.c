/* Streams of models, as they come: cut anywhere, with what endpoints leave out, and with what is no
 * answer. */
#include "run/model_stream.h"

#include <string.h>

#include "common/json.h"
#include "tests/unit/unit.h"

#define CHUNK(delta) \
    "data: {\"choices\":[{\"index\":0,\"delta\":" delta ",\"finish_reason\":null}]}\n\n"
#define FINISH(reason) \
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" reason "\"}]}\n\n"
#define DONE "data: [DONE]\n\n"

struct heard {
    struct buffer text;
};

static void hear(void *context, const char *text, size_t length)
{
    buffer_add(&((struct heard *)context)->text, text, length);
}

/* Feed `body` in pieces of `step` bytes. */
static int read_body(const char *body, size_t step, struct model_answer *answer,
                     struct heard *heard, const char *broken, struct error *err)
{
    auto_stream struct model_stream stream;
    size_t length = strlen(body);

    model_stream_init(&stream, answer, hear, heard);
    for (size_t at = 0; at < length; at += step)
        if (model_stream_feed(&stream, body + at, length - at < step ? length - at : step, err) < 0)
            return -1;
    return model_stream_end(&stream, broken, err);
}

static const struct good {
    const char *body, *text, *thinking;
    size_t calls;
    const char *id, *name, *arguments; /* of the last call */
} good[] = {
    {.body = CHUNK("{\"role\":\"assistant\",\"content\":\"\"}") CHUNK("{\"content\":\"Hel\"}")
         CHUNK("{\"content\":\"lo\"}") FINISH("stop") DONE,
     .text = "Hello",
     .thinking = ""},
    {.body =
         ": comment\r\nevent: x\r\nid: "
         "1\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"crlf\"}}]}\r\n\r\ndata:[DONE]\r\n\r\n",
     .text = "crlf",
     .thinking = ""},
    {.body = CHUNK("{\"reasoning_content\":\"let \"}") CHUNK("{\"reasoning\":\"me\"}")
         CHUNK("{\"content\":\"so\"}") FINISH("stop"),
     .text = "so",
     .thinking = "let me"},
    {.body = CHUNK("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"type\":\"function\",\"function\":{"
                   "\"name\":\"shell\",\"arguments\":\"\"}}]}")
         CHUNK("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"com\"}}]}")
             CHUNK("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"mand\\\":1}\"}}]}")
                 FINISH("tool_calls") DONE,
     .text = "",
     .thinking = "",
     .calls = 1,
     .id = "a",
     .name = "shell",
     .arguments = "{\"command\":1}"},
    /* two calls, interleaved */
    {.body = CHUNK("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"x\","
                   "\"arguments\":\"1\"}},"
                   "{\"index\":1,\"id\":\"b\",\"function\":{\"name\":\"y\",\"arguments\":\"2\"}}]}")
         CHUNK("{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"3\"}},{\"index\":0,"
               "\"function\":{\"arguments\":\"4\"}}]}") FINISH("tool_calls"),
     .text = "",
     .thinking = "",
     .calls = 2,
     .id = "b",
     .name = "y",
     .arguments = "23"},
    /* no index, arguments that are no text, null where nothing is meant */
    {.body = CHUNK("{\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"x\","
                   "\"arguments\":{\"k\":1}}}]}")
         CHUNK(
             "{\"tool_calls\":[{\"id\":\"b\",\"function\":{\"name\":\"y\",\"arguments\":\"2\"}}]}")
             CHUNK("{\"tool_calls\":[{\"function\":{\"arguments\":\"5\"}}]}") FINISH("tool_calls"),
     .text = "",
     .thinking = "",
     .calls = 2,
     .id = "b",
     .name = "y",
     .arguments = "25"},
    /* what can't be stored */
    {.body = CHUNK("{\"content\":\"a\\u0000b\\\\u0000c\"}") DONE,
     .text = "a\xEF\xBF\xBD"
             "b\\u0000c",
     .thinking = ""},
    {.body = CHUNK("{\"content\":\"\\ud83d\\ude00 \\ud83d \\ude00\\uD800\"}") DONE,
     .text = "\xF0\x9F\x98\x80 \xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD",
     .thinking = ""},
    /* an endpoint that does not stream */
    {.body = "{\n "
             "\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"whole\"},\"finish_"
             "reason\":\"stop\"}]\n}\n",
     .text = "whole",
     .thinking = ""},
    {.body = "{\"choices\":[{\"message\":{\"content\":\"one line\"},\"finish_reason\":\"stop\"}]}",
     .text = "one line",
     .thinking = ""},
    /* finished, without the mark; and with neither text nor calls */
    {.body = CHUNK("{\"content\":\"x\"}") FINISH("length"), .text = "x", .thinking = ""},
    {.body = FINISH("stop") DONE, .text = "", .thinking = ""},
};

START_TEST(answers_are_read_however_they_are_cut)
{
    const struct good *row = &good[_i];

    for (size_t step = 1; step <= strlen(row->body); step = step < 8 ? step + 1 : step * 3) {
        auto_answer struct model_answer answer = {0};
        struct heard heard = {0};
        struct error err = {0};

        ck_assert_msg(read_body(row->body, step, &answer, &heard, NULL, &err) == 0, "%s",
                      err.message);
        ck_assert_str_eq(answer.text.data ? answer.text.data : "", row->text);
        ck_assert_str_eq(heard.text.data ? heard.text.data : "", row->text);
        ck_assert_str_eq(answer.thinking.data ? answer.thinking.data : "", row->thinking);
        ck_assert_uint_eq(answer.call_count, row->calls);
        if (row->calls) {
            ck_assert_str_eq(answer.calls[row->calls - 1].id, row->id);
            ck_assert_str_eq(answer.calls[row->calls - 1].name, row->name);
            ck_assert_str_eq(answer.calls[row->calls - 1].arguments, row->arguments);
        }
        ck_assert_int_eq(answer.began, *row->text || *row->thinking || row->calls);
        buffer_done(&heard.text);
    }
}
END_TEST

static const struct bad {
    const char *body, *broken, *says;
} bad[] = {
    {CHUNK("{\"content\":\"half\"}"), NULL, "cut short"},
    {CHUNK("{\"content\":\"half\"}"), "the line is dead", "the line is dead"},
    {CHUNK("{\"content\":\"half\"}") "data: {\"choi", "reset", "cut short"},
    {"<html>this is not a model</html>", NULL, "no chat completion"},
    {"<html>\n<p>\n", NULL, "no chat completion"},
    {"data: nonsense\n\n", NULL, "no chat completion"},
    {"[1]", NULL, "no chat completion"},
    {"data: {\"error\":{\"message\":\"overloaded\"}}\n\n", NULL, "overloaded"},
    {"{\"error\":\"no\"}", NULL, "gave up: no"},
    {"", NULL, "with nothing"},
    {CHUNK("{\"tool_calls\":[{\"index\":7,\"id\":\"a\",\"function\":{\"name\":\"x\"}}]}"), NULL,
     "cut short"},
};

START_TEST(what_is_no_whole_answer_says_why)
{
    auto_answer struct model_answer answer = {0};
    struct heard heard = {0};
    struct error err = {0};

    ck_assert_int_eq(read_body(bad[_i].body, 5, &answer, &heard, bad[_i].broken, &err), -1);
    ck_assert_int_eq(err.kind, ERR_UPSTREAM);
    ck_assert_msg(strstr(err.message, bad[_i].says), "%s", err.message);
    buffer_done(&heard.text);
}
END_TEST

START_TEST(usage_is_taken_from_wherever_it_stands)
{
    auto_answer struct model_answer answer = {0};
    struct heard heard = {0};
    struct error err = {0};

    ck_assert_int_eq(
        read_body(
            FINISH(
                "stop") "data: "
                        "{\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7,"
                        "\"prompt_tokens_details\":{\"cached_tokens\":3},"
                        "\"completion_tokens_details\":{\"reasoning_tokens\":2}}}\n\n" DONE,
            1000, &answer, &heard, NULL, &err),
        0);
    ck_assert_int_eq(answer.usage.input_tokens, 11);
    ck_assert_int_eq(answer.usage.output_tokens, 7);
    ck_assert_int_eq(answer.usage.total_tokens, 18);
    ck_assert_int_eq(answer.usage.cached_input_tokens, 3);
    ck_assert_int_eq(answer.usage.reasoning_tokens, 2);
}
END_TEST

START_TEST(an_answer_without_end_is_refused)
{
    auto_answer struct model_answer answer = {0};
    auto_buffer struct buffer line = {0};
    auto_stream struct model_stream stream;
    struct error err = {0};
    int result = 0;

    for (int i = 0; i < 100000; i++)
        buffer_char(&line, 'x');
    model_stream_init(&stream, &answer, NULL, NULL);
    for (int i = 0; i < 200 && result == 0; i++)
        result = model_stream_feed(&stream, line.data, line.length, &err);
    ck_assert_int_eq(result, -1);
    ck_assert_msg(strstr(err.message, "longer than"), "%s", err.message);
}
END_TEST

START_TEST(more_calls_than_anybody_needs_are_refused)
{
    auto_answer struct model_answer answer = {0};
    auto_stream struct model_stream stream;
    struct error err = {0};
    int result = 0, made = 0;

    model_stream_init(&stream, &answer, NULL, NULL);
    for (; made < 200 && result == 0; made++) {
        auto_buffer struct buffer body = {0};

        buffer_format(&body,
                      CHUNK("{\"tool_calls\":[{\"id\":\"c%d\",\"function\":{\"name\":\"x\"}}]}"),
                      made);
        result = model_stream_feed(&stream, body.data, body.length, &err);
    }
    ck_assert_int_eq(result, -1);
    ck_assert_uint_eq(answer.call_count, MODEL_CALLS_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_stream");
    TCase *tests = unit_case(suite, "model_stream");

    unit_table(tests, answers_are_read_however_they_are_cut, good);
    unit_table(tests, what_is_no_whole_answer_says_why, bad);
    tcase_add_test(tests, usage_is_taken_from_wherever_it_stands);
    tcase_add_test(tests, an_answer_without_end_is_refused);
    tcase_add_test(tests, more_calls_than_anybody_needs_are_refused);
    return unit_run(suite);
}
