/* Limits as the files of both versions of cgroups have them. */
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "supervisor/cgroup_limits.h"
#include "tests/unit/unit.h"

static char folder[] = "/tmp/cgroup-limits-XXXXXX";

static void make(const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
}

/* What was written to it; NULL when there is no such file. */
static const char *content(const char *name)
{
    static char text[64];
    char path[PATH_MAX];
    ssize_t length;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    auto_close int fd = open(path, O_RDONLY);
    if (fd < 0)
        return NULL;
    length = read(fd, text, sizeof(text) - 1);
    text[length < 0 ? 0 : length] = '\0';
    return text;
}

static const struct {
    bool unified;
    const char *name;
    const char *text, *other; /* by usual limits, and by others */
} files[] = {
    {true, "memory.max", "67108864", "134217728"},
    {true, "memory.swap.max", "0", "33554432"},
    {true, "memory.oom.group", "0", "1"},
    {true, "pids.max", "64", "99"},
    {true, "cpu.max", "150000 100000", "5000 100000"},
    {true, "cpu.weight", "100", "50"},
    {false, "memory.limit_in_bytes", "67108864", "134217728"},
    {false, "memory.memsw.limit_in_bytes", "67108864", "167772160"},
    {false, "memory.swappiness", "0", ""},
    {false, "memory.kmem.tcp.limit_in_bytes", "8388608", "16777216"},
    {false, "pids.max", "64", "99"},
    {false, "cpu.cfs_quota_us", "150000", "5000"},
    {false, "cpu.shares", "1024", "512"},
};

static const struct limits usual = {
    .memory_bytes = 64 << 20, .pids = 64, .cpu_percent = 150, .cpu_weight = 100};
static const struct limits other = {.memory_bytes = 128 << 20,
                                    .swap_bytes = 32 << 20,
                                    .oom_group = 1,
                                    .pids = 99,
                                    .cpu_percent = 5,
                                    .cpu_weight = 50};

static void begin(void)
{
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void end(void)
{
    char command[PATH_MAX];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(every_limit_has_its_file)
{
    for (int unified = 0; unified < 2; unified++)
        for (int which = 0; which < 2; which++) {
            struct error err;

            for (size_t i = 0; i < COUNT(files); i++)
                make(files[i].name);
            ck_assert_msg(cgroup_limits_write(folder,
                                              CONTROLLER_MEMORY | CONTROLLER_PIDS | CONTROLLER_CPU,
                                              unified, which ? &other : &usual, &err) == 0,
                          "%s", err.message);
            for (size_t i = 0; i < COUNT(files); i++)
                if (files[i].unified == (bool)unified)
                    ck_assert_str_eq(content(files[i].name),
                                     which ? files[i].other : files[i].text);
                else if (strcmp(files[i].name, "pids.max") != 0)
                    ck_assert_str_eq(content(files[i].name), "");
        }
}
END_TEST

START_TEST(a_controller_that_is_elsewhere_is_left_alone)
{
    struct error err;

    make("pids.max");
    ck_assert_int_eq(cgroup_limits_write(folder, CONTROLLER_PIDS, true, &usual, &err), 0);
    ck_assert_str_eq(content("pids.max"), "64");
    ck_assert_ptr_null(content("memory.max"));
}
END_TEST

START_TEST(a_limit_that_can_not_be_set_is_an_error)
{
    struct error err;

    ck_assert_int_eq(cgroup_limits_write(folder, CONTROLLER_MEMORY, true, &usual, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.message, "memory.max"));
    /* Without swap in the kernel there is nothing to bound. */
    make("memory.max");
    make("memory.oom.group");
    ck_assert_int_eq(cgroup_limits_write(folder, CONTROLLER_MEMORY, true, &usual, &err), 0);
    make("memory.limit_in_bytes");
    ck_assert_int_eq(cgroup_limits_write(folder, CONTROLLER_MEMORY, false, &usual, &err), 0);
}
END_TEST

START_TEST(huge_pages_of_every_size_are_forbidden)
{
    struct error err;

    make("hugetlb.2MB.max");
    make("hugetlb.2MB.rsvd.max");
    make("hugetlb.1GB.max");
    make("hugetlb.2MB.current");
    make("hugetlb.2MB.events");
    make("memory.max");
    ck_assert_int_eq(cgroup_limits_forbid_huge_pages(folder, true, &err), 0);
    ck_assert_str_eq(content("hugetlb.2MB.max"), "0");
    ck_assert_str_eq(content("hugetlb.2MB.rsvd.max"), "0");
    ck_assert_str_eq(content("hugetlb.1GB.max"), "0");
    ck_assert_str_eq(content("hugetlb.2MB.current"), "");
    ck_assert_str_eq(content("memory.max"), "");
    make("hugetlb.2MB.limit_in_bytes");
    ck_assert_int_eq(cgroup_limits_forbid_huge_pages(folder, false, &err), 0);
    ck_assert_str_eq(content("hugetlb.2MB.limit_in_bytes"), "0");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cgroup_limits");
    TCase *tests = unit_case(suite, "cgroup_limits");

    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, every_limit_has_its_file);
    tcase_add_test(tests, a_controller_that_is_elsewhere_is_left_alone);
    tcase_add_test(tests, a_limit_that_can_not_be_set_is_an_error);
    tcase_add_test(tests, huge_pages_of_every_size_are_forbidden);
    return unit_run(suite);
}
