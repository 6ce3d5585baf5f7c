/* builtin/shell: the model for those who have none. It understands nothing; it runs the commands
 * that a prompt spells out, through the same tools as any model, and says what came of them. */
#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "common/token.h"
#include "run/model.h"
#include "run/model_shell.h"

#define HELP                                                                                       \
    "I am builtin/shell, the model that comes with this server. I am no language model: I run "    \
    "the commands that a message spells out.\n\n"                                                  \
    "Write them into a fenced block,\n\n"                                                          \
    "```sh\nmkdir -p output && date > output/report.md\n```\n\n"                                   \
    "or begin the message with `$ `, as in `$ ls -la`. A line `@tool name {\"key\": \"value\"}` "  \
    "calls a tool by its name. For answers that somebody thought about, give the server a model: " \
    "MODEL_BASE_URL.\n"

/* --- the script ------------------------------------------------------------------------------ */

struct lines {
    const char *at;   /* the next line */
    const char *line; /* this one */
    size_t length;    /* without its end */
};

static bool next_line(struct lines *lines)
{
    const char *end;

    if (!*lines->at)
        return false;
    lines->line = lines->at;
    end = strchr(lines->at, '\n');
    lines->length = end ? (size_t)(end - lines->at) : strlen(lines->at);
    lines->at += lines->length + (end ? 1 : 0);
    if (lines->length && lines->line[lines->length - 1] == '\r')
        lines->length--;
    return true;
}

static struct shell_step *add_step(struct shell_script *script, struct arena *arena)
{
    if (script->count == script->room) {
        size_t room = script->room ? 2 * script->room : 8;
        struct shell_step *steps = arena_alloc(arena, room * sizeof(*steps));

        if (script->count)
            memcpy(steps, script->steps, script->count * sizeof(*steps));
        script->steps = steps;
        script->room = room;
    }
    return &script->steps[script->count++];
}

static void add_command(struct shell_script *script, struct arena *arena,
                        const struct buffer *command)
{
    auto_buffer struct buffer arguments = {0};
    const char *text = command->data ? command->data : "";

    if (!text[strspn(text, " \t\n")])
        return;
    json_format(&arguments, "{\"command\":%s}", text);
    *add_step(script, arena) = (struct shell_step){
        .tool = "shell",
        .arguments = arena_copy(arena, arguments.data, arguments.length),
        .command = arena_copy(arena, text, command->length),
    };
}

/* Of a fence: how many ` or ~ it has (0: it is none), and where its language stands. */
static size_t fence_of(const struct lines *lines, char *mark, const char **language, size_t *length)
{
    const char *at = lines->line, *end = at + lines->length;
    size_t marks = 0;

    while (at < end && *at == ' ' && at - lines->line < 4)
        at++;
    if (at == end || (*at != '`' && *at != '~') || at - lines->line > 3)
        return 0;
    *mark = *at;
    for (; at < end && *at == *mark; at++)
        marks++;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *language = at;
    *length = (size_t)(end - at);
    return marks >= 3 ? marks : 0;
}

static bool is_shell(const char *language, size_t length)
{
    static const char *const names[] = {"sh", "bash", "shell"};

    for (size_t i = 0; i < COUNT(names); i++)
        if (length == strlen(names[i]) && strncmp(language, names[i], length) == 0)
            return true;
    return false;
}

/* The rest of a fenced block. One that never ends, ends with the text. */
static void read_block(struct lines *lines, size_t opening, char opening_mark,
                       struct buffer *command)
{
    const char *language;
    size_t length;
    char mark;

    while (next_line(lines)) {
        size_t marks = fence_of(lines, &mark, &language, &length);

        if (marks >= opening && mark == opening_mark && length == 0)
            return;
        buffer_add(command, lines->line, lines->length);
        buffer_char(command, '\n');
    }
}

/* "@tool name {json}" */
static void add_call(struct shell_script *script, struct arena *arena, const struct lines *lines)
{
    const char *at = lines->line + strlen("@tool "), *end = lines->line + lines->length;
    const char *name;

    while (at < end && *at == ' ')
        at++;
    name = at;
    while (at < end && *at != ' ' && *at != '{')
        at++;
    if (at == name)
        return;
    *add_step(script, arena) =
        (struct shell_step){.tool = arena_copy(arena, name, (size_t)(at - name)),
                            .command = arena_copy(arena, lines->line, lines->length)};
    while (at < end && *at == ' ')
        at++;
    script->steps[script->count - 1].arguments =
        at < end ? arena_copy(arena, at, (size_t)(end - at)) : "{}";
}

