/* However a command ends, all of it ends, in time, and the answer says what happened. */
#include "tests/sandbox/fixture.h"

enum { GRACE_MS = 2000, SIDE_BY_SIDE = 16 };

static const char *shared; /* one sandbox for the tests that leave it as it was */

/* Processes that ended and were never waited for, of this supervisor and all its sandboxes. */
static int count_zombies(void)
{
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    int count = 0;

    while (directory && (entry = readdir(directory))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        bool dead = false;

        for (bool first = true; pid > 1 && pid != fixture_supervisor; first = false) {
            char path[64], text[512], state = 0, *name_end;
            ssize_t length;

            snprintf(path, sizeof(path), "/proc/%d/stat", pid);
            auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
            length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
            text[length > 0 ? length : 0] = '\0';
            name_end = strrchr(text, ')');
            if (!name_end || sscanf(name_end + 1, " %c %d", &state, &pid) != 2)
                pid = 0;
            if (first)
                dead = state == 'Z';
        }
        count += dead && pid == fixture_supervisor;
    }
    if (directory)
        closedir(directory);
    return count;
}

/* --- the timeout ----------------------------------------------------------------------------- */

static const struct {
    const char *command;
    int64_t uid;
} trees[] = {
    {"sleep 8765.4", 0},
    {"sh -c 'sh -c \"sleep 8765.4 & sleep 8765.4\" & wait'", 0},
    {"setsid sleep 8765.4 & wait", 0},
    {"setsid sh -c '(setsid sleep 8765.4 &)'; sleep 8765.4", 0},
    {"trap '' TERM INT HUP QUIT USR1 ALRM; sleep 8765.4 & while :; do sleep 0.1; done", 0},
    {"sleep 8765.4 & kill -STOP $!; wait", 0},
    {"sleep 8765.4 & kill -STOP $$", 0},
    {"while :; do sleep 0.02; (sleep 8765.4 &); done", 0},
    {"exec >/dev/null 2>&1; sleep 8765.4", 0},
    {"sleep 8765.4 </dev/null >/dev/null 2>&1 & (setsid sleep 8765.4 &); exec sleep 8765.4", 1000},
    {"setsid sh -c 'trap \"\" TERM; sleep 8765.4 & sleep 8765.4'", 1000},
    {"exec /probe crowd", 0},
    {"exec /probe crowd", 1000},
};

START_TEST(a_timeout_ends_whatever_the_command_has_begun)
{
    const char *argv[] = {"/bin/sh", "-c", trees[_i].command};
    struct exec exec = fixture_exec(shared, argv, 3, 500);
    auto_outcome struct outcome outcome = {0};
    int64_t before = fixture_now_ms();

    exec.uid = trees[_i].uid;
    ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                         &outcome.result, &fixture_error));
    ck_assert_int_lt(fixture_now_ms() - before, 500 + GRACE_MS);
    ck_assert_int_eq(outcome.result.exit_code, 124);
    ck_assert_int_eq(outcome.result.signal, 0);
    ck_assert(outcome.result.timed_out && !outcome.result.oom_killed);
    ck_assert_int_ge(outcome.result.duration_ms, 500);
    ck_soon(fixture_count_processes("8765.4") == 0, GRACE_MS);
    ck_soon(fixture_count_processes("crowd") == 0, GRACE_MS);
    ck_soon(count_zombies() == 0, GRACE_MS);
    ck_prints(shared, "echo usable", "usable\n");
}
END_TEST

