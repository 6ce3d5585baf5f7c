/* A supervisor of its own for one test program, in a folder under /tmp (or SANDBOX_TEST_FOLDER),
 * and an image for its sandboxes.
 *
 * The image is SANDBOX_TEST_IMAGE (a root directory), or else a few programs of this machine with
 * their libraries. Programs that can't run here say why and end with status 77. */
#ifndef TESTS_SANDBOX_FIXTURE_H
#define TESTS_SANDBOX_FIXTURE_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/scope.h"
#include "run/sandbox.h"

enum { SKIPPED = 77, KEEP = 1 << 20, MEGABYTE = 1 << 20 };

static char fixture_root[64];        /* folder of everything */
static char fixture_build[PATH_MAX]; /* where the programs are */
static char fixture_socket[128];
static pid_t fixture_supervisor;
static struct sandbox_link *fixture_link;
static struct error fixture_error;

static inline int64_t fixture_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline _Noreturn void fixture_skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    exit(SKIPPED);
}

__attribute__((format(printf, 1, 2))) static inline int fixture_shell(const char *format, ...)
{
    char command[PATH_MAX * 2];
    va_list values;

    va_start(values, format);
    vsnprintf(command, sizeof(command), format, values);
    va_end(values);
    return system(command);
}

static inline void fixture_make_image(void)
{
    const char *given = getenv("SANDBOX_TEST_IMAGE");

    /* One that was left by an earlier run is not changed: a copy has the probe in it. */
    if (given && fixture_shell("mkdir -p %s/images && cp -a '%s' %s/images/base", fixture_root,
                               given, fixture_root) != 0)
        fixture_skip("SANDBOX_TEST_IMAGE can't be copied");
    if (!given && fixture_shell("i=%s/images/base; mkdir -p $i/bin $i/etc $i/root $i/lib64 && "
                                "for p in dash cat ls sleep ln rm mkdir mkfifo mv chmod stat seq "
                                "head tr wc touch setsid kill id readlink dd grep "
                                "sort env true false nice chown; do f=$(command -v $p) || "
                                "continue; case $f in /*) ;; *) f=/bin/$p;; esac; "
                                "[ -x $f ] || continue; cp -L $f $i/bin/$p; ldd $f; done | grep -o "
                                "'/[^ ]*' | sort -u | "
                                "while read l; do mkdir -p $i${l%%/*}; cp -L $l $i$l; done; ln -sf "
                                "dash $i/bin/sh; echo root:x:0:0::/root:/bin/sh >$i/etc/passwd",
                                fixture_root) != 0)
        fixture_skip("no image can be made of this machine's programs");
    if (fixture_shell("cd %s/tests/sandbox && cp probe battery treeprobe %s/images/base/",
                      fixture_build, fixture_root) != 0)
        fixture_skip("the probe is not built");
}

/* Start a supervisor and wait until it serves. False when it ended instead. */
static inline bool fixture_start_supervisor(void)
{
    char program[PATH_MAX], value[PATH_MAX], log[PATH_MAX];
    struct stat status;

    snprintf(program, sizeof(program), "%.4000s/sandbox-supervisor", fixture_build);
    snprintf(log, sizeof(log), "%s/log", fixture_root);
    unlink(fixture_socket);
    fixture_supervisor = fork();
    if (fixture_supervisor == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

        dup2(fd, 2);
        setenv("SUPERVISOR_SOCKET", fixture_socket, 1);
        snprintf(value, sizeof(value), "%s/state", fixture_root);
        setenv("SUPERVISOR_STATE", value, 1);
        snprintf(value, sizeof(value), "%s/images", fixture_root);
        setenv("IMAGES_DIR", value, 1);
        const char *init = getenv("SANDBOX_TEST_INIT"); /* another program of the build */
        snprintf(value, sizeof(value), "%.4000s/%.60s", fixture_build,
                 init ? init : "sandbox-init");
        setenv("INIT_PATH", value, 1);
        setenv("STOP_ON_EXIT", "1", 0);
        setenv("WARM_POOL", "0", 0);      /* what is counted is the test's own */
        setenv("QUOTA_REQUIRED", "0", 0); /* test_storage.c tells of the limits */
        /* Reports of a sanitizer belong to the test. */
        setpgid(0, 0);
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000; i++) {
        struct sandbox_link *link;
        struct arena arena = {0};
        struct sandbox_status answer;
        int up;

        if (waitpid(fixture_supervisor, NULL, WNOHANG) != 0)
            return false;
        if (stat(fixture_socket, &status) == 0) {
            link = sandbox_link_new(fixture_socket);
            up = sandbox_status(link, "00000000-0000-4000-8000-000000000000", &arena, &answer,
                                &fixture_error);
            sandbox_link_free(link);
            arena_done(&arena);
            if (up == 0)
                return true;
        }
        usleep(10000);
    }
    return false;
}

