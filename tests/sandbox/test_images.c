/* Images of several layers: what a name leads to, and what a damaged one does. */
#include <sys/xattr.h>

#include "tests/sandbox/fixture.h"

#define DIGEST "%064x"

/* A layer of the store, named by a number. */
static void make_layer(unsigned number, const char *commands)
{
    ck_assert_int_eq(fixture_shell("l=%s/images/.layers/" DIGEST "; mkdir -p $l && cd $l && %s",
                                   fixture_root, number, commands),
                     0);
}

/* An image of the store; the manifest is given to printf(1). */
static void make_image(const char *name, unsigned number, const char *manifest)
{
    ck_assert_int_eq(fixture_shell("cd %s/images && mkdir -p .store/" DIGEST
                                   " && printf '%s' >.store/" DIGEST
                                   "/manifest && ln -sfn .store/" DIGEST " %s",
                                   fixture_root, number, manifest, number, number, name),
                     0);
}

static void make_base_layer(void)
{
    fixture_shell("mkdir -p %s/images/.layers && test -d %s/images/.layers/" DIGEST
                  " || cp -al %s/images/base %s/images/.layers/" DIGEST,
                  fixture_root, fixture_root, 1, fixture_root, fixture_root, 1);
}

static int start_on(const char *id, const char *image)
{
    struct start start = fixture_start(id);

    start.image = image;
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    return sandbox_start(fixture_connect(), &start, &fixture_error);
}

START_TEST(layers_lie_one_over_the_other)
{
    const char *id = fixture_id();
    char manifest[1024], opaque[256];

    make_base_layer();
    make_layer(2, "mkdir -p one opt && echo two >one/file && echo lower >opt/x && echo gone >gone "
                  "&& echo old >one/old && chown -R 1000:1000 one");
    make_layer(
        3, "mkdir -p one && echo three >one/file && mknod gone c 0 0 && mkdir -p opt && echo upper "
           ">opt/y");
    snprintf(opaque, sizeof(opaque), "%s/images/.layers/" DIGEST "/opt", fixture_root, 3);
    ck_assert_int_eq(setxattr(opaque, "trusted.overlay.opaque", "y", 1, 0), 0);
    snprintf(manifest, sizeof(manifest),
             "image 1\\nlayer %064x\\nlayer %064x\\nsize 5\\nlayer %064x\\nuser root\\nend\\n", 1,
             2, 3);
    make_image("layered", 7, manifest);
    ck_done(start_on(id, "layered"));
    ck_prints(id, "cat /one/file /one/old; ls /opt; ls /gone 2>/dev/null; stat -c %u /one/old",
              "three\nold\ny\n1000\n");
    ck_prints(id, "echo mine >/one/file; rm /one/old; cat /one/file; ls /one", "mine\nfile\n");
    fixture_destroy(id);
    ck_assert_int_eq(
        fixture_shell("cd %s/images/.layers && grep -q three */one/file && test -e " DIGEST
                      "/one/old",
                      fixture_root, 2),
        0);
}
END_TEST

static void ck_environment(const char *id, const char *expected)
{
    const char *argv[] = {"/bin/sh", "-c", "env | grep -v -e ^PWD= -e ^_= | sort"},
               *environment[] = {"PATH=/bin:/usr/bin", "ALSO=request", "BOTH=request"},
               *defaults[] = {"ALSO=default", "LANG=default", "NEW=default", "LA=default"};
    struct exec exec = fixture_exec(id, argv, 3, 5000);
    auto_outcome struct outcome outcome = {0};

    exec.environment = (struct texts){environment, COUNT(environment)};
    exec.defaults = (struct texts){defaults, COUNT(defaults)};
    ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                         &outcome.result, &fixture_error));
    ck_assert_str_eq(outcome_text(&outcome), expected);
}

