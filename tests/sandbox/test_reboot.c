/* An orderly end, a reboot and a loss of power keep every workspace, byte for byte, and leave
 * states that are true. */
#include "tests/sandbox/fixture.h"

enum { TEXT = 64 * 1024 };

/* Modes, owners, kinds, links, holes, times and odd names: what a copy would lose. */
static const char fill[] =
    "set -e; mkdir -p d/e && chmod 1777 d && chmod 0700 d/e; echo text >d/file; chmod 4751 d/file; "
    "ln d/file d/hard; ln -s ../../../etc/passwd d/e/link; mkfifo d/fifo; chown 1000:2000 d/hard; "
    "dd if=/dev/zero of=sparse bs=1 count=1 seek=50000000 2>/dev/null; "
    "echo x >'odd\n name'; echo y >\"$(printf '\\377\\001')\"; touch -d 2001-02-03T04:05:06 d/e; "
    "i=0; while [ $i -lt 200 ]; do echo $i >d/$i; i=$((i+1)); done";
static const char look[] =
    "ls -lAnR --full-time . | grep -av '^total'; cat d/file d/[0-9]* odd*; readlink d/e/link";

static int64_t state_of(const char *id)
{
    auto_arena struct arena arena = {0};
    struct sandbox_status status;

    ck_done(sandbox_status(fixture_connect(), id, &arena, &status, &fixture_error));
    return status.state;
}

/* What is in the workspace of a sandbox that runs; the caller frees it. */
static char *contents(const char *id)
{
    auto_outcome struct outcome outcome = fixture_run(id, look, 20000);

    ck_assert_msg(outcome.result.exit_code == 0, "%s", outcome.errors.bytes.data);
    ck_assert_uint_gt(strlen(outcome_text(&outcome)), 5000);
    return strdup(outcome_text(&outcome));
}

static const char *filled(void)
{
    const char *id = fixture_running();

    ck_prints(id, fill, "");
    return id;
}

static void start_again(const char *id)
{
    struct start start = fixture_start(id);

    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
}

/* Tells the first line that differs; all of them would be too long. */
static void ck_kept(const char *id, const char *before)
{
    auto_free char *after = contents(id);
    size_t line = 0, at = 0;

    for (; before[at] && before[at] == after[at]; at++)
        if (before[at] == '\n')
            line = at + 1;
    ck_assert_msg(before[at] == after[at], "before: %.200s\nafter: %.200s", before + line,
                  after + line);
}

__attribute__((format(printf, 1, 2))) static int number_from(const char *format, ...)
{
    char command[1024], text[64] = "";
    va_list values;

    va_start(values, format);
    vsnprintf(command, sizeof(command), format, values);
    va_end(values);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    if (!fgets(text, sizeof(text), pipe))
        text[0] = '\0';
    pclose(pipe);
    return atoi(text);
}

/* How many names have a cgroup, wherever. */
static int cgroups_left(void)
{
    return number_from("test ! -e %s/state/cgroups || cut -d' ' -f3 %s/state/cgroups | "
                       "while read d; do find $d -mindepth 1 -type d -printf '%%f\\n'; done | "
                       "sort -u | wc -l",
                       fixture_root, fixture_root);
}

/* --- told to end ------------------------------------------------------------------------------ */

static const char *const on_exit_values[] = {"0", "1"};

START_TEST(an_orderly_end_keeps_every_workspace)
{
    bool stops = on_exit_values[_i][0] == '1';
    const char *running, *stopped, *created = fixture_id();

    fixture_stop_supervisor(SIGTERM);
    setenv("STOP_ON_EXIT", on_exit_values[_i], 1);
    ck_assert(fixture_start_supervisor());
    running = filled();
    stopped = filled();
    auto_free char *first = contents(running);
    auto_free char *second = contents(stopped);
    ck_prints(running, "(sleep 1414.1 >/dev/null 2>&1 &); echo gone >/root/file; echo ok", "ok\n");
    ck_done(sandbox_stop(fixture_connect(), stopped, &fixture_error));
    ck_done(sandbox_create(fixture_connect(), created, &fixture_error));
    fixture_stop_supervisor(SIGTERM);
    ck_assert_int_eq(fixture_count_processes("1414.1"), stops ? 0 : 1);
    if (stops)
        ck_assert_int_eq(cgroups_left(), 0);
    ck_assert(fixture_start_supervisor());
    ck_assert_int_eq(state_of(running), stops ? SANDBOX_STOPPED : SANDBOX_RUNNING);
    ck_assert_int_eq(state_of(stopped), SANDBOX_STOPPED);
    ck_assert_int_eq(state_of(created), SANDBOX_CREATED);
    if (stops)
        start_again(running);
    start_again(stopped);
    start_again(created);
    ck_kept(running, first);
    ck_kept(stopped, second);
    ck_prints(created, "ls -A", "");
    ck_prints(running, "cat /root/file 2>/dev/null || echo none", stops ? "none\n" : "gone\n");
    fixture_destroy(running);
    fixture_destroy(stopped);
    fixture_destroy(created);
    ck_assert_int_eq(fixture_count_processes("1414.1"), 0);
    ck_assert_int_eq(number_from("ls -A %s/state/sandboxes | wc -l", fixture_root), 0);
}
END_TEST

