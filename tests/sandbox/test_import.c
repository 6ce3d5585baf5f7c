/* sandboxctl image: archives become images, broken ones leave nothing, and none goes while somebody
 * stands on it. Archives are made by make_image.py. */
#include "tests/sandbox/fixture.h"

/* The archive that make_image.py calls so. */
static const char *archive(const char *what)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s.archive", fixture_root, what);
    if (access(path, F_OK) < 0)
        ck_assert_int_eq(fixture_shell("python3 tests/sandbox/make_image.py %s %s", what, path), 0);
    return path;
}

/* Run sandboxctl on a folder of images. What it says goes to `said`. */
__attribute__((format(printf, 2, 3))) static int ctl(const char *folder, const char *format, ...)
{
    char words[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(words, sizeof(words), format, values);
    va_end(values);
    return fixture_shell("IMAGES_DIR=%s/%s SUPERVISOR_SOCKET=%s SUPERVISOR_STATE=%s/state "
                         "%s/sandboxctl image %s >%s/said 2>%s/errors",
                         fixture_root, folder, fixture_socket, fixture_root, fixture_build, words,
                         fixture_root, fixture_root);
}

static const char *text_of(const char *file)
{
    static char text[8192];
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", fixture_root, file);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[length < 0 ? 0 : length] = '\0';
    return text;
}

static void ck_ctl(const char *folder, const char *words)
{
    ck_assert_msg(ctl(folder, "%s", words) == 0, "%s: %s", words, text_of("errors"));
}

static void import(const char *folder, const char *what, const char *name)
{
    ck_assert_msg(ctl(folder, "import %s %s", archive(what), name) == 0, "%s: %s", what,
                  text_of("errors"));
}

static const char *const forms[] = {"oci", "oci-gzip", "oci-zstd", "oci-plain", "saved"};

START_TEST(every_form_gives_the_same_image)
{
    char digest[80];
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    import("images", forms[0], "same");
    snprintf(digest, sizeof(digest), "%s", text_of("said"));
    fixture_shell("rm -rf %s/other; mkdir %s/other", fixture_root, fixture_root);
    import("other", forms[_i], "same");
    ck_assert_str_eq(text_of("said"), digest);
    /* With the programs of the base below it. */
    ck_assert_int_eq(
        fixture_shell("cd %s/images && rm -rf .store/%064x && mkdir -p .store/%064x && "
                      "test -d .layers/%064x || cp -al base .layers/%064x && "
                      "{ echo image 1; echo layer %064x; grep '^layer' same/manifest; echo end; } "
                      ">.store/%064x/manifest && ln -sfn .store/%064x composed",
                      fixture_root, 1, 1, 2, 2, 2, 1, 1),
        0);
    start.image = "composed";
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_prints(id, "cd /; cat etc/base etc/top; echo; ls dir gone 2>/dev/null; cat swap",
              "basetop\ndir:\nnew\nnow a file");
    fixture_destroy(id);
    fixture_shell("cd %s/images && rm -rf composed .store/%064x .layers/%064x", fixture_root, 1, 2);
    ck_ctl("images", "verify same");
    ck_assert_str_eq(text_of("said"), "same  whole\n");
    ck_assert_int_eq(fixture_shell("cd %s/images/same && grep -qx 'env GREETING=hello world' "
                                   "manifest && grep -qx 'user 1000' manifest && grep -qx "
                                   "'workdir /srv' manifest",
                                   fixture_root),
                     0);
    ck_ctl("images", "remove same");
}
END_TEST

START_TEST(layers_beyond_the_bound_become_one)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    fixture_shell("rm -rf %s/other; mkdir %s/other", fixture_root, fixture_root);
    import("other", "many-layers", "many");
    ck_assert_int_eq(fixture_shell("cd %s/other && test $(grep -c '^layer' many/manifest) = 32 && "
                                   "test $(ls .layers | wc -l) = 32",
                                   fixture_root),
                     0);
    /* At the bottom: what the first 29 make together. */
    ck_assert_int_eq(
        fixture_shell("cd %s/other/.layers/$(sed -n 's/^layer //p' %s/other/many/manifest | head "
                      "-n 1) && test \"$(ls l)\" = \"$(printf '28\\ntop')\" && grep -qx 28 l/top "
                      "&& test hard/a -ef hard/b",
                      fixture_root, fixture_root),
        0);
    ck_ctl("other", "verify");
    import("images", "many-layers", "many");
    start.image = "many";
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    fixture_destroy(id);
    ck_ctl("images", "remove many");
}
END_TEST

