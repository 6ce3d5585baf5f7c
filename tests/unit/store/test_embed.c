/* sql/embed.awk: what becomes a row, and what is refused with its place. Runs in the source folder.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/arena.h"
#include "tests/unit/unit.h"

static char folder[64];

static void setup(void)
{
    strcpy(folder, "/tmp/embed-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
    char command[96];

    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void put(const char *name, const char *text)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

/* Both outputs of the script for these files; returns its exit status. */
static int embed(const char *mode, const char *files, struct buffer *out)
{
    char command[256], piece[4096];
    FILE *pipe;
    size_t length;
    int status;

    snprintf(command, sizeof(command),
             "script=$PWD/sql/embed.awk; cd %s && awk -f \"$script\" -v mode=%s %s 2>&1", folder,
             mode, files);
    pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    while ((length = fread(piece, 1, sizeof(piece), pipe)) > 0)
        buffer_add(out, piece, length);
    status = pclose(pipe);
    return WEXITSTATUS(status);
}

static const struct {
    const char *sql, *rows;
} good[] = {
    {"-- name: a_find returns agent\nSELECT 1;\n",
     "QUERY(a_find, 0, agent,\n    \"SELECT 1;\\n\")\n"},
    {"-- About the file.\n\n-- name: a returns nothing\n-- Why.\nSELECT $2, $11,\n  -- "
     "really\n\t$1;\n",
     "QUERY(a, 11, nothing,\n    \"SELECT $2, $11,\\n\"\n    \"\\t$1;\\n\")\n"},
    {"-- name: a returns b\nSELECT '$9' || E'\\\\' || \"x\";\r\n",
     "QUERY(a, 0, b,\n    \"SELECT '$9' || E'\\\\\\\\' || \\\"x\\\";\\n\")\n"},
    {"-- name: a returns b\nSELECT $1;\n-- name: c returns d\nSELECT 2;\n",
     "QUERY(a, 1, b,\n    \"SELECT $1;\\n\")\nQUERY(c, 0, d,\n    \"SELECT 2;\\n\")\n"},
};

START_TEST(a_query_is_a_row)
{
    auto_buffer struct buffer out = {0};

    put("x.sql", good[_i].sql);
    ck_assert_int_eq(embed("queries", "x.sql", &out), 0);
    ck_assert_str_eq(out.data, good[_i].rows);
}
END_TEST

static const struct {
    const char *sql, *complaint;
} bad[] = {
    {"SELECT 1;\n", "x.sql:1: text before"},
    {"-- name: Upper returns a\nSELECT 1;\n", "x.sql:1: a query's name"},
    {"-- name: a returns A-b\nSELECT 1;\n", "x.sql:1: a schema's name"},
    {"-- name: a\nSELECT 1;\n", "x.sql:1: expected"},
    {"-- name: a returns b c\nSELECT 1;\n", "x.sql:1: expected"},
    {"-- name: a returns b\nSELECT 1;\n-- name: a returns b\nSELECT 1;\n",
     "x.sql:3: there is a query a already, at x.sql:1"},
    {"-- name: a returns b\n-- nothing\n\n-- name: c returns b\nSELECT 1;\n",
     "x.sql:1: the query a has no text"},
    {"-- name: a returns b\n", "x.sql:1: the query a has no text"},
};

START_TEST(a_mistake_is_told_with_its_place)
{
    auto_buffer struct buffer out = {0};

    put("x.sql", bad[_i].sql);
    ck_assert_int_eq(embed("queries", "x.sql", &out), 1);
    ck_assert_msg(strstr(out.data, bad[_i].complaint) != NULL, "%s", out.data);
}
END_TEST

START_TEST(a_name_is_used_once_in_all_files)
{
    auto_buffer struct buffer out = {0};

    put("x.sql", "-- name: a returns b\nSELECT 1;\n");
    put("y.sql", "-- name: a returns b\nSELECT 1;\n");
    ck_assert_int_eq(embed("queries", "x.sql y.sql", &out), 1);
    ck_assert_ptr_nonnull(strstr(out.data, "y.sql:1: there is a query a already, at x.sql:1"));
}
END_TEST

START_TEST(migrations_are_whole_files_in_order)
{
    auto_buffer struct buffer out = {0}, wrong = {0}, twice = {0};

    put("0001_one.sql", "-- kept\nSELECT '\\';\n");
    put("0012_two_more.sql", "\n");
    put("12_bad.sql", "\n");
    put("0012_again.sql", "\n");
    ck_assert_int_eq(embed("migrations", "0001_one.sql 0012_two_more.sql", &out), 0);
    ck_assert_str_eq(out.data,
                     "MIGRATION(1, \"one\",\n    \"-- kept\\n\"\n    \"SELECT '\\\\';\\n\")\n"
                     "MIGRATION(12, \"two_more\",\n    \"\\n\")\n");
    ck_assert_int_eq(embed("migrations", "0001_one.sql 12_bad.sql", &wrong), 1);
    ck_assert_ptr_nonnull(strstr(wrong.data, "12_bad.sql:1: migrations are named"));
    ck_assert_int_eq(embed("migrations", "0012_two_more.sql 0012_again.sql", &twice), 1);
    ck_assert_ptr_nonnull(strstr(twice.data, "0012_again.sql:1: this number was used already"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("embed");
    TCase *tests = unit_case(suite, "embed");

    tcase_add_checked_fixture(tests, setup, teardown);
    unit_table(tests, a_query_is_a_row, good);
    unit_table(tests, a_mistake_is_told_with_its_place, bad);
    tcase_add_test(tests, a_name_is_used_once_in_all_files);
    tcase_add_test(tests, migrations_are_whole_files_in_order);
    return unit_run(suite);
}
