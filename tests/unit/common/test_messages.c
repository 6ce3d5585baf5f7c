/* Every message of the protocol: its table bounds what an operation sees. */
#include "common/messages.h"

#include <string.h>

#include "common/wire.h"
#include "tests/unit/unit.h"

#define ID "0b4f8f6e-3f0c-4c53-9d3e-8f1f6f0a1b2c"

static const struct {
    int number;
    const char *name;
    int states;
    size_t descriptors;
    const struct schema *schema;
} messages[] = {
#define ABSENT SANDBOX_ABSENT
#define CREATED SANDBOX_CREATED
#define RUNNING SANDBOX_RUNNING
#define STOPPED SANDBOX_STOPPED
#define MESSAGE(number, name, states, descriptors, answer) \
    {number, #name, states, descriptors, &schema_##name},
#include "common/messages.def"
#undef MESSAGE
};

START_TEST(a_message_has_a_number_of_its_own_and_a_table_of_its_name)
{
    ck_assert_str_eq(messages[_i].schema->name, messages[_i].name);
    ck_assert_int_gt(messages[_i].number, 0);
    ck_assert_int_lt(messages[_i].number, WIRE_REPLY);
    ck_assert_int_ne(messages[_i].states, 0);
    ck_assert_uint_le(messages[_i].descriptors, WIRE_DESCRIPTORS_MAX);
    for (size_t i = 0; i < COUNT(messages); i++)
        ck_assert((int)i == _i || messages[i].number != messages[_i].number);
}
END_TEST

START_TEST(a_message_names_its_sandbox_first)
{
    const struct field *first = &messages[_i].schema->fields[0];

    ck_assert_str_eq(first->name, "sandbox");
    ck_assert_uint_eq(first->offset, 0);
    ck_assert_str_eq(first->pattern, SANDBOX_ID_PATTERN);
}
END_TEST

START_TEST(a_text_of_a_message_has_an_upper_bound)
{
    for (size_t i = 0; i < messages[_i].schema->count; i++) {
        const struct field *field = &messages[_i].schema->fields[i];

        if (field->type == FIELD_TEXT || field->type == FIELD_TEXTS)
            ck_assert_msg(field->max > 0, "%s.%s", messages[_i].name, field->name);
    }
}
END_TEST

/* Encode and decode again: 0, or -1 as the supervisor would answer. */
static int pass(const struct schema *schema, const void *value, struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};
    void *back = arena_alloc(&arena, schema->size);

    if (wire_encode(schema, value, &out, err) < 0)
        return -1;
    return wire_decode(schema, out.data, out.length, back, &arena, err);
}

static const struct {
    const char *sandbox;
    bool taken;
} ids[] = {
    {ID, true},
    {"00000000-0000-0000-0000-000000000000", true},
    {"", false},
    {"0B4F8F6E-3F0C-4C53-9D3E-8F1F6F0A1B2C", false},
    {"0b4f8f6e-3f0c-4c53-9d3e-8f1f6f0a1b2", false},
    {"0b4f8f6e-3f0c-4c53-9d3e-8f1f6f0a1b2c ", false},
    {"../../../../../../../../etc/passwd..", false},
    {"0b4f8f6e-3f0c-4c53-9d3e-8f1f6f0a1b2\n", false},
};

START_TEST(a_sandbox_is_named_by_a_uuid_in_lower_case)
{
    struct error err;
    struct stop value = {.sandbox = ids[_i].sandbox};

    ck_assert_int_eq(pass(&schema_stop, &value, &err), ids[_i].taken ? 0 : -1);
}
END_TEST

