/* Calls of tools: arguments are checked, done in the sandbox, and told to the model as text. */
#include "run/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file_name.h"
#include "common/json.h"
#include "common/scope.h"
#include "common/utf8.h"
#include "run/environment.h"
#include "run/outcome.h"

enum {
    SHELL_TIMEOUT_S = 60,
    SHELL_TIMEOUT_MAX_S = 3600,
    COMMAND_BYTES_MAX = 128 * 1024 - 64,     /* one argument of execve(2) has less than 128 KiB */
    SHELL_TEXT_MAX = TOOL_OUTPUT_MAX - 1024, /* both streams; the rest is for notes */
    SHELL_ERRORS_SHARE = 16 * 1024,          /* of that, for standard error at least */
    SUPERVISOR_WAIT_MS = 10 * 1000,          /* a supervisor that is restarted is back by then */
    SUPERVISOR_PAUSE_MS = 100,
    FILE_MODE = 0644,
};

/* --- arguments ------------------------------------------------------------------------------- */

struct shell_arguments {
    const char *command;
    const double *timeout_seconds;
};

static const char *check_command(const char *text)
{
    return strlen(text) > COMMAND_BYTES_MAX
               ? "a command has at most 131008 bytes: write a script and run that"
               : NULL;
}

static const struct field shell_arguments_fields[] = {
    {TEXT(shell_arguments, command), .min = 1, .check = check_command,
     .about = "what /bin/sh runs"},
    {MAYBE_REAL(shell_arguments, timeout_seconds), .exclusive = true, .above = 0,
     .max = SHELL_TIMEOUT_MAX_S, .optional = true, .nullable = true,
     .about = "after how long it is killed; 60 when left out"},
};
SCHEMA(shell_arguments);

#define PATH_RULE .min = 1, .max = 4095, .about = "relative to the workspace"

struct path_arguments {
    const char *path;
};

static const struct field path_arguments_fields[] = {
    {TEXT(path_arguments, path), PATH_RULE},
};
SCHEMA(path_arguments);

struct write_arguments {
    const char *path;
    const char *content;
};

static const struct field write_arguments_fields[] = {
    {TEXT(write_arguments, path), PATH_RULE},
    {TEXT(write_arguments, content), .about = "the whole text"},
};
SCHEMA(write_arguments);

struct list_arguments {
    const char *path;
};

static const struct field list_arguments_fields[] = {
    {TEXT(list_arguments, path), PATH_RULE, .fallback = "\".\"", .null_is_fallback = true},
};
SCHEMA(list_arguments);

struct edit_arguments {
    const char *path;
    const char *old_text;
    const char *new_text;
};

static const struct field edit_arguments_fields[] = {
    {TEXT(edit_arguments, path), PATH_RULE},
    {.name = "old",
     .type = FIELD_TEXT,
     .offset = offsetof(struct edit_arguments, old_text),
     .min = 1,
     .about = "the passage as it is, with enough around it to be found once"},
    {.name = "new",
     .type = FIELD_TEXT,
     .offset = offsetof(struct edit_arguments, new_text),
     .about = "what takes its place"},
};
SCHEMA(edit_arguments);

/* --- text ------------------------------------------------------------------------------------ */

#define REPLACEMENT "\xEF\xBF\xBD"

void tools_text(struct buffer *out, const char *bytes, size_t length)
{
    const char *end = bytes + length, *good = bytes;

    for (const char *at = bytes; at < end;) {
        size_t character = *at ? utf8_length(at, (size_t)(end - at)) : 0;

        if (character) {
            at += character;
            continue;
        }
        buffer_add(out, good, (size_t)(at - good));
        buffer_text(out, REPLACEMENT);
        good = ++at;
    }
    if (end > good)
        buffer_add(out, good, (size_t)(end - good));
}

