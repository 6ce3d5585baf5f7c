/* What a command's outcome says is what happened. */
#include <sys/socket.h>

#include "tests/sandbox/fixture.h"

static const char *shared; /* one sandbox for the tests that leave it as it was */

static const struct {
    const char *command;
    int exit_code, signal;
} codes[] = {
    {"true", 0, 0},
    {"false", 1, 0},
    {"exit 255", 255, 0},
    {"exit 42", 42, 0},
    {"no-such-command", 127, 0},
    {"./", 126, 0},
    {"/etc/passwd", 126, 0},
    {"kill -9 $$", 137, 9},
    {"kill -TERM $$", 143, 15},
    {"kill -SEGV $$", 139, 11},
    {"kill -64 $$", 192, 64},
    {"sh -c 'kill -9 $$'; exit $?", 137, 0},
    {"(exit 5) | true", 0, 0},
};

START_TEST(the_exit_code_is_that_of_the_shell)
{
    auto_outcome struct outcome outcome = fixture_run(shared, codes[_i].command, 10000);

    ck_assert_int_eq(outcome.result.exit_code, codes[_i].exit_code);
    ck_assert_int_eq(outcome.result.signal, codes[_i].signal);
    ck_assert(!outcome.result.timed_out && !outcome.result.oom_killed);
}
END_TEST

static const struct {
    const char *program;
    int exit_code;
} programs[] = {{"no-such-program", 127},
                {"/no/such/program", 127},
                {"/etc/passwd", 126},
                {"/etc", 126},
                {"true", 0},
                {"/bin/true", 0}};

START_TEST(a_program_is_found_as_a_shell_finds_it)
{
    const char *argv[] = {programs[_i].program};
    auto_outcome struct outcome outcome = fixture_argv(shared, argv, 1, 5000);

    ck_assert_int_eq(outcome.result.exit_code, programs[_i].exit_code);
    ck_assert(programs[_i].exit_code == 0 || outcome.errors.bytes.length > 0);
}
END_TEST

START_TEST(standard_input_is_empty)
{
    ck_prints(shared, "cat; wc -c; read x; echo read=$?; test -t 0 || echo no terminal",
              "0\nread=1\nno terminal\n");
}
END_TEST

START_TEST(directory_and_environment_are_those_of_the_request)
{
    const char *argv[] = {"/bin/sh", "-c", "pwd; env | sort"},
               *environment[] = {"PATH=/bin:/usr/bin", "A=v a l", "EMPTY="};
    struct exec exec = fixture_exec(shared, argv, 3, 5000);
    auto_outcome struct outcome outcome = {0};

    exec.environment = (struct texts){environment, 3};
    exec.directory = "/etc";
    ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                         &outcome.result, &fixture_error));
    ck_assert_str_eq(outcome_text(&outcome),
                     "/etc\nA=v a l\nEMPTY=\nPATH=/bin:/usr/bin\nPWD=/etc\n");
}
END_TEST

static const struct {
    int64_t uid;
    const char *prints;
} users[] = {
    {0, "0 0 0 00000000800005fb"},
    {1000, "1000 1000 1000 0000000000000000"},
    {65533, "65533 65533 65533 0000000000000000"},
};

START_TEST(a_command_runs_as_the_user_that_is_asked_for)
{
    const char *argv[] = {"/bin/sh", "-c",
                          "printf '%s ' $(id -u) $(id -g) $(id -G); "
                          "while read name value; do [ $name = CapEff: ] && printf %s $value; "
                          "done </proc/self/status; exit 0"};
    struct exec exec = fixture_exec(shared, argv, 3, 10000);
    auto_outcome struct outcome outcome = {0};

    exec.uid = users[_i].uid;
    ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                         &outcome.result, &fixture_error));
    ck_assert_str_eq(outcome_text(&outcome), users[_i].prints);
}
END_TEST

static const int64_t no_users[] = {
    -1,         65534,      65535,     65536,     2147483648,       4294967295,
    4294967296, 4294967297, INT64_MAX, INT64_MIN, 4294967296 + 1000};

START_TEST(a_user_that_no_sandbox_has_is_refused)
{
    const char *argv[] = {"/bin/true"};
    struct exec exec = fixture_exec(shared, argv, 1, 10000);
    auto_outcome struct outcome outcome = {0};

    exec.uid = no_users[_i];
    ck_refused(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                            &outcome.result, &fixture_error),
               ERR_BAD_REQUEST);
}
END_TEST