/* In the middle of starts, commands and stops. */
START_TEST(an_end_at_any_moment_stops_all_and_loses_nothing)
{
    const char *kept = filled();
    auto_free char *before = contents(kept);

    for (int round = 0; round < 6; round++) {
        auto_arena struct arena arena = {0};
        struct sandbox_entry *entries;
        size_t count;
        pid_t busy = fork();

        if (busy == 0) {
            fixture_link = sandbox_link_new(fixture_socket);
            for (;;) {
                const char *id = fixture_id();
                struct start start = fixture_start(id);
                const char *argv[] = {"/bin/sleep", "1515.1"};
                struct exec exec = fixture_exec(id, argv, 2, 60000);
                struct outcome outcome = {0};

                sandbox_create(fixture_link, id, &fixture_error);
                sandbox_start(fixture_link, &start, &fixture_error);
                if (round % 2)
                    sandbox_exec(fixture_link, &exec, KEEP, -1, &outcome.out, &outcome.errors,
                                 &outcome.result, &fixture_error);
                sandbox_stop(fixture_link, id, &fixture_error);
            }
        }
        usleep(15000 + (unsigned)(round * 7919 % 40) * 1000);
        fixture_stop_supervisor(SIGTERM);
        kill(busy, SIGKILL);
        waitpid(busy, NULL, 0);
        ck_assert_int_eq(fixture_count_processes("1515.1"), 0);
        ck_assert_int_eq(cgroups_left(), 0);
        ck_assert(fixture_start_supervisor());
        ck_done(sandbox_list(fixture_connect(), &arena, &entries, &count, &fixture_error));
        for (size_t i = 0; i < count; i++) {
            ck_assert_int_ne(entries[i].state, SANDBOX_RUNNING);
            if (strcmp(entries[i].sandbox, kept) != 0)
                ck_done(sandbox_destroy(fixture_connect(), entries[i].sandbox, &fixture_error));
        }
        start_again(kept);
        ck_kept(kept, before);
    }
    fixture_destroy(kept);
}
END_TEST

/* --- the machine goes away -------------------------------------------------------------------- */

/* As a power switch does: the supervisor first, then all that ran in sandboxes, and the cgroups are
 * those of another boot. */
static void lose_machine(const char *const ids[], size_t count)
{
    int inits[8];

    for (size_t i = 0; i < count; i++)
        inits[i] =
            number_from("sed -n 's/^pid //p' %s/state/sandboxes/%s/state", fixture_root, ids[i]);
    fixture_stop_supervisor(SIGKILL);
    for (size_t i = 0; i < count; i++)
        if (inits[i] > 1)
            kill(inits[i], SIGKILL);
    ck_soon(number_from("cut -d' ' -f3 %s/state/cgroups | while read d; do "
                        "find $d -depth -type d -exec rmdir {} + 2>/dev/null; test ! -d $d || "
                        "echo 1; done",
                        fixture_root) == 0,
            5000);
}