void tools_cut(struct buffer *out, const char *text, size_t length, size_t limit)
{
    size_t kept = utf8_cut(text, length, limit);

    buffer_add(out, text, kept);
    if (kept < length)
        buffer_format(out, "\n[%zu more bytes were cut]", length - kept);
}

static int wrong(struct tool_result *result, const struct error *err)
{
    result->is_error = true;
    result->text.length = 0;
    buffer_text(&result->text, "Error: ");
    tools_text(&result->text, err->message, strlen(err->message));
    return 0;
}

/* One element of json.h's list of failures: "command: Field required". */
struct failures {
    struct arena *arena;
    struct buffer *text;
    bool any;
};

static int add_step(const char *key, const char *value, void *context)
{
    struct failures *failures = context;
    const char *name =
        json_member_text(failures->arena, arena_text(failures->arena, "{\"v\":%s}", value), "v");

    (void)key;
    if (name && strcmp(name, "arguments") != 0)
        buffer_format(failures->text, "%s: ", name);
    return 0;
}

static int add_failure(const char *key, const char *value, void *context)
{
    struct failures *failures = context;
    const char *location = json_member(failures->arena, value, "loc");
    const char *message = json_member_text(failures->arena, value, "msg");

    (void)key;
    buffer_text(failures->text, failures->any ? "; " : " ");
    failures->any = true;
    if (location)
        json_each(failures->arena, location, add_step, failures);
    buffer_text(failures->text, message ? message : "wrong");
    return 0;
}

static int wrong_arguments(struct arena *arena, const char *name, const struct error *err,
                           struct tool_result *result)
{
    struct failures failures = {arena, &result->text, false};

    result->is_error = true;
    buffer_format(&result->text, "Error: the arguments of %s are wrong:", name);
    if (err->fields)
        json_each(arena, err->fields, add_failure, &failures);
    else
        buffer_format(&result->text, " %s", err->message);
    return 0;
}

/* --- the sandbox ----------------------------------------------------------------------------- */

/* Wait for a supervisor that is being restarted, before anything is begun: a command must not be
 * begun twice. 1 when cancelled. */
static int find_supervisor(const struct tool_place *place, struct error *err)
{
    struct pollfd cancel = {.fd = place->cancel_fd, .events = POLLIN};

    for (int waited = 0;; waited += SUPERVISOR_PAUSE_MS) {
        struct sandbox_status status;

        if (sandbox_status(place->link, place->session_id, place->arena, &status, err) == 0) {
            if (status.state == SANDBOX_RUNNING)
                return 0;
            return error_set(err, ERR_CONFLICT, "the sandbox does not run");
        }
        if (err->kind != ERR_UNAVAILABLE || waited >= SUPERVISOR_WAIT_MS)
            return -1;
        if (poll(&cancel, 1, SUPERVISOR_PAUSE_MS) > 0)
            return 1;
    }
}

static void output_done(struct sandbox_output *output)
{
    buffer_done(&output->bytes);
}
#define auto_output __attribute__((cleanup(output_done)))

/* One stream, of which `limit` bytes may be shown. */
static void add_stream(struct buffer *text, const struct sandbox_output *output, size_t limit)
{
    auto_buffer struct buffer clean = {0};
    size_t kept;

    if (!output->bytes.length)
        return;
    tools_text(&clean, output->bytes.data, output->bytes.length);
    kept = utf8_cut(clean.data, clean.length, limit);
    buffer_add(text, clean.data, kept);
    if (kept < clean.length || output->total > (int64_t)output->bytes.length)
        buffer_format(text, "\n[cut: it wrote %lld bytes in all]", (long long)output->total);
}

static void end_line(struct buffer *text)
{
    if (text->length && text->data[text->length - 1] != '\n')
        buffer_char(text, '\n');
}

