/* From nothing to nothing: states, crashes of the supervisor, and what is left behind. */
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/sandbox/fixture.h"

static int64_t state_of(const char *id)
{
    auto_arena struct arena arena = {0};
    struct sandbox_status status;

    ck_done(sandbox_status(fixture_connect(), id, &arena, &status, &fixture_error));
    return status.state;
}

static void boot_of(const char *id, char boot[65])
{
    auto_arena struct arena arena = {0};
    struct sandbox_status status;

    ck_done(sandbox_status(fixture_connect(), id, &arena, &status, &fixture_error));
    snprintf(boot, 65, "%s", status.boot ? status.boot : "");
}

START_TEST(every_state_takes_what_it_should)
{
    struct sandbox_link *link = fixture_connect();
    const char *id = fixture_id();
    struct start start = fixture_start(id);
    char first[65], second[65];

    ck_assert_int_eq(state_of(id), SANDBOX_ABSENT);
    ck_refused(sandbox_start(link, &start, &fixture_error), ERR_NOT_FOUND);
    ck_refused(sandbox_stop(link, id, &fixture_error), ERR_NOT_FOUND);
    ck_done(sandbox_destroy(link, id, &fixture_error));
    ck_done(sandbox_create(link, id, &fixture_error));
    ck_refused(sandbox_create(link, id, &fixture_error), ERR_CONFLICT);
    ck_assert_int_eq(state_of(id), SANDBOX_CREATED);
    ck_done(sandbox_stop(link, id, &fixture_error));
    ck_done(sandbox_start(link, &start, &fixture_error));
    ck_assert_int_eq(state_of(id), SANDBOX_RUNNING);
    ck_refused(sandbox_start(link, &start, &fixture_error), ERR_CONFLICT);
    boot_of(id, first);
    ck_done(sandbox_stop(link, id, &fixture_error));
    ck_done(sandbox_stop(link, id, &fixture_error));
    ck_assert_int_eq(state_of(id), SANDBOX_STOPPED);
    ck_done(sandbox_start(link, &start, &fixture_error));
    boot_of(id, second);
    ck_assert(first[0] && second[0]);
    ck_assert_str_ne(first, second);
    ck_done(sandbox_destroy(link, id, &fixture_error));
    ck_done(sandbox_destroy(link, id, &fixture_error));
    ck_assert_int_eq(state_of(id), SANDBOX_ABSENT);
}
END_TEST

START_TEST(a_start_that_fails_leaves_it_as_it_was)
{
    struct sandbox_link *link = fixture_connect();
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    ck_done(sandbox_create(link, id, &fixture_error));
    start.image = "no-such-image";
    ck_refused(sandbox_start(link, &start, &fixture_error), ERR_NOT_FOUND);
    ck_assert_int_eq(state_of(id), SANDBOX_CREATED);
    start.image = "base";
    ck_done(sandbox_start(link, &start, &fixture_error));
    ck_prints(id, "cat /etc/hostname", "box\n");
    fixture_destroy(id);
}
END_TEST

START_TEST(all_are_listed)
{
    const char *one = fixture_id(), *two = fixture_running();
    auto_arena struct arena arena = {0};
    struct sandbox_entry *entries;
    size_t count, seen = 0;

    ck_done(sandbox_create(fixture_connect(), one, &fixture_error));
    ck_done(sandbox_list(fixture_connect(), &arena, &entries, &count, &fixture_error));
    for (size_t i = 0; i < count; i++) {
        seen += strcmp(entries[i].sandbox, one) == 0 && entries[i].state == SANDBOX_CREATED;
        seen += strcmp(entries[i].sandbox, two) == 0 && entries[i].state == SANDBOX_RUNNING;
    }
    ck_assert_uint_eq(seen, 2);
    fixture_destroy(one);
    fixture_destroy(two);
}
END_TEST

/* Counts of what the host would keep: mounts, cgroups, network namespaces' processes, folders, the
 * supervisor's descriptors. */
struct traces {
    int mounts, cgroups, folders, descriptors, processes;
};