/* A prompt that begins with "$ ": each line that does is a command, others belong to the one
 * before. */
static void read_transcript(struct shell_script *script, struct arena *arena, struct lines *lines)
{
    auto_buffer struct buffer command = {0};

    while (next_line(lines)) {
        bool begins = lines->length >= 2 && memcmp(lines->line, "$ ", 2) == 0;
        size_t skip = begins ? 2 : 0;

        if (begins) {
            add_command(script, arena, &command);
            command.length = 0;
        }
        buffer_add(&command, lines->line + skip, lines->length - skip);
        buffer_char(&command, '\n');
    }
    add_command(script, arena, &command);
}

struct shell_script model_shell_script(struct arena *arena, const char *prompt)
{
    struct lines lines = {.at = prompt};
    struct shell_script script = {0};
    const char *language;
    size_t length;
    char mark;

    if (strncmp(prompt, "$ ", 2) == 0) {
        read_transcript(&script, arena, &lines);
        return script;
    }
    while (next_line(&lines)) {
        size_t marks = fence_of(&lines, &mark, &language, &length);
        auto_buffer struct buffer block = {0};

        if (marks) {
            bool runs = is_shell(language, length);

            read_block(&lines, marks, mark, &block);
            if (runs)
                add_command(&script, arena, &block);
        } else if (strncmp(lines.line, "@tool ", strlen("@tool ")) == 0) {
            add_call(&script, arena, &lines);
        }
    }
    return script;
}

/* --- the answer ------------------------------------------------------------------------------ */

static void say(const struct model_request *request, struct model_answer *answer)
{
    const char *at = answer->text.data;

    answer->began = true;
    while (request->on_text && *at) {
        size_t length = strcspn(at, "\n");

        length += at[length] == '\n';
        request->on_text(request->context, at, length);
        at += length;
    }
}

static void call(struct model_answer *answer, const struct shell_step *step)
{
    char id[64];

    token_make("call_", 18, id, sizeof(id));
    answer->calls = arena_alloc(&answer->arena, sizeof(*answer->calls));
    answer->calls[0] = (struct tool_call){
        .id = arena_text(&answer->arena, "%s", id),
        .name = arena_text(&answer->arena, "%s", step->tool),
        .arguments = arena_text(&answer->arena, "%s", step->arguments),
    };
    answer->call_count = answer->call_room = 1;
    answer->began = true;
}

static void report(const struct model_request *request, const struct shell_script *script,
                   size_t prompt, struct buffer *text)
{
    const struct conversation *conversation = request->conversation;
    size_t step = 0;

    buffer_format(text, "builtin/shell, no language model, ran %zu command%s:\n", script->count,
                  script->count == 1 ? "" : "s");
    for (size_t i = prompt + 1; i < conversation->count && step < script->count; i++) {
        const char *output;
        size_t length = strlen(script->steps[step].command);

        if (conversation->items[i].role != MESSAGE_TOOL)
            continue;
        output = conversation_text(conversation, i);
        while (length && script->steps[step].command[length - 1] == '\n')
            length--;
        buffer_format(text, "\n%s", strcmp(script->steps[step].tool, "shell") == 0 ? "$ " : "");
        buffer_add(text, script->steps[step].command, length);
        buffer_char(text, '\n');
        buffer_text(text, output);
        if (*output && text->data[text->length - 1] != '\n')
            buffer_char(text, '\n');
        step++;
    }
}

void model_shell_ask(const struct model_request *request, struct model_answer *answer)
{
    const struct conversation *conversation = request->conversation;
    struct shell_script script;
    size_t prompt = conversation->count, done = 0;

    answer->usage.requests = 1;
    while (prompt > 0 && conversation->items[prompt - 1].role != MESSAGE_USER)
        prompt--;
    script = model_shell_script(&answer->arena,
                                prompt ? conversation_text(conversation, prompt - 1) : "");
    for (size_t i = prompt; i < conversation->count; i++)
        done += conversation->items[i].call_count > 0;
    if (done < script.count) {
        call(answer, &script.steps[done]);
        return;
    }
    if (script.count)
        report(request, &script, prompt ? prompt - 1 : 0, &answer->text);
    else
        buffer_text(&answer->text, HELP);
    say(request, answer);
}