START_TEST(a_folder_and_a_root_file_system_are_imported)
{
    fixture_shell("rm -rf %s/other %s/layout; mkdir %s/other", fixture_root, fixture_root,
                  fixture_root);
    ck_assert_int_eq(
        fixture_shell("python3 tests/sandbox/make_image.py folder %s/layout", fixture_root), 0);
    ck_assert_msg(ctl("other", "import %s/layout a", fixture_root) == 0, "%s", text_of("errors"));
    import("other", "rootfs", "b");
    import("other", "other", "c");
    ck_ctl("other", "list");
    ck_assert_str_eq(text_of("said"), "a\nb\nc\n");
    /* They share the layer at the bottom. */
    ck_assert_int_eq(fixture_shell("test $(ls %s/other/.layers | wc -l) = 3", fixture_root), 0);
    ck_assert_int_ne(ctl("other", "import %s d", archive("oci-two")), 0);
    ck_assert_ptr_nonnull(strstr(text_of("errors"), "--reference"));
    ck_assert_int_eq(ctl("other", "import --reference two %s d", archive("oci-two")), 0);
    ck_assert_int_ne(ctl("other", "import --reference three %s e", archive("oci-two")), 0);
    ck_assert_int_ne(ctl("other", "import %s ../evil", archive("oci")), 0);
    ck_assert_int_ne(ctl("other", "import %s/nowhere e", fixture_root), 0);
}
END_TEST

static const struct {
    const char *what, *reason;
} broken[] = {
    {"changed-layer", "does not have its digest"},
    {"wrong-diff", "does not have its digest"},
    {"missing-blob", "is missing"},
    {"few-diffs", "different layers"},
    {"other-machine", "another kind of machine"},
    {"no-index", "index.json is missing"},
    {"index-is-text", "no JSON"},
    {"index-is-broken", "no JSON"},
    {"index-is-empty", "0 images"},
    {"index-of-a-path", "images"},
    {"saved-changed-config", "does not have its digest"},
    {"saved-path-out", "layer 1 is missing"},
    {"saved-absolute-path", "layer 1 is missing"},
    {"same-layer-twice", "twice"},
    {"layer-up", "'..'"},
    {"layer-through-link", "in no folder"},
    {"layer-hides-up", "hides nothing"},
    {"layer-link-out", "'..'"},
    {"layer-is-text", "no tar"},
    {"layer-cut", "Truncated"},
    {"layer-bomb", "grows too much"},
    {"archive-cut", "damaged"},
    {"empty", "empty"},
    {"nothing", "no files"},
    {"text", "no tar"},
};

START_TEST(a_broken_archive_leaves_nothing)
{
    fixture_shell("rm -rf %s/other; mkdir %s/other", fixture_root, fixture_root);
    ck_assert_int_ne(ctl("other", "import %s broken", archive(broken[_i].what)), 0);
    ck_assert_msg(strstr(text_of("errors"), broken[_i].reason) != NULL, "%s: %s", broken[_i].what,
                  text_of("errors"));
    ck_assert_str_eq(text_of("said"), "");
    ck_assert_msg(
        fixture_shell("test -z \"$(find %s/other -mindepth 1 ! -name .lock)\"", fixture_root) == 0,
        "%s left something", broken[_i].what);
}
END_TEST