static int count_lines(const char *format, const char *a)
{
    char command[PATH_MAX];
    FILE *pipe;
    int number = -1;

    snprintf(command, sizeof(command), format, a);
    pipe = popen(command, "r");
    if (pipe && fscanf(pipe, "%d", &number) != 1)
        number = -1;
    if (pipe)
        pclose(pipe);
    return number;
}

static struct traces count_traces(void)
{
    char pid[32];

    snprintf(pid, sizeof(pid), "%d", fixture_supervisor);
    return (struct traces){
        .mounts = count_lines("wc -l < /proc/self/mounts%s", ""),
        .cgroups = count_lines(
            "cut -d' ' -f3 %s/state/cgroups | while read d; do find $d -type d; done | wc -l",
            fixture_root),
        .folders = count_lines("find %s/state/sandboxes | wc -l", fixture_root),
        .descriptors = count_lines("ls /proc/%s/fd | wc -l", pid),
        .processes = count_lines("ls -d /proc/[0-9]* | while read p; do grep -l '^PPid:.%s$' "
                                 "$p/status 2>/dev/null; done | wc -l",
                                 pid),
    };
}

START_TEST(fifty_rounds_leave_nothing)
{
    fixture_destroy(fixture_running()); /* what comes into being once */
    struct traces before = count_traces(), after;

    for (int i = 0; i < 50; i++) {
        const char *id = fixture_running();

        ck_prints(id, "(sleep 100 &) >/dev/null 2>&1; echo x > file; echo done", "done\n");
        fixture_destroy(id);
    }
    after = count_traces();
    ck_assert_int_eq(after.mounts, before.mounts);
    ck_assert_int_eq(after.cgroups, before.cgroups);
    ck_assert_int_eq(after.folders, before.folders);
    ck_assert_int_eq(after.descriptors, before.descriptors);
    ck_assert_int_eq(after.processes, before.processes);
}
END_TEST

START_TEST(an_end_from_within_is_noticed)
{
    const char *id = fixture_running();
    char path[256];

    /* As the kernel would for want of memory: init dies. */
    snprintf(path, sizeof(path), "%s/state/sandboxes/%s/state", fixture_root, id);
    int init = count_lines("sed -n 's/^pid //p' %s", path);
    ck_assert_int_gt(init, 1);
    kill(init, SIGKILL);
    ck_soon(state_of(id) == SANDBOX_STOPPED, 3000);
    ck_done(
        sandbox_start(fixture_connect(), &(struct start[]){fixture_start(id)}[0], &fixture_error));
    ck_prints(id, "echo again", "again\n");
    fixture_destroy(id);
}
END_TEST

START_TEST(a_stop_storm_ends_in_time)
{
    const char *id = fixture_running();
    int64_t before;

    outcome_done(
        &(struct outcome[]){fixture_run(id,
                                        "trap '' TERM; i=0; while [ $i -lt 60 ]; do (kill -STOP "
                                        "$$; sleep 1000) & setsid sleep 1000 & i=$((i+1)); done; "
                                        "mkfifo f; cat f & kill -CONT $$",
                                        3000)}[0]);
    before = fixture_now_ms();
    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    ck_assert_int_lt(fixture_now_ms() - before, 5000);
    fixture_destroy(id);
}
END_TEST

/* --- the supervisor dies -------------------------------------------------------------------------
 */

