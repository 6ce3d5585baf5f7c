/* Disks: limits that the kernel holds, and nothing of them left behind. One round for each back end
 * that this machine can have. */
#include <sys/statvfs.h>

#include "tests/sandbox/disks.h"

enum { DISK_BYTES = 32 * MEGABYTE, DISK_INODES = 1024 };

static const char *running(int64_t bytes, int64_t inodes)
{
    const char *id = fixture_id();
    struct create create = {.sandbox = id, .disk_bytes = bytes, .disk_inodes = inodes};
    struct start start = fixture_start(id);

    ck_done(sandbox_create_sized(fixture_connect(), &create, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    return id;
}

/* Fill a folder with bytes until it fails; print how many MiB there was room for. */
#define FILL_BYTES(folder)                                                 \
    "head -c 200000000 /dev/zero >" folder "/fill 2>/dev/null && exit 1; " \
    "n=$(stat -c %s " folder "/fill); echo $((n / 1048576))"
#define FILL_INODES(folder)    \
    "n=0; while true >" folder \
    "/i$n; do n=$((n + 1)); [ $n -lt 5000 ] || exit 1; done 2>/dev/null; echo $n"

static long number_as(const char *id, int64_t uid, const char *command)
{
    const char *argv[] = {"/bin/sh", "-c", command};
    struct exec exec = fixture_exec(id, argv, 3, 60000);
    auto_outcome struct outcome outcome = {0};

    exec.uid = uid;
    ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                         &outcome.result, &fixture_error));
    ck_assert_msg(outcome.result.exit_code == 0, "%s: exit code %ld, %s", command,
                  (long)outcome.result.exit_code,
                  outcome.errors.bytes.data ? outcome.errors.bytes.data : "");
    return strtol(outcome_text(&outcome), NULL, 10);
}

static long number_of(const char *id, const char *command)
{
    return number_as(id, 0, command);
}

START_TEST(bytes_end_at_the_limit_for_root_and_for_others)
{
    const char *id = running(DISK_BYTES, DISK_INODES), *beside = running(DISK_BYTES, DISK_INODES);

    long megabytes = number_of(id, FILL_BYTES("/workspace"));
    ck_assert_int_ge(megabytes, 20);
    ck_assert_int_le(megabytes, 32);
    /* The rest of its root is on the same disk. */
    ck_assert_int_le(number_of(id, "head -c 5000000 /dev/zero >/root/x 2>/dev/null; "
                                   "stat -c %s /root/x 2>/dev/null || echo 0"),
                     MEGABYTE);
    number_of(id, "rm /workspace/fill; mkdir -m 777 /workspace/free; echo 0");
    megabytes = number_as(id, 1000, FILL_BYTES("/workspace/free"));
    ck_assert_int_ge(megabytes, 20);
    ck_assert_int_le(megabytes, 32);
    /* Nobody else notices. */
    ck_prints(beside, "head -c 10000000 /dev/zero >f && stat -c %s f", "10000000\n");
    fixture_destroy(id);
    fixture_destroy(beside);
}
END_TEST

START_TEST(files_end_at_the_limit)
{
    const char *id = running(DISK_BYTES, DISK_INODES);
    long files = number_of(id, FILL_INODES("/workspace"));

    ck_assert_int_ge(files, DISK_INODES / 2);
    ck_assert_int_le(files, DISK_INODES);
    ck_assert_int_eq(number_of(id, FILL_INODES("/root")), 0);
    /* There is room again when they are gone. */
    ck_prints(id, "rm /workspace/i* && echo x >y && cat y", "x\n");
    fixture_destroy(id);
}
END_TEST

