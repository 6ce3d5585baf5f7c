/* What cgroups say of a sandbox, in either version: made-up files, since no machine has both. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "supervisor/cgroup.h"
#include "supervisor/cgroup_limits.h"
#include "supervisor/usage.h"
#include "tests/unit/unit.h"

static char root[64];

static void put(const char *folder, const char *name, const char *text)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", root, folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/%s/%s", root, folder, name);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

/* As a supervisor before this one has remembered them. */
static void open_cgroups(const char *format)
{
    char text[512];
    struct error error;

    snprintf(text, sizeof(text), format, root, root, root);
    put(".", "cgroups", text);
    ck_assert_int_eq(cgroup_open(root, false, &error), 0);
}

static void begin(void)
{
    snprintf(root, sizeof(root), "/tmp/test-usage-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    for (size_t i = 0; i < 3; i++) {
        char path[128];

        snprintf(path, sizeof(path), "%s/%s", root, (const char *[]){"memory", "pids", "v2"}[i]);
        ck_assert_int_eq(mkdir(path, 0755), 0);
    }
}

static void end(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

static void check(void)
{
    struct sandbox_usage usage = {0};

    usage_read_cgroups("box", &usage);
    ck_assert_int_eq(usage.memory_bytes, 1000);
    ck_assert_int_eq(usage.memory_peak_bytes, 2000);
    ck_assert_int_eq(usage.memory_limit_bytes, 3000);
    ck_assert_int_eq(usage.pids, 4);
    ck_assert_int_eq(usage.pids_limit, 0);
    ck_assert_int_eq(usage.cpu_us, 123456);
    ck_assert_int_eq(cgroup_oom_kills("box"), 7);
}

START_TEST(version_2_is_read)
{
    open_cgroups("7 1 %s/v2\n");
    put("v2/box", "memory.current", "1000\n");
    put("v2/box", "memory.peak", "2000\n");
    put("v2/box", "memory.max", "3000\n");
    put("v2/box", "memory.events", "low 0\nhigh 0\nmax 9\noom 8\noom_kill 7\n");
    put("v2/box", "pids.current", "4\n");
    put("v2/box", "pids.max", "max\n");
    put("v2/box", "cpu.stat", "usage_usec 123456\nuser_usec 1\nsystem_usec 2\n");
    check();
}
END_TEST

START_TEST(the_mixture_is_read)
{
    open_cgroups("1 0 %s/memory\n2 0 %s/pids\n0 1 %s/v2\n");
    put("memory/box", "memory.usage_in_bytes", "1000\n");
    put("memory/box", "memory.max_usage_in_bytes", "2000\n");
    put("memory/box", "memory.limit_in_bytes", "3000\n");
    put("memory/box", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
    put("pids/box", "pids.current", "4\n");
    put("pids/box", "pids.max", "max\n");
    put("v2/box", "cpu.stat", "usage_usec 123456\nuser_usec 1\nsystem_usec 2\n");
    check();
    put("memory/box", "memory.limit_in_bytes", "9223372036854771712\n");
    struct sandbox_usage usage = {0};
    usage_read_cgroups("box", &usage);
    ck_assert_int_eq(usage.memory_limit_bytes, 0);
}
END_TEST

START_TEST(what_is_missing_is_nothing)
{
    struct sandbox_usage usage = {.memory_bytes = 1, .pids = 1, .cpu_us = 1};

    open_cgroups("7 1 %s/v2\n");
    usage_read_cgroups("box", &usage);
    ck_assert_int_eq(usage.memory_bytes + usage.pids + usage.cpu_us, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("usage");
    TCase *tests = unit_case(suite, "usage");

    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, version_2_is_read);
    tcase_add_test(tests, the_mixture_is_read);
    tcase_add_test(tests, what_is_missing_is_nothing);
    return unit_run(suite);
}
