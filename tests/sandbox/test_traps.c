/* What a tenant leaves in its files, brings in its image, or names as a place: nobody steps out of
 * the sandbox by it, and nobody waits. */
#include "tests/sandbox/fixture.h"

enum { AT_ONCE_MS = 2000, RACE_ROUNDS = 10000 };

static char canary[128]; /* a folder of the host, with a file of its name */

static void canary_make(void)
{
    snprintf(canary, sizeof(canary), "%s/canary", fixture_root);
    ck_assert_int_eq(fixture_shell("rm -rf %s && mkdir -p %s && echo untouched >%s/file", canary,
                                   canary, canary),
                     0);
}

static void canary_lives(void)
{
    ck_assert_int_eq(
        fixture_shell("test \"$(ls -A %s)\" = file && grep -qx untouched %s/file", canary, canary),
        0);
}

static struct outcome run(const char *id, const char **argv, size_t argc)
{
    struct outcome outcome = {0};
    struct exec exec = fixture_exec(id, argv, argc, 60000);
    char told[160];
    const char *environment[] = {"PATH=/bin", told};

    snprintf(told, sizeof(told), "BATTERY_CANARY=%.128s", canary);
    exec.environment = (struct texts){environment, COUNT(environment)};
    ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                         &outcome.result, &fixture_error));
    return outcome;
}

/* --- files ----------------------------------------------------------------------------------- */

static int put(const char *id, const char *path)
{
    auto_close int fd = -1;

    if (sandbox_file_create(fixture_connect(), id, path, 0644, &fd, &fixture_error) < 0)
        return -1;
    ck_assert_int_eq(write(fd, "written", 7), 7);
    return sandbox_file_commit(fixture_connect(), id, &fixture_error);
}

/* What is opened is a regular file, at once, and not one of the host. */
static int get(const char *id, const char *path)
{
    struct file_info info;
    struct stat status;
    char bytes[64] = "";
    auto_close int fd = -1;

    if (sandbox_file_open(fixture_connect(), id, path, &info, &fd, &fixture_error) < 0)
        return -1;
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_msg(S_ISREG(status.st_mode), "%s: mode %o", path, status.st_mode);
    ck_assert_int_ge(pread(fd, bytes, sizeof(bytes) - 1, 0), 0);
    ck_assert_msg(!strstr(bytes, "untouched") && !strstr(bytes, "root:"), "%s: %s", path, bytes);
    return 0;
}

static int list(const char *id, const char *path)
{
    auto_arena struct arena arena = {0};
    struct file_entry *entries;
    size_t count;

    if (sandbox_file_list(fixture_connect(), id, path, &arena, &entries, &count, &fixture_error) <
        0)
        return -1;
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(strcmp(entries[i].name, "file") != 0, "%s shows the host", path);
    return 0;
}

static int make(const char *id, const char *path)
{
    return sandbox_directory_make(fixture_connect(), id, path, &fixture_error);
}

static int drop(const char *id, const char *path)
{
    return sandbox_file_remove(fixture_connect(), id, path, true, &fixture_error);
}

static int (*const operations[])(const char *id, const char *path) = {list, get, make, put, drop};
/* Of the trap, and of what may be behind it. */
static const char *const endings[] = {"", "/file", "/new/file", "/etc/passwd", "/..", "/../file"};

/* An answer, whichever, in time. */
static void step_into(const char *id, const char *trap)
{
    for (size_t ending = COUNT(endings); ending-- > 0;)
        for (size_t i = 0; i < COUNT(operations); i++) {
            char path[1024];
            int64_t begin = fixture_now_ms();

            snprintf(path, sizeof(path), "%s%s", trap, endings[ending]);
            if (operations[i](id, path) < 0)
                ck_assert_msg(fixture_error.kind != ERR_INTERNAL &&
                                  fixture_error.kind != ERR_UNAVAILABLE &&
                                  fixture_error.kind != ERR_TIMEOUT,
                              "%zu of %s: %s", i, path, fixture_error.message);
            ck_assert_msg(fixture_now_ms() - begin < AT_ONCE_MS, "%zu of %s", i, path);
        }
}

START_TEST(traps_catch_nobody)
{
    const char *id = fixture_running(), *argv[] = {"/battery", "--traps"};
    int64_t begin;

    canary_make();
    auto_outcome struct outcome outcome = run(id, argv, 2);
    ck_assert_msg(outcome.result.exit_code == 0, "%s", outcome_text(&outcome));
    for (size_t at = 0; at < outcome.out.bytes.length;
         at += strlen(outcome.out.bytes.data + at) + 1)
        step_into(id, outcome.out.bytes.data + at);
    canary_lives();
    ck_prints(id, "echo lives; id -u", "lives\n0\n");
    begin = fixture_now_ms();
    fixture_destroy(id);
    ck_assert_int_lt(fixture_now_ms() - begin, 5000);
}
END_TEST

