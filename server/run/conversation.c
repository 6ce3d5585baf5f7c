/* Chat messages: rows, memory, and the list that the model is sent. */
#include "run/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "common/json.h"

#define OPEN_CALL_RESULT "Cancelled: the turn ended before this call had a result."

/* --- in memory ------------------------------------------------------------------------------- */

static enum message_role role_of(const char *name)
{
    static const char *const names[] = {
        [MESSAGE_USER] = "user", [MESSAGE_ASSISTANT] = "assistant", [MESSAGE_TOOL] = "tool"};

    for (size_t role = MESSAGE_USER; name && role < COUNT(names); role++)
        if (strcmp(name, names[role]) == 0)
            return (enum message_role)role;
    return MESSAGE_OTHER;
}

struct call_list {
    struct arena *arena;
    struct tool_call *calls;
    size_t count;
};

static int count_call(const char *key, const char *value, void *context)
{
    (void)key, (void)value;
    ((struct call_list *)context)->count++;
    return 0;
}

static const char *text_member(struct arena *arena, const char *object, const char *name)
{
    const char *text = object ? json_member_text(arena, object, name) : NULL;

    return text ? text : "";
}

static int read_call(const char *key, const char *value, void *context)
{
    struct call_list *list = context;
    const char *function = json_member(list->arena, value, "function");

    (void)key;
    list->calls[list->count++] = (struct tool_call){
        .id = text_member(list->arena, value, "id"),
        .name = text_member(list->arena, function, "name"),
        .arguments = text_member(list->arena, function, "arguments"),
    };
    return 0;
}

static void read_calls(struct arena *arena, struct message *message)
{
    const char *json = json_member(arena, message->json, "tool_calls");
    struct call_list list = {.arena = arena};

    if (!json || *json != '[')
        return;
    json_each(arena, json, count_call, &list);
    list.calls = arena_alloc(arena, (list.count + 1) * sizeof(*list.calls));
    list.count = 0;
    json_each(arena, json, read_call, &list);
    message->calls = list.calls;
    message->call_count = list.count;
}

void conversation_note(struct conversation *conversation, const char *json)
{
    struct arena *arena = conversation->arena;
    struct message *message;

    if (conversation->count == conversation->room) {
        size_t room = conversation->room ? 2 * conversation->room : 64;
        struct message *items = arena_alloc(arena, room * sizeof(*items));

        if (conversation->count)
            memcpy(items, conversation->items, conversation->count * sizeof(*items));
        conversation->items = items;
        conversation->room = room;
    }
    message = &conversation->items[conversation->count++];
    *message = (struct message){.json = arena_copy(arena, json, strlen(json))};
    message->role = role_of(json_member_text(arena, message->json, "role"));
    if (message->role == MESSAGE_ASSISTANT)
        read_calls(arena, message);
    else if (message->role == MESSAGE_TOOL)
        message->call_id = text_member(arena, message->json, "tool_call_id");
}

const char *conversation_text(const struct conversation *conversation, size_t message)
{
    return text_member(conversation->arena, conversation->items[message].json, "content");
}

bool conversation_has_call(const struct conversation *conversation, const char *call_id)
{
    for (size_t i = 0; i < conversation->count; i++)
        for (size_t call = 0; call < conversation->items[i].call_count; call++)
            if (strcmp(conversation->items[i].calls[call].id, call_id) == 0)
                return true;
    return false;
}

/* Whether one of the results that follow the answer `at` is the call's. */
static bool has_result(const struct conversation *conversation, size_t at, const char *call_id)
{
    while (++at < conversation->count && conversation->items[at].role == MESSAGE_TOOL)
        if (strcmp(conversation->items[at].call_id, call_id) == 0)
            return true;
    return false;
}

