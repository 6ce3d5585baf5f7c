/* Files beneath a workspace: nothing leaves it, nothing hangs, whatever lies there. */
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/sandbox/fixture.h"

enum { CONTENT_MAX = 4096 };

static const char *id; /* of the test */

static void begin(void)
{
    id = fixture_running();
}

static void end(void)
{
    fixture_destroy(id);
}

static int put(const char *path, const char *content)
{
    auto_close int fd = -1;

    if (sandbox_file_create(fixture_connect(), id, path, 0644, &fd, &fixture_error) < 0)
        return -1;
    ck_assert_int_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    return sandbox_file_commit(fixture_connect(), id, &fixture_error);
}

static int get(const char *path, char content[CONTENT_MAX])
{
    struct file_info info;
    auto_close int fd = -1;
    ssize_t length;

    if (sandbox_file_open(fixture_connect(), id, path, &info, &fd, &fixture_error) < 0)
        return -1;
    length = read(fd, content, CONTENT_MAX - 1);
    ck_assert_int_ge(length, 0);
    content[length] = '\0';
    return 0;
}

static void shell(const char *command)
{
    ck_prints(id, command, "");
}

START_TEST(a_file_is_written_whole_and_read_on_both_sides)
{
    char content[CONTENT_MAX];
    struct file_info info;
    auto_close int fd = -1;

    ck_done(put("a/b/c.txt", "hello"));
    ck_done(get("a/b/c.txt", content));
    ck_assert_str_eq(content, "hello");
    ck_prints(id, "cat a/b/c.txt; stat -c ' %a %u %g' a/b/c.txt a a/b",
              "hello 644 0 0\n 755 0 0\n 755 0 0\n");
    ck_done(put("a/b/c.txt", "other"));
    ck_prints(id, "cat a/b/c.txt", "other");
    shell("echo -n inside > from-inside");
    ck_done(get("./from-inside", content));
    ck_assert_str_eq(content, "inside");
    ck_done(sandbox_file_open(fixture_connect(), id, "from-inside", &info, &fd, &fixture_error));
    ck_assert_int_eq(info.size, 6);
    ck_prints(id, "ls -A . a/b", ".:\na\nfrom-inside\n\na/b:\nc.txt\n");
}
END_TEST

START_TEST(a_file_that_is_not_committed_never_was)
{
    auto_close int fd = -1, next = -1;

    ck_done(sandbox_file_create(fixture_connect(), id, "x", 0644, &fd, &fixture_error));
    ck_assert_int_eq(write(fd, "x", 1), 1);
    ck_done(sandbox_file_create(fixture_connect(), id, "y", 0600, &next, &fixture_error));
    ck_done(sandbox_file_commit(fixture_connect(), id, &fixture_error));
    ck_refused(sandbox_file_commit(fixture_connect(), id, &fixture_error), ERR_CONFLICT);
    ck_prints(id, "ls -A; stat -c %a y", "y\n600\n");
}
END_TEST

static const struct {
    const char *path;
    enum error_kind kind;
} bad_paths[] = {
    {"/etc/passwd", ERR_BAD_REQUEST},
    {"../x", ERR_BAD_REQUEST},
    {"a/../../x", ERR_BAD_REQUEST},
    {"..", ERR_BAD_REQUEST},
    {"dir/..", ERR_BAD_REQUEST},
    {"absolute/etc/hosts", ERR_BAD_REQUEST},
    {"relative/etc/hosts", ERR_BAD_REQUEST},
    {"to-shadow", ERR_BAD_REQUEST},
    {"up", ERR_BAD_REQUEST},
    {"proc-root/etc/hosts", ERR_BAD_REQUEST},
    {"loop", ERR_BAD_REQUEST},
    {"fifo", ERR_BAD_REQUEST},
    {"dir", ERR_BAD_REQUEST},
    {".", ERR_BAD_REQUEST},
    {"missing", ERR_NOT_FOUND},
    {"file/below", ERR_NOT_FOUND},
    {"dangling", ERR_NOT_FOUND},
};

