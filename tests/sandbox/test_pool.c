/* Sandboxes that are started ahead: who gets one can't tell, and nothing is left of those that
 * nobody wanted. */
#include "tests/sandbox/fixture.h"

/* How many spares run, and are done with their start. */
static int spares(void)
{
    char path[256];
    int count = 0;

    snprintf(path, sizeof(path), "%s/state/sandboxes", fixture_root);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += strncmp(entry->d_name, "warm-", 5) == 0;
    if (directory)
        closedir(directory);
    return count;
}

static int init_of(const char *id)
{
    char command[300];
    int pid = -1;

    snprintf(command, sizeof(command), "sed -n 's/^pid //p' %s/state/sandboxes/%s/state",
             fixture_root, id);
    FILE *pipe = popen(command, "r");
    if (!pipe || fscanf(pipe, "%d", &pid) != 1)
        pid = -1;
    if (pipe)
        pclose(pipe);
    return pid;
}

static int logged(const char *event)
{
    char command[256];
    int count = -1;

    snprintf(command, sizeof(command), "grep -c '\"event\":\"%s\"' %s/log", event, fixture_root);
    FILE *pipe = popen(command, "r");
    if (!pipe || fscanf(pipe, "%d", &count) != 1)
        count = -1;
    if (pipe)
        pclose(pipe);
    return count;
}

static void fill(void)
{
    fixture_destroy(fixture_running());
    ck_soon(spares() == 2, 5000);
    usleep(200000); /* the last one's init answers */
}

