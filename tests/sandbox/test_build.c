/* sandboxctl image build: recipes become images, once; what fails or is cut off leaves its log and
 * nothing else. Packages come from folders of the recipe, as tests have no network. */
#include "tests/sandbox/fixture.h"

#define RECIPES "%s/recipes"

static char text[16384];

static const char *text_of(const char *file)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", fixture_root, file);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[length < 0 ? 0 : length] = '\0';
    return text;
}

__attribute__((format(printf, 1, 2))) static int ctl(const char *format, ...)
{
    char words[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(words, sizeof(words), format, values);
    va_end(values);
    return fixture_shell("IMAGES_DIR=%s/images SUPERVISOR_SOCKET=%s SUPERVISOR_STATE=%s/state "
                         "%s/sandboxctl image %s >%s/said 2>%s/errors",
                         fixture_root, fixture_socket, fixture_root, fixture_build, words,
                         fixture_root, fixture_root);
}

#define ck_ctl(...) ck_assert_msg(ctl(__VA_ARGS__) == 0, "%s", text_of("errors"))
#define ck_says(file, what) \
    ck_assert_msg(strstr(text_of(file), (what)) != NULL, "%s: %s", (what), text)

static void write_recipe(const char *content)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/recipes/recipe", fixture_root);
    auto_fclose FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(content, file);
}

static int build(const char *recipe, const char *name)
{
    write_recipe(recipe);
    return ctl("build --recipe %s/recipes/recipe %s", fixture_root, name);
}

#define ck_build(recipe, name) ck_assert_msg(build((recipe), (name)) == 0, "%s", text_of("errors"))

static const char *running_on(const char *image)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.image = image;
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    return id;
}

/* No sandbox, no half-made image, and only so many of the cache. */
static void ck_left(int cached)
{
    struct arena arena = {0};
    struct sandbox_entry *entries;
    size_t count;

    ck_done(sandbox_list(fixture_connect(), &arena, &entries, &count, &fixture_error));
    ck_assert_uint_eq(count, 0);
    arena_done(&arena);
    ck_assert_int_eq(fixture_shell("cd %s/images && test -z \"$(ls -A | grep -e '^.import' -e "
                                   "'^building-')\" && test $(ls | grep -c '^built-') = %d",
                                   fixture_root, cached),
                     0);
}

static void forget_all(void)
{
    fixture_shell("cd %s/images && rm -f built-* && rm -rf .builds", fixture_root);
}

START_TEST(a_recipe_becomes_an_image)
{
    char digest[80];
    const char *id;

    ck_build("# what it is\nfrom base\ncopy tool lib\nrun cat tool >/bin/tool && chmod 755 "
             "/bin/tool && cat lib/deep/file >/file\n"
             "run echo built by \\\n  $(id -u) >/made; echo heard\n",
             "first");
    snprintf(digest, sizeof(digest), "%.64s", text_of("said"));
    ck_says("errors", "heard");
    id = running_on("first");
    ck_prints(id, "tool; cat /made; ls /workspace; cat /file; stat -c %a /bin/tool",
              "a tool\nbuilt by 0\nin lib\n755\n");
    fixture_destroy(id);
    ck_ctl("log first");
    ck_says("said", "+ cat tool >/bin/tool && chmod 755 /bin/tool && ");
    ck_says("said", "heard\n");
    ck_says("said", "first: ready: ");
    ck_ctl("verify first");
    ck_left(1);

    /* Again, by another name: not built twice. */
    ck_ctl("build --recipe %s/recipes/recipe second", fixture_root);
    ck_says("errors", "built before");
    ck_assert_ptr_nonnull(strstr(text_of("said"), digest));
    /* Other files, other image; and back. */
    fixture_shell("echo 'echo another tool' >" RECIPES "/tool", fixture_root);
    ck_ctl("build --recipe %s/recipes/recipe second", fixture_root);
    ck_assert_ptr_null(strstr(text_of("said"), digest));
    fixture_shell("printf '#!/bin/sh\\necho a tool\\n' >" RECIPES "/tool", fixture_root);
    ck_ctl("build --recipe %s/recipes/recipe second", fixture_root);
    ck_assert_ptr_nonnull(strstr(text_of("said"), digest));
    /* Anew: the same, since the same comes out. */
    ck_ctl("build --fresh --recipe %s/recipes/recipe second", fixture_root);
    ck_assert_ptr_nonnull(strstr(text_of("said"), digest));
    ck_left(2);
    ck_ctl("list --long");
    ck_says("said", "first ");
    ck_ctl("remove first");
    ck_ctl("remove second");
    forget_all();
}
END_TEST

