/* Reading what a model streams. What it says is somebody else's text: escapes that can't be stored
 * are replaced before cJSON sees them, since it ends texts at U+0000 and refuses lone surrogates.
 */
#include "run/model_stream.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static void json_scope(cJSON **json)
{
    cJSON_Delete(*json);
}
#define auto_json __attribute__((cleanup(json_scope)))

void model_answer_done(struct model_answer *answer)
{
    buffer_done(&answer->text);
    buffer_done(&answer->thinking);
    arena_done(&answer->arena);
}

void model_stream_init(struct model_stream *stream, struct model_answer *answer,
                       void (*on_text)(void *context, const char *text, size_t length),
                       void *context)
{
    *stream = (struct model_stream){.answer = answer, .on_text = on_text, .context = context};
}

void model_stream_done(struct model_stream *stream)
{
    for (size_t i = 0; i < stream->answer->call_room; i++)
        buffer_done(&stream->calls[i]);
    free(stream->calls);
    buffer_done(&stream->line);
}

/* --- text ------------------------------------------------------------------------------------ */

/* The value of \uXXXX at `at`, or -1. */
static int escape_value(const char *at, const char *end)
{
    int value = 0;

    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* \u0000 and surrogates without their other half → \ufffd, in place. */
static void replace_escapes(char *text, size_t length)
{
    char *end = text + length;

    for (char *at = text; (at = memchr(at, '\\', (size_t)(end - at))); at += 2) {
        int value = escape_value(at, end);
        int low = value >= 0xD800 && value < 0xDC00 ? escape_value(at + 6, end) : -1;

        if (end - at < 2)
            return;
        if (low >= 0xDC00 && low < 0xE000)
            at += 10;
        else if (value == 0 || (value >= 0xD800 && value < 0xE000))
            memset(at + 2, 'f', 3), at[5] = 'd';
    }
}

static const char *text_of(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    return text ? text : "";
}

/* --- parts of an answer ---------------------------------------------------------------------- */

static int64_t count_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    if (!cJSON_IsNumber(item) || !(item->valuedouble > 0))
        return 0;
    return item->valuedouble < 1e15 ? (int64_t)item->valuedouble : (int64_t)1e15;
}

static void take_usage(struct usage *usage, const cJSON *object)
{
    const cJSON *input = cJSON_GetObjectItemCaseSensitive(object, "prompt_tokens_details");
    const cJSON *output = cJSON_GetObjectItemCaseSensitive(object, "completion_tokens_details");

    if (!cJSON_IsObject(object))
        return;
    usage->input_tokens = count_of(object, "prompt_tokens");
    usage->output_tokens = count_of(object, "completion_tokens");
    usage->total_tokens = count_of(object, "total_tokens");
    if (!usage->total_tokens)
        usage->total_tokens = usage->input_tokens + usage->output_tokens;
    usage->cached_input_tokens = count_of(input, "cached_tokens");
    usage->reasoning_tokens = count_of(output, "reasoning_tokens");
}

static void take_text(struct model_stream *stream, const char *text)
{
    size_t length = strlen(text);

    if (!length)
        return;
    stream->answer->began = true;
    buffer_add(&stream->answer->text, text, length);
    if (stream->on_text)
        stream->on_text(stream->context, text, length);
}

static void take_thinking(struct model_stream *stream, const char *text)
{
    if (!*text)
        return;
    stream->answer->began = true;
    buffer_text(&stream->answer->thinking, text);
}

/* The call with this number, made when it is new; NULL beyond the limit. */
static struct tool_call *call_at(struct model_stream *stream, size_t index)
{
    struct model_answer *answer = stream->answer;

    if (index >= MODEL_CALLS_MAX)
        return NULL;
    if (index >= answer->call_room) {
        size_t room = index < 8 ? 8 : MODEL_CALLS_MAX;
        struct tool_call *calls = arena_alloc(&answer->arena, room * sizeof(*calls));

        if (answer->call_count)
            memcpy(calls, answer->calls, answer->call_count * sizeof(*calls));
        stream->calls = reallocarray(stream->calls, room, sizeof(*stream->calls));
        if (!stream->calls)
            abort();
        memset(stream->calls + answer->call_room, 0,
               (room - answer->call_room) * sizeof(*stream->calls));
        answer->calls = calls;
        answer->call_room = room;
    }
    for (; answer->call_count <= index; answer->call_count++)
        answer->calls[answer->call_count] = (struct tool_call){"", "", ""};
    return &answer->calls[index];
}

/* Which call a piece belongs to. Some endpoints leave the index out: then an id begins a new one.
 */
static size_t index_of(const struct model_answer *answer, const cJSON *piece, const char *id)
{
    const cJSON *index = cJSON_GetObjectItemCaseSensitive(piece, "index");

    if (cJSON_IsNumber(index) && index->valuedouble >= 0 && index->valuedouble < MODEL_CALLS_MAX)
        return (size_t)index->valuedouble;
    if (*id) {
        for (size_t i = 0; i < answer->call_count; i++)
            if (strcmp(answer->calls[i].id, id) == 0)
                return i;
        return answer->call_count;
    }
    return answer->call_count ? answer->call_count - 1 : 0;
}

