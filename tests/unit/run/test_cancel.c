/* Cancelling: who is told, and how strongly. */
#include "run/cancel.h"

#include <poll.h>
#include <stdbool.h>
#include <string.h>

#include "tests/unit/unit.h"

static bool is_told(const struct cancel *cancel)
{
    return poll(&(struct pollfd){.fd = cancel->fd, .events = POLLIN}, 1, 0) > 0;
}

START_TEST(only_the_run_is_told)
{
    auto_cancel struct cancel one, two;
    auto_buffer struct buffer runs = {0};
    struct error err;

    ck_assert_int_eq(cancel_open(&one, "run-1", &err), 0);
    ck_assert_int_eq(cancel_open(&two, "run-2", &err), 0);
    ck_assert_uint_eq(cancel_runs(&runs), 2);
    ck_assert_str_eq(runs.data, "{run-2,run-1}");
    cancel_run("run-2", CANCEL_ENDED);
    cancel_run("run-3", CANCEL_ENDED);
    ck_assert(!is_told(&one) && one.reason == CANCEL_NONE);
    ck_assert(is_told(&two) && two.reason == CANCEL_ENDED);
}
END_TEST

START_TEST(reasons_only_grow)
{
    auto_cancel struct cancel cancel;
    struct error err;

    ck_assert_int_eq(cancel_open(&cancel, "run", &err), 0);
    cancel_all(CANCEL_PAUSE);
    ck_assert(!is_told(&cancel) && cancel.reason == CANCEL_PAUSE);
    cancel_all(CANCEL_GIVE_BACK);
    ck_assert(is_told(&cancel));
    cancel_run("run", CANCEL_ENDED);
    cancel_all(CANCEL_PAUSE);
    ck_assert_int_eq(cancel.reason, CANCEL_ENDED);
}
END_TEST

START_TEST(who_comes_later_is_told_too)
{
    auto_cancel struct cancel cancel;
    struct error err;

    cancel_all(CANCEL_GIVE_BACK);
    ck_assert_int_eq(cancel_open(&cancel, "run", &err), 0);
    ck_assert(is_told(&cancel));
}
END_TEST

START_TEST(who_has_left_is_not_listed)
{
    auto_buffer struct buffer runs = {0};
    struct cancel first, middle, last;
    struct error err;

    ck_assert_int_eq(cancel_open(&first, "a", &err), 0);
    ck_assert_int_eq(cancel_open(&middle, "b", &err), 0);
    ck_assert_int_eq(cancel_open(&last, "c", &err), 0);
    cancel_close(&middle);
    cancel_close(&middle);
    ck_assert_uint_eq(cancel_runs(&runs), 2);
    ck_assert_str_eq(runs.data, "{c,a}");
    cancel_close(&first);
    cancel_close(&last);
    runs.length = 0;
    ck_assert_uint_eq(cancel_runs(&runs), 0);
    ck_assert_str_eq(runs.data, "{}");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cancel");
    TCase *tests = unit_case(suite, "cancel");

    tcase_add_test(tests, only_the_run_is_told);
    tcase_add_test(tests, reasons_only_grow);
    tcase_add_test(tests, who_comes_later_is_told_too);
    tcase_add_test(tests, who_has_left_is_not_listed);
    return unit_run(suite);
}