START_TEST(a_bad_path_is_refused_at_once)
{
    char content[CONTENT_MAX];
    int64_t before;

    shell("ln -s / absolute; ln -s ../../../../../.. relative; ln -s /etc/shadow to-shadow; ln -s "
          ".. up; ln -s /proc/self/root proc-root; "
          "ln -s loop loop; mkfifo fifo; mkdir dir; echo x > file; ln -s nowhere dangling");
    before = fixture_now_ms();
    ck_refused(get(bad_paths[_i].path, content), bad_paths[_i].kind);
    ck_assert_int_lt(fixture_now_ms() - before, 1000);
}
END_TEST

static const char *const bad_targets[] = {"/abs", "../x",        "absolute/x", "relative/tmp/x",
                                          "up/x", "proc-root/x", "loop/x",     "file/x",
                                          "dir",  ".",           "a/../b"};

START_TEST(nothing_is_written_outside)
{
    shell("ln -s / absolute; ln -s ../../../../../.. relative; ln -s .. up; ln -s /proc/self/root "
          "proc-root; ln -s loop loop; mkdir dir; echo x > file");
    ck_assert_int_eq(put(bad_targets[_i], "x"), -1);
    ck_assert_msg(fixture_error.kind == ERR_BAD_REQUEST || fixture_error.kind == ERR_NOT_FOUND,
                  "%s", fixture_error.message);
    ck_assert_int_eq(access("/x", F_OK), -1);
    ck_prints(id, "test ! -e /x && test ! -e /tmp/x && echo none", "none\n");
}
END_TEST

START_TEST(a_link_at_the_end_is_replaced_not_followed)
{
    shell("ln -s /etc/passwd link; echo target > t; ln -s t inside");
    ck_done(put("link", "mine"));
    ck_prints(id, "test ! -L link && cat link", "mine");
    ck_done(put("inside", "new"));
    ck_prints(id, "cat t", "target\n");
}
END_TEST

START_TEST(links_within_the_workspace_are_followed_for_reading)
{
    char content[CONTENT_MAX];

    shell("mkdir -p d/e; echo deep > d/e/f; ln -s d/e/f link; ln -s ../d d/e/up");
    ck_done(get("link", content));
    ck_assert_str_eq(content, "deep\n");
}
END_TEST

static struct file_entry *list(const char *path, struct arena *arena, size_t *count)
{
    struct file_entry *entries;

    ck_done(sandbox_file_list(fixture_connect(), id, path, arena, &entries, count, &fixture_error));
    return entries;
}

START_TEST(every_name_is_listed)
{
    auto_arena struct arena arena = {0};
    struct file_entry *entries;
    size_t count, seen = 0;

    shell("touch -- \"$(printf 'new\\nline')\" \"$(printf 'esc\\033')\" \"$(printf "
          "'bad\\377utf')\" ' ' '-rf'; mkdir .hidden; ln -s /etc link; "
          "mkfifo fifo; n=; i=0; while [ $i -lt 255 ]; do n=x$n; i=$((i+1)); done; touch $n; chmod "
          "640 ./-rf");
    entries = list(".", &arena, &count);
    ck_assert_uint_eq(count, 9);
    for (size_t i = 0; i < count; i++) {
        seen += strcmp(entries[i].name, "new\nline") == 0 && S_ISREG(entries[i].mode);
        seen += strcmp(entries[i].name, "bad\377utf") == 0;
        seen += strcmp(entries[i].name, "link") == 0 && S_ISLNK(entries[i].mode);
        seen += strcmp(entries[i].name, "fifo") == 0 && S_ISFIFO(entries[i].mode);
        seen += strcmp(entries[i].name, ".hidden") == 0 && S_ISDIR(entries[i].mode);
        seen += strcmp(entries[i].name, "-rf") == 0 && (entries[i].mode & 07777) == 0640;
        seen += strlen(entries[i].name) == 255;
        ck_assert_int_eq(entries[i].uid, 0);
    }
    ck_assert_uint_eq(seen, 7);
    entries = list("link", &arena, &count);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(entries[0].name, ".");
    ck_assert(S_ISLNK(entries[0].mode));
    ck_refused(sandbox_file_list(fixture_connect(), id, "missing", &arena, &entries, &count,
                                 &fixture_error),
               ERR_NOT_FOUND);
    entries = list(".hidden", &arena, &count);
    ck_assert_uint_eq(count, 0);
}
END_TEST

