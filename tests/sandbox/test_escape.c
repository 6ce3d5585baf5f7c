/* What a tenant tries and must not achieve. */
#include "tests/sandbox/fixture.h"

static const char *const probes[] = {
    "mount_tmpfs",    "mount_proc",      "mount_bind",      "mount_remount",      "mount_new_api",
    "umount_masks",   "change_root",     "make_device",     "host_files",         "own_program",
    "file_handles",   "kernel_switches", "masked",          "descriptors",        "host_paths",
    "namespaces",     "clone3_hidden",   "trace_init",      "kill_init",          "priorities",
    "capabilities",   "foreign_abis",    "forbidden_calls", "terminal_injection", "socket_families",
    "network",        "everyday",        "takes_its_own",   "takes_all",          "init_outlives",
    "socket_buffers",
};

static void run_probe(const char *id, const char *name)
{
    const char *argv[] = {"/probe", name};
    auto_outcome struct outcome outcome = fixture_argv(id, argv, 2, 20000);

    ck_assert_msg(outcome.result.exit_code == 0, "%s: exit code %ld: %s", name,
                  (long)outcome.result.exit_code, outcome_text(&outcome));
}

START_TEST(the_probe_is_contained)
{
    const char *id = fixture_running();

    run_probe(id, probes[_i]);
    fixture_destroy(id);
}
END_TEST

START_TEST(every_probe_is_listed)
{
    const char *id = fixture_running();
    const char *argv[] = {"/probe"};
    auto_outcome struct outcome outcome = fixture_argv(id, argv, 1, 5000);
    size_t lines = 0;

    for (const char *at = outcome_text(&outcome); (at = strchr(at, '\n')); at++)
        lines++;
    ck_assert_uint_eq(lines, COUNT(probes));
    fixture_destroy(id);
}
END_TEST

START_TEST(no_process_of_the_host_is_seen_or_signalled)
{
    const char *id = fixture_running();
    char command[128];
    pid_t victim = fork();

    if (victim == 0)
        for (;;)
            pause();
    snprintf(command, sizeof(command), "kill -9 %d 2>/dev/null; kill -9 -1 2>/dev/null; true",
             victim);
    outcome_done(&(struct outcome[]){fixture_run(id, command, 5000)}[0]);
    ck_assert_int_eq(kill(victim, 0), 0);
    ck_assert_int_eq(waitpid(victim, NULL, WNOHANG), 0);
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
    ck_prints(id, "ls -d /proc/[0-9]* | wc -l | { read n; test $n -lt 8 && echo few; }", "few\n");
    fixture_destroy(id);
}
END_TEST

START_TEST(memory_is_bounded)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.memory_bytes = 32 * MEGABYTE;
    start.tmp_bytes = 256 * MEGABYTE;
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    {
        auto_outcome struct outcome outcome = fixture_run(
            id, "exec dd if=/dev/zero of=/dev/shm/fill bs=1M count=200 2>/dev/null", 30000);

        ck_assert_int_eq(outcome.result.exit_code, 137);
        ck_assert(outcome.result.oom_killed);
        ck_assert(!outcome.result.timed_out);
    }
    ck_prints(id, "rm -f /dev/shm/fill; echo alive", "alive\n");
    {
        auto_outcome struct outcome outcome = fixture_run(id, "kill -9 $$", 5000);

        ck_assert_int_eq(outcome.result.exit_code, 137);
        ck_assert_msg(!outcome.result.oom_killed, "a kill is not taken for a lack of memory");
    }
    fixture_destroy(id);
}
END_TEST

START_TEST(processes_are_bounded)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.pids = 30;
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    /* A fork bomb; then the sandbox is ended, bomb and all. */
    outcome_done(
        &(struct outcome[]){fixture_run(id, "f() { f | f & }; f 2>/dev/null; sleep 1", 3000)}[0]);
    ck_assert_int_lt(fixture_count_processes("/bin/sh"), 200);
    int64_t before = fixture_now_ms();
    fixture_destroy(id);
    ck_assert_int_lt(fixture_now_ms() - before, 5000);
}
END_TEST