/* The state says that it ran, in another boot, as a process whose number somebody else has now. */
static pid_t take_its_number(const char *id)
{
    pid_t decoy = fork();

    if (decoy == 0) {
        execl("/bin/sleep", "sleep", "1616.1", (char *)NULL);
        _exit(127);
    }
    usleep(50000);
    ck_assert_int_eq(
        fixture_shell("f=%s/state/sandboxes/%s/state; grep -q '^state running$' $f && "
                      "start=$(cut -d' ' -f22 /proc/%d/stat) && "
                      "sed -i -e 's/^pid .*/pid %d/' -e \"s/^start .*/start $start/\" "
                      "-e 's/^system .*/system 11111111-2222-4333-8444-555555555555/' $f",
                      fixture_root, id, (int)decoy, (int)decoy),
        0);
    return decoy;
}

START_TEST(a_reboot_keeps_every_workspace)
{
    const char *ids[] = {filled(), filled(), filled()}, *created = fixture_id();
    char *before[COUNT(ids)];
    pid_t decoy;

    for (size_t i = 0; i < COUNT(ids); i++)
        before[i] = contents(ids[i]);
    ck_done(sandbox_create(fixture_connect(), created, &fixture_error));
    ck_done(sandbox_stop(fixture_connect(), ids[2], &fixture_error));
    ck_prints(ids[0], "(sleep 1616.2 >/dev/null 2>&1 &); echo ok", "ok\n");
    lose_machine(ids, 2);
    ck_soon(fixture_count_processes("1616.2") == 0, 3000);
    decoy = take_its_number(ids[0]);
    /* Half-made when the power went, and what a removal had left. */
    fixture_shell("mkdir -p %s/state/sandboxes/.half-made/ws && "
                  "touch %s/state/sandboxes/%s/state.new",
                  fixture_root, fixture_root, ids[1]);
    ck_assert(fixture_start_supervisor());
    for (size_t i = 0; i < COUNT(ids); i++)
        ck_soon(state_of(ids[i]) == SANDBOX_STOPPED, 3000);
    ck_assert_int_eq(state_of(created), SANDBOX_CREATED);
    /* Who has the number now was neither taken over nor killed. */
    ck_assert_int_eq(kill(decoy, 0), 0);
    ck_assert_int_eq(waitpid(decoy, NULL, WNOHANG), 0);
    for (size_t i = 0; i < COUNT(ids); i++) {
        start_again(ids[i]);
        ck_kept(ids[i], before[i]);
        ck_prints(ids[i], "ls -A /root/.x 2>/dev/null; echo usable", "usable\n");
        fixture_destroy(ids[i]);
        free(before[i]);
    }
    kill(decoy, SIGKILL);
    waitpid(decoy, NULL, 0);
    fixture_destroy(created);
    ck_assert_int_eq(number_from("ls -A %s/state/sandboxes | wc -l", fixture_root), 0);
    ck_assert_int_le(cgroups_left(), 1); /* made ahead for the next one */
}
END_TEST

/* What a file system leaves of a file that was not on the disk yet. */
static const char *const torn[] = {
    ": >state",
    "rm state",
    "printf 'state runn' >state",
    "printf '\\0\\0\\0\\0\\0\\0' >state",
    "printf 'state running\\nslot 999999\\nboot -\\npid -5\\ninode 0\\nstart 0\\nsystem x\\n' "
    ">state",
    "printf 'state running\\nslot -7\\nboot -\\npid 1\\ninode 0\\nstart 0\\nsystem x\\n' >state",
    "printf 'state flying\\nslot 0\\nboot -\\npid 0\\ninode 0\\nstart 0\\nsystem x\\n' >state",
};

START_TEST(a_torn_state_loses_no_workspace)
{
    const char *id = filled();
    auto_free char *before = contents(id);

    lose_machine(&id, 1);
    ck_assert_int_eq(fixture_shell("cd %s/state/sandboxes/%s && %s", fixture_root, id, torn[_i]),
                     0);
    ck_assert(fixture_start_supervisor());
    ck_soon(state_of(id) == SANDBOX_STOPPED, 3000);
    start_again(id);
    ck_kept(id, before);
    fixture_destroy(id);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reboot");
    TCase *tests = tcase_create("reboot");

    /* These replace the supervisor, so they all run in this process. */
    setenv("CK_FORK", "no", 1);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, an_orderly_end_keeps_every_workspace, 0, COUNT(on_exit_values));
    tcase_add_test(tests, an_end_at_any_moment_stops_all_and_loses_nothing);
    tcase_add_test(tests, a_reboot_keeps_every_workspace);
    tcase_add_loop_test(tests, a_torn_state_loses_no_workspace, 0, COUNT(torn));
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