START_TEST(a_killed_supervisor_finds_its_sandboxes)
{
    const char *ids[5], *idle = fixture_id(), *stopped = fixture_running();
    char boots[5][65], again[65], path[256];

    ck_done(sandbox_create(fixture_connect(), idle, &fixture_error));
    ck_done(sandbox_stop(fixture_connect(), stopped, &fixture_error));
    for (size_t i = 0; i < COUNT(ids); i++) {
        ids[i] = fixture_running();
        boot_of(ids[i], boots[i]);
        ck_prints(ids[i], "echo kept > /root/file; (sleep 1234.5 >/dev/null 2>&1 &); echo ok",
                  "ok\n");
    }
    /* One more whose init ends while nobody looks, and something half-made. */
    const char *dead = fixture_running();
    snprintf(path, sizeof(path), "%s/state/sandboxes/%s/state", fixture_root, dead);
    int init = count_lines("sed -n 's/^pid //p' %s", path);
    fixture_stop_supervisor(SIGKILL);
    kill(init, SIGKILL);
    fixture_shell("mkdir -p %s/state/sandboxes/.half-made/ws", fixture_root);
    ck_assert(fixture_start_supervisor());
    for (size_t i = 0; i < COUNT(ids); i++) {
        boot_of(ids[i], again);
        ck_assert_str_eq(again, boots[i]);
        ck_prints(ids[i], "cat /root/file", "kept\n");
    }
    ck_assert_int_eq(fixture_count_processes("1234.5"), 5);
    ck_assert_int_eq(state_of(idle), SANDBOX_CREATED);
    ck_assert_int_eq(state_of(stopped), SANDBOX_STOPPED);
    ck_soon(state_of(dead) == SANDBOX_STOPPED, 5000);
    ck_assert_int_ne(fixture_shell("test -e %s/state/sandboxes/.half-made", fixture_root), 0);
    for (size_t i = 0; i < COUNT(ids); i++)
        fixture_destroy(ids[i]);
    ck_assert_int_eq(fixture_count_processes("1234.5"), 0);
    fixture_destroy(idle);
    fixture_destroy(stopped);
    fixture_destroy(dead);
    fixture_shell("ls -AlR %s/state/sandboxes | head -60", fixture_root); /* shown by a failure */
    ck_assert_int_eq(count_lines("ls -A %s/state/sandboxes | wc -l", fixture_root), 0);
}
END_TEST

