/* Every limit that a start asks for holds inside, and what all may have together is not exceeded.
 */
#include <sys/resource.h>

#include "tests/sandbox/fixture.h"

static void reconnect(void)
{
    sandbox_link_free(fixture_link);
    fixture_link = NULL;
}

/* The supervisor anew, with one variable changed; NULL: as usual. */
static void restart(const char *name, const char *value)
{
    fixture_stop_supervisor(SIGTERM);
    reconnect();
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
    ck_assert(fixture_start_supervisor());
}

static int try_start(const struct start *start)
{
    ck_done(sandbox_create(fixture_connect(), start->sandbox, &fixture_error));
    return sandbox_start(fixture_connect(), start, &fixture_error);
}

/* A file of the sandbox's cgroup, from whichever hierarchy has it; "" when none has. */
static const char *cgroup_file(const char *id, const char *name)
{
    static char text[256];
    char command[1024];

    snprintf(command, sizeof(command),
             "c=$(sed -n 's/^cgroup //p' %s/state/sandboxes/%s/state); while read -r holds v path; "
             "do cat \"$path/$c/%s\" 2>/dev/null; done <%s/state/cgroups",
             fixture_root, id, name, fixture_root);
    FILE *file = popen(command, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    pclose(file);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static bool cgroup_file_is(const char *id, const char *v1, const char *v1_text, const char *v2,
                           const char *v2_text)
{
    const char *text = cgroup_file(id, v1);

    if (*text)
        return strcmp(text, v1_text) == 0;
    return strcmp(cgroup_file(id, v2), v2_text) == 0;
}

/* --- one sandbox ----------------------------------------------------------------------------- */

START_TEST(what_is_asked_for_holds)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.memory_bytes = 128 * MEGABYTE;
    start.swap_bytes = 64 * MEGABYTE;
    start.cpu_weight = 50;
    start.open_files = 99;
    start.nice = 7;
    start.oom_score = 800;
    ck_done(try_start(&start));
    ck_prints(id, "ulimit -Sn; ulimit -Hn; nice; cat /proc/self/oom_score_adj", "99\n99\n7\n800\n");
    ck_prints(id, "nice -n -1 nice 2>/dev/null; ulimit -Hn 100 2>/dev/null || echo refused",
              "7\nrefused\n");
    ck_assert(cgroup_file_is(id, "cpu.shares", "512", "cpu.weight", "50"));
    ck_assert(cgroup_file_is(id, "memory.limit_in_bytes", "134217728", "memory.max", "134217728"));
    if (*cgroup_file(id, "memory.memsw.limit_in_bytes"))
        ck_assert_str_eq(cgroup_file(id, "memory.memsw.limit_in_bytes"), "201326592");
    fixture_destroy(id);
}
END_TEST

START_TEST(what_is_not_asked_for_is_usual)
{
    const char *id = fixture_running();
    struct rlimit files;
    char expected[64];

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    snprintf(expected, sizeof(expected), "1024\n%d\n0\n500\n",
             files.rlim_max < 16384 ? (int)files.rlim_max : 16384);
    ck_prints(id, "ulimit -Sn; ulimit -Hn; nice; cat /proc/self/oom_score_adj", expected);
    ck_assert(cgroup_file_is(id, "cpu.shares", "1024", "cpu.weight", "100"));
    if (*cgroup_file(id, "memory.memsw.limit_in_bytes"))
        ck_assert_str_eq(cgroup_file(id, "memory.memsw.limit_in_bytes"), "268435456");
    if (*cgroup_file(id, "memory.swappiness"))
        ck_assert_str_eq(cgroup_file(id, "memory.swappiness"), "0");
    fixture_destroy(id);
}
END_TEST

START_TEST(what_the_host_can_not_give_is_refused)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    start.open_files = 31;
    ck_refused(sandbox_start(fixture_connect(), &start, &fixture_error), ERR_BAD_REQUEST);
    start.open_files = 1 << 20;
    ck_refused(sandbox_start(fixture_connect(), &start, &fixture_error), ERR_BAD_REQUEST);
    ck_assert_ptr_nonnull(strstr(fixture_error.message, "RLIMIT_NOFILE"));
    start.open_files = 0;
    start.oom_score = 299;
    ck_refused(sandbox_start(fixture_connect(), &start, &fixture_error), ERR_BAD_REQUEST);
    start.oom_score = 300;
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    fixture_destroy(id);
}
END_TEST