START_TEST(a_directory_that_is_none_is_told)
{
    const char *argv[] = {"/bin/sh", "-c", "pwd"};
    static const char *const wrong[] = {"/no/such", "/etc/passwd", "/proc/1/root",
                                        "/proc/self/fd/0"};

    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct exec exec = fixture_exec(shared, argv, 3, 5000);
        auto_outcome struct outcome outcome = {0};

        exec.directory = wrong[i];
        ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                             &outcome.result, &fixture_error));
        ck_assert_int_eq(outcome.result.exit_code, 126);
    }
    struct exec exec = fixture_exec(shared, argv, 3, 5000);
    auto_outcome struct outcome outcome = {0};
    exec.directory = "relative";
    ck_refused(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                            &outcome.result, &fixture_error),
               ERR_BAD_REQUEST);
}
END_TEST

START_TEST(a_timeout_ends_the_whole_tree_and_nothing_else)
{
    const char *id = fixture_running();

    outcome_done(&(struct outcome[]){fixture_run(id, "sleep 5432.1 >/dev/null 2>&1 &", 5000)}[0]);
    {
        int64_t before = fixture_now_ms();
        auto_outcome struct outcome outcome =
            fixture_run(id,
                        "trap '' TERM HUP INT; echo before; (sleep 6543.1 & sleep 6543.1) & setsid "
                        "sleep 6543.1 & "
                        "setsid sh -c '(sleep 6543.1 &)'; sleep 6543.1",
                        700);

        ck_assert_int_lt(fixture_now_ms() - before, 2700);
        ck_assert_int_eq(outcome.result.exit_code, 124);
        ck_assert_int_eq(outcome.result.signal, 0);
        ck_assert(outcome.result.timed_out);
        ck_assert_str_eq(outcome_text(&outcome), "before\n");
    }
    ck_soon(fixture_count_processes("6543.1") == 0, 2000);
    ck_assert_int_eq(fixture_count_processes("5432.1"), 1);
    ck_prints(id, "echo usable", "usable\n");
    fixture_destroy(id);
    ck_assert_int_eq(fixture_count_processes("5432.1"), 0);
}
END_TEST

START_TEST(a_cancelled_command_ends_with_its_tree)
{
    const char *argv[] = {"/bin/sh", "-c", "echo begun; setsid sleep 4321.5 & sleep 4321.5"};
    struct exec exec = fixture_exec(shared, argv, 3, 60000);
    auto_outcome struct outcome outcome = {0};
    int ends[2];
    pid_t canceller;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    canceller = fork();
    if (canceller == 0) {
        close(ends[0]);
        usleep(300000);
        _exit(0); /* hangs up */
    }
    close(ends[1]);
    ck_refused(sandbox_exec(fixture_connect(), &exec, KEEP, ends[0], &outcome.out, &outcome.errors,
                            &outcome.result, &fixture_error),
               ERR_TIMEOUT);
    ck_assert_str_eq(outcome_text(&outcome), "begun\n");
    waitpid(canceller, NULL, 0);
    close(ends[0]);
    ck_soon(fixture_count_processes("4321.5") == 0, 2000);
    ck_prints(shared, "echo usable", "usable\n");
}
END_TEST

START_TEST(background_children_do_not_hold_the_answer_and_live_on)
{
    int64_t before = fixture_now_ms();
    auto_outcome struct outcome outcome = fixture_run(
        shared, "(while :; do echo still here; sleep 0.05; done) & sleep 3456.7 & echo started",
        20000);

    ck_assert_int_lt(fixture_now_ms() - before, 2000);
    ck_assert_int_eq(outcome.result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(outcome_text(&outcome), "started\n"));
    usleep(300000);
    /* The one that goes on writing has not met a closed pipe. */
    ck_assert_int_eq(fixture_count_processes("3456.7"), 1);
    ck_prints(shared,
              "n=0; for p in /proc/[0-9]*; do grep -q 'still here' $p/cmdline 2>/dev/null && "
              "n=$((n+1)); done; test $n -ge 1 && echo writes",
              "writes\n");
    ck_prints(shared, "kill -9 -1; echo survived the others", "survived the others\n");
    ck_soon(fixture_count_processes("3456.7") == 0, 2000);
}
END_TEST

