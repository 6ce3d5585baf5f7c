/* Tools: what is offered, and what a call that can't be done is told. Calls that can need a
 * sandbox: tests/api/test_runs.py. */
#include "run/tools.h"

#include <string.h>

#include "common/json.h"
#include "tests/unit/unit.h"

static const struct {
    const char *capabilities, *has, *lacks;
} offers[] = {
    {NULL, "shell read_file write_file list_files edit_file", ""},
    {"[]", "", "shell read_file write_file list_files edit_file"},
    {"[\"shell\"]", "shell", "read_file edit_file"},
    {"[\"memory\",\"filesystem\"]", "read_file write_file list_files edit_file", "shell"},
};

static bool names_all(const char *json, const char *names, bool wanted)
{
    auto_free char *copy = strdup(names);

    for (char *name = strtok(copy, " "); name; name = strtok(NULL, " ")) {
        char quoted[64];

        snprintf(quoted, sizeof(quoted), "\"name\":\"%s\"", name);
        if ((strstr(json, quoted) != NULL) != wanted)
            return false;
    }
    return true;
}

START_TEST(capabilities_choose_the_tools)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};
    struct error err;

    tools_offer(&arena, offers[_i].capabilities, &out);
    ck_assert_int_eq(json_check(out.data, out.length, &err), 0);
    ck_assert(names_all(out.data, offers[_i].has, true));
    ck_assert(names_all(out.data, offers[_i].lacks, false));
}
END_TEST

START_TEST(schemas_name_what_is_required)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};

    tools_offer(&arena, NULL, &out);
    ck_assert(strstr(out.data, "\"timeout_seconds\":{\"type\":\"number\"") != NULL);
    ck_assert(strstr(out.data, "\"required\":[\"command\"]") != NULL);
    ck_assert(strstr(out.data, "\"required\":[\"path\",\"content\"]") != NULL);
    ck_assert(strstr(out.data, "\"required\":[\"path\",\"old\",\"new\"]") != NULL);
    ck_assert(strstr(out.data, "\"required\":[]") != NULL);
}
END_TEST

static const struct {
    const char *capabilities, *name, *arguments, *says;
} wrong[] = {
    {NULL, "launch_missiles", "{}", "no tool 'launch_missiles'"},
    {"[\"filesystem\"]", "shell", "{\"command\":\"ls\"}", "no tool 'shell'"},
    {NULL, "shell", "{not json", "JSON decode error"},
    {NULL, "shell", "", "wrong"},
    {NULL, "shell", "[]", "wrong"},
    {NULL, "shell", "null", "wrong"},
    {NULL, "shell", "\"text\"", "wrong"},
    {NULL, "shell", "{\"wrong_key\":1}", "command: "},
    {NULL, "shell", "{\"command\":7}", "command: "},
    {NULL, "shell", "{\"command\":null}", "command: "},
    {NULL, "shell", "{\"command\":\"\"}", "command: "},
    {NULL, "shell", "{\"command\":\"ls\",\"timeout_seconds\":0}", "timeout_seconds: "},
    {NULL, "shell", "{\"command\":\"ls\",\"timeout_seconds\":3601}", "timeout_seconds: "},
    {NULL, "shell", "{\"command\":\"a\\u0000b\"}", "wrong"},
    {NULL, "write_file", "{\"path\":\"x\"}", "content: "},
    {NULL, "edit_file", "{\"path\":\"x\",\"old\":\"\",\"new\":\"\"}", "old: "},
};

START_TEST(a_wrong_call_is_a_result)
{
    auto_arena struct arena arena = {0};
    const struct tool_place place = {
        .session_id = "", .capabilities = wrong[_i].capabilities, .cancel_fd = -1, .arena = &arena};
    struct tool_result result = {0};

    ck_assert_int_eq(tools_call(&place, wrong[_i].name, wrong[_i].arguments, &result), 0);
    ck_assert(result.is_error);
    ck_assert_msg(strncmp(result.text.data, "Error: ", 7) == 0 &&
                      strstr(result.text.data, wrong[_i].says),
                  "%s", result.text.data);
    buffer_done(&result.text);
}
END_TEST

static const struct {
    const char *bytes;
    size_t length;
    const char *text;
} texts[] = {
    {"plain \xC3\xBC", 8, "plain \xC3\xBC"},
    {"a\xFF\xFE\0b\x1B[31m", 10,
     "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
     "b\x1B[31m"},
    {"\xF0\x9F\x98", 3, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    {"", 0, ""},
};

START_TEST(output_becomes_text)
{
    auto_buffer struct buffer out = {0};

    buffer_text(&out, "");
    tools_text(&out, texts[_i].bytes, texts[_i].length);
    ck_assert_str_eq(out.data ? out.data : "", texts[_i].text);
}
END_TEST

START_TEST(a_cut_keeps_characters_whole_and_says_so)
{
    auto_buffer struct buffer out = {0}, whole = {0};

    tools_cut(&out,
              "ab\xC3\xBC"
              "cd",
              6, 3);
    ck_assert_str_eq(out.data, "ab\n[4 more bytes were cut]");
    tools_cut(&whole, "abc", 3, 3);
    ck_assert_str_eq(whole.data, "abc");
}
END_TEST

START_TEST(own_names_are_known)
{
    ck_assert(tools_has("shell") && tools_has("edit_file"));
    ck_assert(!tools_has("ask_user") && !tools_has(""));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tools");
    TCase *tests = unit_case(suite, "tools");

    unit_table(tests, capabilities_choose_the_tools, offers);
    tcase_add_test(tests, schemas_name_what_is_required);
    unit_table(tests, a_wrong_call_is_a_result, wrong);
    unit_table(tests, output_becomes_text, texts);
    tcase_add_test(tests, a_cut_keeps_characters_whole_and_says_so);
    tcase_add_test(tests, own_names_are_known);
    return unit_run(suite);
}