START_TEST(a_large_folder_is_listed)
{
    auto_arena struct arena arena = {0};
    size_t count;

    shell("mkdir many; cd many; seq 1 5000 | while read n; do : > file-with-a-rather-long-name-$n; "
          "done");
    list("many", &arena, &count);
    ck_assert_uint_eq(count, 5000);
}
END_TEST

START_TEST(removing_is_exact)
{
    struct sandbox_link *link = fixture_connect();

    shell("mkdir -p full/a/b empty locked/in; touch full/a/f locked/in/f keep; ln -s keep link; "
          "mkfifo fifo; chmod 000 locked/in locked; "
          "chown -R 1000:1000 locked 2>/dev/null; true");
    ck_refused(sandbox_file_remove(link, id, "full", false, &fixture_error), ERR_CONFLICT);
    ck_done(sandbox_file_remove(link, id, "empty", false, &fixture_error));
    ck_done(sandbox_file_remove(link, id, "full", true, &fixture_error));
    ck_done(sandbox_file_remove(link, id, "locked", true, &fixture_error));
    ck_done(sandbox_file_remove(link, id, "link", false, &fixture_error));
    ck_done(sandbox_file_remove(link, id, "fifo", true, &fixture_error));
    ck_refused(sandbox_file_remove(link, id, "missing", true, &fixture_error), ERR_NOT_FOUND);
    ck_refused(sandbox_file_remove(link, id, ".", true, &fixture_error), ERR_BAD_REQUEST);
    ck_refused(sandbox_file_remove(link, id, "../x", true, &fixture_error), ERR_BAD_REQUEST);
    ck_prints(id, "ls -A", "keep\n");
}
END_TEST

START_TEST(a_tree_of_any_depth_is_removed)
{
    int64_t before;

    shell("i=0; while [ $i -lt 2000 ]; do mkdir d && cd -P d || exit 1; touch f; i=$((i+1)); done");
    before = fixture_now_ms();
    ck_done(sandbox_file_remove(fixture_connect(), id, "d", true, &fixture_error));
    ck_assert_int_lt(fixture_now_ms() - before, 5000);
    ck_prints(id, "ls -A", "");
}
END_TEST

START_TEST(folders_are_made_with_their_parents)
{
    ck_done(sandbox_directory_make(fixture_connect(), id, "a/b/c", &fixture_error));
    ck_done(sandbox_directory_make(fixture_connect(), id, "a/b/c", &fixture_error));
    shell("touch file; ln -s / out");
    ck_refused(sandbox_directory_make(fixture_connect(), id, "file", &fixture_error),
               ERR_BAD_REQUEST);
    ck_refused(sandbox_directory_make(fixture_connect(), id, "file/x", &fixture_error),
               ERR_BAD_REQUEST);
    ck_refused(sandbox_directory_make(fixture_connect(), id, "out/x", &fixture_error),
               ERR_BAD_REQUEST);
    ck_refused(sandbox_directory_make(fixture_connect(), id, "../x", &fixture_error),
               ERR_BAD_REQUEST);
    ck_prints(id, "stat -c '%a %u' a/b/c", "755 0\n");
}
END_TEST

/* A tenant that exchanges a folder for a link to the outside as fast as it can, while files are
 * written and read through it. */
START_TEST(a_race_with_links_leads_nowhere)
{
    char canary[128], content[CONTENT_MAX];
    int64_t until;
    int written = 0;

    snprintf(canary, sizeof(canary), "%s/canary", fixture_root);
    ck_assert_int_eq(fixture_shell("mkdir -p %s && echo untouched > %s/file", canary, canary), 0);
    char command[512];
    snprintf(command, sizeof(command),
             "mkdir real; ln -s ../../../../../../../../..%s evil; (while :; do mv -T real d "
             "2>/dev/null; mv -T d real 2>/dev/null; mv -T evil d 2>/dev/null; "
             "mv -T d evil 2>/dev/null; done) >/dev/null 2>&1 &",
             canary);
    outcome_done(&(struct outcome[]){fixture_run(id, command, 5000)}[0]);
    for (until = fixture_now_ms() + 3000; fixture_now_ms() < until;) {
        written += put("d/file", "overwritten") == 0;
        if (get("d/file", content) == 0)
            ck_assert_str_ne(content, "untouched\n");
        sandbox_file_remove(fixture_connect(), id, "d/file", true, &fixture_error);
        sandbox_directory_make(fixture_connect(), id, "d/sub/sub", &fixture_error);
        sandbox_file_remove(fixture_connect(), id, "d/sub", true, &fixture_error);
    }
    ck_assert_int_gt(written, 0);
    ck_assert_int_eq(
        fixture_shell("test \"$(ls -A %s)\" = file && grep -qx untouched %s/file", canary, canary),
        0);
}
END_TEST