START_TEST(commands_have_the_variables_of_their_image)
{
    static const char with[] =
        "ALSO=request\nBOTH=request\nHELLO=a = b c\nLA=default\nLANG=image\nNEW=default\n"
        "PATH=/bin:/usr/bin\n";
    const char *id = fixture_id();
    struct start plain = fixture_start(id);
    char manifest[512];

    make_base_layer();
    snprintf(manifest, sizeof(manifest),
             "image 1\\nlayer %064x\\nenv PATH=/image\\nenv BOTH=image\\nenv LANG=image\\n"
             "env HELLO=a = b c\\nend\\n",
             1);
    make_image("variables", 60, manifest);
    ck_done(start_on(id, "variables"));
    ck_environment(id, with);
    fixture_stop_supervisor(SIGKILL);
    ck_assert(fixture_start_supervisor());
    ck_environment(id, with);
    /* Another boot, another image. */
    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &plain, &fixture_error));
    ck_environment(id, "ALSO=request\nBOTH=request\nLA=default\nLANG=default\nNEW=default\n"
                       "PATH=/bin:/usr/bin\n");
    fixture_destroy(id);
}
END_TEST

static struct sandbox_entry entry_of(const char *id, struct arena *arena)
{
    struct sandbox_entry *entries;
    size_t count;

    ck_done(sandbox_list(fixture_connect(), arena, &entries, &count, &fixture_error));
    for (size_t i = 0; i < count; i++)
        if (strcmp(entries[i].sandbox, id) == 0)
            return entries[i];
    ck_abort_msg("%s is not listed", id);
}

START_TEST(a_new_version_changes_nothing_that_runs)
{
    const char *before = fixture_id(), *after = fixture_id();
    auto_arena struct arena arena = {0};
    struct stat folder;
    char manifest[512], path[256];

    make_base_layer();
    make_layer(10, "echo one >version");
    make_layer(11, "echo two >version");
    snprintf(manifest, sizeof(manifest), "image 1\\nlayer %064x\\nlayer %064x\\nend\\n", 1, 10);
    make_image("moving", 20, manifest);
    ck_done(start_on(before, "moving"));
    snprintf(manifest, sizeof(manifest), "image 1\\nlayer %064x\\nlayer %064x\\nend\\n", 1, 11);
    make_image("moving", 21, manifest);
    ck_done(start_on(after, "moving"));
    ck_prints(before, "cat /version", "one\n");
    ck_prints(after, "cat /version", "two\n");
    /* And it is told which version each has. */
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/images/.store/" DIGEST, fixture_root, 20 + i);
        ck_assert_int_eq(stat(path, &folder), 0);
        ck_assert_int_eq(entry_of(i ? after : before, &arena).image, (int64_t)folder.st_ino);
    }
    /* Also by the next supervisor. */
    fixture_stop_supervisor(SIGKILL);
    ck_assert(fixture_start_supervisor());
    ck_assert_int_eq(entry_of(after, &arena).image, (int64_t)folder.st_ino);
    ck_done(sandbox_stop(fixture_connect(), after, &fixture_error));
    ck_assert_int_eq(entry_of(after, &arena).image, 0);
    fixture_destroy(before);
    fixture_destroy(after);
}
END_TEST

START_TEST(an_unknown_image_is_told_at_once)
{
    static const char *const names[] = {"no-such", "plain-file", "nowhere"};
    int64_t began;

    fixture_shell("cd %s/images && touch plain-file && ln -sfn /etc nowhere", fixture_root);
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *id = fixture_id();

        began = fixture_now_ms();
        ck_refused(start_on(id, names[i]), i == 2 ? ERR_INTERNAL : ERR_NOT_FOUND);
        ck_assert_int_lt(fixture_now_ms() - began, 1000);
        ck_assert_ptr_nonnull(strstr(fixture_error.message, names[i]));
        fixture_destroy(id);
    }
}
END_TEST

/* LAYER stands for the digest of a layer that there is. */
static const struct {
    const char *manifest;
    const char *reason;
} damaged[] = {
    {"", "not whole"},
    {"image 1\\n", "not whole"},
    {"image 1\\nend\\n", "no layer"},
    {"image 1\\nlayer LAYER\\n", "not whole"},
    {"image 1\\nlayer LAYER\\nen", "not whole"},
    {"image 1\\nlayer LAYERend\\n", "not whole"},
    {"image 2\\nlayer LAYER\\nend\\n", "not whole"},
    {"image 1\\nlayer \\nend\\n", "no digest"},
    {"image 1\\nlayer ../../../../../etc\\nend\\n", "no digest"},
    {"image 1\\nlayer LAYER/\\nend\\n", "no digest"},
    {"image 1\\nlayer  LAYER\\nend\\n", "no digest"},
    {"image 1\\nlayer "
     "0000000000000000000000000000000000000000000000000000000000000bad\\nend\\n",
     "layer is missing"},
    {"image 1\\nlayer LAYER\\nrun /bin/sh\\nend\\n", "means nothing"},
    {"image 1\\nlayer LAYER\\n\\nend\\n", "means nothing"},
    {"image 1\\nlayer LAYER\\nenv A=\\000B\\nend\\n", "means nothing"},
    {"image 1\\nlayer LAYER\\nenv A\\nend\\n", "no name"},
    {"image 1\\nlayer LAYER\\nenv =A\\nend\\n", "no name"},
};