START_TEST(an_upload_to_a_full_disk_keeps_the_old_file)
{
    const char *id = running(DISK_BYTES, DISK_INODES);
    static char block[MEGABYTE];
    auto_close int fd = -1;
    ssize_t written = 1;

    ck_prints(id, "echo old >kept; echo ok", "ok\n");
    number_of(id, FILL_BYTES("/workspace"));
    if (sandbox_file_create(fixture_connect(), id, "kept", 0644, &fd, &fixture_error) == 0) {
        for (int i = 0; i < 40 && written > 0; i++)
            written = write(fd, block, sizeof(block));
        ck_assert_int_lt(written, 0);
        ck_assert(errno == ENOSPC || errno == EDQUOT);
    } else {
        ck_assert_int_eq(fixture_error.kind, ERR_TOO_LARGE);
    }
    ck_prints(id, "cat kept", "old\n");
    /* Files can be removed all the same, and then there is room. */
    ck_done(sandbox_file_remove(fixture_connect(), id, "fill", false, &fixture_error));
    ck_prints(id, "head -c 3000000 /dev/zero >again && stat -c %s again", "3000000\n");
    fixture_destroy(id);
}
END_TEST

START_TEST(a_full_sandbox_stops_and_starts)
{
    const char *id = running(DISK_BYTES, DISK_INODES);
    struct start start = fixture_start(id);

    number_of(id, FILL_BYTES("/root"));
    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(id, "ls /root/fill 2>/dev/null; head -c 10000000 /dev/zero >f && stat -c %s f",
              "10000000\n");
    fixture_destroy(id);
}
END_TEST

START_TEST(what_is_used_is_told)
{
    const char *id = running(DISK_BYTES, DISK_INODES);
    struct sandbox_usage before, after;

    ck_done(sandbox_usage(fixture_connect(), id, &before, &fixture_error));
    ck_prints(id,
              "for i in $(seq 1 20); do echo >$i; done; head -c 5000000 /dev/zero >f; "
              "n=0; while [ $n -lt 100000 ]; do n=$((n + 1)); done; "
              "head -c 30000000 /dev/zero >/tmp/f; rm /tmp/f; echo ok",
              "ok\n");
    ck_done(sandbox_usage(fixture_connect(), id, &after, &fixture_error));
    ck_assert_int_ge(after.disk_bytes - before.disk_bytes, 4900000);
    ck_assert_int_le(after.disk_bytes - before.disk_bytes, 6000000);
    ck_assert_int_ge(after.disk_bytes_limit, DISK_BYTES / 2);
    ck_assert_int_le(after.disk_bytes_limit, DISK_BYTES);
    ck_assert_int_eq(after.disk_inodes - before.disk_inodes, 21);
    ck_assert_int_le(after.disk_inodes_limit, DISK_INODES);
    ck_assert_int_gt(after.disk_inodes_limit, DISK_INODES / 2);
    ck_assert_int_eq(after.memory_limit_bytes, 256 * MEGABYTE);
    ck_assert_int_gt(after.memory_bytes, 0);
    ck_assert_int_gt(after.memory_peak_bytes, 25000000);
    ck_assert_int_ge(after.memory_peak_bytes, after.memory_bytes);
    ck_assert_int_ge(after.pids, 1);
    ck_assert_int_eq(after.pids_limit, 256);
    ck_assert_int_gt(after.cpu_us, before.cpu_us + 10000);
    ck_assert_int_eq(after.oom_kills, 0);
    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_usage(fixture_connect(), id, &after, &fixture_error));
    ck_assert_int_ge(after.disk_bytes, 4900000);
    ck_assert_int_eq(after.memory_bytes + after.pids + after.cpu_us, 0);
    fixture_destroy(id);
    ck_refused(sandbox_usage(fixture_connect(), id, &after, &fixture_error), ERR_NOT_FOUND);
}
END_TEST

START_TEST(bytes_that_are_used_are_told_by_quota_groups)
{
    const char *id = running(DISK_BYTES, DISK_INODES);
    struct sandbox_usage usage;

    ck_prints(id, "head -c 5000000 /dev/zero >f; echo ok", "ok\n");
    auto_close int fd = open(fixture_root, O_RDONLY);
    ck_assert_int_eq(syncfs(fd), 0); /* which is when btrfs counts */
    ck_done(sandbox_usage(fixture_connect(), id, &usage, &fixture_error));
    ck_assert_int_ge(usage.disk_bytes, 5000000);
    ck_assert_int_le(usage.disk_bytes, 6000000);
    ck_assert_int_eq(usage.disk_bytes_limit, DISK_BYTES);
    ck_assert_int_eq(usage.disk_inodes, -1);
    ck_assert_int_gt(usage.memory_bytes, 0);
    fixture_destroy(id);
}
END_TEST

