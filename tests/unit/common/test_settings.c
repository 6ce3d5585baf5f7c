/* Settings: where a value comes from, what is refused, and what people read about them. */
#include "common/settings.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/arena.h"
#include "tests/unit/unit.h"

struct options {
    const char *text;
    struct secret secret;
    int64_t port;
    int64_t free;
    bool flag;
};

static const struct setting options_table[] = {
    {"UT_TEXT", SETTING_TEXT, offsetof(struct options, text), "a text", 0, 0, "A text"},
    {"UT_SECRET", SETTING_SECRET, offsetof(struct options, secret), NULL, 0, 0, "A secret"},
    {"UT_PORT", SETTING_NUMBER, offsetof(struct options, port), "8000", 1, 65535, ".A port\\"},
    {"UT_FREE", SETTING_NUMBER, offsetof(struct options, free), NULL, 0, 0, "Any number"},
    {"UT_FLAG", SETTING_FLAG, offsetof(struct options, flag), NULL, 0, 0, "A flag"},
};

static char directory[] = "/tmp/test_settings.XXXXXX";
static char env_file[64], credential[64];

static void make_directory(void)
{
    strcpy(directory + strlen(directory) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(env_file, sizeof(env_file), "%s/.env", directory);
    snprintf(credential, sizeof(credential), "%s/ut_secret", directory);
}

static void remove_directory(void)
{
    /* Of the tests that follow in this process, when CK_FORK is no. */
    static const char *const names[] = {"CREDENTIALS_DIRECTORY",
                                        "UT_TEXT",
                                        "UT_SECRET",
                                        "UT_PORT",
                                        "ut_port",
                                        "UT_FREE",
                                        "UT_FLAG"};

    for (size_t i = 0; i < COUNT(names); i++)
        unsetenv(names[i]);
    unlink(env_file);
    unlink(credential);
    rmdir(directory);
}

static void write_file(const char *path, const char *content, size_t length)
{
    auto_fclose FILE *file = fopen(path, "we");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(content, 1, length, file), length);
    ck_assert_int_eq(fchmod(fileno(file), 0600), 0);
}

static int load(const char *content, struct options *options, struct error *err)
{
    if (content)
        write_file(env_file, content, strlen(content));
    return settings_load(options_table, COUNT(options_table), env_file, options, err);
}

START_TEST(what_is_unset_is_its_fallback)
{
    struct options options;
    struct error err;

    ck_assert_int_eq(load(NULL, &options, &err), 0);
    ck_assert_str_eq(options.text, "a text");
    ck_assert_str_eq(options.secret.value, "");
    ck_assert_int_eq(options.port, 8000);
    ck_assert_int_eq(options.free, 0);
    ck_assert(!options.flag);
    ck_assert_int_eq(settings_load(options_table, COUNT(options_table), NULL, &options, &err), 0);
}
END_TEST

START_TEST(the_environment_wins_over_the_file)
{
    struct options options;
    struct error err;

    setenv("UT_TEXT", "from outside", 1);
    ck_assert_int_eq(load("UT_TEXT=from the file\nUT_PORT=1234\n", &options, &err), 0);
    ck_assert_str_eq(options.text, "from outside");
    ck_assert_int_eq(options.port, 1234);
}
END_TEST

START_TEST(names_are_the_same_in_any_case)
{
    struct options options;
    struct error err;

    setenv("ut_port", "1", 1);
    ck_assert_int_eq(load("ut_Flag=yes", &options, &err), 0);
    ck_assert_int_eq(options.port, 1);
    ck_assert(options.flag);
    setenv("UT_PORT", "2", 1);
    ck_assert_int_eq(load(NULL, &options, &err), 0);
    ck_assert_int_eq(options.port, 2);
}
END_TEST

static const struct {
    const char *content, *text;
} lines[] = {
    {"UT_TEXT=plain", "plain"},
    {"UT_TEXT=plain\r\nUT_PORT=1\r\n", "plain"},
    {"  export  UT_TEXT = spaced out  \n", "spaced out"},
    {"# UT_TEXT=no\n\n   # more\nUT_TEXT=yes", "yes"},
    {"UT_TEXT=a # comment", "a"},
    {"UT_TEXT=a#b", "a#b"},
    {"UT_TEXT=# all comment", ""},
    {"UT_TEXT=", ""},
    {"UT_TEXT=\"in \\\"quotes\\\" # here\\n\" # comment", "in \"quotes\" # here\n"},
    {"UT_TEXT='as \\n it \"is\"'", "as \\n it \"is\""},
    {"UT_TEXT=a=b", "a=b"},
    {"UT_TEXT=first\nUT_TEXT=last", "last"},
    {"UNKNOWN=x\nUT_TEXT=known", "known"},
    {"exported=1\nUT_TEXT=x", "x"},
};

