/* What every unit test program needs: a suite by name, and a main that runs it. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <check.h>
#include <stdlib.h>

#include "common/scope.h"

/* A test case of `suite` that is made of `tests`, as START_TEST defines them. */
static inline TCase *unit_case(Suite *suite, const char *name)
{
    TCase *tests = tcase_create(name);

    suite_add_tcase(suite, tests);
    return tests;
}

/* Run `test` once for each row of the array `table`; the row is table[_i]. */
#define unit_table(tests, test, table) tcase_add_loop_test(tests, test, 0, (int)COUNT(table))

/* Run one suite, print Check's summary, and say by the exit status whether all held. CK_FORK=no
 * runs it in one process, for a debugger or valgrind. */
static inline int unit_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