static const char *start_like(struct start start)
{
    ck_done(sandbox_create(fixture_connect(), start.sandbox, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    return start.sandbox;
}

START_TEST(a_claimed_one_is_as_if_it_were_new)
{
    struct start start = fixture_start(fixture_id());
    int claimed;

    fill();
    claimed = logged("sandbox_claimed");
    start.hostname = "claimed-1";
    start_like(start);
    ck_assert_int_eq(logged("sandbox_claimed"), claimed + 1);
    ck_prints(start.sandbox,
              "cat /proc/sys/kernel/hostname /etc/hostname; grep -c claimed-1 /etc/hosts",
              "claimed-1\nclaimed-1\n1\n");
    ck_prints(start.sandbox, "ls -A /workspace /tmp; echo hello > /workspace/f; cat /workspace/f",
              "/tmp:\n\n/workspace:\nhello\n");
    /* What was written before the start is there, too. */
    ck_soon(spares() == 2, 5000);
    ck_done(sandbox_stop(fixture_connect(), start.sandbox, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(start.sandbox, "cat /workspace/f /etc/hostname", "hello\nclaimed-1\n");
    fixture_destroy(start.sandbox);
}
END_TEST

START_TEST(files_of_before_the_start_are_seen)
{
    struct start start = fixture_start(fixture_id());
    int fd;

    fill();
    ck_done(sandbox_create(fixture_connect(), start.sandbox, &fixture_error));
    ck_done(
        sandbox_file_create(fixture_connect(), start.sandbox, "early", 0644, &fd, &fixture_error));
    ck_assert_int_eq(write(fd, "early\n", 6), 6);
    close(fd);
    ck_done(sandbox_file_commit(fixture_connect(), start.sandbox, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(start.sandbox, "cat /workspace/early", "early\n");
    fixture_destroy(start.sandbox);
}
END_TEST

static struct start with_memory(struct start start)
{
    start.memory_bytes = 64 * MEGABYTE;
    return start;
}

static struct start with_few_processes(struct start start)
{
    start.pids = 40;
    return start;
}

static struct start with_small_tmp(struct start start)
{
    start.tmp_bytes = 2 * MEGABYTE;
    return start;
}

static struct start with_little_cpu(struct start start)
{
    start.cpu_percent = 50;
    return start;
}

static struct start (*const others[])(struct start) = {with_memory, with_few_processes,
                                                       with_small_tmp, with_little_cpu};

START_TEST(one_that_is_asked_for_otherwise_is_made_anew)
{
    struct start start = others[_i](fixture_start(fixture_id()));
    char expected[128];

    fill();
    start_like(start);
    snprintf(expected, sizeof(expected), "%ld\n%ld\n%ld 100000\n", (long)start.memory_bytes,
             (long)start.pids, (long)start.cpu_percent * 1000);
    ck_prints(start.sandbox,
              "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max /sys/fs/cgroup/cpu.max",
              expected);
    fixture_destroy(start.sandbox);
}
END_TEST

START_TEST(an_image_that_was_replaced_is_not_given)
{
    struct start start = fixture_start(fixture_id());

    fill();
    ck_assert_int_eq(
        fixture_shell("cd %s/images && cp -a base next && echo new >next/etc/version && "
                      "mv base old && mv next base",
                      fixture_root),
        0);
    start_like(start);
    ck_prints(start.sandbox, "cat /etc/version", "new\n");
    fixture_destroy(start.sandbox);
}
END_TEST

START_TEST(spares_that_die_are_replaced)
{
    fill();
    /* Everything that runs in their cgroups. */
    ck_assert_int_eq(
        fixture_shell("for p in $(find /sys/fs/cgroup -path '*warm-*' -name cgroup.procs "
                      "-exec cat {} +); do "
                      "grep -q '%s/' /proc/%d/cmdline && kill -9 $p; done 2>/dev/null; "
                      "true",
                      fixture_root, (int)fixture_supervisor),
        0);
    ck_soon(spares() == 2, 15000);
    fixture_destroy(start_like(fixture_start(fixture_id())));
}
END_TEST

START_TEST(a_killed_supervisor_leaves_none)
{
    const char *id;
    int init;

    fill();
    id = start_like(fixture_start(fixture_id()));
    init = init_of(id);
    ck_assert_int_gt(init, 1);
    ck_soon(spares() == 2, 5000);
    fixture_stop_supervisor(SIGKILL);
    ck_assert(fixture_start_supervisor());
    ck_assert_int_eq(spares(), 0);
    /* What was claimed is adopted by the cgroup that it was born in. */
    ck_prints(id, "echo alive", "alive\n");
    ck_assert_int_eq(init_of(id), init);
    fixture_destroy(id);
    ck_soon(kill(init, 0) == -1, 5000); /* somebody else reaps it */
}
END_TEST

START_TEST(a_storm_of_creates_and_destroys_leaves_nothing)
{
    fill();
    for (int i = 0; i < 40; i++) {
        const char *id = fixture_id();
        struct start start = fixture_start(id);

        ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
        if (i % 3)
            ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
        if (i % 3 == 2)
            ck_prints(id, "echo ok", "ok\n");
        fixture_destroy(id);
    }
    fixture_stop_supervisor(SIGTERM);
    fixture_shell("ls -lAR %s/state/sandboxes | head -60", fixture_root); /* shown by a failure */
    ck_assert_int_eq(fixture_shell("test -z \"$(ls -A %s/state/sandboxes)\"", fixture_root), 0);
    ck_assert_int_ne(fixture_shell("test -e %s/state/cgroups", fixture_root), 0);
    ck_assert(fixture_start_supervisor());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tests = tcase_create("pool");

    setenv("CK_FORK", "no", 1); /* one supervisor after the other, known to all */
    setenv("WARM_POOL", "2", 1);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_claimed_one_is_as_if_it_were_new);
    tcase_add_test(tests, files_of_before_the_start_are_seen);
    tcase_add_loop_test(tests, one_that_is_asked_for_otherwise_is_made_anew, 0, (int)COUNT(others));
    tcase_add_test(tests, an_image_that_was_replaced_is_not_given);
    tcase_add_test(tests, spares_that_die_are_replaced);
    tcase_add_test(tests, a_killed_supervisor_leaves_none);
    tcase_add_test(tests, a_storm_of_creates_and_destroys_leaves_nothing);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