/* With v1 there is no such thing, which nobody is to be deceived about. */
START_TEST(all_end_when_memory_is_short_or_the_start_is_refused)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.oom_group = true;
    if (try_start(&start) < 0) {
        ck_assert_int_eq(fixture_error.kind, ERR_BAD_REQUEST);
        ck_assert_ptr_nonnull(strstr(fixture_error.message, "oom_group"));
        start.oom_group = false;
        ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    } else {
        ck_assert_str_eq(cgroup_file(id, "memory.oom.group"), "1");
    }
    fixture_destroy(id);
}
END_TEST

START_TEST(temporary_files_are_bounded_in_size_and_number)
{
    const char *id;

    restart("TMP_INODES", "1024");
    id = fixture_running();
    for (int i = 0; i < 2; i++) {
        char command[512];
        const char *folder = i ? "/dev/shm" : "/tmp";

        snprintf(
            command, sizeof(command),
            "cd %s; dd if=/dev/zero of=fill bs=1M count=64 2>/dev/null; test $(stat -c %%s "
            "fill) -le 33554432 && echo size; rm fill; i=0; while [ $i -lt 1100 ] && true >f$i; do "
            "i=$((i+1)); done 2>/dev/null; test $i -le 1088 && test $i -gt 900 && echo count || "
            "echo $i; "
            "rm -f f*; echo x >again && echo room",
            folder);
        ck_prints(id, command, "size\ncount\nroom\n");
    }
    fixture_destroy(id);
    restart("TMP_INODES", NULL);
}
END_TEST

/* --- all of them ----------------------------------------------------------------------------- */

START_TEST(memory_of_all_together_is_bounded)
{
    const char *ids[] = {fixture_id(), fixture_id(), fixture_id()};
    struct start starts[COUNT(ids)];

    setenv("STOP_ON_EXIT", "0", 1);
    restart("MEMORY_TOTAL_MB", "600");
    for (size_t i = 0; i < COUNT(ids); i++) {
        starts[i] = fixture_start(ids[i]); /* 256 MiB each */
        ck_done(sandbox_create(fixture_connect(), ids[i], &fixture_error));
    }
    ck_done(sandbox_start(fixture_connect(), &starts[0], &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &starts[1], &fixture_error));
    for (int i = 0; i < 2; i++) {
        ck_refused(sandbox_start(fixture_connect(), &starts[2], &fixture_error), ERR_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(fixture_error.message, "MEMORY_TOTAL_MB"));
        ck_assert_int_gt(fixture_error.retry_after_s, 0);
        /* The next supervisor knows what those have that it finds. */
        restart("MEMORY_TOTAL_MB", "600");
        ck_prints(ids[0], "echo lives", "lives\n");
    }
    starts[2].memory_bytes = 64 * MEGABYTE;
    ck_done(sandbox_start(fixture_connect(), &starts[2], &fixture_error));
    ck_done(sandbox_stop(fixture_connect(), ids[2], &fixture_error));
    starts[2].memory_bytes = 256 * MEGABYTE;
    ck_done(sandbox_stop(fixture_connect(), ids[0], &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &starts[2], &fixture_error));
    for (size_t i = 0; i < COUNT(ids); i++)
        fixture_destroy(ids[i]);
    setenv("STOP_ON_EXIT", "1", 1);
    restart("MEMORY_TOTAL_MB", NULL);
}
END_TEST

START_TEST(the_number_of_sandboxes_is_bounded)
{
    const char *ids[] = {fixture_id(), fixture_id(), fixture_id()};
    struct start starts[COUNT(ids)];

    restart("SANDBOXES_MAX", "2");
    for (size_t i = 0; i < COUNT(ids); i++) {
        starts[i] = fixture_start(ids[i]);
        ck_done(sandbox_create(fixture_connect(), ids[i], &fixture_error));
    }
    ck_done(sandbox_start(fixture_connect(), &starts[0], &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &starts[1], &fixture_error));
    ck_refused(sandbox_start(fixture_connect(), &starts[2], &fixture_error), ERR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(fixture_error.message, "in use"));
    ck_assert_int_gt(fixture_error.retry_after_s, 0);
    ck_done(sandbox_stop(fixture_connect(), ids[0], &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &starts[2], &fixture_error));
    ck_prints(ids[2], "echo runs", "runs\n");
    for (size_t i = 0; i < COUNT(ids); i++)
        fixture_destroy(ids[i]);
    restart("SANDBOXES_MAX", NULL);
}
END_TEST