START_TEST(a_folder_that_comes_and_goes_is_a_conflict_at_most)
{
    int written = 0, refused = 0;

    outcome_done(&(struct outcome[]){
        fixture_run(id, "(while :; do mkdir -p d/e; rm -rf d; done) >/dev/null 2>&1 &", 5000)}[0]);
    for (int64_t until = fixture_now_ms() + 3000; fixture_now_ms() < until;) {
        if (put("d/e/f", "content") == 0)
            written++;
        else
            refused++,
                ck_assert_msg(fixture_error.kind == ERR_CONFLICT, "%s", fixture_error.message);
    }
    ck_assert_int_gt(written, 0);
    ck_assert_int_gt(refused, 0); /* or nothing was tried here */
}
END_TEST

START_TEST(a_stopped_sandbox_has_its_files)
{
    char content[CONTENT_MAX];
    auto_arena struct arena arena = {0};
    struct start start = fixture_start(id);
    struct file_entry entry;
    size_t count;

    ck_done(put("kept", "content"));
    shell("echo lost > /root/lost; mkdir /workspace/dir; chown 1000:1000 dir");
    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    ck_done(get("kept", content));
    ck_assert_str_eq(content, "content");
    list(".", &arena, &count);
    ck_assert_uint_eq(count, 2);
    ck_done(put("new/file", "written while it was stopped"));
    ck_done(sandbox_directory_make(fixture_connect(), id, "made/deep", &fixture_error));
    ck_done(sandbox_file_move(fixture_connect(), id, "kept", "made/deep/moved", &fixture_error));
    ck_done(sandbox_file_mode(fixture_connect(), id, "made/deep/moved", 0600, &fixture_error));
    ck_done(sandbox_file_stat(fixture_connect(), id, "made/deep/moved", &arena, &entry,
                              &fixture_error));
    ck_assert(S_ISREG(entry.mode) && (entry.mode & 07777) == 0600 && entry.size == 7);
    ck_done(sandbox_file_remove(fixture_connect(), id, "dir", true, &fixture_error));
    ck_refused(sandbox_file_remove(fixture_connect(), id, "made", false, &fixture_error),
               ERR_CONFLICT);
    ck_refused(get("dir", content), ERR_NOT_FOUND);
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(id,
              "test ! -e /root/lost && cat made/deep/moved new/file && stat -c ' %a %u' "
              "made/deep/moved new/file",
              "contentwritten while it was stopped 600 0\n 644 0\n");
    /* Once more, with what a stop leaves. */
    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_file_remove(fixture_connect(), id, "made", true, &fixture_error));
    list(".", &arena, &count);
    ck_assert_uint_eq(count, 1);
}
END_TEST

START_TEST(a_waiting_pipe_does_not_hold_us)
{
    char content[CONTENT_MAX];
    int64_t before;

    shell("echo x > fifo-like; mkfifo pipe; (cat pipe >/dev/null &) ; sleep 0.1");
    before = fixture_now_ms();
    ck_refused(get("pipe", content), ERR_BAD_REQUEST);
    ck_refused(put("pipe/x", "y"), ERR_BAD_REQUEST);
    ck_done(put("pipe", "now a file"));
    ck_assert_int_lt(fixture_now_ms() - before, 1000);
}
END_TEST

/* --- moves and permissions ------------------------------------------------------------------- */