/* With all of it still there; and all of it read while nothing runs. */
START_TEST(traps_hold_nobody_up)
{
    const char *id = fixture_running(), *argv[] = {"/battery", "--traps"};
    int64_t begin;

    canary_make();
    outcome_done(&(struct outcome[]){run(id, argv, 2)}[0]);
    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    ck_done(list(id, "."));
    ck_assert_int_eq(get(id, "canary_link/file"), -1);
    begin = fixture_now_ms();
    fixture_destroy(id);
    ck_assert_int_lt(fixture_now_ms() - begin, 5000);
    canary_lives();
}
END_TEST

/* As fast as the kernel can: a folder and a link to the canary change places. */
START_TEST(a_race_is_lost_ten_thousand_times)
{
    const char *id = fixture_running();
    char command[512];
    int done = 0;

    canary_make();
    snprintf(command, sizeof(command),
             "mkdir real; ln -s ../../../../../../../../../../..%s link; "
             "ln -s %s absolute; mkdir other; "
             "/battery --exchange real link >/dev/null 2>&1 & "
             "/battery --exchange other absolute >/dev/null 2>&1 &",
             canary, canary);
    outcome_done(&(struct outcome[]){fixture_run(id, command, 5000)}[0]);
    for (int round = 0; round < RACE_ROUNDS; round++) {
        const char *where = round % 2 ? "real" : "other";
        char path[64];

        snprintf(path, sizeof(path), "%s/%s", where, round % 16 < 8 ? "file" : "sub/file");
        done += operations[(size_t)round / 2 % COUNT(operations)](id, path) == 0;
    }
    ck_assert_int_gt(done, RACE_ROUNDS / 100);
    canary_lives();
    fixture_destroy(id);
}
END_TEST

/* --- images ---------------------------------------------------------------------------------- */

/* Where something is mounted or written during a start. */
static const char *const places[] = {
    "dev", "dev/null",  "dev/pts", "dev/shm",         "dev/ptmx",  "proc",         "proc/sys",
    "sys", "workspace", "etc",     "etc/resolv.conf", "etc/hosts", "etc/hostname", "tmp",
    "run", "var/run",   "root"};
/* What is there instead; %s is the canary. */
static const char *const instead[] = {
    "ln -s %s",         "ln -s ../../../../../../../../../../../../..%s",
    "ln -s /",          "ln -s /proc/1/root%s",
    "ln -s /oldroot%s", "mkfifo",
    "echo x >"};

START_TEST(an_image_full_of_traps_is_refused_or_started_well)
{
    const char *place = places[(size_t)_i / COUNT(instead)];
    const char *how = instead[(size_t)_i % COUNT(instead)];
    const char *id = fixture_id(), *argv[] = {"/battery", "fs."};
    struct start start = fixture_start(id);
    char name[32], command[512];

    canary_make();
    snprintf(name, sizeof(name), "evil-%d", _i);
    snprintf(command, sizeof(command), how, canary);
    ck_assert_int_eq(
        fixture_shell("i=%s/images/%s; rm -rf $i $i.new; mkdir -p $i.new/etc "
                      "$i.new/dev $i.new/proc $i.new/var $i.new/bin && echo "
                      "root:x:0:0::/:/bin/sh >$i.new/etc/passwd && cp %s/images/base/battery "
                      "$i.new/ && rm -rf $i.new/%s && %s $i.new/%s && mv $i.new $i",
                      fixture_root, name, fixture_root, place, command, place),
        0);
    start.image = name;
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    if (sandbox_start(fixture_connect(), &start, &fixture_error) == 0) {
        auto_outcome struct outcome outcome = run(id, argv, 2);

        ck_assert_msg(outcome.result.exit_code == 0, "%s %s: %s", command, place,
                      outcome_text(&outcome));
    } else {
        ck_assert_msg(fixture_error.kind != ERR_TIMEOUT, "%s %s: %s", command, place,
                      fixture_error.message);
        if (getenv("SANDBOX_TEST_LOG"))
            printf("%s %s: %s\n", command, place, fixture_error.message);
    }
    canary_lives();
    fixture_destroy(id);
    fixture_shell("rm -rf %s/images/%s", fixture_root, name);
}
END_TEST

