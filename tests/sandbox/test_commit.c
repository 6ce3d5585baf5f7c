/* What a sandbox changed becomes an image: all of it, once, under a name that was free. */
#include "tests/sandbox/fixture.h"

static int run_ctl(const char *words)
{
    return fixture_shell("IMAGES_DIR=%s/images SUPERVISOR_SOCKET=%s SUPERVISOR_STATE=%s/state "
                         "%s/sandboxctl image %s >%s/said",
                         fixture_root, fixture_socket, fixture_root, fixture_build, words,
                         fixture_root);
}

static void ctl(const char *words)
{
    ck_assert_msg(run_ctl(words) == 0, "%s", words);
}

static const char *running_on(const char *image)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.image = image;
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    return id;
}

/* A sandbox that ran this becomes the image. */
static void make(const char *base, const char *command, const char *image)
{
    const char *id = running_on(base);

    ck_prints(id, command, "");
    ck_done(sandbox_image_commit(fixture_connect(), id, image, &fixture_error));
    fixture_destroy(id);
}

static void remove_image(const char *image)
{
    char words[80];

    snprintf(words, sizeof(words), "remove %s", image);
    ctl(words);
}

/* Of the host: what is left among the images, and how often the word is in a manifest. */
static bool is_clean(void)
{
    return fixture_shell("test -z \"$(ls -A %s/images | grep '^.import')\"", fixture_root) == 0;
}

static bool same_version(const char *a, const char *b)
{
    return fixture_shell("test %s/images/%s -ef %s/images/%s", fixture_root, a, fixture_root, b) ==
           0;
}

START_TEST(an_image_has_all_that_was_changed)
{
    const char *id;

    make("base",
         "cd / && mkdir -p opt/d/deep && echo one >opt/d/a && ln opt/d/a opt/d/deep/b && ln -s "
         "../a opt/d/deep/l && chown 12:34 opt/d/a && chmod 4751 opt/d/a && mkfifo -m 620 opt/f && "
         "rm etc/passwd && mv gone moved && rm -r swap && mkdir swap && echo new >swap/file && "
         "dd if=/dev/zero of=opt/sparse bs=1 count=1 seek=50000000 2>/dev/null && "
         "echo kept >workspace/not && echo gone >tmp/not && touch -d @1000000000 opt/d opt/d/a",
         "changed");
    ck_assert(is_clean());
    ck_assert_int_eq(
        fixture_shell("cd %s/images && l=.layers/$(sed -n 's/^layer //p' changed/manifest | tail "
                      "-n 1) && test $(stat -c %%b $l/opt/sparse) -lt 100 && ! test -e "
                      "$l/etc/hostname && ! test -e $l/workspace/not",
                      fixture_root),
        0);
    id = running_on("changed");
    ck_prints(id,
              "cd / && cat opt/d/a opt/d/deep/l && stat -c '%a %u:%g %h %Y %F' opt/d/a && stat -c "
              "'%a %Y' opt/d && stat -c '%a %F' opt/f && test opt/d/a -ef opt/d/deep/b && ls swap "
              "moved && stat -c %s opt/sparse && ! test -e etc/passwd && ! test -e gone && ls "
              "workspace tmp && cat etc/hostname",
              "one\none\n4751 12:34 2 1000000000 regular file\n755 1000000000\n620 fifo\n"
              "moved:\ninside\n\nswap:\nfile\n50000001\ntmp:\n\nworkspace:\nbox\n");
    fixture_destroy(id);
    ctl("verify changed");
    remove_image("changed");
}
END_TEST

/* Written by Python, which not every image has. */
START_TEST(extended_attributes_go_along)
{
    static const char show[] =
        "cd /usr && command -v python3 >/dev/null || exit 0; python3 -c 'import os\nfor f in "
        "\"f\", \"d\": print(sorted(os.listxattr(f)))\nprint(os.getxattr(\"f\", \"user.two\"), "
        "os.getxattr(\"f\", \"security.capability\").hex())'";
    const char *id = running_on("base");
    char before[512];

    auto_outcome struct outcome python = fixture_run(id, "command -v python3", 20000);
    if (python.result.exit_code != 0) {
        fixture_destroy(id);
        return;
    }
    ck_prints(id,
              "cd /usr && echo x >f && mkdir d && python3 -c 'import os\nos.setxattr(\"f\", "
              "\"user.one\", b\"\")\nos.setxattr(\"f\", \"user.two\", b\"2\")\nos.setxattr(\"d\","
              " \"user.three\", b\"3\" * 3000)\nos.setxattr(\"f\", \"security.capability\", "
              "bytes.fromhex(\"0100000200040000000000000000000000000000\"))'",
              "");
    auto_outcome struct outcome seen = fixture_run(id, show, 20000);
    snprintf(before, sizeof(before), "%s", outcome_text(&seen));
    ck_assert_ptr_nonnull(strstr(before, "security.capability"));
    ck_done(sandbox_image_commit(fixture_connect(), id, "attributes", &fixture_error));
    fixture_destroy(id);
    id = running_on("attributes");
    ck_prints(id, show, before);
    fixture_destroy(id);
    remove_image("attributes");
}
END_TEST