static inline void fixture_open(void)
{
    char *slash;

    if (geteuid() != 0)
        fixture_skip("sandboxes are made by root");
    if (access("/proc/self/ns/user", F_OK) < 0)
        fixture_skip("this kernel has no user namespaces");
    const char *folder = getenv("SANDBOX_TEST_FOLDER");
    snprintf(fixture_root, sizeof(fixture_root), "%.30s/sandbox-test-XXXXXX",
             folder ? folder : "/tmp");
    if (!mkdtemp(fixture_root))
        fixture_skip("no folder for the state");
    chmod(fixture_root, 0755);
    if (readlink("/proc/self/exe", fixture_build, sizeof(fixture_build) - 1) < 0)
        fixture_skip("/proc");
    for (int up = 0; up < 3; up++)
        if ((slash = strrchr(fixture_build, '/')))
            *slash = '\0';
    snprintf(fixture_socket, sizeof(fixture_socket), "%s/supervisor.sock", fixture_root);
    fixture_make_image();
    if (fixture_start_supervisor())
        return;
    /* Only what the machine lacks excuses it. */
    bool lacking = fixture_shell("grep -q -e 'Operation not permitted' -e 'Function not "
                                 "implemented' -e 'no cgroup controller' %s/log",
                                 fixture_root) == 0;
    fixture_shell("cat %s/log; rm -rf %s", fixture_root, fixture_root);
    if (lacking)
        fixture_skip("this machine lacks what sandboxes need; the supervisor's log is above");
    printf("the supervisor did not start; its log is above\n");
    exit(EXIT_FAILURE);
}

static inline void fixture_stop_supervisor(int number)
{
    kill(fixture_supervisor, number);
    waitpid(fixture_supervisor, NULL, 0);
}

/* False when a sanitizer found something in the supervisor. */
static inline bool fixture_close(void)
{
    bool fine;

    fixture_stop_supervisor(SIGTERM);
    if (getenv("SANDBOX_TEST_LOG"))
        fixture_shell("cat %s/log", fixture_root);
    fine = fixture_shell("! grep -A 40 -E 'ERROR: [A-Za-z]+Sanitizer|runtime error:' %s/log",
                         fixture_root) == 0;
    fixture_shell("rm -rf %s", fixture_root);
    sandbox_link_free(fixture_link);
    fixture_link = NULL;
    return fine;
}

/* --- calls that must succeed ---------------------------------------------------------------------
 */

#define ck_done(call) ck_assert_msg((call) == 0, "%s: %s", #call, fixture_error.message)
#define ck_refused(call, expected)                                            \
    do {                                                                      \
        ck_assert_msg((call) == -1, "%s worked", #call);                      \
        ck_assert_msg(fixture_error.kind == (expected), "%s: %s: %s", #call,  \
                      error_name(fixture_error.kind), fixture_error.message); \
    } while (0)

static inline struct sandbox_link *fixture_connect(void)
{
    if (!fixture_link)
        fixture_link = sandbox_link_new(fixture_socket);
    return fixture_link;
}

static inline struct start fixture_start(const char *id)
{
    return (struct start){.sandbox = id,
                          .image = "base",
                          .hostname = "box",
                          .memory_bytes = 256 * MEGABYTE,
                          .pids = 256,
                          .cpu_percent = 200,
                          .tmp_bytes = 32 * MEGABYTE};
}

/* A new id each time; of this process. */
static inline const char *fixture_id(void)
{
    static unsigned serial;
    static char ids[64][37];
    char *id = ids[serial % 64];

    snprintf(id, 37, "%08x-0000-4000-8000-%012x", (unsigned)getpid(), serial++);
    return id;
}

static inline const char *fixture_running(void)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    return id;
}