START_TEST(an_import_that_was_killed_leaves_nothing)
{
    fixture_shell("rm -rf %s/other; mkdir -p %s/other/.import.xyz/l/deep && touch "
                  "%s/other/.import.xyz/l/deep/file",
                  fixture_root, fixture_root, fixture_root);
    ck_ctl("other", "list");
    ck_assert_int_eq(fixture_shell("test ! -e %s/other/.import.xyz", fixture_root), 0);
}
END_TEST

/* The line of a process's status that begins so. */
static const char *status_of(pid_t pid, const char *word)
{
    static char line[256];
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    auto_fclose FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, word, strlen(word)) == 0)
            return line + strlen(word);
    return "";
}

static pid_t child_of(pid_t parent)
{
    char path[64];
    pid_t child = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", parent, parent);
    auto_fclose FILE *file = fopen(path, "re");
    return file && fscanf(file, "%d", &child) == 1 ? child : 0;
}

/* While it waits for more of an archive, the reader is looked at from outside. */
START_TEST(the_reader_of_an_archive_can_do_nothing_else)
{
    static const char *const spaces[] = {"mnt", "pid", "net", "ipc"};
    char path[128], ours[64] = "", theirs[64] = "";
    int archive_pipe[2], status, count = 0;
    pid_t importer, reader = 0;

    fixture_shell("rm -rf %s/other; mkdir %s/other", fixture_root, fixture_root);
    ck_assert_int_eq(pipe2(archive_pipe, O_CLOEXEC), 0);
    importer = fork();
    if (importer == 0) {
        char program[PATH_MAX];

        dup2(archive_pipe[0], 0);
        snprintf(path, sizeof(path), "%s/other", fixture_root);
        setenv("IMAGES_DIR", path, 1);
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
        snprintf(program, sizeof(program), "%.4000s/sandboxctl", fixture_build);
        execl(program, program, "image", "import", "/dev/stdin", "x", (char *)NULL);
        _exit(127);
    }
    ck_soon((reader = child_of(importer)) > 0, 5000);
    ck_soon(strcmp(status_of(reader, "NoNewPrivs:"), "\t1\n") == 0, 5000);
    /* CHOWN, DAC_OVERRIDE, FOWNER and FSETID, and no more ever. */
    ck_soon(strcmp(status_of(reader, "CapEff:"), "\t000000000000001b\n") == 0, 5000);
    ck_assert_str_eq(status_of(reader, "CapBnd:"), "\t000000000000001b\n");
    ck_assert_str_eq(status_of(reader, "CapPrm:"), "\t000000000000001b\n");
    for (size_t i = 0; i < COUNT(spaces); i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i]);
        ck_assert_int_gt(readlink(path, ours, sizeof(ours) - 1), 0);
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", reader, spaces[i]);
        ck_assert_int_gt(readlink(path, theirs, sizeof(theirs) - 1), 0);
        ck_assert_msg(strcmp(ours, theirs) != 0, "%s", spaces[i]);
    }
    ck_assert_int_eq(
        fixture_shell("readlink /proc/%d/root | grep -q '/other/.import.*/unpacking$'", reader), 0);
    /* The three standard ones, the archive, the folder, the answer. */
    snprintf(path, sizeof(path), "/proc/%d/fd", reader);
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        count++;
    closedir(directory);
    ck_assert_int_eq(count - 2, 6);
    close(archive_pipe[0]);
    close(archive_pipe[1]);
    waitpid(importer, &status, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    ck_assert_int_eq(
        fixture_shell("test -z \"$(find %s/other -mindepth 1 ! -name .lock)\"", fixture_root), 0);
}
END_TEST

START_TEST(damage_is_found)
{
    static const char *const damage[] = {"echo x >>etc/base", "rm etc/base", "chmod 777 etc/base",
                                         "chown 5 etc/base", "touch new"};

    for (size_t i = 0; i < COUNT(damage); i++) {
        fixture_shell("rm -rf %s/other; mkdir %s/other", fixture_root, fixture_root);
        import("other", "rootfs", "a");
        ck_ctl("other", "verify");
        fixture_shell("cd %s/other/.layers/* && %s", fixture_root, damage[i]);
        ck_assert_int_ne(ctl("other", "verify a"), 0);
        ck_assert_ptr_nonnull(strstr(text_of("said"), "was changed"));
    }
    fixture_shell("echo env X=y >>%s/other/a/manifest", fixture_root);
    ck_assert_int_ne(ctl("other", "verify"), 0);
    ck_assert_ptr_nonnull(strstr(text_of("said"), "digest"));
    fixture_shell("rm -rf %s/other/.store/*", fixture_root);
    ck_assert_int_ne(ctl("other", "verify"), 0);
}
END_TEST