START_TEST(killing_everything_inside_is_survived)
{
    const char *id = fixture_running();

    ck_prints(id, "kill -9 -1; sleep 0.1; exit 0", "");
    ck_prints(id, "echo fine", "fine\n");
    /* The monitor alone: the command goes on, and its timeout holds. */
    {
        int64_t before = fixture_now_ms();
        auto_outcome struct outcome outcome =
            fixture_run(id, "kill -9 $PPID; echo alone; sleep 7654.3", 500);

        ck_assert_int_eq(outcome.result.exit_code, 124);
        ck_assert_int_lt(fixture_now_ms() - before, 2500);
        ck_assert_str_eq(outcome_text(&outcome), "alone\n");
    }
    ck_soon(fixture_count_processes("7654.3") == 0, 2000);
    ck_prints(id, "kill -TERM -1; kill -INT -1; kill -HUP -1; echo fine", "fine\n");
    fixture_destroy(id);
}
END_TEST

/* Also by one who stops the monitor again and again. */
START_TEST(stopping_everything_inside_delays_nothing)
{
    const char *id = fixture_running();
    int64_t before = fixture_now_ms();

    ck_prints(id, "kill -STOP -1; echo done", "done\n");
    ck_assert_int_lt(fixture_now_ms() - before, 2000);
    {
        auto_outcome struct outcome outcome = fixture_run(
            id, "(while :; do kill -STOP $PPID; done) & (setsid sleep 7654.3 &); sleep 7654.3",
            500);

        ck_assert_int_eq(outcome.result.exit_code, 124);
        ck_assert_int_lt(fixture_now_ms() - before, 5000);
    }
    ck_soon(fixture_count_processes("7654.3") == 0, 2000);
    ck_prints(id, "echo fine", "fine\n");
    fixture_destroy(id);
}
END_TEST

START_TEST(a_crowd_of_forks_ends_in_time)
{
    const char *id = fixture_running();
    int64_t before = fixture_now_ms();
    auto_outcome struct outcome outcome = fixture_run(id, "exec /probe crowd", 1000);

    ck_assert_int_eq(outcome.result.exit_code, 124);
    ck_assert_int_lt(fixture_now_ms() - before, 3500);
    ck_prints(
        id, "for p in /proc/[0-9]*; do echo; done | wc -l | { read n; test $n -lt 9 && echo few; }",
        "few\n");
    fixture_destroy(id);
}
END_TEST

START_TEST(a_flood_is_cut_and_counted)
{
    const char *argv[] = {"/bin/sh", "-c", "head -c 30000000 /dev/zero; echo end >&2"};
    struct exec exec = fixture_exec(shared, argv, 3, 30000);
    auto_outcome struct outcome outcome = {0};

    ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                         &outcome.result, &fixture_error));
    ck_assert_int_eq(outcome.result.exit_code, 0);
    ck_assert_uint_eq(outcome.out.bytes.length, KEEP);
    ck_assert_int_eq(outcome.out.total, 30000000);
    ck_assert_str_eq(outcome.errors.bytes.data, "end\n");
}
END_TEST

START_TEST(output_just_before_the_end_is_complete)
{
    for (int i = 0; i < 30; i++) {
        auto_outcome struct outcome outcome = fixture_run(shared, "head -c 60000 /dev/zero", 10000);

        ck_assert_int_eq(outcome.out.total, 60000);
    }
}
END_TEST

START_TEST(a_long_argument_arrives_whole)
{
    static char text[131000 - 20];
    const char *argv[] = {"/bin/sh", "-c", text};

    memset(text, ' ', sizeof(text) - 1);
    memcpy(text, "echo ${#0} arrived #", 20);
    auto_outcome struct outcome outcome = fixture_argv(shared, argv, 3, 10000);
    ck_assert_str_eq(outcome_text(&outcome), "7 arrived\n");
    static char huge[190000];
    memset(huge, 'x', sizeof(huge) - 1);
    argv[2] = huge;
    /* Longer than the kernel takes: told as a shell would. */
    auto_outcome struct outcome refused = fixture_argv(shared, argv, 3, 10000);
    ck_assert_int_eq(refused.result.exit_code, 126);
}
END_TEST