START_TEST(a_line_of_the_file_is_a_value)
{
    struct options options;
    struct error err = {0};

    ck_assert_msg(load(lines[_i].content, &options, &err) == 0, "%s", err.message);
    ck_assert_str_eq(options.text, lines[_i].text);
}
END_TEST

static const struct {
    const char *content, *message;
} broken_lines[] = {
    {"UT_TEXT\n", "line 1: expected NAME=value"},
    {"A=1\n\n=x\n", "line 3: expected NAME=value"},
    {"A B=1", "line 1: expected NAME=value"},
    {"A=\"open", "line 1: the quote is not closed"},
    {"A='open\"", "line 1: the quote is not closed"},
    {"A=\"x\"y", "line 1: something follows the closing quote"},
};

START_TEST(a_broken_line_is_told_by_its_number)
{
    struct options options;
    struct error err;

    ck_assert_int_eq(load(broken_lines[_i].content, &options, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, broken_lines[_i].message));
}
END_TEST

static const struct {
    const char *name, *value, *message;
} wrong[] = {
    {"UT_PORT", "0", "UT_PORT: must be a whole number from 1 to 65535"},
    {"UT_PORT", "65536", "UT_PORT: must be a whole number from 1 to 65535"},
    {"UT_PORT", "", "UT_PORT: must be a whole number from 1 to 65535"},
    {"UT_PORT", "80 80", "UT_PORT: must be a whole number from 1 to 65535"},
    {"UT_PORT", "80.0", "UT_PORT: must be a whole number from 1 to 65535"},
    {"UT_PORT", " 80", "UT_PORT: must be a whole number from 1 to 65535"},
    {"UT_PORT", "0x50", "UT_PORT: must be a whole number from 1 to 65535"},
    {"UT_PORT", "99999999999999999999", "UT_PORT: must be a whole number from 1 to 65535"},
    {"UT_FREE", "9223372036854775808", "UT_FREE: must be a whole number"},
    {"UT_FREE", "-", "UT_FREE: must be a whole number"},
    {"UT_FLAG", "maybe", "UT_FLAG: must be true or false"},
    {"UT_FLAG", "", "UT_FLAG: must be true or false"},
};