/* --- cgroups 2 ------------------------------------------------------------------------------- */

/* Where v2 is mounted. */
static const char *unified(void)
{
    static char path[256];
    FILE *file = popen("awk '$3 == \"cgroup2\" { print $2; exit }' /proc/self/mounts", "r");

    ck_assert_ptr_nonnull(file);
    path[fread(path, 1, sizeof(path) - 1, file)] = '\0';
    pclose(file);
    path[strcspn(path, "\n")] = '\0';
    return path;
}

/* Without any hierarchy of version 1: a place of ours in v2 alone, with what v2 has left here. */
START_TEST(version_2_alone_places_and_kills)
{
    const char *mount = unified();
    char parent[64];

    if (!*mount)
        return;
    snprintf(parent, sizeof(parent), "/limits-test-%d", getpid());
    ck_assert_int_eq(fixture_shell("mkdir %s%s", mount, parent), 0);
    bool huge = fixture_shell("grep -qw hugetlb %s/cgroup.controllers && echo +hugetlb "
                              ">%s/cgroup.subtree_control",
                              mount, mount) == 0;
    setenv("CGROUPS_REQUIRED", "0", 1);
    restart("CGROUP_PARENT", parent);
    {
        const char *id = fixture_running();
        char test[512];

        /* In one hierarchy alone, which is v2. */
        snprintf(test, sizeof(test),
                 "test $(wc -l <%s/state/cgroups) = 1 && grep -q ' 1 %s%s/' %s/state/cgroups",
                 fixture_root, mount, parent, fixture_root);
        ck_assert_int_eq(fixture_shell("%s", test), 0);
        /* Init is there by its clone. */
        ck_assert_int_eq(fixture_shell("p=$(sed -n 's/^pid //p' %s/state/sandboxes/%s/state); grep "
                                       "-q \"^0::%s/.*/$(sed -n 's/^cgroup //p' "
                                       "%s/state/sandboxes/%s/state)$\" /proc/$p/cgroup",
                                       fixture_root, id, parent, fixture_root, id),
                         0);
        if (huge)
            ck_assert_int_eq(
                fixture_shell("cd %s%s/agent-sandbox-*; grep -qw hugetlb "
                              "../cgroup.subtree_control && for f in hugetlb.*.max; do "
                              "grep -qx 0 $f || exit 1; done",
                              mount, parent),
                0);
        auto_outcome struct outcome outcome =
            fixture_run(id, "setsid sleep 9753.1 & sleep 9753.1", 300);
        ck_assert(outcome.result.timed_out);
        ck_soon(fixture_count_processes("9753.1") == 0, 2000);
        outcome_done(&(struct outcome[]){
            fixture_run(id, "for i in 1 2 3; do setsid sleep 9753.2 & done; true", 5000)}[0]);
        ck_soon(fixture_count_processes("9753.2") == 3, 2000);
        ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
        ck_assert_int_eq(fixture_count_processes("9753.2"), 0);
        fixture_destroy(id);
    }
    setenv("CGROUPS_REQUIRED", "1", 1);
    restart("CGROUP_PARENT", NULL);
    /* Nothing of it is left. */
    ck_assert_int_eq(fixture_shell("rmdir %s%s", mount, parent), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("limits");
    TCase *tests = tcase_create("limits");

    setenv("CK_FORK", "no", 1); /* one supervisor after the other, known to all */
    tcase_add_test(tests, what_is_asked_for_holds);
    tcase_add_test(tests, what_is_not_asked_for_is_usual);
    tcase_add_test(tests, what_the_host_can_not_give_is_refused);
    tcase_add_test(tests, all_end_when_memory_is_short_or_the_start_is_refused);
    tcase_add_test(tests, temporary_files_are_bounded_in_size_and_number);
    tcase_add_test(tests, memory_of_all_together_is_bounded);
    tcase_add_test(tests, the_number_of_sandboxes_is_bounded);
    tcase_add_test(tests, version_2_alone_places_and_kills);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