START_TEST(what_sandboxes_stand_on_stays)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);
    char first[80];

    import("images", "oci", "held");
    snprintf(first, sizeof(first), "%.64s", text_of("said"));
    start.image = "held";
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    ck_assert_int_ne(ctl("images", "remove held"), 0);
    ck_assert_ptr_nonnull(strstr(text_of("errors"), "--force"));
    ck_ctl("images", "list --long");
    ck_assert_ptr_nonnull(strstr(text_of("said"), "held "));
    ck_assert_ptr_nonnull(strstr(strstr(text_of("said"), "held "), "  used\n"));
    /* Nor when the supervisor is away, and its sandboxes are not. */
    fixture_stop_supervisor(SIGKILL);
    ck_assert_int_ne(ctl("images", "remove held"), 0);
    ck_assert(fixture_start_supervisor());
    /* A newer version takes the name, and the older one goes with its last sandbox. */
    import("images", "other", "held");
    ck_ctl("images", "prune");
    ck_assert_int_eq(fixture_shell("test -e %s/images/.store/%s/manifest", fixture_root, first), 0);
    ck_ctl("images", "list --json");
    ck_assert_ptr_nonnull(strstr(strstr(text_of("said"), "\"held\""), "\"used\":false"));
    ck_assert_int_eq(fixture_shell("test $(ls %s/images/.layers | wc -l) = 3", fixture_root), 0);
    fixture_destroy(id);
    ck_ctl("images", "prune");
    ck_assert_int_eq(fixture_shell("test ! -e %s/images/.store/%s", fixture_root, first), 0);
    ck_assert_int_eq(fixture_shell("test $(ls %s/images/.layers | wc -l) = 2", fixture_root), 0);
    ck_ctl("images", "remove held");
    ck_assert_int_eq(fixture_shell("test -z \"$(ls %s/images/.layers %s/images/.store | grep -v "
                                   ":)\"",
                                   fixture_root, fixture_root),
                     0);
    ck_assert_int_ne(ctl("images", "remove held"), 0);
}
END_TEST

START_TEST(a_version_takes_the_place_of_a_folder)
{
    fixture_shell("rm -rf %s/other; mkdir -p %s/other/a/etc", fixture_root, fixture_root);
    import("other", "rootfs", "a");
    ck_assert_int_eq(
        fixture_shell("cd %s/other && test -L a && test -d .old.*/etc || ls -la", fixture_root), 0);
    ck_ctl("other", "prune");
    ck_assert_int_eq(fixture_shell("cd %s/other && ! ls -d .old.* 2>/dev/null", fixture_root), 0);
    ck_ctl("other", "verify a");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("import");
    TCase *tests = tcase_create("import");

    setenv("CK_FORK", "no", 1); /* one supervisor after the other, known to all */
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, every_form_gives_the_same_image, 0, (int)COUNT(forms));
    tcase_add_test(tests, layers_beyond_the_bound_become_one);
    tcase_add_test(tests, a_folder_and_a_root_file_system_are_imported);
    tcase_add_loop_test(tests, a_broken_archive_leaves_nothing, 0, (int)COUNT(broken));
    tcase_add_test(tests, an_import_that_was_killed_leaves_nothing);
    tcase_add_test(tests, the_reader_of_an_archive_can_do_nothing_else);
    tcase_add_test(tests, damage_is_found);
    tcase_add_test(tests, what_sandboxes_stand_on_stays);
    tcase_add_test(tests, a_version_takes_the_place_of_a_folder);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