START_TEST(temporary_files_are_bounded)
{
    const char *id = fixture_running();

    ck_prints(id,
              "dd if=/dev/zero of=/tmp/fill bs=1M count=100 2>/dev/null; test $? -ne 0 && stat -c "
              "%s /tmp/fill",
              "33554432\n");
    fixture_destroy(id);
}
END_TEST

/* What one sandbox may hold by its own limits is not all that the machine has. */
START_TEST(tables_of_the_machine_hold_more_than_a_sandbox)
{
    static const char *const paths[] = {"fs/file-max", "fs/aio-max-nr", "kernel/pid_max",
                                        "kernel/pty/max"};

    for (size_t i = 0; i < COUNT(paths); i++)
        ck_assert_msg(fixture_shell("test $(cat /proc/sys/%s) -ge 1048576", paths[i]) == 0, "%s",
                      paths[i]);
}
END_TEST

START_TEST(two_sandboxes_have_different_users)
{
    const char *one = fixture_running(), *two = fixture_running();
    auto_outcome struct outcome first = fixture_run(one, "cat /proc/self/uid_map", 5000);
    auto_outcome struct outcome second = fixture_run(two, "cat /proc/self/uid_map", 5000);

    ck_assert_str_ne(outcome_text(&first), outcome_text(&second));
    ck_assert_msg(!strstr(outcome_text(&first), " 0 65536\n") &&
                      strstr(outcome_text(&first), " 65536\n"),
                  "%s", outcome_text(&first));
    fixture_destroy(one);
    fixture_destroy(two);
}
END_TEST

/* Where there is one count, one inode for all, the second to come finds it taken. */
START_TEST(a_sandbox_takes_nothing_from_its_neighbour)
{
    const char *greedy = fixture_running(), *other = fixture_running();
    int status;
    pid_t host;

    run_probe(greedy, "takes_all");
    run_probe(other, "takes_its_own");
    host = fork();
    if (host == 0) {
        char probe[PATH_MAX];

        snprintf(probe, sizeof(probe), "%.4000s/tests/sandbox/probe", fixture_build);
        execl(probe, probe, "takes_its_own", (char *)NULL);
        _exit(127);
    }
    waitpid(host, &status, 0);
    ck_assert_int_eq(status, 0);
    fixture_destroy(greedy);
    fixture_destroy(other);
}
END_TEST

START_TEST(an_image_full_of_links_harms_nobody)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);
    char canary[128];

    /* Where something is mounted or written during the start the image has links to the host. */
    snprintf(canary, sizeof(canary), "%s/canary", fixture_root);
    fixture_shell("i=%s/images/evil$$; rm -rf $i; mkdir -p $i/etc %s && echo untouched "
                  ">%s/resolv.conf && ln -s %s/resolv.conf $i/etc/resolv.conf && "
                  "ln -s %s $i/dev && mv $i %s/images/evil",
                  fixture_root, canary, canary, canary, canary, fixture_root);
    start.image = "evil";
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_refused(sandbox_start(fixture_connect(), &start, &fixture_error), ERR_INTERNAL);
    ck_assert_int_eq(
        fixture_shell("test \"$(ls %s)\" = resolv.conf && grep -q untouched %s/resolv.conf", canary,
                      canary),
        0);
    fixture_destroy(id);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("escape");
    TCase *tests = tcase_create("escape");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, the_probe_is_contained, 0, (int)COUNT(probes));
    tcase_add_test(tests, every_probe_is_listed);
    tcase_add_test(tests, no_process_of_the_host_is_seen_or_signalled);
    tcase_add_test(tests, memory_is_bounded);
    tcase_add_test(tests, processes_are_bounded);
    tcase_add_test(tests, temporary_files_are_bounded);
    tcase_add_test(tests, tables_of_the_machine_hold_more_than_a_sandbox);
    tcase_add_test(tests, two_sandboxes_have_different_users);
    tcase_add_test(tests, a_sandbox_takes_nothing_from_its_neighbour);
    tcase_add_test(tests, an_image_full_of_links_harms_nobody);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