START_TEST(an_image_is_built_on_a_built_one)
{
    const char *id;

    ck_build("from base\nrun echo one >/one; echo low >/both\n", "low");
    ck_build("from low\nrun echo two >/two; echo high >/both; rm /one\n", "high");
    id = running_on("high");
    ck_prints(id, "cat /two /both; ls /one 2>/dev/null || echo gone", "two\nhigh\ngone\n");
    fixture_destroy(id);
    /* What stands on it does not break. */
    ck_ctl("remove low");
    forget_all();
    ck_ctl("prune");
    ck_ctl("verify high");
    id = running_on("high");
    /* And it stays while it is used. */
    ck_assert_int_ne(ctl("remove high"), 0);
    ck_says("errors", "--force");
    fixture_destroy(id);
    ck_ctl("remove high");
}
END_TEST

static const struct {
    const char *recipe, *says;
} faults[] = {
    {"run true\n", "from NAME"},
    {"from base\nfrom base\n", "line 2"},
    {"from ../base\n", "line 1"},
    {"from base\ninstall x\n", "no such word"},
    {"from base\nrun\n", "nothing stands behind"},
    {"from base\n\npip --index-url=x y\n", "line 3 of the recipe: this is an option"},
    {"from base\ncopy ../secret\n", "within it"},
    {"from base\ncopy /etc/passwd\n", "within it"},
    {"from base\ncopy lib/../../x\n", "within it"},
    {"from base\ncopy missing\n", "missing"},
    {"from base\ncopy link\n", "a link"},
    {"from base\nnetwork host\n", "line 2"},
    {"from nowhere\nrun true\n", "no image nowhere"},
    {"from base\nrun echo why; exit 3\n", "ended with 3"},
    {"from base\nrun kill -9 $$\n", "ended with 137"},
    {"from base\nnetwork none\nnpm left\n", "the image 'base' has no npm"},
    {"from base\napt hello\n", "network none"},
};

START_TEST(what_cannot_be_built_says_why)
{
    ck_assert_int_ne(build(faults[_i].recipe, "faulty"), 0);
    ck_says("errors", faults[_i].says);
    ck_ctl("list");
    ck_assert_ptr_null(strstr(text_of("said"), "faulty"));
    ck_left(0);
    fixture_shell("rm -rf %s/images/.builds", fixture_root);
}
END_TEST

START_TEST(a_failure_leaves_the_image_that_was_there)
{
    const char *id;

    ck_build("from base\nrun echo good >/made\n", "kept");
    ck_assert_int_ne(build("from base\nrun echo bad >/made; exit 1\n", "kept"), 0);
    ck_ctl("log kept");
    ck_says("said", "kept: failed: 'echo bad >/made; exit 1' ended with 1");
    ck_ctl("list --long");
    ck_says("said", "  failed");
    id = running_on("kept");
    ck_prints(id, "cat /made", "good\n");
    fixture_destroy(id);
    ck_ctl("remove kept");
    forget_all();
}
END_TEST

/* Start a build that takes long, and wait until its command runs. */
static pid_t long_build(const char *word)
{
    char recipe[128];
    pid_t pid;

    snprintf(recipe, sizeof(recipe), "from base\nrun echo x >/x; sleep %s\n", word);
    write_recipe(recipe);
    pid = fork();
    if (pid == 0) {
        char path[128], program[PATH_MAX];

        snprintf(path, sizeof(path), "%s/images", fixture_root);
        setenv("IMAGES_DIR", path, 1);
        setenv("SUPERVISOR_SOCKET", fixture_socket, 1);
        snprintf(path, sizeof(path), "%s/recipes/recipe", fixture_root);
        snprintf(program, sizeof(program), "%.4000s/sandboxctl", fixture_build);
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(nowhere, STDERR_FILENO);
        execl(program, program, "image", "build", "--recipe", path, "long", (char *)NULL);
        _exit(127);
    }
    ck_soon(fixture_count_processes(word) > 0, 10000);
    return pid;
}

START_TEST(a_build_that_goes_on_is_known)
{
    int status;
    pid_t pid = long_build("1717.1");

    ck_ctl("log long");
    ck_says("said", "long: building");
    ck_ctl("list --json");
    ck_says("said", "\"state\":\"building\"");
    ck_assert_int_ne(ctl("build --recipe %s/recipes/recipe long", fixture_root), 0);
    ck_says("errors", "is being built");
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    ck_assert_int_eq(fixture_count_processes("1717.1"), 0);
    ck_ctl("log long");
    ck_says("said", "long: failed: the command was cancelled");
    ck_left(0);
}
END_TEST

START_TEST(what_was_cut_off_goes_with_the_next)
{
    pid_t pid = long_build("1717.2");

    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ck_soon(fixture_count_processes("1717.2") == 0, 5000);
    ck_ctl("log long");
    ck_says("said", "long: failed: it was cut off");
    ck_build("from base\nrun echo next >/made\n", "next");
    ck_left(1);
    ck_ctl("remove next");
    forget_all();
}
END_TEST