START_TEST(more_than_the_settings_allow_is_refused)
{
    struct create create = {.sandbox = fixture_id(), .disk_bytes = INT64_C(1) << 43};

    ck_refused(sandbox_create_sized(fixture_connect(), &create, &fixture_error), ERR_BAD_REQUEST);
    create = (struct create){.sandbox = fixture_id(), .disk_inodes = 900000000};
    ck_refused(sandbox_create_sized(fixture_connect(), &create, &fixture_error), ERR_BAD_REQUEST);
}
END_TEST

START_TEST(all_together_have_a_bound)
{
    const char *id;

    fixture_stop_supervisor(SIGTERM);
    setenv("DISK_TOTAL_MB", "80", 1);
    ck_assert(fixture_start_supervisor());
    id = running(DISK_BYTES, 0);
    fixture_destroy(running(DISK_BYTES, 0));
    fixture_destroy(running(DISK_BYTES, 0));
    struct create create = {.sandbox = fixture_id(), .disk_bytes = 64 * MEGABYTE};
    ck_refused(sandbox_create_sized(fixture_connect(), &create, &fixture_error), ERR_UNAVAILABLE);
    fixture_destroy(id);
    ck_done(sandbox_create_sized(fixture_connect(), &create, &fixture_error));
    fixture_destroy(create.sandbox);
    fixture_stop_supervisor(SIGTERM);
    unsetenv("DISK_TOTAL_MB");
    ck_assert(fixture_start_supervisor());
}
END_TEST

START_TEST(a_hundred_rounds_leave_no_mount_and_no_device)
{
    for (int i = 0; i < 100; i++) {
        const char *id = fixture_id();

        ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
        if (i % 10 == 0) {
            struct start start = fixture_start(id);

            ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
            ck_prints(id, "echo x >f; cat f", "x\n");
        }
        fixture_destroy(id);
    }
    ck_assert(disks_are_spares(10000));
    ck_assert(nothing_is_left());
    ck_assert_int_ne(fixture_shell("grep -q '%s' /proc/self/mounts", fixture_root), 0);
}
END_TEST

START_TEST(disks_outlive_a_killed_supervisor)
{
    const char *run = running(DISK_BYTES, DISK_INODES), *stopped = running(DISK_BYTES, DISK_INODES),
               *created = fixture_id();
    struct start start = fixture_start(stopped);

    ck_prints(run, "echo one >f; echo ok", "ok\n");
    ck_prints(stopped, "echo two >f; echo ok", "ok\n");
    ck_done(sandbox_stop(fixture_connect(), stopped, &fixture_error));
    ck_done(sandbox_create(fixture_connect(), created, &fixture_error));
    fixture_stop_supervisor(SIGKILL);
    ck_assert(fixture_start_supervisor());
    ck_prints(run, "cat f; echo three >f", "one\n");
    auto_close int fd = -1;
    struct file_info info;
    ck_done(sandbox_file_open(fixture_connect(), stopped, "f", &info, &fd, &fixture_error));
    ck_assert_int_eq(info.size, 4);
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(stopped, "cat f", "two\n");
    start = fixture_start(created);
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    /* The limits are still there. */
    ck_assert_int_le(number_of(run, FILL_BYTES("/workspace")), 32);
    ck_done(sandbox_stop(fixture_connect(), run, &fixture_error));
    fixture_destroy(run);
    fixture_destroy(stopped);
    fixture_destroy(created);
    ck_assert(nothing_is_left());
}
END_TEST