/* Thousands that fork leave nothing of a processor to who is to end them. */
START_TEST(a_crowd_of_thousands_ends_in_time_and_others_live_on)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.pids = 3000;
    start.memory_bytes = 1024 * (int64_t)MEGABYTE;
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    outcome_done(&(struct outcome[]){fixture_run(
        id, "sleep 7531.1 & (while sleep 0.05; do echo x >>ticks; done) & true", 5000)}[0]);
    for (int i = 0; i < 3; i++) {
        int64_t before = fixture_now_ms();
        auto_outcome struct outcome outcome = fixture_run(id, "exec /probe crowd", 1000);

        ck_assert_int_eq(outcome.result.exit_code, 124);
        /* Twice the grace, since this machine may be busy with more. */
        ck_assert_int_lt(fixture_now_ms() - before, 1000 + 2 * GRACE_MS);
        ck_soon(fixture_count_processes("crowd") == 0, GRACE_MS);
    }
    ck_assert_int_eq(fixture_count_processes("7531.1"), 1);
    ck_prints(id, "a=$(wc -l <ticks); sleep 1; b=$(wc -l <ticks); test $b -gt $a && echo ticks",
              "ticks\n");
    fixture_destroy(id);
}
END_TEST

/* --- a caller that goes ---------------------------------------------------------------------- */

START_TEST(a_caller_that_is_killed_takes_its_command_along)
{
    pid_t caller;

    outcome_done(&(struct outcome[]){fixture_run(shared, "sleep 7654.2 & true", 5000)}[0]);
    caller = fork();
    if (caller == 0) {
        fixture_link = NULL;
        fixture_run(shared, "setsid sleep 7654.1 & (sleep 7654.1 &); trap '' TERM; sleep 7654.1",
                    60000);
        _exit(0);
    }
    ck_soon(fixture_count_processes("7654.1") == 3, 5000);
    kill(caller, SIGKILL);
    waitpid(caller, NULL, 0);
    ck_soon(fixture_count_processes("7654.1") == 0, GRACE_MS);
    ck_assert_int_eq(fixture_count_processes("7654.2"), 1);
    ck_prints(shared, "kill -9 -1; true", "");
    ck_soon(count_zombies() == 0, GRACE_MS);
}
END_TEST

/* --- what outlives it ------------------------------------------------------------------------ */

START_TEST(what_is_left_in_the_background_writes_on)
{
    /* More than a pipe holds, so that it would block, or meet a closed one. */
    int64_t before = fixture_now_ms();

    ck_prints(shared,
              "(sleep 0.3; head -c 3000000 /dev/zero; echo $? >ended; head -c 3000000 /dev/zero "
              ">&2; echo $? >>ended) & echo answered",
              "answered\n");
    ck_assert_int_lt(fixture_now_ms() - before, 300);
    ck_prints(shared,
              "while ! [ \"$(wc -l <ended 2>/dev/null)\" = 2 ]; do sleep 0.05; done; cat ended",
              "0\n0\n");
    ck_soon(count_zombies() == 0, GRACE_MS);
}
END_TEST

/* Who asked is a server that may be started anew, while what was begun goes on. */
START_TEST(what_is_left_in_the_background_outlives_who_asked)
{
    int status;
    pid_t asker = fork();

    if (asker == 0) {
        fixture_link = NULL;
        auto_outcome struct outcome outcome = fixture_run(
            shared,
            "rm -f ended; (sleep 0.5; while echo still here; do sleep 0.05; done; sleep 5432.9) & "
            "(sleep 0.5; head -c 3000000 /dev/zero >&2; echo $? >ended) & echo answered",
            20000);
        _exit(strcmp(outcome_text(&outcome), "answered\n") != 0);
    }
    ck_assert_int_eq(waitpid(asker, &status, 0), asker);
    ck_assert_int_eq(status, 0);
    /* First it waits for room, then init makes some. */
    ck_prints(shared, "while ! [ -s ended ]; do sleep 0.1; done; cat ended", "0\n");
    ck_prints(shared,
              "n=0; for p in /proc/[0-9]*; do grep -q 'still here' $p/cmdline 2>/dev/null && "
              "n=$((n+1)); done; test $n -ge 1 && echo writes; kill -9 -1",
              "writes\n");
    ck_assert_int_eq(fixture_count_processes("5432.9"), 0);
}
END_TEST

/* --- memory ---------------------------------------------------------------------------------- */

