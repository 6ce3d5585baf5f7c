/* Log lines: JSON whatever the values are, and one write each. */
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "common/json.h"
#include "tests/unit/unit.h"

/* Standard error is a packet pipe: a read gives what one write wrote. */
static int output = -1, real_stderr = -1;

static void take_stderr(void)
{
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_DIRECT | O_NONBLOCK | O_CLOEXEC), 0);
    real_stderr = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    close(ends[1]);
    output = ends[0];
    log_init("unit", LOG_DEBUG);
    log_context(NULL, NULL);
}

static void give_stderr_back(void)
{
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    close(output);
}

/* The next line, without its newline; "" when nothing was written. */
static const char *read_line(void)
{
    static char line[PIPE_BUF + 1];
    ssize_t length = read(output, line, PIPE_BUF);
    struct error err;

    if (length <= 0)
        return "";
    ck_assert_int_eq(line[length - 1], '\n');
    line[length - 1] = '\0';
    ck_assert_ptr_null(strchr(line, '\n'));
    ck_assert_msg(json_check(line, (size_t)length - 1, &err) == 0, "%s: %s", err.message, line);
    return line;
}

START_TEST(a_line_is_an_event_with_values)
{
    auto_arena struct arena arena = {0};
    const char *line, *ts;
    const char *none = NULL;

    LOG(INFO, "worker_started", V("pid2", 12), V("address", "a\"b"), V("big", UINT64_MAX),
        V("load", 0.5), V("up", (bool)true), V("none", none), V("long", -1L));
    line = read_line();
    ts = json_member_text(&arena, line, "ts");
    ck_assert_ptr_nonnull(ts);
    ck_assert_uint_eq(strlen(ts), strlen("2026-01-01T00:00:00.000000Z"));
    ck_assert_str_eq(json_member_text(&arena, line, "level"), "info");
    ck_assert_str_eq(json_member_text(&arena, line, "event"), "worker_started");
    ck_assert_str_eq(json_member_text(&arena, line, "program"), "unit");
    ck_assert_int_eq(json_member_number(&arena, line, "pid", 0), getpid());
    ck_assert_int_eq(json_member_number(&arena, line, "pid2", 0), 12);
    ck_assert_str_eq(json_member_text(&arena, line, "address"), "a\"b");
    ck_assert_int_eq(json_member_number(&arena, line, "big", 0), INT64_MAX);
    ck_assert_str_eq(json_member(&arena, line, "load"), "0.5");
    ck_assert_str_eq(json_member(&arena, line, "up"), "true");
    ck_assert_str_eq(json_member(&arena, line, "none"), "null");
    ck_assert_int_eq(json_member_number(&arena, line, "long", 0), -1);
    ck_assert_ptr_null(json_member(&arena, line, "request_id"));
}
END_TEST

START_TEST(a_line_may_have_no_values)
{
    LOG(ERROR, "nothing_more");
    ck_assert_ptr_nonnull(strstr(read_line(), "\"event\":\"nothing_more\""));
    ck_assert_str_eq(read_line(), "");
}
END_TEST

static const struct {
    const char *value, *seen;
} values[] = {
    {"line\nbreak\r\t\x01\x7F", "line\nbreak\r\t\x01\x7F"},
    {"back\\slash \"quote\"", "back\\slash \"quote\""},
    {"\xC3\xA9\xF0\x9F\x98\x80", "\xC3\xA9\xF0\x9F\x98\x80"},
    {"bad\xFF\xC3", "bad\xEF\xBF\xBD\xEF\xBF\xBD"},
    {"\x1B[31mred", "\x1B[31mred"},
};

START_TEST(any_value_is_escaped)
{
    auto_arena struct arena arena = {0};

    LOG(INFO, "event", V("value", values[_i].value));
    ck_assert_str_eq(json_member_text(&arena, read_line(), "value"), values[_i].seen);
}
END_TEST

START_TEST(no_real_breaks_a_line)
{
    auto_arena struct arena arena = {0};

    LOG(INFO, "event", V("nan", (double)NAN), V("inf", (double)INFINITY));
    ck_assert_str_eq(json_member(&arena, read_line(), "nan"), "null");
}
END_TEST