/* The device goes with the last mount, whoever ends and however; what was written stays. */
START_TEST(images_outlive_all_who_hold_them)
{
    const char *run = running(DISK_BYTES, DISK_INODES), *stopped = running(DISK_BYTES, DISK_INODES);
    struct start start = fixture_start(stopped);

    ck_prints(run, "echo one >f; echo ok", "ok\n");
    ck_prints(stopped,
              "echo two >f; seq 1 100000 >data; "
              "echo ok",
              "ok\n");
    ck_done(sandbox_stop(fixture_connect(), stopped, &fixture_error));
    fixture_stop_supervisor(SIGKILL);
    ck_assert_int_eq(fixture_shell("kill -9 $(sed -n 's/^pid //p' %s/state/keeper)", fixture_root),
                     0);
    for (int i = 0; i < 500 && loops() != 1; i++)
        usleep(20000);
    if (loops() != 1)
        disks_show();
    ck_assert_int_eq(loops(), 1); /* of the one that runs */
    ck_assert(fixture_start_supervisor());
    /* Mounted once more, on the device that it has: two would destroy each other's work. */
    ck_prints(run, "cat f; echo three >f", "one\n");
    auto_close int fd = -1;
    struct file_info info;
    char text[8] = "";
    ck_done(sandbox_file_open(fixture_connect(), run, "f", &info, &fd, &fixture_error));
    ck_assert_int_eq(read(fd, text, sizeof(text)), 6);
    ck_assert_str_eq(text, "three\n");
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(stopped, "cat f; [ \"$(cat data)\" = \"$(seq 1 100000)\" ] && echo same",
              "two\nsame\n");
    close(take_fd(&fd));
    fixture_destroy(run);
    fixture_destroy(stopped);
    ck_assert(disks_are_spares(10000));
    ck_assert(nothing_is_left());
}
END_TEST

START_TEST(no_device_outlives_a_supervisor_that_stops_all)
{
    const char *run = running(0, 0), *stopped = running(DISK_BYTES, 0);
    struct start start = fixture_start(run);

    ck_prints(run, "echo one >f; echo ok", "ok\n");
    ck_done(sandbox_stop(fixture_connect(), stopped, &fixture_error));
    fixture_stop_supervisor(SIGTERM);
    ck_soon(loops() == 0, 10000);
    ck_assert(fixture_start_supervisor());
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(run, "cat f", "one\n");
    fixture_destroy(run);
    fixture_destroy(stopped);
}
END_TEST

START_TEST(without_a_limit_none_is_given_unless_allowed)
{
    fixture_stop_supervisor(SIGTERM);
    setenv("QUOTA_REQUIRED", "1", 1);
    ck_assert(!fixture_start_supervisor());
    ck_assert_int_eq(fixture_shell("tail -1 %s/log | grep -q 'QUOTA_REQUIRED=0'", fixture_root), 0);
    setenv("QUOTA_REQUIRED", "0", 1);
    ck_assert(fixture_start_supervisor());
}
END_TEST

static Suite *suite_of(const struct disk_round *round)
{
    Suite *suite = suite_create(round->name);
    TCase *tests = tcase_create("storage");

    tcase_set_timeout(tests, 120);
    if (round->limits && !round->files)
        tcase_add_test(tests, bytes_that_are_used_are_told_by_quota_groups);
    if (round->files) {
        tcase_add_test(tests, files_end_at_the_limit);
        tcase_add_test(tests, what_is_used_is_told);
    }
    if (round->limits) {
        tcase_add_test(tests, bytes_end_at_the_limit_for_root_and_for_others);
        tcase_add_test(tests, an_upload_to_a_full_disk_keeps_the_old_file);
        tcase_add_test(tests, a_full_sandbox_stops_and_starts);
        tcase_add_test(tests, disks_outlive_a_killed_supervisor);
    } else {
        tcase_add_test(tests, without_a_limit_none_is_given_unless_allowed);
    }
    tcase_add_test(tests, more_than_the_settings_allow_is_refused);
    tcase_add_test(tests, all_together_have_a_bound);
    tcase_add_test(tests, a_hundred_rounds_leave_no_mount_and_no_device);
    if (round->devices) {
        tcase_add_test(tests, images_outlive_all_who_hold_them);
        tcase_add_test(tests, no_device_outlives_a_supervisor_that_stops_all);
    }
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return disk_rounds_run(suite_of);
}