static const struct {
    const char *path, *to;
    enum error_kind kind; /* ERR_NONE: it works */
    const char *then;     /* prints what `shows` says */
    const char *shows;
} moves[] = {
    {"file", "other", ERR_NONE, "cat other; ls -A | wc -l", "file\n8\n"},
    {"file", "new/deep/name", ERR_NONE, "cat new/deep/name", "file\n"},
    {"file", "second", ERR_NONE, "cat second; test ! -e file && echo gone", "file\ngone\n"},
    {"file", "./file", ERR_NONE, "cat file", "file\n"},
    {"full", "moved", ERR_NONE, "ls moved", "f\n"},
    {"full", "empty", ERR_NONE, "ls empty; test ! -e full && echo gone", "f\ngone\n"},
    {"link", "full/link", ERR_NONE, "readlink full/link; cat file", "file\nfile\n"},
    {"file", "link", ERR_NONE, "test ! -L link && cat link", "file\n"},
    {"fifo", "pipe", ERR_NONE, "test -p pipe && echo pipe", "pipe\n"},
    {"file", "inside/x", ERR_NONE, "cat full/x", "file\n"},
    {"empty", "full", ERR_CONFLICT, "ls full", "f\n"},
    {"file", "full", ERR_CONFLICT, "ls full", "f\n"},
    {"full", "file", ERR_CONFLICT, "ls full", "f\n"},
    {"full", "full/sub/itself", ERR_BAD_REQUEST, "ls full", "f\nsub\n"},
    {"missing", "new/name", ERR_NOT_FOUND, "test ! -e new && echo none", "none\n"},
    {".", "x", ERR_BAD_REQUEST, "ls full", "f\n"},
    {"file", ".", ERR_BAD_REQUEST, "cat file", "file\n"},
    {"file", "../x", ERR_BAD_REQUEST, "cat file", "file\n"},
    {"file", "/tmp/x", ERR_BAD_REQUEST, "cat file; test ! -e /tmp/x && echo none", "file\nnone\n"},
    {"file", "out/x", ERR_BAD_REQUEST, "cat file; test ! -e /tmp/x && echo none", "file\nnone\n"},
    {"out/passwd", "x", ERR_BAD_REQUEST, "test ! -e x && echo none", "none\n"},
    {"file", "second/x", ERR_BAD_REQUEST, "cat file second", "file\nsecond\n"},
};

START_TEST(a_move_is_exact)
{
    int result;

    shell("echo file >file; echo second >second; mkdir full empty; touch full/f; ln -s file link; "
          "ln -s full inside; ln -s /etc out; mkfifo fifo");
    result = sandbox_file_move(fixture_connect(), id, moves[_i].path, moves[_i].to, &fixture_error);
    ck_assert_msg(result == (moves[_i].kind == ERR_NONE ? 0 : -1) &&
                      (result == 0 || fixture_error.kind == moves[_i].kind),
                  "%s to %s: %d, %s", moves[_i].path, moves[_i].to, result,
                  result ? fixture_error.message : "");
    ck_prints(id, moves[_i].then, moves[_i].shows);
}
END_TEST

START_TEST(permissions_are_set_on_the_thing_itself)
{
    struct sandbox_link *link = fixture_connect();
    auto_arena struct arena arena = {0};
    struct file_entry entry;

    shell("touch file; chmod 4755 file; mkdir dir; mkfifo fifo; ln -s file link; ln -s /etc out");
    ck_done(sandbox_file_mode(link, id, "file", 0640, &fixture_error));
    ck_done(sandbox_file_mode(link, id, "dir", 0, &fixture_error));
    ck_done(sandbox_file_mode(link, id, "fifo", 0777, &fixture_error));
    ck_refused(sandbox_file_mode(link, id, "link", 0777, &fixture_error), ERR_BAD_REQUEST);
    ck_refused(sandbox_file_mode(link, id, "out/passwd", 0777, &fixture_error), ERR_BAD_REQUEST);
    ck_refused(sandbox_file_mode(link, id, "missing", 0777, &fixture_error), ERR_NOT_FOUND);
    ck_refused(sandbox_file_mode(link, id, "file", 04777, &fixture_error), ERR_BAD_REQUEST);
    ck_prints(id, "stat -c %a file dir fifo /etc/passwd", "640\n0\n777\n644\n");
    ck_done(sandbox_file_stat(link, id, "link", &arena, &entry, &fixture_error));
    ck_assert(S_ISLNK(entry.mode) && strcmp(entry.name, ".") == 0);
    ck_done(sandbox_file_stat(link, id, ".", &arena, &entry, &fixture_error));
    ck_assert(S_ISDIR(entry.mode));
    ck_refused(sandbox_file_stat(link, id, "out/passwd", &arena, &entry, &fixture_error),
               ERR_BAD_REQUEST);
}
END_TEST

