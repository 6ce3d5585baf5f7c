/* Snapshots: all that files can be is kept, at one moment; what is damaged, too large or cut short
 * leaves nothing. One round for each back end that this machine can have. */
#include <pthread.h>
#include <signal.h>

#include "tests/sandbox/disks.h"

enum { DISK_BYTES = 64 * MEGABYTE, DISK_INODES = 4096, DEPTH = 2000 };

static const struct disk_round *now;

/* What is cloned as a whole has more than the workspace in it. */
static void ck_entries(const struct snapshot_entry *entry, int64_t expected)
{
    if (now->content && strcmp(now->content, "disk.img") == 0)
        ck_assert_int_ge(entry->entries, expected);
    else
        ck_assert_int_eq(entry->entries, expected);
}

static const char *snapshot_id(void)
{
    return fixture_id();
}

static const char *running_from(const char *snapshot)
{
    const char *id = fixture_id();
    struct create create = {.sandbox = id,
                            .disk_bytes = snapshot ? 0 : DISK_BYTES,
                            .disk_inodes = snapshot ? 0 : DISK_INODES,
                            .snapshot = snapshot};
    struct start start = fixture_start(id);

    ck_done(sandbox_create_sized(fixture_connect(), &create, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    return id;
}

static struct snapshot_entry make(const char *sandbox, const char *snapshot)
{
    static struct arena arena;
    struct snapshot_entry made;

    arena_reset(&arena);
    ck_done(
        sandbox_snapshot_make(fixture_connect(), sandbox, snapshot, &arena, &made, &fixture_error));
    return made;
}

static int refused_create(const char *snapshot, int64_t bytes, int64_t inodes)
{
    struct create create = {
        .sandbox = fixture_id(), .disk_bytes = bytes, .disk_inodes = inodes, .snapshot = snapshot};

    return sandbox_create_sized(fixture_connect(), &create, &fixture_error);
}

static void remove_snapshot(const char *snapshot)
{
    ck_done(sandbox_snapshot_remove(fixture_connect(), snapshot, &fixture_error));
}

static bool store_is_empty(void)
{
    return fixture_shell("test -z \"$(ls -A %s/state/snapshots)\"", fixture_root) == 0;
}

static bool nothing_is_half_made(void)
{
    return fixture_shell("test -z \"$(ls -A %s/state/sandboxes | grep '^[.]' | grep -v '^.arm-')\"",
                         fixture_root) == 0;
}

static size_t count_of_snapshots(const char *sandbox)
{
    auto_arena struct arena arena = {0};
    struct snapshot_entry *entries;
    size_t count;

    ck_done(sandbox_snapshot_list(fixture_connect(), sandbox, &arena, &entries, &count,
                                  &fixture_error));
    return count;
}

#define MAKE_ODD "cd /workspace && /treeprobe odd && echo made"
#define TELL "cd /workspace && /treeprobe tell"

/* The first line that is another; the whole would be too long for Check. */
static void ck_same_tree(const char *id, const char *expected)
{
    auto_outcome struct outcome outcome = fixture_run(id, TELL, 20000);
    const char *found = outcome_text(&outcome);
    size_t at = 0, line = 0;

    ck_assert_int_eq(outcome.result.exit_code, 0);
    for (; found[at] && found[at] == expected[at]; at++)
        if (found[at] == '\n')
            line = at + 1;
    ck_assert_msg(found[at] == expected[at], "%.600s\nis not\n%.600s", found + line,
                  expected + line);
}

START_TEST(everything_that_files_can_be_is_kept)
{
    const char *id = running_from(NULL), *snapshot = snapshot_id(), *copy;

    ck_prints(id, MAKE_ODD, "made\n");
    auto_outcome struct outcome before = fixture_run(id, TELL, 20000);
    ck_assert_int_eq(before.result.exit_code, 0);
    /* So that what is compared is there. */
    ck_assert_ptr_nonnull(strstr(outcome_text(&before), " 104755 65533:1004 "));
    ck_assert_ptr_nonnull(strstr(outcome_text(&before), " 4102444800.999999999 "));
    ck_assert_ptr_nonnull(strstr(outcome_text(&before), " sparse "));
    ck_assert_ptr_nonnull(strstr(outcome_text(&before), " links 3 number "));
    struct snapshot_entry made = make(id, snapshot);
    ck_assert_str_eq(made.snapshot, snapshot);
    ck_assert_str_eq(made.sandbox, id);
    ck_assert(!made.damaged);
    ck_assert_int_gt(made.entries, 280);
    ck_assert_int_gt(made.content_bytes, MEGABYTE);
    ck_assert_int_ge(made.size_bytes, made.content_bytes);
    ck_assert_int_lt(made.size_bytes, 4 * MEGABYTE); /* holes take no room */
    ck_assert_int_eq(made.disk_bytes, DISK_BYTES);
    copy = running_from(snapshot);
    ck_same_tree(copy, outcome_text(&before));
    /* Also on a disk of another size, which can be no clone. */
    const char *larger = fixture_id();
    struct create create = {.sandbox = larger, .disk_bytes = 96 * MEGABYTE, .snapshot = snapshot};
    struct start start = fixture_start(larger);
    ck_done(sandbox_create_sized(fixture_connect(), &create, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_same_tree(larger, outcome_text(&before));
    fixture_destroy(larger);
    /* It stands on its own feet, in the limits of the first. */
    fixture_destroy(id);
    remove_snapshot(snapshot);
    ck_same_tree(copy, outcome_text(&before));
    fixture_destroy(copy);
    ck_assert(store_is_empty());
    ck_assert(nothing_is_left());
}
END_TEST

START_TEST(one_that_is_stopped_or_never_ran_can_be_copied)
{
    const char *id = fixture_id(), *empty = snapshot_id(), *full = snapshot_id(), *copy;
    struct start start = fixture_start(id);
    struct snapshot_entry made;

    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    made = make(id, empty);
    ck_entries(&made, 0);
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(id, "echo text >/workspace/f; echo ok", "ok\n");
    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    made = make(id, full);
    ck_entries(&made, 1);
    /* Back to what it was: the same id, from the snapshot. */
    fixture_destroy(id);
    struct create create = {.sandbox = id, .snapshot = full};
    ck_done(sandbox_create_sized(fixture_connect(), &create, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(id, "cat /workspace/f", "text\n");
    copy = running_from(empty);
    ck_prints(copy, "ls -A /workspace", "");
    ck_assert_int_eq((int)count_of_snapshots(id), 2);
    ck_assert_int_eq((int)count_of_snapshots(copy), 0);
    ck_assert_int_eq((int)count_of_snapshots(NULL), 2);
    fixture_destroy(id);
    fixture_destroy(copy);
    ck_assert_int_eq((int)count_of_snapshots(id), 2); /* it is only a name */
    remove_snapshot(empty);
    remove_snapshot(full);
    remove_snapshot(full);
    ck_assert_int_eq((int)count_of_snapshots(NULL), 0);
}
END_TEST

/* While it is copied nothing runs, so the second file is never ahead of the first, nor two behind.
 */
START_TEST(a_snapshot_of_what_runs_is_of_one_moment)
{
    const char *id = running_from(NULL);

    ck_prints(id,
              "cd /workspace; for i in $(seq 1 400); do echo $i >many$i; done; "
              "(i=0; while [ ! -e end ]; do i=$((i + 1)); echo $i >n; mv n a; "
              "echo $i >n; mv n z; done) >/dev/null 2>&1 & sleep 0.2; echo ok",
              "ok\n");
    for (int i = 0; i < 8; i++) {
        const char *snapshot = snapshot_id(), *copy;

        make(id, snapshot);
        copy = running_from(snapshot);
        ck_prints(copy,
                  "cd /workspace; a=$(cat a); z=$(cat z); [ $a = $z ] || [ $a = $((z + 1)) ] && "
                  "echo consistent || echo $a $z",
                  "consistent\n");
        fixture_destroy(copy);
        remove_snapshot(snapshot);
    }
    /* It still runs. */
    ck_prints(id, "cd /workspace; a=$(cat a); sleep 0.3; [ $(cat a) -gt $a ] && echo on; touch end",
              "on\n");
    fixture_destroy(id);
}
END_TEST

static void flip(const char *snapshot, const char *file, long at)
{
    char path[256];
    struct stat status;
    unsigned char byte;

    snprintf(path, sizeof(path), "%s/state/snapshots/%s/%s", fixture_root, snapshot, file);
    auto_close int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    if (at < 0)
        at += (long)lseek(fd, 0, SEEK_END);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x40;
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    /* A second time, all is as it was. */
    ck_assert_int_eq(futimens(fd, (struct timespec[]){status.st_atim, status.st_mtim}), 0);
}

START_TEST(a_damaged_one_is_refused)
{
    static const long places[] = {0,     3,      8,   12,  20,  28,   36,   44,    52,
                                  60,    70,     100, 150, 333, 1000, 3000, 10000, 30000,
                                  50000, 100000, -90, -70, -60, -30,  -10,  -1};
    const char *id = running_from(NULL), *snapshot = snapshot_id(), *copy;
    auto_arena struct arena arena = {0};
    const char *content = now->content ? now->content : "pack";
    struct snapshot_entry *entries;
    size_t count;

    ck_prints(id, MAKE_ODD, "made\n");
    make(id, snapshot);
    for (size_t i = 0; i < COUNT(places); i++) {
        flip(snapshot, content, places[i]);
        ck_refused(refused_create(snapshot, 0, 0), ERR_CONFLICT);
        ck_assert_ptr_nonnull(strstr(fixture_error.message, "damaged"));
        flip(snapshot, content, places[i]);
    }
    ck_assert(nothing_is_half_made());
    /* Whole again, it works. */
    copy = running_from(snapshot);
    fixture_destroy(copy);
    flip(snapshot, "manifest", 60);
    ck_refused(refused_create(snapshot, 0, 0), ERR_CONFLICT);
    ck_done(
        sandbox_snapshot_list(fixture_connect(), NULL, &arena, &entries, &count, &fixture_error));
    ck_assert_int_eq((int)count, 1);
    ck_assert(entries[0].damaged);
    ck_assert_str_eq(entries[0].snapshot, snapshot);
    flip(snapshot, "manifest", 60);
    ck_assert_int_eq(
        fixture_shell("truncate -s -1 %s/state/snapshots/%s/%s", fixture_root, snapshot, content),
        0);
    ck_refused(refused_create(snapshot, 0, 0), ERR_CONFLICT);
    ck_assert_int_eq(fixture_shell("rm %s/state/snapshots/%s/%s", fixture_root, snapshot, content),
                     0);
    ck_refused(refused_create(snapshot, 0, 0), ERR_CONFLICT);
    remove_snapshot(snapshot);
    fixture_destroy(id);
    ck_soon(nothing_is_left() && store_is_empty(), 5000);
}
END_TEST

START_TEST(what_is_not_there_or_there_already_is_refused)
{
    const char *id = running_from(NULL), *snapshot = snapshot_id();

    ck_refused(refused_create(snapshot, 0, 0), ERR_NOT_FOUND);
    ck_refused(sandbox_snapshot_make(fixture_connect(), fixture_id(), snapshot, NULL, NULL,
                                     &fixture_error),
               ERR_NOT_FOUND);
    make(id, snapshot);
    ck_refused(sandbox_snapshot_make(fixture_connect(), id, snapshot, NULL, NULL, &fixture_error),
               ERR_CONFLICT);
    struct create create = {.sandbox = id, .snapshot = snapshot};
    ck_refused(sandbox_create_sized(fixture_connect(), &create, &fixture_error), ERR_CONFLICT);
    ck_refused(sandbox_snapshot_remove(fixture_connect(), "../../etc", &fixture_error),
               ERR_BAD_REQUEST);
    remove_snapshot(snapshot);
    fixture_destroy(id);
}
END_TEST

START_TEST(a_disk_that_is_too_small_takes_none)
{
    const char *id = running_from(NULL), *snapshot = snapshot_id();

    ck_prints(id,
              "cd /workspace; head -c 30000000 /dev/zero | tr '\\0' x >f; "
              "mkdir m; cd m; for i in $(seq 1 900); do echo x >$i; done; echo ok",
              "ok\n");
    make(id, snapshot);
    ck_refused(refused_create(snapshot, 20 * MEGABYTE, 0), ERR_TOO_LARGE);
    if (now->files)
        ck_refused(refused_create(snapshot, 0, 512), ERR_TOO_LARGE);
    ck_assert(nothing_is_half_made());
    fixture_destroy(id);
    ck_soon(nothing_is_left(), 5000);
    remove_snapshot(snapshot);
}
END_TEST

START_TEST(the_store_has_a_bound)
{
    const char *id, *snapshot = snapshot_id();

    fixture_stop_supervisor(SIGTERM);
    setenv("SNAPSHOTS_TOTAL_MB", "5", 1);
    ck_assert(fixture_start_supervisor());
    id = running_from(NULL);
    ck_prints(id, "head -c 3000000 /dev/zero | tr '\\0' x >/workspace/f; echo ok", "ok\n");
    make(id, snapshot);
    ck_refused(
        sandbox_snapshot_make(fixture_connect(), id, snapshot_id(), NULL, NULL, &fixture_error),
        ERR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(fixture_error.message, "SNAPSHOTS_TOTAL_MB"));
    ck_soon(fixture_shell("test $(ls -A %s/state/snapshots | wc -l) = 1", fixture_root) == 0, 5000);
    /* Also the next supervisor knows. */
    fixture_stop_supervisor(SIGKILL);
    ck_assert(fixture_start_supervisor());
    ck_refused(
        sandbox_snapshot_make(fixture_connect(), id, snapshot_id(), NULL, NULL, &fixture_error),
        ERR_UNAVAILABLE);
    remove_snapshot(snapshot);
    make(id, snapshot);
    remove_snapshot(snapshot);
    fixture_destroy(id);
    fixture_stop_supervisor(SIGTERM);
    unsetenv("SNAPSHOTS_TOTAL_MB");
    ck_assert(fixture_start_supervisor());
}
END_TEST

struct asker {
    const char *sandbox, *snapshot;
    int result;
    struct error error;
};

static void *ask(void *data)
{
    struct asker *asker = data;
    struct sandbox_link *link = sandbox_link_new(fixture_socket);

    asker->result =
        sandbox_snapshot_make(link, asker->sandbox, asker->snapshot, NULL, NULL, &asker->error);
    sandbox_link_free(link);
    return NULL;
}

/* What is there afterwards is whole, and what runs is not left frozen. */
START_TEST(a_kill_in_the_middle_leaves_nothing_half_made)
{
    const char *id = running_from(NULL);
    int whole = 0;

    ck_prints(id,
              "cd /workspace; head -c 40000000 /dev/zero | tr '\\0' x >f; "
              "for i in $(seq 1 500); do echo x >$i; done; echo ok",
              "ok\n");
    for (int i = 0; i < 12; i++) {
        struct asker asker = {.sandbox = id, .snapshot = snapshot_id()};
        pthread_t thread;

        ck_assert_int_eq(pthread_create(&thread, NULL, ask, &asker), 0);
        usleep((useconds_t)(1000 + i * i * 1500));
        fixture_stop_supervisor(SIGKILL);
        pthread_join(thread, NULL);
        ck_assert(fixture_start_supervisor());
        ck_assert_int_eq(
            fixture_shell("ls -A %s/state/snapshots | grep -q '^[.]'", fixture_root) == 0, 0);
        ck_prints(id, "cat /workspace/7", "x\n");
        if (count_of_snapshots(NULL) == 0)
            continue;
        fixture_destroy(running_from(asker.snapshot));
        remove_snapshot(asker.snapshot);
        whole++;
    }
    ck_assert_int_lt(whole, 12);
    fixture_destroy(id);
    ck_soon(nothing_is_left() && store_is_empty(), 5000);
}
END_TEST

static void *restore(void *data)
{
    struct asker *asker = data;
    struct sandbox_link *link = sandbox_link_new(fixture_socket);
    struct create create = {.sandbox = asker->sandbox, .snapshot = asker->snapshot};

    asker->result = sandbox_create_sized(link, &create, &asker->error);
    sandbox_link_free(link);
    return NULL;
}

START_TEST(a_kill_in_the_middle_of_a_restore_neither)
{
    const char *id = running_from(NULL), *snapshot = snapshot_id();

    ck_prints(id, "cd /workspace; head -c 40000000 /dev/zero | tr '\\0' x >f; echo ok", "ok\n");
    make(id, snapshot);
    fixture_destroy(id);
    for (int i = 0; i < 8; i++) {
        struct asker asker = {.sandbox = fixture_id(), .snapshot = snapshot};
        struct start start = fixture_start(asker.sandbox);
        pthread_t thread;

        ck_assert_int_eq(pthread_create(&thread, NULL, restore, &asker), 0);
        usleep((useconds_t)(1000 + i * i * 1500));
        fixture_stop_supervisor(SIGKILL);
        pthread_join(thread, NULL);
        ck_assert(fixture_start_supervisor());
        if (sandbox_start(fixture_connect(), &start, &fixture_error) == 0)
            ck_prints(asker.sandbox, "wc -c </workspace/f", "40000000\n");
        else
            ck_assert_int_eq(fixture_error.kind, ERR_NOT_FOUND);
        fixture_destroy(asker.sandbox);
        ck_soon(nothing_is_left(), 5000);
    }
    remove_snapshot(snapshot);
}
END_TEST

START_TEST(who_is_copied_can_be_asked_to_go)
{
    const char *id = running_from(NULL);
    struct asker asker = {.sandbox = id, .snapshot = snapshot_id()};
    pthread_t thread;

    ck_prints(id, "head -c 40000000 /dev/zero | tr '\\0' x >/workspace/f; echo ok", "ok\n");
    ck_assert_int_eq(pthread_create(&thread, NULL, ask, &asker), 0);
    ck_soon(!store_is_empty(), 5000);
    fixture_destroy(id);
    pthread_join(thread, NULL);
    ck_assert_msg(asker.result == 0, "%s", asker.error.message);
    id = running_from(asker.snapshot);
    ck_prints(id, "wc -c </workspace/f", "40000000\n");
    fixture_destroy(id);
    remove_snapshot(asker.snapshot);
}
END_TEST

START_TEST(folders_as_deep_as_they_like_are_kept)
{
    const char *id = running_from(NULL), *snapshot = snapshot_id(), *again = snapshot_id(), *copy;
    struct snapshot_entry made;

    ck_prints(id, "cd /workspace && /treeprobe deep 2000 && echo made", "made\n");
    made = make(id, snapshot);
    ck_entries(&made, DEPTH + 1);
    copy = running_from(snapshot);
    made = make(copy, again);
    ck_entries(&made, DEPTH + 1);
    fixture_destroy(id);
    fixture_destroy(copy);
    remove_snapshot(snapshot);
    remove_snapshot(again);
    ck_soon(nothing_is_left() && store_is_empty(), 5000);
}
END_TEST

static Suite *suite_of(const struct disk_round *round)
{
    Suite *suite = suite_create(round->name);
    TCase *tests = tcase_create("snapshots");

    now = round;
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, everything_that_files_can_be_is_kept);
    tcase_add_test(tests, one_that_is_stopped_or_never_ran_can_be_copied);
    tcase_add_test(tests, a_snapshot_of_what_runs_is_of_one_moment);
    tcase_add_test(tests, a_damaged_one_is_refused);
    tcase_add_test(tests, what_is_not_there_or_there_already_is_refused);
    if (round->limits)
        tcase_add_test(tests, a_disk_that_is_too_small_takes_none);
    tcase_add_test(tests, the_store_has_a_bound);
    tcase_add_test(tests, a_kill_in_the_middle_leaves_nothing_half_made);
    tcase_add_test(tests, a_kill_in_the_middle_of_a_restore_neither);
    tcase_add_test(tests, who_is_copied_can_be_asked_to_go);
    tcase_add_test(tests, folders_as_deep_as_they_like_are_kept);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return disk_rounds_run(suite_of);
}
