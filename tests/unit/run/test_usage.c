/* Usage adds up: in the whole, by model and by agent. */
#include "run/usage.h"

#include "common/json.h"
#include "tests/unit/unit.h"

#define NONE                                                                                       \
    "\"requests\":0,\"input_tokens\":0,\"cached_input_tokens\":0,\"output_tokens\":0,\"reasoning_" \
    "tokens\":0,\"total_tokens\":0"
#define ONE                                                                             \
    "\"requests\":1,\"input_tokens\":11,\"cached_input_tokens\":2,\"output_tokens\":7," \
    "\"reasoning_tokens\":3,\"total_tokens\":18"
#define TWO                                                                              \
    "\"requests\":2,\"input_tokens\":22,\"cached_input_tokens\":4,\"output_tokens\":14," \
    "\"reasoning_tokens\":6,\"total_tokens\":36"

static const struct usage answer = {.requests = 1,
                                    .input_tokens = 11,
                                    .cached_input_tokens = 2,
                                    .output_tokens = 7,
                                    .reasoning_tokens = 3,
                                    .total_tokens = 18,
                                    .active_seconds = 0.5};

static const char *add(struct arena *arena, const char *stored, const struct usage *more,
                       const char *model, const char *agent)
{
    auto_buffer struct buffer out = {0};
    struct error err;

    usage_add(arena, stored, more, model, agent, &out);
    ck_assert_int_eq(json_check(out.data, out.length, &err), 0);
    return arena_copy(arena, out.data, out.length);
}

START_TEST(answers_add_up)
{
    auto_arena struct arena arena = {0};
    const char *usage = add(&arena, "{}", &answer, "m", "a");

    ck_assert_str_eq(usage, "{" ONE ",\"active_seconds\":0,\"by_model\":{\"m\":{" ONE
                            ",\"active_seconds\":0.5}},"
                            "\"by_agent\":{\"a\":{" ONE ",\"active_seconds\":0}}}");
    usage = add(&arena, usage, &answer, "m", "b");
    ck_assert_str_eq(usage, "{" TWO ",\"active_seconds\":0,\"by_model\":{\"m\":{" TWO
                            ",\"active_seconds\":1}},"
                            "\"by_agent\":{\"a\":{" ONE ",\"active_seconds\":0},\"b\":{" ONE
                            ",\"active_seconds\":0}}}");
}
END_TEST

START_TEST(the_end_of_a_turn_adds_its_seconds)
{
    auto_arena struct arena arena = {0};
    const struct usage seconds = {.active_seconds = 2.25};
    const char *usage = add(&arena, "{}", &seconds, NULL, "a");

    ck_assert_str_eq(usage,
                     "{" NONE ",\"active_seconds\":2.25,\"by_model\":{},\"by_agent\":{\"a\":{" NONE
                     ",\"active_seconds\":2.25}}}");
}
END_TEST

START_TEST(names_are_escaped)
{
    auto_arena struct arena arena = {0};
    const char *usage =
        add(&arena, add(&arena, "{}", &answer, "a\"b\\c", "x"), &answer, "a\"b\\c", "x");

    ck_assert_int_eq(
        json_member_number(&arena,
                           json_member(&arena, json_member(&arena, usage, "by_model"), "a\"b\\c"),
                           "requests", 0),
        2);
}
END_TEST

START_TEST(sums_do_not_overflow)
{
    auto_arena struct arena arena = {0};
    const struct usage huge = {.total_tokens = INT64_MAX - 1};
    const char *usage = add(&arena, add(&arena, "{}", &huge, "m", "a"), &huge, "m", "a");

    ck_assert_int_eq(json_member_number(&arena, usage, "total_tokens", 0), INT64_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("usage");
    TCase *tests = unit_case(suite, "usage");

    tcase_add_test(tests, answers_add_up);
    tcase_add_test(tests, the_end_of_a_turn_adds_its_seconds);
    tcase_add_test(tests, names_are_escaped);
    tcase_add_test(tests, sums_do_not_overflow);
    return unit_run(suite);
}