static inline void fixture_destroy(const char *id)
{
    ck_done(sandbox_destroy(fixture_connect(), id, &fixture_error));
}

struct outcome {
    struct exec_result result;
    struct sandbox_output out, errors;
};

static inline void outcome_done(struct outcome *outcome)
{
    buffer_done(&outcome->out.bytes);
    buffer_done(&outcome->errors.bytes);
}
#define auto_outcome __attribute__((cleanup(outcome_done)))

static const char *const fixture_environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin",
                                                  "HOME=/root"};

static inline struct exec fixture_exec(const char *id, const char **argv, size_t argc,
                                       int64_t timeout_ms)
{
    return (struct exec){
        .sandbox = id,
        .argv = {argv, argc},
        .environment = {(const char **)(uintptr_t)fixture_environment, COUNT(fixture_environment)},
        .directory = "/workspace",
        .timeout_ms = timeout_ms};
}

static inline struct outcome fixture_argv(const char *id, const char **argv, size_t argc,
                                          int64_t timeout_ms)
{
    struct outcome outcome = {0};
    struct exec exec = fixture_exec(id, argv, argc, timeout_ms);

    ck_done(sandbox_exec(fixture_connect(), &exec, KEEP, -1, &outcome.out, &outcome.errors,
                         &outcome.result, &fixture_error));
    return outcome;
}

/* Run a shell command for at most so long. */
static inline struct outcome fixture_run(const char *id, const char *command, int64_t timeout_ms)
{
    const char *argv[] = {"/bin/sh", "-c", command};

    return fixture_argv(id, argv, 3, timeout_ms);
}

static inline const char *outcome_text(const struct outcome *outcome)
{
    return outcome->out.bytes.data ? outcome->out.bytes.data : "";
}

/* The command succeeds and prints exactly this. */
static inline void ck_prints(const char *id, const char *command, const char *expected)
{
    auto_outcome struct outcome outcome = fixture_run(id, command, 20000);

    ck_assert_msg(outcome.result.exit_code == 0, "%s: exit code %ld, %s%s", command,
                  (long)outcome.result.exit_code, outcome_text(&outcome),
                  outcome.errors.bytes.data ? outcome.errors.bytes.data : "");
    ck_assert_str_eq(outcome_text(&outcome), expected);
}

/* How many processes of the host have this word as an argument. */
static inline int fixture_count_processes(const char *word)
{
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    int count = 0;

    while (directory && (entry = readdir(directory))) {
        char path[300], arguments[4096];
        ssize_t length;

        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%.200s/cmdline", entry->d_name);
        auto_close int fd = open(path, O_RDONLY);
        length = fd < 0 ? 0 : read(fd, arguments, sizeof(arguments) - 1);
        for (ssize_t at = 0; at < length; at += (ssize_t)strlen(arguments + at) + 1) {
            arguments[length] = '\0';
            if (strcmp(arguments + at, word) == 0) {
                count++;
                break;
            }
        }
    }
    if (directory)
        closedir(directory);
    return count;
}

/* Wait until `condition` holds, at most so long. */
#define ck_soon(condition, patience_ms)                  \
    do {                                                 \
        int64_t end_ = fixture_now_ms() + (patience_ms); \
        while (!(condition) && fixture_now_ms() < end_)  \
            usleep(20000);                               \
        ck_assert_msg(condition, "%s", #condition);      \
    } while (0)

static inline int fixture_main(Suite *suite)
{
    SRunner *runner;
    int failed;

    setvbuf(stdout, NULL, _IOLBF, 0);
    fixture_open();
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (!fixture_close())
        failed++;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
