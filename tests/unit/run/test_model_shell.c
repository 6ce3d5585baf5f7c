/* What builtin/shell reads out of a prompt, and how it gets through it. */
#include "run/model_shell.h"

#include <string.h>

#include "run/model.h"
#include "tests/unit/unit.h"

/* Each step as tool:command|tool:command */
static const struct {
    const char *prompt, *steps;
} prompts[] = {
    {"", ""},
    {"hello there", ""},
    {"$ ls -la", "shell:ls -la\n"},
    {"$ echo 1\n$ echo 2\n", "shell:echo 1\n|shell:echo 2\n"},
    {"$ cat <<EOF\nline\nEOF\n$ true", "shell:cat <<EOF\nline\nEOF\n|shell:true\n"},
    {"$ \n$ true", "shell:true\n"},
    {"do\n```sh\necho 1\necho 2\n```\nand\n```bash\necho 3\n```\n",
     "shell:echo 1\necho 2\n|shell:echo 3\n"},
    {"```sh\r\necho 1\r\n```\r\n", "shell:echo 1\n"},
    {"```\necho no\n```\n```python\nprint()\n```", ""},
    {"```python\n```sh\necho inside\n```\n", ""},
    {"````sh\necho '```'\n````\n", "shell:echo '```'\n"},
    {"~~~sh\necho tilde\n~~~", "shell:echo tilde\n"},
    {"```sh\necho open", "shell:echo open\n"},
    {"```sh\n   \n```", ""},
    {"    ```sh\nnot a fence", ""},
    {"  ```shell  \necho indented\n  ```", "shell:echo indented\n"},
    {"@tool ask_user {\"q\": 1}\n```sh\ntrue\n```",
     "ask_user:@tool ask_user {\"q\": 1}|shell:true\n"},
    {"@tool ask_user", "ask_user:@tool ask_user"},
    {"@tool ", ""},
    {"say @tool x {}", ""},
};

START_TEST(prompts_are_scripts)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer steps = {0};
    struct shell_script script = model_shell_script(&arena, prompts[_i].prompt);

    buffer_text(&steps, "");
    for (size_t i = 0; i < script.count; i++)
        buffer_format(&steps, "%s%s:%s", i ? "|" : "", script.steps[i].tool,
                      script.steps[i].command);
    ck_assert_str_eq(steps.data ? steps.data : "", prompts[_i].steps);
}
END_TEST

START_TEST(arguments_are_json)
{
    auto_arena struct arena arena = {0};
    struct shell_script script = model_shell_script(&arena, "$ echo \"a\\b\"\n");

    ck_assert_str_eq(script.steps[0].arguments, "{\"command\":\"echo \\\"a\\\\b\\\"\\n\"}");
    script = model_shell_script(&arena, "@tool t {not json");
    ck_assert_str_eq(script.steps[0].arguments, "{not json");
    script = model_shell_script(&arena, "@tool t");
    ck_assert_str_eq(script.steps[0].arguments, "{}");
}
END_TEST

static void hear(void *context, const char *text, size_t length)
{
    buffer_add(context, text, length);
}

/* Two commands: two answers with a call each, then one with what came of them. */
START_TEST(a_script_is_worked_off_call_by_call)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer heard = {0};
    struct conversation conversation = {.arena = &arena};
    const struct model_request request = {.model = MODEL_BUILTIN,
                                          .conversation = &conversation,
                                          .tools = "[]",
                                          .on_text = hear,
                                          .context = &heard};

    conversation_note(&conversation, "{\"role\":\"user\",\"content\":\"$ old\"}");
    conversation_note(&conversation, "{\"role\":\"user\",\"content\":\"$ one\\n$ two\"}");
    for (int i = 0; i < 2; i++) {
        auto_answer struct model_answer answer = {0};
        auto_buffer struct buffer message = {0}, result = {0};

        model_shell_ask(&request, &answer);
        ck_assert_uint_eq(answer.call_count, 1);
        ck_assert_str_eq(answer.calls[0].name, "shell");
        ck_assert_int_eq(answer.usage.requests, 1);
        conversation_assistant(&message, "", 0, answer.calls, answer.call_count);
        conversation_result(&result, answer.calls[0].id, i ? "out 2\n" : "out 1", 6 - !i);
        conversation_note(&conversation, message.data);
        conversation_note(&conversation, result.data);
    }
    {
        auto_answer struct model_answer answer = {0};

        model_shell_ask(&request, &answer);
        ck_assert_uint_eq(answer.call_count, 0);
        ck_assert_str_eq(answer.text.data, heard.data);
        ck_assert_msg(
            strstr(heard.data, "no language model") && strstr(heard.data, "ran 2 commands") &&
                strstr(heard.data, "$ one\nout 1\n") && strstr(heard.data, "$ two\nout 2\n"),
            "%s", heard.data);
    }
}
END_TEST

START_TEST(a_prompt_without_commands_gets_help)
{
    auto_arena struct arena arena = {0};
    struct conversation conversation = {.arena = &arena};
    const struct model_request request = {
        .model = MODEL_BUILTIN, .conversation = &conversation, .tools = "[]"};
    auto_answer struct model_answer answer = {0};

    conversation_note(&conversation, "{\"role\":\"user\",\"content\":\"what is the time?\"}");
    model_shell_ask(&request, &answer);
    ck_assert_uint_eq(answer.call_count, 0);
    ck_assert(strstr(answer.text.data, "no language model") != NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_shell");
    TCase *tests = unit_case(suite, "model_shell");

    unit_table(tests, prompts_are_scripts, prompts);
    tcase_add_test(tests, arguments_are_json);
    tcase_add_test(tests, a_script_is_worked_off_call_by_call);
    tcase_add_test(tests, a_prompt_without_commands_gets_help);
    return unit_run(suite);
}
