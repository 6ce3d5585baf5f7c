/* Kinds of errors, and sentences that stay UTF-8. */
#include "common/error.h"

#include <errno.h>
#include <string.h>

#include "common/utf8.h"
#include "tests/unit/unit.h"

START_TEST(an_error_has_a_kind_and_a_sentence)
{
    struct error err = {.retry_after_s = 7, .fields = "[]"};

    ck_assert_int_eq(error_set(&err, ERR_CONFLICT, "agent '%s' is archived", "x"), -1);
    ck_assert_int_eq(err.kind, ERR_CONFLICT);
    ck_assert_str_eq(err.message, "agent 'x' is archived");
    ck_assert_int_eq(err.retry_after_s, 0);
    ck_assert_ptr_null(err.fields);
}
END_TEST

START_TEST(errno_is_told_in_words)
{
    struct error err;

    errno = ENOENT;
    ck_assert_int_eq(error_set_errno(&err, ERR_NOT_FOUND, "open %s", "/x"), -1);
    ck_assert_str_eq(err.message, "open /x: No such file or directory");
}
END_TEST

START_TEST(context_goes_in_front)
{
    struct error err;

    error_set(&err, ERR_UNAVAILABLE, "connection refused");
    ck_assert_int_eq(error_add_context(&err, "step %d", 3), -1);
    ck_assert_str_eq(err.message, "step 3: connection refused");
    ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
}
END_TEST

static const char *const characters[] = {"x", "é", "€", "😀"};

START_TEST(a_long_sentence_is_cut_at_a_character)
{
    struct error err;
    char text[2048];

    /* Every phase of the cut against the character. */
    for (size_t shift = 0; shift < 4; shift++) {
        size_t length = shift;

        memset(text, 'a', shift);
        while (length + 5 < sizeof(text)) {
            strcpy(text + length, characters[_i]);
            length += strlen(characters[_i]);
        }
        error_set(&err, ERR_INTERNAL, "%s", text);
        length = strlen(err.message);
        ck_assert_uint_gt(length, sizeof(err.message) - 9);
        for (size_t i = 0; i < length;) {
            size_t step = utf8_length(err.message + i, length - i);

            ck_assert_uint_gt(step, 0);
            i += step;
        }
    }
}
END_TEST

static const struct {
    enum error_kind kind;
    int status;
    const char *name;
} kinds[] = {
    {ERR_BAD_REQUEST, 400, "BAD_REQUEST"}, {ERR_UNAUTHENTICATED, 401, "UNAUTHENTICATED"},
    {ERR_FORBIDDEN, 403, "FORBIDDEN"},     {ERR_NOT_FOUND, 404, "NOT_FOUND"},
    {ERR_METHOD, 405, "METHOD"},           {ERR_TIMEOUT, 408, "TIMEOUT"},
    {ERR_CONFLICT, 409, "CONFLICT"},       {ERR_TOO_LARGE, 413, "TOO_LARGE"},
    {ERR_INVALID, 422, "INVALID"},         {ERR_RATE, 429, "RATE"},
    {ERR_INTERNAL, 500, "INTERNAL"},       {ERR_UPSTREAM, 502, "UPSTREAM"},
    {ERR_UNAVAILABLE, 503, "UNAVAILABLE"}, {(enum error_kind)4711, 500, "unknown"},
};

START_TEST(a_kind_has_a_status_and_a_name)
{
    ck_assert_int_eq(error_status(kinds[_i].kind), kinds[_i].status);
    ck_assert_str_eq(error_name(kinds[_i].kind), kinds[_i].name);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error");
    TCase *tests = unit_case(suite, "error");

    tcase_add_test(tests, an_error_has_a_kind_and_a_sentence);
    tcase_add_test(tests, errno_is_told_in_words);
    tcase_add_test(tests, context_goes_in_front);
    unit_table(tests, a_long_sentence_is_cut_at_a_character, characters);
    unit_table(tests, a_kind_has_a_status_and_a_name, kinds);
    return unit_run(suite);
}