bool conversation_pending(const struct conversation *conversation, struct tool_call *call)
{
    size_t at = conversation->count;

    while (at > 0 && conversation->items[at - 1].role == MESSAGE_TOOL)
        at--;
    if (at == 0 || conversation->items[at - 1].role != MESSAGE_ASSISTANT)
        return false;
    for (size_t i = 0; i < conversation->items[at - 1].call_count; i++) {
        *call = conversation->items[at - 1].calls[i];
        if (!has_result(conversation, at - 1, call->id))
            return true;
    }
    return false;
}

/* --- rows ------------------------------------------------------------------------------------ */

int conversation_load(struct database *db, const char *session_id, struct arena *arena,
                      struct conversation *conversation, struct error *err)
{
    auto_rows struct rows *rows = NULL;

    if (query_rows(db, QUERY_conversation_list, PARAMS(session_id), &rows, err) < 0)
        return -1;
    *conversation = (struct conversation){.arena = arena};
    for (size_t row = 0; row < rows_count(rows); row++)
        conversation_note(conversation, rows_text(rows, row, 0));
    return 0;
}

int conversation_append(struct conversation *conversation, struct database *db,
                        const char *session_id, const char *run_id, const char *json,
                        struct error *err)
{
    if (query_run(db, QUERY_conversation_insert, PARAMS(session_id, run_id, json), err) < 0)
        return -1;
    conversation_note(conversation, json);
    return 0;
}

/* --- messages -------------------------------------------------------------------------------- */

void conversation_user(struct buffer *out, const char *text)
{
    json_format(out, "{\"role\":\"user\",\"content\":%s}", text);
}

void conversation_assistant(struct buffer *out, const char *text, size_t length,
                            const struct tool_call *calls, size_t call_count)
{
    buffer_text(out, "{\"role\":\"assistant\",\"content\":");
    if (call_count && !length)
        buffer_text(out, "null");
    else
        json_string_n(out, text ? text : "", length);
    for (size_t i = 0; i < call_count; i++) {
        buffer_text(out, i ? "," : ",\"tool_calls\":[");
        json_format(out,
                    "{\"id\":%s,\"type\":\"function\",\"function\":{\"name\":%s,\"arguments\":%s}}",
                    calls[i].id, calls[i].name, calls[i].arguments);
    }
    buffer_text(out, call_count ? "]}" : "}");
}

void conversation_result(struct buffer *out, const char *call_id, const char *text, size_t length)
{
    json_format(out, "{\"role\":\"tool\",\"tool_call_id\":%s,\"content\":", call_id);
    json_string_n(out, text, length);
    buffer_char(out, '}');
}

/* --- for the model --------------------------------------------------------------------------- */

/* Results of an answer's calls follow it; a call without one gets one here. Returns the place
 * behind. */
static size_t write_results(const struct conversation *conversation, size_t answer,
                            struct buffer *out)
{
    const struct message *message = &conversation->items[answer];
    size_t at = answer + 1;

    for (; at < conversation->count && conversation->items[at].role == MESSAGE_TOOL; at++) {
        buffer_char(out, ',');
        buffer_text(out, conversation->items[at].json);
    }
    for (size_t i = 0; i < message->call_count; i++)
        if (!has_result(conversation, answer, message->calls[i].id)) {
            buffer_char(out, ',');
            conversation_result(out, message->calls[i].id, OPEN_CALL_RESULT,
                                strlen(OPEN_CALL_RESULT));
        }
    return at;
}

void conversation_write(const struct conversation *conversation, const char *system,
                        struct buffer *out)
{
    size_t at = 0;

    json_format(out, "[{\"role\":\"system\",\"content\":%s}", system);
    while (at < conversation->count) {
        const struct message *message = &conversation->items[at];

        if (message->role == MESSAGE_TOOL) {
            at++; /* a result without its call */
            continue;
        }
        buffer_char(out, ',');
        buffer_text(out, message->json);
        at = message->call_count ? write_results(conversation, at, out) : at + 1;
    }
    buffer_char(out, ']');
}