static void tell_command(const struct sandbox_output *out, const struct sandbox_output *errors,
                         const struct exec_outcome *outcome, double timeout_s, struct buffer *text)
{
    size_t share =
        errors->bytes.length < SHELL_ERRORS_SHARE ? errors->bytes.length : SHELL_ERRORS_SHARE;

    add_stream(text, out, SHELL_TEXT_MAX - share);
    if (errors->bytes.length) {
        size_t left = text->length < SHELL_TEXT_MAX ? SHELL_TEXT_MAX - text->length : 0;

        end_line(text);
        buffer_text(text, "[stderr]\n");
        add_stream(text, errors, left > SHELL_ERRORS_SHARE ? left : SHELL_ERRORS_SHARE);
    }
    if (!outcome->exit_code && !outcome->timed_out) {
        if (!text->length)
            buffer_text(text, "(no output)");
        return;
    }
    end_line(text);
    if (outcome->timed_out)
        buffer_format(text, "[exit code %lld: killed after %g seconds]",
                      (long long)outcome->exit_code, timeout_s);
    else if (outcome->oom_killed)
        buffer_format(text, "[exit code %lld: out of memory]", (long long)outcome->exit_code);
    else
        buffer_format(text, "[exit code %lld]", (long long)outcome->exit_code);
}

static int do_shell(const struct tool_place *place, const void *arguments,
                    struct tool_result *answer, struct error *err)
{
    const struct shell_arguments *shell = arguments;
    const char *argv[] = {"/bin/sh", "-c", shell->command};
    double timeout_s = shell->timeout_seconds ? *shell->timeout_seconds : SHELL_TIMEOUT_S;
    const struct exec exec = {
        .sandbox = place->session_id,
        .argv = {argv, COUNT(argv)},
        .environment = place->environment,
        .defaults = environment_defaults(),
        .directory = place->workdir,
        .timeout_ms = (int64_t)ceil(timeout_s * 1000),
    };
    auto_output struct sandbox_output out = {0}, errors = {0};
    struct exec_outcome *outcome = arena_alloc(place->arena, sizeof(*outcome));

    if (outcome_run(place->link, &exec, SHELL_TEXT_MAX, place->cancel_fd, place->arena, &out,
                    &errors, outcome, err) < 0)
        return err->kind == ERR_TIMEOUT ? 1 : -1;
    tell_command(&out, &errors, outcome, timeout_s, &answer->text);
    answer->outcome = outcome;
    return 0;
}

/* The text of a file, with a NUL behind it. */
static int read_text(const struct tool_place *place, const char *path, struct buffer *text,
                     int64_t *mode, struct error *err)
{
    auto_close int fd = -1;
    struct file_info info;
    size_t at = 0, character = 1;
    ssize_t got;

    if (sandbox_file_open(place->link, place->session_id, path, &info, &fd, err) < 0)
        return -1;
    if (info.size > TOOL_FILE_MAX)
        return error_set(err, ERR_TOO_LARGE,
                         "%s has %lld bytes, and 1 MiB is the most: use the shell for parts of it",
                         path, (long long)info.size);
    while (text->length <= TOOL_FILE_MAX &&
           (got = read(fd, buffer_reserve(text, 64 * 1024), 64 * 1024)) != 0) {
        if (got < 0)
            return error_set_errno(err, ERR_INTERNAL, "read %s", path);
        text->length += (size_t)got;
        text->data[text->length] = '\0';
    }
    if (text->length > TOOL_FILE_MAX)
        return error_set(err, ERR_TOO_LARGE, "%s grew beyond 1 MiB", path);
    for (; at < text->length && character; at += character)
        character = text->data[at] ? utf8_length(text->data + at, text->length - at) : 0;
    if (!character)
        return error_set(err, ERR_BAD_REQUEST, "%s is not text in UTF-8", path);
    *mode = info.mode;
    return 0;
}

static int write_text(const struct tool_place *place, const char *path, int64_t mode,
                      const char *text, size_t length, struct error *err)
{
    auto_close int fd = -1;

    if (sandbox_file_create(place->link, place->session_id, path, mode, &fd, err) < 0)
        return -1;
    while (length) {
        ssize_t done = write(fd, text, length);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return error_set_errno(err, ERR_INTERNAL, "write %s", path);
        text += done;
        length -= (size_t)done;
    }
    return sandbox_file_commit(place->link, place->session_id, err);
}