START_TEST(a_long_value_is_cut)
{
    auto_arena struct arena arena = {0};
    static char text[100000];
    const char *seen, *line;

    for (size_t i = 0; i + 2 < sizeof(text); i += 2)
        memcpy(text + i, _i ? "\xC3\xA9" : "\x01\x02", 2);
    LOG(INFO, "event", V("value", text), V("next", 7));
    line = read_line();
    seen = json_member_text(&arena, line, "value");
    ck_assert_uint_le(strlen(seen), 2048 + 3);
    ck_assert_str_eq(seen + strlen(seen) - 3, "…");
    ck_assert_int_eq(json_member_number(&arena, line, "next", 0), 7);
}
END_TEST

START_TEST(what_does_not_fit_the_line_is_left_out_and_told)
{
    auto_arena struct arena arena = {0};
    static char text[2001];
    const char *line;

    memset(text, 'x', sizeof(text) - 1);
    LOG(INFO, "event", V("a", text), V("b", text), V("c", 1));
    line = read_line();
    ck_assert_uint_lt(strlen(line), PIPE_BUF);
    ck_assert_str_eq(json_member_text(&arena, line, "a"), text);
    ck_assert_ptr_null(json_member(&arena, line, "b"));
    ck_assert_int_eq(json_member_number(&arena, line, "c", 0), 1);
    ck_assert_str_eq(json_member(&arena, line, "cut"), "true");
}
END_TEST

START_TEST(below_the_level_nothing_is_written)
{
    log_init("unit", LOG_WARNING);
    LOG(DEBUG, "no");
    LOG(INFO, "no");
    LOG(WARNING, "yes");
    ck_assert_ptr_nonnull(strstr(read_line(), "\"event\":\"yes\""));
    ck_assert_str_eq(read_line(), "");
}
END_TEST

static void *log_elsewhere(void *unused)
{
    LOG(INFO, "elsewhere");
    return unused;
}

START_TEST(the_context_is_of_one_thread)
{
    auto_arena struct arena arena = {0};
    pthread_t thread;
    const char *line;

    log_context("r-1", "agent:x");
    ck_assert_int_eq(pthread_create(&thread, NULL, log_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    ck_assert_ptr_null(strstr(read_line(), "r-1"));
    LOG(INFO, "here");
    line = read_line();
    ck_assert_str_eq(json_member_text(&arena, line, "request_id"), "r-1");
    ck_assert_str_eq(json_member_text(&arena, line, "caller"), "agent:x");
    log_context(NULL, NULL);
    LOG(INFO, "later");
    ck_assert_ptr_null(strstr(read_line(), "request_id"));
}
END_TEST

START_TEST(logging_leaves_errno_alone)
{
    errno = ENOTTY;
    LOG(INFO, "event");
    ck_assert_int_eq(errno, ENOTTY);
    ck_assert_str_ne(read_line(), "");
}
END_TEST

static const struct {
    const char *name;
    int level;
} levels[] = {
    {"debug", LOG_DEBUG},
    {"INFO", LOG_INFO},
    {"Warning", LOG_WARNING},
    {"error", LOG_ERROR},
    {"ERROR", LOG_ERROR},
    {"CRITICAL", LOG_ERROR},
    {"", -1},
    {"verbose", -1},
};

START_TEST(a_level_has_a_name)
{
    ck_assert_int_eq(log_level_of(levels[_i].name), levels[_i].level);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = unit_case(suite, "log");

    tcase_add_checked_fixture(tests, take_stderr, give_stderr_back);
    tcase_add_test(tests, a_line_is_an_event_with_values);
    tcase_add_test(tests, a_line_may_have_no_values);
    unit_table(tests, any_value_is_escaped, values);
    tcase_add_test(tests, no_real_breaks_a_line);
    tcase_add_loop_test(tests, a_long_value_is_cut, 0, 2);
    tcase_add_test(tests, what_does_not_fit_the_line_is_left_out_and_told);
    tcase_add_test(tests, below_the_level_nothing_is_written);
    tcase_add_test(tests, the_context_is_of_one_thread);
    tcase_add_test(tests, logging_leaves_errno_alone);
    unit_table(tests, a_level_has_a_name, levels);
    return unit_run(suite);
}