static const struct {
    const char *command;
    int exit_code, signal;
    bool oom_killed;
} hogs[] = {
    {"exec dd if=/dev/zero of=/dev/null bs=300M count=1 2>/dev/null", 137, 9, true},
    {"dd if=/dev/zero of=/dev/null bs=300M count=1 2>/dev/null; exit $?", 137, 0, true},
    {"sh -c 'setsid dd if=/dev/zero of=/dev/null bs=300M count=1 2>/dev/null'; exit $?", 137, 0,
     true},
    {"dd if=/dev/zero of=/dev/null bs=300M count=1 2>/dev/null; exit 0", 0, 0, false},
    {"kill -9 $$", 137, 9, false},
    {"dd if=/dev/zero of=/dev/null bs=8M count=1 2>/dev/null", 0, 0, false},
};

START_TEST(a_lack_of_memory_is_told_from_a_kill)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.memory_bytes = 64 * MEGABYTE;
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    for (size_t i = 0; i < COUNT(hogs); i++) {
        auto_outcome struct outcome outcome = fixture_run(id, hogs[i].command, 20000);

        ck_assert_msg(
            outcome.result.exit_code == hogs[i].exit_code &&
                outcome.result.signal == hogs[i].signal &&
                outcome.result.oom_killed == hogs[i].oom_killed && !outcome.result.timed_out,
            "%s: exit code %ld, signal %ld, oom_killed %d", hogs[i].command,
            (long)outcome.result.exit_code, (long)outcome.result.signal, outcome.result.oom_killed);
    }
    ck_prints(id, "echo usable", "usable\n");
    ck_soon(count_zombies() == 0, GRACE_MS);
    fixture_destroy(id);
}
END_TEST

/* Init is killed from outside, as the kernel does where all of a sandbox ends (memory.oom.group).
 */
static void kill_init_later(const char *id, int after_ms)
{
    if (fork() == 0) {
        usleep((useconds_t)after_ms * 1000);
        _exit(fixture_shell("kill -9 $(sed -n 's/^pid //p' %s/state/sandboxes/%s/state)",
                            fixture_root, id));
    }
}

START_TEST(a_sandbox_that_ends_for_want_of_memory_says_so)
{
    for (int lack = 1; lack >= 0; lack--) {
        const char *id = fixture_id(),
                   *argv[] = {"/bin/sh", "-c",
                              lack ? "dd if=/dev/zero of=/dev/null bs=300M count=1 2>/dev/null; "
                                     "sleep 60"
                                   : "sleep 60"};
        struct start start = fixture_start(id);
        struct exec exec = fixture_exec(id, argv, 3, 30000);
        auto_outcome struct outcome outcome = {0};
        int result;

        start.memory_bytes = 64 * MEGABYTE;
        ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
        ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
        kill_init_later(id, 1500);
        result = sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                              &outcome.result, &fixture_error);
        if (lack) {
            ck_assert_msg(result == 0, "%s", fixture_error.message);
            ck_assert_int_eq(outcome.result.exit_code, 137);
            ck_assert_int_eq(outcome.result.signal, SIGKILL);
            ck_assert(outcome.result.oom_killed && !outcome.result.timed_out);
            ck_assert_int_ge(outcome.result.duration_ms, 500);
        } else {
            ck_refused(result, ERR_CONFLICT);
        }
        wait(NULL);
        ck_soon(count_zombies() == 0, GRACE_MS);
        fixture_destroy(id);
    }
}
END_TEST

/* --- many at once ---------------------------------------------------------------------------- */