START_TEST(a_move_in_a_race_with_links_leads_nowhere)
{
    char canary[128], command[512];
    int moved = 0;

    snprintf(canary, sizeof(canary), "%s/canary", fixture_root);
    ck_assert_int_eq(
        fixture_shell("rm -rf %s; mkdir -p %s && echo untouched > %s/file && chmod 600 "
                      "%s/file",
                      canary, canary, canary, canary),
        0);
    snprintf(
        command, sizeof(command),
        "mkdir real; echo own >real/file; ln -s ../../../../../../../../..%s evil; (while :; do "
        "mv -T real d; mv -T d real; mv -T evil d; mv -T d evil; done) >/dev/null 2>&1 &",
        canary);
    outcome_done(&(struct outcome[]){fixture_run(id, command, 5000)}[0]);
    for (int64_t until = fixture_now_ms() + 2000; fixture_now_ms() < until;) {
        moved += sandbox_file_move(fixture_connect(), id, "d/file", "out", &fixture_error) == 0;
        moved += sandbox_file_move(fixture_connect(), id, "out", "d/file", &fixture_error) == 0;
        sandbox_file_mode(fixture_connect(), id, "d/file", 0777, &fixture_error);
    }
    ck_assert_int_gt(moved, 0);
    ck_assert_int_eq(fixture_shell("test \"$(ls -A %s)\" = file && grep -qx untouched %s/file && "
                                   "test \"$(stat -c %%a %s/file)\" = 600",
                                   canary, canary, canary),
                     0);
}
END_TEST

/* --- size ------------------------------------------------------------------------------------ */

enum { MANY = 100000, RESIDENT_MAX_KIB = 16 * 1024 };

struct seen {
    size_t count;
    char last[256];
    long resident_kib; /* of the process that makes the list, at its peak */
    int out_of_order;
};

static long peak_kib(const char *pid)
{
    char path[64], line[128];
    long kib = 0;

    snprintf(path, sizeof(path), "/proc/%s/status", pid);
    auto_fclose FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    return kib;
}

/* The largest of the supervisor's children that have not become something else. */
static long jobs_peak_kib(void)
{
    char command[256], pid[32];
    long most = 0;

    snprintf(command, sizeof(command), "cat /proc/%d/task/%d/children | tr ' ' '\\n'",
             fixture_supervisor, fixture_supervisor);
    FILE *children = popen(command, "r");
    while (children && fscanf(children, "%31s", pid) == 1) {
        long kib = peak_kib(pid);

        most = kib > most ? kib : most;
    }
    if (children)
        pclose(children);
    return most;
}

static int see(const struct file_entry *entry, void *data, struct error *err)
{
    struct seen *seen = data;

    (void)err;
    if (seen->count++ == MANY / 2)
        seen->resident_kib = jobs_peak_kib();
    seen->out_of_order += strcmp(seen->last, entry->name) >= 0;
    snprintf(seen->last, sizeof(seen->last), "%s", entry->name);
    return 0;
}