START_TEST(sixteen_run_side_by_side)
{
    int64_t before = fixture_now_ms();
    int failures = 0, status;

    for (int i = 0; i < 16; i++) {
        if (fork() == 0) {
            char command[64], expected[16];
            struct sandbox_link *own = sandbox_link_new(fixture_socket);

            fixture_link = own;
            snprintf(command, sizeof(command), "sleep 1; echo %d", i);
            snprintf(expected, sizeof(expected), "%d\n", i);
            auto_outcome struct outcome outcome = fixture_run(shared, command, 20000);
            _exit(strcmp(outcome_text(&outcome), expected) != 0);
        }
    }
    while (wait(&status) > 0)
        failures += status != 0;
    ck_assert_int_eq(failures, 0);
    ck_assert_int_lt(fixture_now_ms() - before, 6000);
}
END_TEST

START_TEST(orphans_are_reaped)
{
    ck_prints(shared,
              "i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done; sleep 0.5; n=0; "
              "for s in /proc/[0-9]*/stat; do read a b c d <$s && test \"$c\" = Z && n=$((n+1)); "
              "done 2>/dev/null; test $n -lt 3 && echo few",
              "few\n");
}
END_TEST

START_TEST(stop_ends_a_command_with_an_answer)
{
    const char *id = fixture_running();
    pid_t other = fork();

    if (other == 0) {
        struct sandbox_link *own = sandbox_link_new(fixture_socket);

        usleep(300000);
        _exit(sandbox_stop(own, id, &fixture_error) != 0);
    }
    const char *argv[] = {"/bin/sh", "-c", "sleep 2345.6"};
    struct exec exec = fixture_exec(id, argv, 3, 60000);
    auto_outcome struct outcome outcome = {0};
    int64_t before = fixture_now_ms();
    ck_refused(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                            &outcome.result, &fixture_error),
               ERR_CONFLICT);
    ck_assert_int_lt(fixture_now_ms() - before, 3000);
    int status;
    waitpid(other, &status, 0);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(fixture_count_processes("2345.6"), 0);
    fixture_destroy(id);
}
END_TEST

static void open_shared(void)
{
    shared = fixture_running();
    sandbox_link_free(fixture_link); /* each test has a connection of its own */
    fixture_link = NULL;
}

static void close_shared(void)
{
    fixture_destroy(shared);
}

int main(void)
{
    Suite *suite = suite_create("exec");
    TCase *tests = tcase_create("exec");

    tcase_set_timeout(tests, 60);
    tcase_add_unchecked_fixture(tests, open_shared, close_shared);
    tcase_add_loop_test(tests, the_exit_code_is_that_of_the_shell, 0, (int)COUNT(codes));
    tcase_add_loop_test(tests, a_program_is_found_as_a_shell_finds_it, 0, (int)COUNT(programs));
    tcase_add_test(tests, standard_input_is_empty);
    tcase_add_test(tests, directory_and_environment_are_those_of_the_request);
    tcase_add_loop_test(tests, a_command_runs_as_the_user_that_is_asked_for, 0, (int)COUNT(users));
    tcase_add_loop_test(tests, a_user_that_no_sandbox_has_is_refused, 0, (int)COUNT(no_users));
    tcase_add_test(tests, a_directory_that_is_none_is_told);
    tcase_add_test(tests, a_timeout_ends_the_whole_tree_and_nothing_else);
    tcase_add_test(tests, a_cancelled_command_ends_with_its_tree);
    tcase_add_test(tests, background_children_do_not_hold_the_answer_and_live_on);
    tcase_add_test(tests, killing_everything_inside_is_survived);
    tcase_add_test(tests, stopping_everything_inside_delays_nothing);
    tcase_add_test(tests, a_crowd_of_forks_ends_in_time);
    tcase_add_test(tests, a_flood_is_cut_and_counted);
    tcase_add_test(tests, output_just_before_the_end_is_complete);
    tcase_add_test(tests, a_long_argument_arrives_whole);
    tcase_add_test(tests, sixteen_run_side_by_side);
    tcase_add_test(tests, orphans_are_reaped);
    tcase_add_test(tests, stop_ends_a_command_with_an_answer);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