static const struct {
    const char *command;
    int timeout_ms, exit_code, signal;
    bool timed_out;
    int64_t out, errors;
} mixed[] = {
    {"sleep 0.5; printf abc", 20000, 0, 0, false, 3, 0},
    {"printf abc >&2; exit 7", 20000, 7, 0, false, 0, 3},
    {"echo x; sleep 6543.2", 600, 124, 0, true, 2, 0},
    {"kill -TERM $$", 20000, 143, 15, false, 0, 0},
    {"head -c 4000000 /dev/zero", 20000, 0, 0, false, 4000000, 0},
    {"head -c 4000000 /dev/zero >&2", 20000, 0, 0, false, 0, 4000000},
    {"setsid sleep 6543.2 & (sleep 6543.2 &); exec sleep 6543.2", 700, 124, 0, true, 0, 0},
    {"no-such-command 2>/dev/null", 20000, 127, 0, false, 0, 0},
};

static bool ended_as(const struct outcome *outcome, size_t kind)
{
    return outcome->result.exit_code == mixed[kind].exit_code &&
           outcome->result.signal == mixed[kind].signal &&
           outcome->result.timed_out == mixed[kind].timed_out && !outcome->result.oom_killed &&
           outcome->out.total == mixed[kind].out && outcome->errors.total == mixed[kind].errors;
}

START_TEST(each_of_many_has_its_own_answer)
{
    int failures = 0, status;

    for (int i = 0; i < SIDE_BY_SIDE; i++) {
        if (fork() == 0) {
            bool right = true;

            fixture_link = NULL;
            for (int round = 0; round < 3; round++) {
                size_t kind = (size_t)(i + round) % COUNT(mixed);
                auto_outcome struct outcome outcome =
                    fixture_run(shared, mixed[kind].command, mixed[kind].timeout_ms);

                if (!ended_as(&outcome, kind))
                    right = (printf("%s: %ld %ld %d\n", mixed[kind].command,
                                    (long)outcome.result.exit_code, (long)outcome.result.signal,
                                    outcome.result.timed_out),
                             false);
            }
            _exit(!right);
        }
    }
    while (wait(&status) > 0)
        failures += status != 0;
    ck_assert_int_eq(failures, 0);
    ck_soon(fixture_count_processes("6543.2") == 0, GRACE_MS);
    ck_soon(count_zombies() == 0, GRACE_MS);
}
END_TEST

START_TEST(the_time_is_that_of_the_command)
{
    auto_outcome struct outcome outcome = fixture_run(shared, "sleep 0.3", 20000);

    ck_assert_int_ge(outcome.result.duration_ms, 300);
    ck_assert_int_lt(outcome.result.duration_ms, 2000);
}
END_TEST

START_TEST(nobody_is_left_unreaped)
{
    for (int i = 0; i < 20; i++)
        outcome_done(&(struct outcome[]){fixture_run(
            shared, "i=0; while [ $i -lt 20 ]; do (true &); i=$((i+1)); done; (sleep 0.05 &); true",
            20000)}[0]);
    ck_soon(count_zombies() == 0, GRACE_MS);
    ck_prints(shared, "sleep 0.1; for p in /proc/[0-9]*; do echo ${p#/proc/}; done | wc -l", "5\n");
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
    Suite *suite = suite_create("ends");
    TCase *tests = tcase_create("ends");

    tcase_set_timeout(tests, 60);
    tcase_add_unchecked_fixture(tests, open_shared, close_shared);
    tcase_add_loop_test(tests, a_timeout_ends_whatever_the_command_has_begun, 0, (int)COUNT(trees));
    tcase_add_test(tests, a_crowd_of_thousands_ends_in_time_and_others_live_on);
    tcase_add_test(tests, a_caller_that_is_killed_takes_its_command_along);
    tcase_add_test(tests, what_is_left_in_the_background_writes_on);
    tcase_add_test(tests, what_is_left_in_the_background_outlives_who_asked);
    tcase_add_test(tests, a_lack_of_memory_is_told_from_a_kill);
    tcase_add_test(tests, a_sandbox_that_ends_for_want_of_memory_says_so);
    tcase_add_test(tests, each_of_many_has_its_own_answer);
    tcase_add_test(tests, the_time_is_that_of_the_command);
    tcase_add_test(tests, nobody_is_left_unreaped);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