#define START(...)                                                                               \
    {                                                                                            \
        .sandbox = ID, .image = "base", .hostname = "box", .memory_bytes = 64 << 20, .pids = 64, \
        .cpu_percent = 100, .tmp_bytes = 1 << 20, __VA_ARGS__                                    \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif
static const struct {
    struct start value;
    bool taken;
} starts[] = {
    {START(.pids = 64), true},           {START(.image = "a.b_c-1"), true},
    {START(.image = ""), false},         {START(.image = ".."), false},
    {START(.image = "../etc"), false},   {START(.image = "a/b"), false},
    {START(.image = "-rf"), false},      {START(.hostname = "a-1"), true},
    {START(.hostname = "-a"), false},    {START(.hostname = "a b"), false},
    {START(.hostname = "a\nb"), false},  {START(.memory_bytes = 0), false},
    {START(.memory_bytes = -1), false},  {START(.memory_bytes = INT64_MAX), false},
    {START(.pids = 0), false},           {START(.pids = 1000000), false},
    {START(.cpu_percent = 0), false},    {START(.tmp_bytes = INT64_MAX), false},
    {START(.swap_bytes = -1), false},    {START(.swap_bytes = 1 << 30), true},
    {START(.cpu_weight = 10001), false}, {START(.cpu_weight = 1), true},
    {START(.open_files = -1), false},    {START(.open_files = 2 << 20), false},
    {START(.nice = -1), false},          {START(.nice = 20), false},
    {START(.oom_score = 1001), false},   {START(.oom_score = -1), false},
    {START(.oom_group = true), true},
};
#pragma GCC diagnostic pop

START_TEST(start_takes_sane_limits_only)
{
    struct error err;

    ck_assert_int_eq(pass(&schema_start, &starts[_i].value, &err), starts[_i].taken ? 0 : -1);
}
END_TEST

START_TEST(exec_takes_a_command_with_a_deadline)
{
    const char *arguments[257];
    struct exec value = {.sandbox = ID, .argv = {arguments, 1}, .directory = "/", .timeout_ms = 1};
    struct error err;

    for (size_t i = 0; i < COUNT(arguments); i++)
        arguments[i] = "x";
    ck_assert_int_eq(pass(&schema_exec, &value, &err), 0);
    value.argv.count = 256;
    ck_assert_int_eq(pass(&schema_exec, &value, &err), 0);
    value.argv.count = 257;
    ck_assert_int_eq(pass(&schema_exec, &value, &err), -1);
    value.argv.count = 0;
    ck_assert_int_eq(pass(&schema_exec, &value, &err), -1);
    value.argv.count = 1;
    value.timeout_ms = 0;
    ck_assert_int_eq(pass(&schema_exec, &value, &err), -1);
    value.timeout_ms = 3600 * 1000 + 1;
    ck_assert_int_eq(pass(&schema_exec, &value, &err), -1);
}
END_TEST

START_TEST(a_path_is_neither_empty_nor_endless)
{
    char path[4097];
    struct file_open value = {.sandbox = ID, .path = "a"};
    struct error err;

    ck_assert_int_eq(pass(&schema_file_open, &value, &err), 0);
    value.path = "";
    ck_assert_int_eq(pass(&schema_file_open, &value, &err), -1);
    memset(path, 'a', sizeof(path));
    path[4095] = '\0';
    value.path = path;
    ck_assert_int_eq(pass(&schema_file_open, &value, &err), 0);
    path[4095] = 'a';
    path[4096] = '\0';
    ck_assert_int_eq(pass(&schema_file_open, &value, &err), -1);
}
END_TEST

START_TEST(a_mode_has_permission_bits_only)
{
    struct file_create value = {.sandbox = ID, .path = "a", .mode = 0777};
    struct error err;

    ck_assert_int_eq(pass(&schema_file_create, &value, &err), 0);
    value.mode = 04755;
    ck_assert_int_eq(pass(&schema_file_create, &value, &err), -1);
    value.mode = -1;
    ck_assert_int_eq(pass(&schema_file_create, &value, &err), -1);
}
END_TEST

START_TEST(answers_pass_too)
{
    struct error err;

    ck_assert_int_eq(pass(&schema_nothing, &(struct nothing){0}, &err), 0);
    ck_assert_int_eq(pass(&schema_exec_result, &(struct exec_result){.exit_code = 124}, &err), 0);
    ck_assert_int_eq(pass(&schema_sandbox_status, &(struct sandbox_status){.state = 1}, &err), 0);
    ck_assert_int_eq(pass(&schema_sandbox_status, &(struct sandbox_status){.state = 0}, &err), -1);
    ck_assert_int_eq(pass(&schema_sandbox_entry, &(struct sandbox_entry){ID, 8}, &err), 0);
    ck_assert_int_eq(pass(&schema_file_entry, &(struct file_entry){.name = "\xFF"}, &err), 0);
    ck_assert_int_eq(pass(&schema_file_info, &(struct file_info){.size = 1}, &err), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("messages");
    TCase *tests = unit_case(suite, "messages");

    unit_table(tests, a_message_has_a_number_of_its_own_and_a_table_of_its_name, messages);
    unit_table(tests, a_message_names_its_sandbox_first, messages);
    unit_table(tests, a_text_of_a_message_has_an_upper_bound, messages);
    unit_table(tests, a_sandbox_is_named_by_a_uuid_in_lower_case, ids);
    unit_table(tests, start_takes_sane_limits_only, starts);
    tcase_add_test(tests, exec_takes_a_command_with_a_deadline);
    tcase_add_test(tests, a_path_is_neither_empty_nor_endless);
    tcase_add_test(tests, a_mode_has_permission_bits_only);
    tcase_add_test(tests, answers_pass_too);
    return unit_run(suite);
}
