/* What the supervisor counts: each number moves by what was done, and by nothing else. */
#include "tests/sandbox/fixture.h"

static char *statistics(void)
{
    struct buffer text = {0};

    ck_done(sandbox_statistics(fixture_connect(), &text, &fixture_error));
    buffer_add(&text, "", 1);
    return text.data;
}

/* The value of a sample; 0 where it was never touched. */
static double sample(const char *text, const char *name)
{
    size_t length = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ' ')
            return strtod(line + length, NULL);
    }
    return 0;
}

static double now(const char *name)
{
    char *text = statistics();
    double value = sample(text, name);

    free(text);
    return value;
}

START_TEST(operations_are_counted_by_their_outcome)
{
    static const struct {
        const char *name;
        int change;
    } expected[] = {
        {"sandbox_operations_total{operation=\"create\",outcome=\"done\"}", 2},
        {"sandbox_operations_total{operation=\"create\",outcome=\"conflict\"}", 1},
        {"sandbox_operations_total{operation=\"start\",outcome=\"done\"}", 1},
        {"sandbox_operations_total{operation=\"start\",outcome=\"not_found\"}", 1},
        {"sandbox_operations_total{operation=\"exec\",outcome=\"done\"}", 3},
        {"sandbox_operations_total{operation=\"destroy\",outcome=\"done\"}", 2},
        {"sandbox_operation_seconds_count{operation=\"exec\"}", 3},
        {"sandbox_start_seconds_count{way=\"cold\"}", 1},
        {"sandbox_start_seconds_count{way=\"claimed\"}", 0},
        {"sandbox_starts_failed_total{way=\"cold\"}", 1},
        {"sandbox_left_over_total", 0},
    };
    char *before = statistics(), *after;
    const char *id = fixture_running(), *other = fixture_id();
    struct start missing = fixture_start(other);

    ck_refused(sandbox_create(fixture_connect(), id, &fixture_error), ERR_CONFLICT);
    for (int i = 0; i < 3; i++)
        ck_prints(id, "echo x", "x\n");
    ck_done(sandbox_create(fixture_connect(), other, &fixture_error));
    missing.image = "none";
    ck_refused(sandbox_start(fixture_connect(), &missing, &fixture_error), ERR_NOT_FOUND);
    fixture_destroy(id);
    fixture_destroy(other);
    after = statistics();
    for (size_t i = 0; i < COUNT(expected); i++)
        ck_assert_msg(sample(after, expected[i].name) - sample(before, expected[i].name) ==
                          expected[i].change,
                      "%s: %g, before %g", expected[i].name, sample(after, expected[i].name),
                      sample(before, expected[i].name));
    free(before);
    free(after);
}
END_TEST

START_TEST(what_is_now_is_told)
{
    const char *id = fixture_running(), *stopped = fixture_running(), *created = fixture_id();
    char *text;

    ck_done(sandbox_create(fixture_connect(), created, &fixture_error));
    ck_done(sandbox_stop(fixture_connect(), stopped, &fixture_error));
    text = statistics();
    ck_assert_double_eq(sample(text, "sandboxes{state=\"running\"}"), 1);
    ck_assert_double_eq(sample(text, "sandboxes{state=\"stopped\"}"), 1);
    ck_assert_double_eq(sample(text, "sandboxes{state=\"created\"}"), 1);
    ck_assert_double_eq(sample(text, "sandbox_commands_running"), 0);
    ck_assert_double_ge(sample(text, "sandbox_supervisor_memory_bytes"), MEGABYTE);
    ck_assert_double_ge(sample(text, "sandbox_supervisor_open_fds"), 8);
    free(text);
    fixture_destroy(id);
    fixture_destroy(stopped);
    fixture_destroy(created);
    ck_assert_double_eq(now("sandboxes{state=\"running\"}"), 0);
    ck_assert_double_eq(now("sandboxes{state=\"stopped\"}"), 0);
}
END_TEST

START_TEST(lack_of_memory_and_ends_are_counted)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);
    double kills = now("sandbox_oom_kills_total"), ends = now("sandbox_ended_total");
    auto_outcome struct outcome outcome = {0};
    char command[200];

    start.memory_bytes = 64 * MEGABYTE;
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    outcome = fixture_run(id, "exec dd if=/dev/zero of=/dev/null bs=300M count=1", 20000);
    ck_assert(outcome.result.oom_killed);
    ck_assert_double_ge(now("sandbox_oom_kills_total"), kills + 1);
    snprintf(command, sizeof(command), "sed -n 's/^pid //p' %s/state/sandboxes/%s/state",
             fixture_root, id);
    FILE *pipe = popen(command, "r");
    int init = -1;
    ck_assert(pipe && fscanf(pipe, "%d", &init) == 1 && init > 1);
    pclose(pipe);
    kill(init, SIGKILL);
    ck_soon(now("sandbox_ended_total") == ends + 1, 5000);
    fixture_destroy(id);
}
END_TEST

START_TEST(what_was_found_of_an_earlier_one_is_told)
{
    const char *id = fixture_running();

    fixture_stop_supervisor(SIGKILL);
    ck_assert_int_eq(fixture_shell("mkdir %s/state/sandboxes/.half-made", fixture_root), 0);
    ck_assert(fixture_start_supervisor());
    ck_assert_double_eq(now("sandbox_recovered_total{what=\"adopted\"}"), 1);
    ck_assert_double_eq(now("sandbox_recovered_total{what=\"folder_removed\"}"), 1);
    ck_assert_double_eq(now("sandboxes{state=\"running\"}"), 1);
    fixture_destroy(id);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("statistics");
    TCase *tests = tcase_create("statistics");

    setenv("CK_FORK", "no", 1); /* one supervisor after the other, known to all */
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, operations_are_counted_by_their_outcome);
    tcase_add_test(tests, what_is_now_is_told);
    tcase_add_test(tests, lack_of_memory_and_ends_are_counted);
    tcase_add_test(tests, what_was_found_of_an_earlier_one_is_told);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