/* Packages of Python, from a folder; what setuptools would need of the network is not needed by
 * one that is a plain wheel. */
START_TEST(pip_installs_from_a_folder)
{
    const char *id = running_on("base");
    bool has_pip = fixture_run(id, "python3 -m pip --version", 20000).result.exit_code == 0;
    bool has_python = fixture_run(id, "python3 -c ''", 20000).result.exit_code == 0;

    fixture_destroy(id);
    write_recipe("from base\nnetwork none\ncopy wheels\n"
                 "pip /workspace/wheels/greeting-1.0-py3-none-any.whl\n");
    if (!has_pip) {
        ck_assert_int_ne(ctl("build --recipe %s/recipes/recipe greets", fixture_root), 0);
        ck_says("errors", has_python ? "ended with 1" : "has no python3");
        forget_all();
        return;
    }
    ck_ctl("build --recipe %s/recipes/recipe greets", fixture_root);
    id = running_on("greets");
    ck_prints(id, "python3 -c 'import greeting; print(greeting.text)'", "hello\n");
    fixture_destroy(id);
    ck_ctl("remove greets");
    forget_all();
}
END_TEST

/* A Debian package, from a folder. */
START_TEST(apt_installs_from_a_folder)
{
    const char *id = running_on("base");
    bool has_apt = fixture_run(id, "apt-get --version", 20000).result.exit_code == 0;

    fixture_destroy(id);
    if (!has_apt || fixture_shell("test -f " RECIPES "/greeting.deb", fixture_root) != 0)
        return;
    ck_build("from base\nnetwork none\ncopy greeting.deb\n"
             "run apt-get -q install -y --no-install-recommends ./greeting.deb\n",
             "debian");
    id = running_on("debian");
    ck_prints(id, "cat /opt/greeting; dpkg-query -W -f '${Status} ${Version}\\n' greeting",
              "hello\ninstall ok installed 1.0\n");
    fixture_destroy(id);
    ck_ctl("remove debian");
    forget_all();
}
END_TEST

static bool prepare(void)
{
    return fixture_shell(
               "mkdir -p " RECIPES "/lib/deep " RECIPES "/wheels && cd " RECIPES
               " && printf '#!/bin/sh\\necho a tool\\n' >tool && chmod 755 tool && echo in lib "
               ">lib/deep/file && ln -s /etc/passwd link && "
               "python3 -c 'import zipfile\nw = zipfile.ZipFile(\"wheels/greeting-1.0-py3-none-any."
               "whl\", \"w\")\nd = \"greeting-1.0.dist-info/\"\nfiles = {\"greeting.py\": \"text = "
               "\\\"hello\\\"\\n\", d + \"METADATA\": \"Metadata-Version: 2.1\\nName: "
               "greeting\\nVersion: 1.0\\n\", d + \"WHEEL\": \"Wheel-Version: 1.0\\nGenerator: "
               "test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n\"}\nfor n, t in files.items(): "
               "w.writestr(n, t)\nw.writestr(d + \"RECORD\", \"\".join(n + \",,\\n\" for n in "
               "files) "
               "+ d + \"RECORD,,\\n\")' && "
               "if command -v dpkg-deb >/dev/null; then mkdir -p deb/DEBIAN deb/opt && echo hello "
               ">deb/opt/greeting && printf 'Package: greeting\\nVersion: 1.0\\nArchitecture: "
               "all\\nMaintainer: a <a@b>\\nDescription: a greeting\\n' >deb/DEBIAN/control && "
               "dpkg-deb --root-owner-group -b deb greeting.deb >/dev/null; fi",
               fixture_root, fixture_root, fixture_root) == 0;
}

int main(void)
{
    Suite *suite = suite_create("build");
    TCase *tests = tcase_create("build");
    SRunner *runner;
    int failed = 1;

    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("CK_FORK", "no", 1);
    fixture_open();
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_recipe_becomes_an_image);
    tcase_add_test(tests, an_image_is_built_on_a_built_one);
    tcase_add_loop_test(tests, what_cannot_be_built_says_why, 0, COUNT(faults));
    tcase_add_test(tests, a_failure_leaves_the_image_that_was_there);
    tcase_add_test(tests, a_build_that_goes_on_is_known);
    tcase_add_test(tests, what_was_cut_off_goes_with_the_next);
    tcase_add_test(tests, pip_installs_from_a_folder);
    tcase_add_test(tests, apt_installs_from_a_folder);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    if (prepare()) {
        srunner_run_all(runner, CK_ENV);
        failed = srunner_ntests_failed(runner);
    }
    srunner_free(runner);
    fixture_close();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