static int take_call(struct model_stream *stream, const cJSON *piece, struct error *err)
{
    struct arena *arena = &stream->answer->arena;
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(piece, "function");
    const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
    const char *id = text_of(piece, "id"), *name = text_of(function, "name");
    size_t index = index_of(stream->answer, piece, id);
    struct tool_call *call = call_at(stream, index);

    if (!call)
        return error_set(err, ERR_UPSTREAM, "the model made more than %d calls in one answer",
                         MODEL_CALLS_MAX);
    stream->answer->began = true;
    if (*id && !*call->id)
        call->id = arena_copy(arena, id, strlen(id));
    if (*name && !*call->name)
        call->name = arena_copy(arena, name, strlen(name));
    if (cJSON_IsString(arguments)) {
        buffer_text(&stream->calls[index], arguments->valuestring);
    } else if (cJSON_IsObject(arguments)) { /* some endpoints forget that it is a text */
        char *text = cJSON_PrintUnformatted(arguments);

        if (!text)
            abort();
        buffer_text(&stream->calls[index], text);
        cJSON_free(text);
    }
    return 0;
}

/* `delta` of a chunk, or `message` of a whole answer. */
static int take_message(struct model_stream *stream, const cJSON *message, struct error *err)
{
    const cJSON *piece;

    take_thinking(stream, text_of(message, "reasoning_content"));
    take_thinking(stream, text_of(message, "reasoning"));
    take_text(stream, text_of(message, "content"));
    take_text(stream, text_of(message, "refusal"));
    cJSON_ArrayForEach(piece,
                       cJSON_GetObjectItemCaseSensitive(
                           message, "tool_calls")) if (take_call(stream, piece, err) < 0) return -1;
    return 0;
}

static int refused(const cJSON *error, struct error *err)
{
    const char *message = cJSON_IsString(error) ? error->valuestring : text_of(error, "message");

    return error_set(err, ERR_UPSTREAM, "the model endpoint gave up: %s",
                     *message ? message : "it did not say why");
}

static int take_object(struct model_stream *stream, const cJSON *object, struct error *err)
{
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(object, "error");
    const cJSON *choice =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(object, "choices"), 0);
    const cJSON *delta = cJSON_GetObjectItemCaseSensitive(choice, "delta");

    if (cJSON_IsObject(error) || cJSON_IsString(error))
        return refused(error, err);
    take_usage(&stream->answer->usage, cJSON_GetObjectItemCaseSensitive(object, "usage"));
    if (cJSON_IsString(cJSON_GetObjectItemCaseSensitive(choice, "finish_reason")))
        stream->finished = true;
    if (!delta)
        delta = cJSON_GetObjectItemCaseSensitive(choice, "message");
    return take_message(stream, delta, err);
}

/* --- lines ----------------------------------------------------------------------------------- */

static int take_json(struct model_stream *stream, char *text, size_t length, struct error *err)
{
    auto_json cJSON *object = NULL;

    replace_escapes(text, length);
    object = cJSON_ParseWithLength(text, length);
    if (!cJSON_IsObject(object))
        return error_set(err, ERR_UPSTREAM,
                         "the model endpoint answered with something that is no chat completion");
    return take_object(stream, object, err);
}

static bool begins(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* A whole line, without its end. */
static int take_line(struct model_stream *stream, struct error *err)
{
    char *line = stream->line.data;
    size_t length = stream->line.length;

    while (length && line[length - 1] == '\r')
        line[--length] = '\0';
    if (!length || *line == ':' || begins(line, "event:") || begins(line, "id:") ||
        begins(line, "retry:"))
        return 0;
    if (!begins(line, "data:")) {
        stream->whole = true; /* and what comes is added to it */
        return 0;
    }
    line += strlen("data:");
    length -= strlen("data:");
    while (length && *line == ' ')
        line++, length--;
    if (strcmp(line, "[DONE]") == 0) {
        stream->finished = true;
        return 0;
    }
    return length ? take_json(stream, line, length, err) : 0;
}

int model_stream_feed(struct model_stream *stream, const char *bytes, size_t length,
                      struct error *err)
{
    const char *end = bytes + length;

    stream->bytes += length;
    if (stream->bytes > MODEL_ANSWER_BYTES_MAX)
        return error_set(err, ERR_UPSTREAM, "the model's answer is longer than %d MiB",
                         MODEL_ANSWER_BYTES_MAX >> 20);
    while (bytes < end) {
        const char *newline = stream->whole ? NULL : memchr(bytes, '\n', (size_t)(end - bytes));

        buffer_add(&stream->line, bytes, (size_t)((newline ? newline : end) - bytes));
        if (!newline)
            return 0;
        bytes = newline + 1;
        if (take_line(stream, err) < 0)
            return -1;
        if (stream->whole)
            buffer_char(&stream->line, '\n');
        else
            stream->line.length = 0;
    }
    return 0;
}

/* --- the end --------------------------------------------------------------------------------- */

static void complete_calls(struct model_stream *stream)
{
    struct model_answer *answer = stream->answer;

    for (size_t i = 0; i < answer->call_count; i++) {
        const struct buffer *arguments = &stream->calls[i];

        answer->calls[i].arguments =
            arena_copy(&answer->arena, arguments->data ? arguments->data : "", arguments->length);
    }
}

int model_stream_end(struct model_stream *stream, const char *broken, struct error *err)
{
    if (!broken && !stream->finished && stream->line.length) {
        bool whole = stream->whole || *stream->line.data == '{';

        if (whole ? take_json(stream, stream->line.data, stream->line.length, err) < 0
                  : take_line(stream, err) < 0)
            return -1;
        if (!whole && stream->whole)
            return take_json(stream, stream->line.data, stream->line.length, err);
    }
    complete_calls(stream);
    if (stream->finished)
        return 0;
    if (!stream->bytes && !broken)
        return error_set(err, ERR_UPSTREAM, "the model endpoint answered with nothing");
    return error_set(err, ERR_UPSTREAM, "the model's answer was cut short%s%s", broken ? ": " : "",
                     broken ? broken : "");
}