START_TEST(a_huge_folder_is_listed_in_order_and_in_little_memory)
{
    struct seen seen = {0};
    int64_t before;
    char pid[16];
    long own;

    snprintf(pid, sizeof(pid), "%d", fixture_supervisor);
    {
        auto_outcome struct outcome outcome =
            fixture_run(id,
                        "mkdir many; cd many; i=0; while [ $i -lt 100000 ]; do : "
                        ">file-with-a-rather-long-name-$i; i=$((i+1)); done",
                        60000);
        ck_assert_int_eq(outcome.result.exit_code, 0);
    }
    own = peak_kib(pid);
    before = fixture_now_ms();
    ck_done(sandbox_file_each(fixture_connect(), id, "many", see, &seen, &fixture_error));
    printf("%d entries: %lld ms; the list's process %ld KiB, the supervisor %+ld KiB\n", MANY,
           (long long)(fixture_now_ms() - before), seen.resident_kib, peak_kib(pid) - own);
    ck_assert_uint_eq(seen.count, MANY);
    ck_assert_int_eq(seen.out_of_order, 0);
    ck_assert_int_gt(seen.resident_kib, 0);
    ck_assert_int_lt(seen.resident_kib, RESIDENT_MAX_KIB);
    ck_assert_int_lt(peak_kib(pid) - own, 1024);
    before = fixture_now_ms();
    ck_done(sandbox_file_remove(fixture_connect(), id, "many", true, &fixture_error));
    printf("removed in %lld ms\n", (long long)(fixture_now_ms() - before));
    ck_prints(id, "ls -A", "");
}
END_TEST

static int refuse_second(const struct file_entry *entry, void *data, struct error *err)
{
    int *calls = data;

    (void)entry;
    return ++*calls < 2 ? 0 : error_set(err, ERR_TOO_LARGE, "enough");
}

START_TEST(a_list_may_be_left_early)
{
    int calls = 0;

    shell("seq 1 3000 | while read n; do : > file-with-a-rather-long-name-$n; done");
    ck_refused(sandbox_file_each(fixture_connect(), id, ".", refuse_second, &calls, &fixture_error),
               ERR_TOO_LARGE);
    ck_assert_int_eq(calls, 2);
    ck_assert_str_eq(fixture_error.message, "enough");
    ck_prints(id, "echo usable", "usable\n");
}
END_TEST

/* A reader never meets a part of a file, or none. */
START_TEST(a_file_is_replaced_at_once)
{
    static char content[200000];

    memset(content, 'a', sizeof(content) - 1);
    ck_done(put("file", content));
    outcome_done(&(struct outcome[]){
        fixture_run(id, "(while :; do wc -c <file; done) >sizes 2>&1 &", 5000)}[0]);
    for (int i = 0; i < 200; i++) {
        content[0] = (char)('a' + i % 26);
        ck_done(put("file", content));
    }
    ck_prints(id, "kill -9 -1; sort -u sizes; test $(wc -l <sizes) -gt 20 && echo enough",
              "199999\nenough\n");
    ck_prints(id, "ls -A", "file\nsizes\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("files");
    TCase *tests = tcase_create("files");

    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, a_file_is_written_whole_and_read_on_both_sides);
    tcase_add_test(tests, a_file_that_is_not_committed_never_was);
    tcase_add_loop_test(tests, a_bad_path_is_refused_at_once, 0, (int)COUNT(bad_paths));
    tcase_add_loop_test(tests, nothing_is_written_outside, 0, (int)COUNT(bad_targets));
    tcase_add_test(tests, a_link_at_the_end_is_replaced_not_followed);
    tcase_add_test(tests, links_within_the_workspace_are_followed_for_reading);
    tcase_add_test(tests, every_name_is_listed);
    tcase_add_test(tests, a_large_folder_is_listed);
    tcase_add_test(tests, removing_is_exact);
    tcase_add_test(tests, a_tree_of_any_depth_is_removed);
    tcase_add_test(tests, folders_are_made_with_their_parents);
    tcase_add_test(tests, a_race_with_links_leads_nowhere);
    tcase_add_test(tests, a_folder_that_comes_and_goes_is_a_conflict_at_most);
    tcase_add_test(tests, a_stopped_sandbox_has_its_files);
    tcase_add_test(tests, a_waiting_pipe_does_not_hold_us);
    tcase_add_loop_test(tests, a_move_is_exact, 0, (int)COUNT(moves));
    tcase_add_test(tests, permissions_are_set_on_the_thing_itself);
    tcase_add_test(tests, a_move_in_a_race_with_links_leads_nowhere);
    tcase_add_test(tests, a_huge_folder_is_listed_in_order_and_in_little_memory);
    tcase_add_test(tests, a_list_may_be_left_early);
    tcase_add_test(tests, a_file_is_replaced_at_once);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