START_TEST(a_damaged_manifest_is_refused)
{
    char manifest[512] = "", digest[65];
    const char *id = fixture_id();
    size_t used = 0;

    make_base_layer();
    snprintf(digest, sizeof(digest), DIGEST, 1);
    for (const char *at = damaged[_i].manifest; *at; at++) {
        if (strncmp(at, "LAYER", 5) == 0) {
            used += (size_t)snprintf(manifest + used, sizeof(manifest) - used, "%s", digest);
            at += 4;
        } else {
            manifest[used++] = *at;
        }
    }
    make_image("damaged", 30, manifest);
    ck_refused(start_on(id, "damaged"), ERR_INTERNAL);
    ck_assert_msg(strstr(fixture_error.message, damaged[_i].reason) != NULL, "%s: %s", manifest,
                  fixture_error.message);
    fixture_destroy(id);
}
END_TEST

static void write_many(unsigned layers)
{
    char path[256];

    make_base_layer();
    make_image("many", 40, "");
    snprintf(path, sizeof(path), "%s/images/.store/" DIGEST "/manifest", fixture_root, 40);
    auto_fclose FILE *file = fopen(path, "we");
    fprintf(file, "image 1\nlayer " DIGEST "\n", 1);
    for (unsigned i = 1; i < layers; i++) {
        char commands[64];

        snprintf(commands, sizeof(commands), "mkdir -p l && echo %u >l/top && touch l/%u", i, i);
        make_layer(100 + i, commands);
        fprintf(file, "layer " DIGEST "\n", 100 + i);
    }
    fprintf(file, "end\n");
}

START_TEST(layers_are_bounded)
{
    const char *id = fixture_id(), *other = fixture_id();

    write_many(32);
    ck_done(start_on(id, "many"));
    ck_prints(id, "cat /l/top; ls /l | wc -l", "31\n32\n");
    fixture_destroy(id);
    write_many(33);
    ck_refused(start_on(other, "many"), ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(fixture_error.message, "too many layers"));
    fixture_destroy(other);
}
END_TEST

START_TEST(links_in_the_store_are_not_followed)
{
    const char *id = fixture_id();

    make_base_layer();
    fixture_shell("cd %s/images/.layers && ln -sfn / " DIGEST, fixture_root, 50);
    char manifest[256];
    snprintf(manifest, sizeof(manifest), "image 1\\nlayer %064x\\nend\\n", 50);
    make_image("linked", 51, manifest);
    ck_refused(start_on(id, "linked"), ERR_INTERNAL);
    fixture_shell("cd %s/images/.store/" DIGEST " && ln -sf /etc/passwd manifest", fixture_root,
                  51);
    struct start start = fixture_start(id);
    start.image = "linked";
    ck_refused(sandbox_start(fixture_connect(), &start, &fixture_error), ERR_INTERNAL);
    ck_assert(!strstr(fixture_error.message, "root:"));
    /* A version beside it that a link names is fine: operators make such. */
    fixture_shell("ln -sfn base %s/images/alias", fixture_root);
    start.image = "alias";
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    fixture_destroy(id);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("images");
    TCase *tests = tcase_create("images");

    setenv("CK_FORK", "no", 1); /* one supervisor after the other, known to all */
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, layers_lie_one_over_the_other);
    tcase_add_test(tests, an_unknown_image_is_told_at_once);
    tcase_add_loop_test(tests, a_damaged_manifest_is_refused, 0, (int)COUNT(damaged));
    tcase_add_test(tests, commands_have_the_variables_of_their_image);
    tcase_add_test(tests, layers_are_bounded);
    tcase_add_test(tests, links_in_the_store_are_not_followed);
    tcase_add_test(tests, a_new_version_changes_nothing_that_runs);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