static int do_read_file(const struct tool_place *place, const void *arguments,
                        struct tool_result *result, struct error *err)
{
    const struct path_arguments *file = arguments;
    int64_t mode;

    return read_text(place, file_name_read(place->arena, file->path), &result->text, &mode, err);
}

static int do_write_file(const struct tool_place *place, const void *arguments,
                         struct tool_result *result, struct error *err)
{
    const struct write_arguments *file = arguments;
    size_t length = strlen(file->content);

    if (write_text(place, file_name_read(place->arena, file->path), FILE_MODE, file->content,
                   length, err) < 0)
        return -1;
    buffer_format(&result->text, "Wrote %zu bytes to %s.", length, file->path);
    return 0;
}

static int do_edit_file(const struct tool_place *place, const void *arguments,
                        struct tool_result *result, struct error *err)
{
    const struct edit_arguments *edit = arguments;
    auto_buffer struct buffer old = {0}, new = {0};
    size_t length = strlen(edit->old_text), before;
    const char *found;
    const char *path = file_name_read(place->arena, edit->path);
    int64_t mode;

    if (read_text(place, path, &old, &mode, err) < 0)
        return -1;
    found = old.length ? strstr(old.data, edit->old_text) : NULL;
    if (!found)
        return error_set(err, ERR_CONFLICT, "the old text is not in %s", edit->path);
    if (strstr(found + 1, edit->old_text))
        return error_set(err, ERR_CONFLICT,
                         "the old text is in %s more than once: give more of what is around it",
                         edit->path);
    before = (size_t)(found - old.data);
    buffer_add(&new, old.data, before);
    buffer_text(&new, edit->new_text);
    buffer_add(&new, found + length, old.length - before - length);
    if (write_text(place, path, mode & 0777, new.data, new.length, err) < 0)
        return -1;
    buffer_format(&result->text, "Edited %s.", edit->path);
    return 0;
}

/* What a list says, of which no more than can be shown is kept. */
struct shown_list {
    const char *path;
    struct buffer text;
    size_t left_out; /* bytes */
};

static void shown_list_done(struct shown_list *list)
{
    buffer_done(&list->text);
}

static int show_entry(const struct file_entry *entry, void *data, struct error *err)
{
    struct shown_list *list = data;
    size_t before = list->text.length;
    mode_t mode = (mode_t)entry->mode;

    (void)err;
    if (strcmp(entry->name, ".") == 0)
        buffer_text(&list->text, list->path);
    else
        file_name_show(&list->text, entry->name);
    if (S_ISREG(mode))
        buffer_format(&list->text, " (%lld bytes)\n", (long long)entry->size);
    else
        buffer_text(&list->text, S_ISDIR(mode)   ? "/\n"
                                 : S_ISLNK(mode) ? " (symbolic link)\n"
                                                 : " (special file)\n");
    if (list->text.length <= SHELL_TEXT_MAX && !list->left_out)
        return 0;
    list->left_out += list->text.length - before;
    list->text.length = before;
    list->text.data[before] = '\0';
    return 0;
}

static int do_list_files(const struct tool_place *place, const void *arguments,
                         struct tool_result *result, struct error *err)
{
    const struct list_arguments *asked = arguments;
    __attribute__((cleanup(shown_list_done))) struct shown_list list = {.path = asked->path};

