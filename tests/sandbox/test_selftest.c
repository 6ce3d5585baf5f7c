/* A supervisor whose sandboxes would not hold does not serve. */
#include "tests/sandbox/fixture.h"

/* Which call does nothing: see weaken.c. */
static const char *const weakenings[] = {"filters",      "first filter", "second filter",
                                         "bounding set", "securebits",   "no_new_privs",
                                         "capset",       "limits",       "covers"};

static bool starts(const char *weakening)
{
    char library[PATH_MAX];
    bool started;

    snprintf(library, sizeof(library), "%.4000s/tests/sandbox/weaken.so", fixture_build);
    setenv("LD_PRELOAD", library, 1);
    setenv("WEAKEN", weakening, 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0", 1); /* it comes second */
    started = fixture_start_supervisor();
    unsetenv("LD_PRELOAD");
    return started;
}

START_TEST(without_a_fence_it_refuses_to_serve)
{
    fixture_shell(": >%s/log", fixture_root);
    if (starts(weakenings[_i])) {
        fixture_stop_supervisor(SIGTERM);
        ck_abort_msg("it serves without: %s", weakenings[_i]);
    }
    if (getenv("SANDBOX_TEST_LOG"))
        fixture_shell("grep supervisor_failed %s/log", fixture_root);
    ck_assert_int_eq(fixture_shell("grep -q supervisor_failed %s/log", fixture_root), 0);
    /* Nothing of the attempt is left. */
    ck_assert_int_eq(fixture_shell("test -z \"$(ls %s/state/sandboxes)\"", fixture_root), 0);
}
END_TEST

/* So it was not the library itself. */
START_TEST(with_all_of_them_it_serves)
{
    ck_assert(starts("nothing"));
    fixture_destroy(fixture_running());
    fixture_stop_supervisor(SIGTERM);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("selftest");
    TCase *tests = tcase_create("selftest");
    SRunner *runner;
    int failed;

    setvbuf(stdout, NULL, _IOLBF, 0);
    fixture_open();
    fixture_stop_supervisor(SIGTERM);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, without_a_fence_it_refuses_to_serve, 0, (int)COUNT(weakenings));
    tcase_add_test(tests, with_all_of_them_it_serves);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    fixture_shell("rm -rf %s", fixture_root);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