/* STOP_ON_EXIT is for an end that was asked for. */
START_TEST(a_supervisor_that_lost_its_spawner_leaves_them_running)
{
    const char *id = fixture_running();
    char pid[32], before[65], after[65];
    int status;

    boot_of(id, before);
    snprintf(pid, sizeof(pid), "%d", fixture_supervisor);
    int spawner = count_lines(
        "grep -l '^PPid:.%s$' /proc/[0-9]*/status | while read f; do grep -q spawner $f "
        "&& sed -n 's/^Pid:.//p' $f; done",
        pid);
    ck_assert_int_gt(spawner, 1);
    kill(spawner, SIGKILL);
    waitpid(fixture_supervisor, &status, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    ck_assert(fixture_start_supervisor());
    boot_of(id, after);
    ck_assert_str_eq(after, before);
    ck_prints(id, "echo usable", "usable\n");
    fixture_destroy(id);
    fixture_destroy(fixture_running());
}
END_TEST

START_TEST(a_command_in_flight_ends_with_its_asker)
{
    const char *id = fixture_running();
    pid_t asker = fork();

    if (asker == 0) {
        struct sandbox_link *own = sandbox_link_new(fixture_socket);
        const char *argv[] = {"/bin/sh", "-c", "setsid sleep 1212.3 & sleep 1212.3"};
        struct exec exec = fixture_exec(id, argv, 3, 60000);
        struct outcome outcome = {0};

        _exit(sandbox_exec(own, &exec, KEEP, -1, &outcome.out, &outcome.errors, &outcome.result,
                           &fixture_error) != -1 ||
              fixture_error.kind != ERR_UNAVAILABLE);
    }
    ck_soon(fixture_count_processes("1212.3") >= 2, 5000);
    fixture_stop_supervisor(SIGKILL);
    int status;
    waitpid(asker, &status, 0);
    ck_assert_int_eq(status, 0);
    ck_assert_int_ge(fixture_count_processes("1212.3"), 2);
    ck_assert(fixture_start_supervisor());
    ck_soon(fixture_count_processes("1212.3") == 0, 3000);
    ck_prints(id, "echo usable", "usable\n");
    fixture_destroy(id);
}
END_TEST

/* Killed at any moment of starts and stops: the next one begins with nothing but what it adopts. */
START_TEST(a_kill_at_any_moment_leaves_nothing)
{
    for (int round = 0; round < 12; round++) {
        auto_arena struct arena arena = {0};
        struct sandbox_entry *entries;
        size_t count;
        pid_t busy = fork();

        if (busy == 0) {
            fixture_link = sandbox_link_new(fixture_socket);
            for (;;) {
                const char *id = fixture_id();
                struct start start = fixture_start(id);

                sandbox_create(fixture_link, id, &fixture_error);
                sandbox_start(fixture_link, &start, &fixture_error);
                sandbox_stop(fixture_link, id, &fixture_error);
                sandbox_start(fixture_link, &start, &fixture_error);
                sandbox_destroy(fixture_link, id, &fixture_error);
            }
        }
        usleep(20000 + (unsigned)(round * 7919 % 40) * 1000);
        fixture_stop_supervisor(SIGKILL);
        kill(busy, SIGKILL);
        waitpid(busy, NULL, 0);
        ck_assert(fixture_start_supervisor());
        ck_done(sandbox_list(fixture_connect(), &arena, &entries, &count, &fixture_error));
        for (size_t i = 0; i < count; i++)
            ck_done(sandbox_destroy(fixture_connect(), entries[i].sandbox, &fixture_error));
        ck_assert_int_eq(count_lines("ls -A %s/state/sandboxes | wc -l", fixture_root), 0);
        ck_assert_int_eq(count_lines("cut -d' ' -f3 %s/state/cgroups | while read d; do find $d "
                                     "-mindepth 1 -type d; done | wc -l",
                                     fixture_root),
                         0);
        /* A cgroup that could be removed had no process. */
    }
}
END_TEST

START_TEST(an_orderly_end_leaves_them_running_or_stops_them)
{
    const char *id = fixture_running();

    ck_prints(id, "(sleep 1313.1 >/dev/null 2>&1 &); echo ok", "ok\n");
    fixture_stop_supervisor(SIGTERM); /* with STOP_ON_EXIT=1, as it was started */
    ck_assert_int_eq(fixture_count_processes("1313.1"), 0);
    ck_assert_int_ne(fixture_shell("test -e %s/state/cgroups", fixture_root), 0);
    setenv("STOP_ON_EXIT", "0", 1);
    ck_assert(fixture_start_supervisor());
    ck_assert_int_eq(state_of(id), SANDBOX_STOPPED);
    ck_done(
        sandbox_start(fixture_connect(), &(struct start[]){fixture_start(id)}[0], &fixture_error));
    ck_prints(id, "(sleep 1313.1 >/dev/null 2>&1 &); echo ok", "ok\n");
    fixture_stop_supervisor(SIGTERM);
    ck_soon(fixture_count_processes("1313.1") == 1, 2000); /* its exec may be still to come */
    setenv("STOP_ON_EXIT", "1", 1);
    ck_assert(fixture_start_supervisor());
    ck_assert_int_eq(state_of(id), SANDBOX_RUNNING);
    fixture_destroy(id);
    ck_assert_int_eq(fixture_count_processes("1313.1"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lifecycle");
    TCase *tests = tcase_create("lifecycle");

    /* These replace the supervisor, so they all run in this process. */
    setenv("CK_FORK", "no", 1);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, every_state_takes_what_it_should);
    tcase_add_test(tests, a_start_that_fails_leaves_it_as_it_was);
    tcase_add_test(tests, all_are_listed);
    tcase_add_test(tests, fifty_rounds_leave_nothing);
    tcase_add_test(tests, an_end_from_within_is_noticed);
    tcase_add_test(tests, a_stop_storm_ends_in_time);
    tcase_add_test(tests, a_killed_supervisor_finds_its_sandboxes);
    tcase_add_test(tests, a_supervisor_that_lost_its_spawner_leaves_them_running);
    tcase_add_test(tests, a_command_in_flight_ends_with_its_asker);
    tcase_add_test(tests, a_kill_at_any_moment_leaves_nothing);
    tcase_add_test(tests, an_orderly_end_leaves_them_running_or_stops_them);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