START_TEST(a_wrong_value_is_refused_by_name)
{
    struct options options;
    struct error err;

    setenv(wrong[_i].name, wrong[_i].value, 1);
    ck_assert_int_eq(load(NULL, &options, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
    ck_assert_str_eq(err.message, wrong[_i].message);
}
END_TEST

static const struct {
    const char *word;
    bool value;
} flags[] = {{"1", true},  {"true", true},   {"Yes", true}, {"ON", true},
             {"0", false}, {"False", false}, {"no", false}, {"off", false}};

START_TEST(a_flag_is_one_of_its_words)
{
    struct options options;
    struct error err;

    setenv("UT_FLAG", flags[_i].word, 1);
    ck_assert_int_eq(load(NULL, &options, &err), 0);
    ck_assert_int_eq(options.flag, flags[_i].value);
}
END_TEST

START_TEST(a_number_may_be_any_of_64_bits_where_unbounded)
{
    struct options options;
    struct error err;

    setenv("UT_FREE", "-9223372036854775808", 1);
    ck_assert_int_eq(load(NULL, &options, &err), 0);
    ck_assert(options.free == INT64_MIN);
}
END_TEST

START_TEST(a_credential_wins_for_secrets)
{
    struct options options;
    struct error err;

    setenv("CREDENTIALS_DIRECTORY", directory, 1);
    setenv("UT_SECRET", "from outside", 1);
    ck_assert_int_eq(load(NULL, &options, &err), 0);
    ck_assert_str_eq(options.secret.value, "from outside");
    setenv("UT_SECRET", "from outside", 1);
    write_file(credential, "from systemd\n", strlen("from systemd\n"));
    ck_assert_int_eq(load(NULL, &options, &err), 0);
    ck_assert_str_eq(options.secret.value, "from systemd");
}
END_TEST

START_TEST(a_secret_does_not_stay_in_the_environment)
{
    static char first[] = "UT_SECRET=sesame", other[] = "ut_secret=barley";
    struct options options;
    struct error err;

    ck_assert_int_eq(putenv(first), 0);
    ck_assert_int_eq(putenv(other), 0);
    setenv("UT_TEXT", "stays", 1);
    ck_assert_int_eq(load(NULL, &options, &err), 0);
    ck_assert_str_eq(options.secret.value, "sesame");
    ck_assert_ptr_null(getenv("UT_SECRET"));
    ck_assert_ptr_null(getenv("ut_secret"));
    ck_assert_str_eq(getenv("UT_TEXT"), "stays");
    ck_assert_str_eq(first, "UT_SECRET=");
    ck_assert_str_eq(other, "ut_secret=");
}
END_TEST

START_TEST(a_credential_with_a_nul_is_refused_unseen)
{
    struct options options;
    struct error err;

    setenv("CREDENTIALS_DIRECTORY", directory, 1);
    write_file(credential, "sesame\0x", 8);
    ck_assert_int_eq(load(NULL, &options, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.message, "holds a NUL"));
    ck_assert_ptr_null(strstr(err.message, "sesame"));
}
END_TEST

START_TEST(a_file_that_can_not_be_read_is_refused)
{
    struct options options;
    struct error err;

    ck_assert_int_eq(settings_load(options_table, 1, directory, &options, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
}
END_TEST

START_TEST(every_fault_is_told_and_leaves_the_fallback)
{
    struct options options;
    struct refusals refusals = {0};
    char text[512] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    setenv("UT_PORT", "0", 1);
    setenv("UT_FLAG", "maybe", 1);
    write_file(env_file, "UT_SECRET=sesame\n", strlen("UT_SECRET=sesame\n"));
    ck_assert_int_eq(chmod(env_file, 0640), 0);
    refusals.out = out;
    settings_read(options_table, COUNT(options_table), env_file, &options, &refusals);
    fclose(out);
    ck_assert_uint_eq(refusals.count, 3);
    ck_assert_ptr_nonnull(strstr(refusals.first.message, "UT_SECRET: others than its owner"));
    ck_assert_ptr_nonnull(strstr(text, "\nUT_PORT: must be"));
    ck_assert_ptr_nonnull(strstr(text, "\nUT_FLAG: must be"));
    ck_assert_ptr_null(strstr(text, "sesame"));
    ck_assert_int_eq(options.port, 8000);
    ck_assert_str_eq(options.secret.value, "");
    ck_assert(!options.flag);
}
END_TEST

static void read_all(void (*print)(const struct setting *, size_t, FILE *), char *out, size_t size)
{
    auto_fclose FILE *file = fmemopen(out, size, "w");

    print(options_table, COUNT(options_table), file);
}

START_TEST(the_help_tells_every_setting)
{
    char text[2048] = "";

    read_all(settings_help, text, sizeof(text));
    ck_assert_str_eq(text, "  UT_TEXT (text, default a text)\n      A text\n"
                           "  UT_SECRET (secret)\n      A secret\n"
                           "  UT_PORT (number, 1 to 65535, default 8000)\n      .A port\\\n"
                           "  UT_FREE (number)\n      Any number\n"
                           "  UT_FLAG (flag)\n      A flag\n");
}
END_TEST

START_TEST(the_manual_is_safe_for_roff)
{
    char text[2048] = "";

    read_all(settings_manual, text, sizeof(text));
    ck_assert_ptr_nonnull(
        strstr(text, ".It Ev UT_PORT\n(number, 1 to 65535, default 8000)\n\\&.A port\\e\n"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("settings");
    TCase *tests = unit_case(suite, "settings");

    tcase_add_checked_fixture(tests, make_directory, remove_directory);
    tcase_add_test(tests, what_is_unset_is_its_fallback);
    tcase_add_test(tests, the_environment_wins_over_the_file);
    tcase_add_test(tests, names_are_the_same_in_any_case);
    unit_table(tests, a_line_of_the_file_is_a_value, lines);
    unit_table(tests, a_broken_line_is_told_by_its_number, broken_lines);
    unit_table(tests, a_wrong_value_is_refused_by_name, wrong);
    unit_table(tests, a_flag_is_one_of_its_words, flags);
    tcase_add_test(tests, a_number_may_be_any_of_64_bits_where_unbounded);
    tcase_add_test(tests, a_credential_wins_for_secrets);
    tcase_add_test(tests, a_secret_does_not_stay_in_the_environment);
    tcase_add_test(tests, a_credential_with_a_nul_is_refused_unseen);
    tcase_add_test(tests, a_file_that_can_not_be_read_is_refused);
    tcase_add_test(tests, every_fault_is_told_and_leaves_the_fallback);
    tcase_add_test(tests, the_help_tells_every_setting);
    tcase_add_test(tests, the_manual_is_safe_for_roff);
    return unit_run(suite);
}
