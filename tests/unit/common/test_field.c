/* Field tables, and what they ask of a text. */
#include "common/field.h"

#include <pthread.h>
#include <string.h>

#include "tests/unit/unit.h"

struct sample {
    const char *text;
    int64_t number;
    double real;
    bool flag;
    struct texts texts;
    struct numbers numbers;
    const char *json;
    const int64_t *maybe_number;
    const double *maybe_real;
    const bool *maybe_flag;
};

static const struct field sample_fields[] = {
    {TEXT(sample, text), .min = 1},
    {NUMBER(sample, number)},
    {REAL(sample, real)},
    {FLAG(sample, flag)},
    {TEXTS(sample, texts)},
    {NUMBERS(sample, numbers)},
    {JSON(sample, json)},
    {MAYBE_NUMBER(sample, maybe_number)},
    {MAYBE_REAL(sample, maybe_real)},
    {MAYBE_FLAG(sample, maybe_flag)},
};
SCHEMA_WITH(sample, .closed = true);

static const struct variant either_variants[] = {{"sample", &schema_sample}};
SCHEMA_UNION(either, "kind");

START_TEST(a_table_describes_its_struct)
{
    static const struct {
        const char *name;
        enum field_type type;
        size_t offset;
        bool indirect;
    } expected[] = {
        {"text", FIELD_TEXT, offsetof(struct sample, text), false},
        {"number", FIELD_NUMBER, offsetof(struct sample, number), false},
        {"real", FIELD_REAL, offsetof(struct sample, real), false},
        {"flag", FIELD_FLAG, offsetof(struct sample, flag), false},
        {"texts", FIELD_TEXTS, offsetof(struct sample, texts), false},
        {"numbers", FIELD_NUMBERS, offsetof(struct sample, numbers), false},
        {"json", FIELD_JSON, offsetof(struct sample, json), false},
        {"maybe_number", FIELD_NUMBER, offsetof(struct sample, maybe_number), true},
        {"maybe_real", FIELD_REAL, offsetof(struct sample, maybe_real), true},
        {"maybe_flag", FIELD_FLAG, offsetof(struct sample, maybe_flag), true},
    };

    ck_assert_str_eq(schema_sample.name, "sample");
    ck_assert_uint_eq(schema_sample.size, sizeof(struct sample));
    ck_assert_uint_eq(schema_sample.count, COUNT(expected));
    ck_assert(schema_sample.closed);
    for (size_t i = 0; i < COUNT(expected); i++) {
        ck_assert_str_eq(sample_fields[i].name, expected[i].name);
        ck_assert_int_eq(sample_fields[i].type, expected[i].type);
        ck_assert_uint_eq(sample_fields[i].offset, expected[i].offset);
        ck_assert_int_eq(sample_fields[i].indirect, expected[i].indirect);
    }
}
END_TEST

START_TEST(a_union_names_its_tag_and_kinds)
{
    ck_assert_str_eq(schema_either.tag, "kind");
    ck_assert_uint_eq(schema_either.variant_count, 1);
    ck_assert_ptr_eq(schema_either.variants[0].schema, &schema_sample);
    ck_assert_uint_eq(schema_either.count, 0);
}
END_TEST

static const struct {
    const char *pattern, *text;
    bool matches;
} patterns[] = {
    {"[a-z]+", "abc", true},    {"[a-z]+", "abc1", false},  {"[a-z]+", "1abc", false},
    {"[a-z]+", "", false},      {"[a-z]*", "", true},       {"a|bc", "bc", true},
    {"a|bc", "ac", false},      {"[a-z]+", "abc\n", false}, {"[a-z]{2}", "ab", true},
    {"[a-z]{2}", "abc", false},
};

START_TEST(a_pattern_matches_the_whole_text)
{
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(field_matches(patterns[_i].pattern, patterns[_i].text),
                         patterns[_i].matches);
}
END_TEST

static void *match_all(void *failures)
{
    for (int round = 0; round < 200; round++)
        for (size_t i = 0; i < COUNT(patterns); i++)
            if (field_matches(patterns[i].pattern, patterns[i].text) != patterns[i].matches)
                ++*(int *)failures;
    return NULL;
}

START_TEST(threads_may_match_at_once)
{
    pthread_t threads[8];
    int failures[8] = {0};

    for (size_t i = 0; i < COUNT(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, match_all, &failures[i]), 0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(failures[i], 0);
    }
}
END_TEST

static const struct {
    const char *choices, *text;
    bool chosen;
} choices[] = {
    {"a|bc|d", "a", true},    {"a|bc|d", "bc", true}, {"a|bc|d", "d", true},
    {"a|bc|d", "b", false},   {"a|bc|d", "", false},  {"a|bc|d", "a|bc", false},
    {"a|bc|d", "bcd", false}, {"one", "one", true},   {"a||b", "", true},
};

START_TEST(a_choice_is_one_of_the_list)
{
    ck_assert_int_eq(field_chooses(choices[_i].choices, choices[_i].text), choices[_i].chosen);
}
END_TEST

static const struct {
    int64_t min, max;
    bool has_min, has_max;
} bounds[] = {
    {0, 0, false, false}, {1, 5, true, true},  {0, 5, true, true},
    {3, 0, true, false},  {-5, 0, true, true}, {-5, -1, true, true},
};

START_TEST(bounds_are_there_or_not)
{
    struct field field = {.min = bounds[_i].min, .max = bounds[_i].max};

    ck_assert_int_eq(field_has_min(&field), bounds[_i].has_min);
    ck_assert_int_eq(field_has_max(&field), bounds[_i].has_max);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("field");
    TCase *tests = unit_case(suite, "field");

    tcase_add_test(tests, a_table_describes_its_struct);
    tcase_add_test(tests, a_union_names_its_tag_and_kinds);
    unit_table(tests, a_pattern_matches_the_whole_text, patterns);
    tcase_add_test(tests, threads_may_match_at_once);
    unit_table(tests, a_choice_is_one_of_the_list, choices);
    unit_table(tests, bounds_are_there_or_not, bounds);
    return unit_run(suite);
}