START_TEST(a_name_that_is_taken_stays_what_it_is)
{
    const char *id = running_on("base");

    ck_refused(sandbox_image_commit(fixture_connect(), id, "base", &fixture_error), ERR_CONFLICT);
    ck_prints(id, "echo it still runs", "it still runs\n");
    ck_refused(sandbox_image_commit(fixture_connect(), id, "../evil", &fixture_error),
               ERR_BAD_REQUEST);
    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    ck_refused(sandbox_image_commit(fixture_connect(), id, "late", &fixture_error), ERR_CONFLICT);
    fixture_destroy(id);
}
END_TEST

START_TEST(the_same_change_is_the_same_image)
{
    make("base", "echo same >/usr/file; touch -d @1 /usr/file", "first");
    make("base", "echo same >/usr/file; touch -d @2 /usr/file", "second");
    make("base", "echo other >/usr/file", "third");
    ck_assert(same_version("first", "second"));
    ck_assert(!same_version("first", "third"));
    /* And back: an overlay takes no layer twice. */
    make("third", "echo same >/usr/file", "fourth");
    make("fourth", "echo other >/usr/file", "fifth");
    const char *id = running_on("fifth");
    ck_prints(id, "cat /usr/file", "other\n");
    fixture_destroy(id);
    ctl("verify");
    for (size_t i = 0; i < 5; i++)
        remove_image((const char *const[]){"first", "second", "third", "fourth", "fifth"}[i]);
}
END_TEST

START_TEST(nothing_is_built_on_a_folder)
{
    const char *id;

    ck_assert_int_eq(
        fixture_shell("cp -al %s/images/base/. %s/images/folder", fixture_root, fixture_root), 0);
    id = running_on("folder");
    ck_refused(sandbox_image_commit(fixture_connect(), id, "never", &fixture_error), ERR_CONFLICT);
    ck_assert_ptr_nonnull(strstr(fixture_error.message, "adopt"));
    /* It has ended all the same. */
    struct arena arena = {0};
    struct sandbox_status status;
    ck_done(sandbox_status(fixture_connect(), id, &arena, &status, &fixture_error));
    ck_assert_int_eq(status.state, SANDBOX_STOPPED);
    arena_done(&arena);
    fixture_destroy(id);
    ck_assert(is_clean());
    ck_assert_int_eq(fixture_shell("! test -e %s/images/never && rm -r %s/images/folder",
                                   fixture_root, fixture_root),
                     0);
}
END_TEST

START_TEST(killed_in_the_middle_it_leaves_nothing)
{
    for (int round = 0; round < 8; round++) {
        const char *id = running_on("base");
        int status;
        pid_t asker;

        ck_prints(id,
                  "cd /usr && for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=big$i bs=1M "
                  "count=8 2>/dev/null; done",
                  "");
        asker = fork();
        if (asker == 0) {
            struct sandbox_link *link = sandbox_link_new(fixture_socket);

            _exit(sandbox_image_commit(link, id, "cut", &fixture_error) == 0 ? 0 : 1);
        }
        usleep((useconds_t)(20000 + 60000 * round));
        fixture_stop_supervisor(SIGKILL);
        waitpid(asker, &status, 0);
        ck_assert(fixture_start_supervisor());
        ck_soon(is_clean(), 10000);
        sandbox_link_free(fixture_link);
        fixture_link = NULL;
        fixture_destroy(id);
        if (fixture_shell("test -e %s/images/cut", fixture_root) == 0) {
            ctl("verify cut");
            remove_image("cut");
        }
        ctl("prune");
        ck_assert_int_eq(fixture_shell("test $(ls %s/images/.layers | wc -l) = 1 && test $(ls "
                                       "%s/images/.store | wc -l) = 1",
                                       fixture_root, fixture_root),
                         0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("commit");
    TCase *tests = tcase_create("commit");

    setvbuf(stdout, NULL, _IOLBF, 0);
    /* One replaces the supervisor, so they all run in this process. */
    setenv("CK_FORK", "no", 1);
    fixture_open();
    if (fixture_shell("cd %s/images/base && mkdir -p gone swap usr workspace && echo x "
                      ">gone/inside && echo old "
                      ">swap/file && echo old >swap/other",
                      fixture_root) != 0 ||
        run_ctl("adopt base") != 0) {
        fixture_close();
        return EXIT_FAILURE;
    }
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, an_image_has_all_that_was_changed);
    tcase_add_test(tests, extended_attributes_go_along);
    tcase_add_test(tests, a_name_that_is_taken_stays_what_it_is);
    tcase_add_test(tests, the_same_change_is_the_same_image);
    tcase_add_test(tests, nothing_is_built_on_a_folder);
    tcase_add_test(tests, killed_in_the_middle_it_leaves_nothing);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    failed += !fixture_close();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