    if (sandbox_file_each(place->link, place->session_id, file_name_read(place->arena, list.path),
                          show_entry, &list, err) < 0)
        return -1;
    buffer_text(&result->text, list.text.length ? list.text.data : "(empty)");
    if (list.left_out)
        buffer_format(&result->text, "[%zu more bytes were cut]", list.left_out);
    return 0;
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct tool {
    const char *name;
    const char *capability;
    const struct schema *arguments;
    const char *about;
    int (*run)(const struct tool_place *place, const void *arguments, struct tool_result *result,
               struct error *err);
} tools[] = {
#define TOOL(tool_name, needed, schema, text) \
    {.name = #tool_name,                      \
     .capability = needed,                    \
     .arguments = &schema_##schema,           \
     .about = text,                           \
     .run = do_##tool_name},
#include "run/tools.def"
#undef TOOL
};

static const struct tool *tool_find(const char *name)
{
    for (size_t i = 0; i < COUNT(tools); i++)
        if (strcmp(tools[i].name, name) == 0)
            return &tools[i];
    return NULL;
}

bool tools_has(const char *name)
{
    return tool_find(name) != NULL;
}

struct wanted {
    struct arena *arena;
    const char *capability;
};

static int is_wanted(const char *key, const char *value, void *context)
{
    const struct wanted *wanted = context;
    const char *name =
        json_member_text(wanted->arena, arena_text(wanted->arena, "{\"v\":%s}", value), "v");

    (void)key;
    return name && strcmp(name, wanted->capability) == 0;
}

static bool is_offered(struct arena *arena, const char *capabilities, const struct tool *tool)
{
    struct wanted wanted = {arena, tool->capability};

    /* The default set has every tool there is. */
    return !capabilities || json_each(arena, capabilities, is_wanted, &wanted);
}

static void offer_property(const struct field *field, struct buffer *out)
{
    static const char *const types[] = {[FIELD_TEXT] = "string",
                                        [FIELD_NUMBER] = "integer",
                                        [FIELD_REAL] = "number",
                                        [FIELD_FLAG] = "boolean"};

    json_format(out, "%s:{\"type\":%s,\"description\":%s}", field->name, types[field->type],
                field->about ? field->about : "");
}

static void offer_tool(const struct tool *tool, struct buffer *out)
{
    const struct schema *schema = tool->arguments;
    bool any = false;

    json_format(out,
                "{\"type\":\"function\",\"function\":{\"name\":%s,\"description\":%s,"
                "\"parameters\":{\"type\":\"object\",\"properties\":{",
                tool->name, tool->about);
    for (size_t i = 0; i < schema->count; i++) {
        if (i)
            buffer_char(out, ',');
        offer_property(&schema->fields[i], out);
    }
    buffer_text(out, "},\"required\":[");
    for (size_t i = 0; i < schema->count; i++) {
        if (schema->fields[i].optional || schema->fields[i].fallback)
            continue;
        if (any)
            buffer_char(out, ',');
        any = true;
        json_string(out, schema->fields[i].name);
    }
    buffer_text(out, "]}}}");
}

void tools_offer(struct arena *arena, const char *capabilities, struct buffer *out)
{
    bool any = false;

    buffer_char(out, '[');
    for (size_t i = 0; i < COUNT(tools); i++) {
        if (!is_offered(arena, capabilities, &tools[i]))
            continue;
        if (any)
            buffer_char(out, ',');
        any = true;
        offer_tool(&tools[i], out);
    }
    buffer_char(out, ']');
}

int tools_call(const struct tool_place *place, const char *name, const char *arguments,
               struct tool_result *result)
{
    const struct tool *tool = tool_find(name);
    struct decoded decoded;
    struct error err = {0};
    int outcome;

    if (!tool || !is_offered(place->arena, place->capabilities, tool)) {
        error_set(&err, ERR_NOT_FOUND, "there is no tool '%s' here", name);
        return wrong(result, &err);
    }
    if (json_decode(tool->arguments, "arguments", arguments, strlen(arguments), place->arena,
                    &decoded, &err) < 0)
        return wrong_arguments(place->arena, name, &err, result);
    outcome = find_supervisor(place, &err);
    if (outcome == 0)
        outcome = tool->run(place, decoded.value, result, &err);
    return outcome < 0 ? wrong(result, &err) : outcome;
}
