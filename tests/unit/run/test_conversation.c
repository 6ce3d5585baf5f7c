/* Conversations: whatever a turn left behind, the next request is one that a strict endpoint takes.
 */
#include "run/conversation.h"

#include <string.h>

#include "common/json.h"
#include "tests/unit/unit.h"

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SAID(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define CALL(id)    \
    "{\"id\":\"" id \
    "\",\"type\":\"function\",\"function\":{\"name\":\"shell\",\"arguments\":\"{}\"}}"
#define CALLS(calls) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define RESULT(id) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"out\"}"

/* The shape of what is sent: s u a(calls) t(id)… ; and which call is due next. */
static const struct {
    const char *messages[8];
    const char *shape, *pending;
} rows[] = {
    {{NULL}, "s", NULL},
    {{USER("1"), SAID("x"), USER("2")}, "s u a u", NULL},
    {{USER("1"), CALLS(CALL("a")), RESULT("a"), SAID("x")}, "s u a t:a a", NULL},
    {{USER("1"), CALLS(CALL("a"))}, "s u a t:a", "a"},
    {{USER("1"), CALLS(CALL("a") "," CALL("b")), RESULT("a")}, "s u a t:a t:b", "b"},
    {{USER("1"), CALLS(CALL("a") "," CALL("b")), RESULT("b")}, "s u a t:b t:a", "a"},
    /* a turn was cancelled in the middle, and another one followed */
    {{USER("1"), CALLS(CALL("a") "," CALL("b")), RESULT("a"), USER("2")}, "s u a t:a t:b u", NULL},
    {{USER("1"), CALLS(CALL("a")), USER("2"), CALLS(CALL("c"))}, "s u a t:a u a t:c", "c"},
    {{USER("1"), USER("2")}, "s u u", NULL},
    /* a result whose call is gone */
    {{USER("1"), RESULT("z"), SAID("x")}, "s u a", NULL},
};

struct shape {
    struct arena *arena;
    struct buffer *out;
};

static int add(const char *key, const char *value, void *context)
{
    struct shape *shape = context;
    const char *role = json_member_text(shape->arena, value, "role");

    (void)key;
    buffer_format(shape->out, "%s%c", shape->out->length ? " " : "", *role);
    if (*role == 't')
        buffer_format(shape->out, ":%s", json_member_text(shape->arena, value, "tool_call_id"));
    return 0;
}

START_TEST(requests_are_valid)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer list = {0}, out = {0};
    struct conversation conversation = {.arena = &arena};
    struct shape shape = {&arena, &out};
    struct tool_call call;
    struct error err;

    for (size_t i = 0; i < COUNT(rows[_i].messages) && rows[_i].messages[i]; i++)
        conversation_note(&conversation, rows[_i].messages[i]);
    conversation_write(&conversation, "be \"good\"", &list);
    ck_assert_int_eq(json_check(list.data, list.length, &err), 0);
    json_each(&arena, list.data, add, &shape);
    ck_assert_str_eq(out.data, rows[_i].shape);
    ck_assert_int_eq(conversation_pending(&conversation, &call), rows[_i].pending != NULL);
    if (rows[_i].pending)
        ck_assert_str_eq(call.id, rows[_i].pending);
}
END_TEST

START_TEST(messages_are_written_as_they_are_read)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer user = {0}, said = {0}, called = {0}, result = {0};
    struct conversation conversation = {.arena = &arena};
    const struct tool_call call = {"id-1", "shell", "{not \"json"};

    conversation_user(&user, "h\xC3\xBC \"x\"\n");
    conversation_assistant(&said, "bad \xFF byte", 10, NULL, 0);
    conversation_assistant(&called, NULL, 0, &call, 1);
    conversation_result(&result, "id-1", "out", 3);
    conversation_note(&conversation, user.data);
    conversation_note(&conversation, said.data);
    conversation_note(&conversation, called.data);
    conversation_note(&conversation, result.data);
    ck_assert_str_eq(conversation_text(&conversation, 0), "h\xC3\xBC \"x\"\n");
    ck_assert_str_eq(conversation_text(&conversation, 1), "bad \xEF\xBF\xBD byte");
    ck_assert_str_eq(conversation_text(&conversation, 2), "");
    ck_assert_str_eq(conversation.items[2].calls[0].arguments, "{not \"json");
    ck_assert_str_eq(conversation.items[3].call_id, "id-1");
    ck_assert(conversation_has_call(&conversation, "id-1") &&
              !conversation_has_call(&conversation, "id-2"));
    ck_assert(strstr(called.data, "\"content\":null") != NULL);
}
END_TEST

START_TEST(there_is_room_for_long_ones)
{
    auto_arena struct arena arena = {0};
    struct conversation conversation = {.arena = &arena};

    for (int i = 0; i < 1000; i++)
        conversation_note(&conversation, i % 2 ? SAID("x") : USER("y"));
    ck_assert_uint_eq(conversation.count, 1000);
    ck_assert_int_eq(conversation.items[0].role, MESSAGE_USER);
    ck_assert_int_eq(conversation.items[999].role, MESSAGE_ASSISTANT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conversation");
    TCase *tests = unit_case(suite, "conversation");

    unit_table(tests, requests_are_valid, rows);
    tcase_add_test(tests, messages_are_written_as_they_are_read);
    tcase_add_test(tests, there_is_room_for_long_ones);
    return unit_run(suite);
}