/* Nodes of the machine's disk and memory, as anybody's, and a program of root's that is not one. */
START_TEST(nodes_and_set_id_programs_of_an_image_are_dead)
{
    const char *id;

    ck_assert_int_eq(fixture_shell("cd %s/images/base && rm -f disk memory null root-shell && "
                                   "mknod -m 666 disk b $(stat -c '%%Hd %%Ld' %s) && mknod -m 666 "
                                   "memory c 1 1 && mknod -m 666 null c 1 3 && cp battery "
                                   "root-shell && chmod 6755 root-shell",
                                   fixture_root, fixture_root),
                     0);
    id = fixture_running();
    ck_prints(id,
              "for node in disk memory null; do test -b /$node -o -c /$node && (: </$node || : "
              ">/$node || : <>/$node) 2>/dev/null && echo $node; done; dd if=/root-shell "
              "of=/tmp/root-shell 2>/dev/null && "
              "chmod 6755 /tmp/root-shell; echo done",
              "done\n");
    for (int place = 0; place < 2; place++) {
        const char *argv[] = {place ? "/tmp/root-shell" : "/root-shell", "--is-root"};
        struct exec exec = fixture_exec(id, argv, 2, 5000);
        auto_outcome struct outcome outcome = {0};

        exec.uid = 1000;
        ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                             &outcome.result, &fixture_error));
        ck_assert_int_eq(outcome.result.exit_code, 0);
    }
    fixture_destroy(id);
    fixture_shell("cd %s/images/base && rm -f disk memory null root-shell", fixture_root);
}
END_TEST

/* --- directories ----------------------------------------------------------------------------- */

/* Where a command may be asked to begin, and whether it may. */
static const struct {
    const char *path;
    bool inside;
} directories[] = {
    {"/proc/self/fd/0", false},
    {"/proc/self/fd/3", false},
    {"/proc/self/fd/7", false},
    {"/proc/self/fd/9/..", false},
    {"/proc/1/root", false},
    {"/proc/1/cwd", false},
    {"/proc/self/root", false},
    {"/proc/self/cwd", false},
    {"/proc/thread-self/root", false},
    {"/proc/1/fd/3", false},
    {"/proc/1/task/1/root", false},
    {"/workspace/seven", false},
    {"/workspace/root", false},
    {"/workspace/own", false},
    {"/workspace/via/root", false},
    {"/workspace/loop", false},
    {"/workspace/locked", true},
    {"/workspace/../../..", true},
    {"/workspace/up", true},
    {"/", true},
    {"/proc/self", true},
    {"/sys/fs/cgroup", true},
};

START_TEST(a_command_begins_inside)
{
    const char *id = fixture_running(), *argv[] = {"/battery", "fs.cwd_inside_root"};

    ck_prints(id,
              "ln -s /proc/self/fd/7 seven; ln -s /proc/1/root root; ln -s /proc/self/root own; ln "
              "-s /proc/1 via; ln -s loop loop; mkdir -m 0 locked; ln -s ../../.. up",
              "");
    for (size_t i = 0; i < COUNT(directories); i++)
        for (int64_t uid = 0; uid <= 1000; uid += 1000) {
            struct exec exec = fixture_exec(id, argv, 2, 5000);
            auto_outcome struct outcome outcome = {0};
            bool may = directories[i].inside &&
                       (uid == 0 || strcmp(directories[i].path, "/workspace/locked") != 0);

            exec.directory = directories[i].path;
            exec.uid = uid;
            ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                                 &outcome.result, &fixture_error));
            ck_assert_msg(outcome.result.exit_code == (may ? 0 : 126), "%s as %ld: %ld, %s",
                          directories[i].path, (long)uid, (long)outcome.result.exit_code,
                          outcome_text(&outcome));
        }
    fixture_destroy(id);
}
END_TEST

/* --- who looks on ---------------------------------------------------------------------------- */

/* Whatever starts beside a tenant that looks at every descriptor of everybody, all the time. */
START_TEST(who_looks_on_gets_hold_of_nothing)
{
    const char *id = fixture_running(), *argv[] = {"/battery", "--true"};

    ck_prints(id, "for how in look trace; do /battery --$how >>/tmp/seen 2>&1 & done; echo watched",
              "watched\n");
    for (int round = 0; round < 1000; round++) {
        struct exec exec = fixture_exec(id, argv, 2, 20000);
        auto_outcome struct outcome outcome = {0};

        exec.uid = round % 2 ? 1000 : 0;
        ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                             &outcome.result, &fixture_error));
        ck_assert_int_eq(outcome.result.exit_code, 0);
    }
    ck_prints(id, "cat /tmp/seen", "");
    ck_prints(id,
              "for f in looked traced; do while read n; do test $n -lt 500 || break; done "
              "</tmp/$f; test $n -ge 500 && echo $f; done",
              "looked\ntraced\n");
    fixture_destroy(id);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("traps");
    TCase *tests = tcase_create("traps");

    tcase_set_timeout(tests, 180);
    tcase_add_test(tests, traps_catch_nobody);
    tcase_add_test(tests, traps_hold_nobody_up);
    tcase_add_test(tests, a_race_is_lost_ten_thousand_times);
    tcase_add_loop_test(tests, an_image_full_of_traps_is_refused_or_started_well, 0,
                        (int)(COUNT(places) * COUNT(instead)));
    tcase_add_test(tests, nodes_and_set_id_programs_of_an_image_are_dead);
    tcase_add_test(tests, a_command_begins_inside);
    tcase_add_test(tests, who_looks_on_gets_hold_of_nothing);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
