/* Tries, inside a sandbox, all that must not work there (and what must): `battery [--as UID]
 * [NAME]` runs the checks whose names begin so, each in a process of its own, with a line for each
 * and a last one with the sums. Static, so that it runs in any image. */
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

enum { PATIENCE_SECONDS = 30 };

static const struct battery *const batteries[] = {
    &battery_proc,    &battery_processes, &battery_fs,     &battery_cgroup,    &battery_sys,
    &battery_calls,   &battery_net,       &battery_tty,    &battery_limit,     &battery_abi,
    &battery_sockets, &battery_unix,      &battery_compat, &battery_compat_io, &battery_neighbour,
};

int broken(const char *format, ...)
{
    va_list values;

    printf("  ");
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    putchar('\n');
    return BROKEN;
}

int refused(const char *what, long result, int error)
{
    if (result >= 0)
        return broken("%s worked (%ld)", what, result);
    if (error && errno != error)
        return broken("%s: %s, not %s", what, strerror(errno), strerror(error));
    return HOLDS;
}

int works(const char *what, long result)
{
    return result < 0 ? broken("%s: %s", what, strerror(errno)) : HOLDS;
}

const char *told(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

void *page_of_zeroes(void)
{
    static char page[4096];

    return page;
}

/* A signal is told as 128 and its number. */
static int run_one(const struct check *check)
{
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int verdict;

        setpgid(0, 0);
        alarm(PATIENCE_SECONDS);
        verdict = check->run(check->row);
        fflush(stdout);
        _exit(verdict);
    }
    if (pid < 0)
        return BROKEN;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    kill(-pid, SIGKILL); /* what it left */
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Once more from the start, as another: an exec, so that the process is its own again (prctl(2),
 * PR_SET_DUMPABLE). */
static int become(unsigned uid, char **argv)
{
    if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0 ||
        execv("/proc/self/exe", argv) < 0)
        perror("another user");
    return 2;
}

static const char *word_of(int verdict)
{
    static const char *const words[] = {
        [HOLDS] = "ok", [BROKEN] = "FAIL", [SKIPPED_CHECK] = "skip"};

    return verdict < (int)COUNT(words) ? words[verdict] : "FAIL";
}

/* Whether it is asked for: all of them, or those whose name begins so. */
static bool is_wanted(const struct check *check, const char *name, const char *only)
{
    if (check->whom != EVERYBODY && (check->whom == ROOT) != (getuid() == 0))
        return false;
    return !only || strncmp(name, only, strlen(only)) == 0;
}

static int run_all(const char *only)
{
    int ran = 0, failed = 0, skipped = 0;

    for (size_t i = 0; i < COUNT(batteries); i++)
        for (size_t n = 0; n < batteries[i]->count; n++) {
            char name[128];
            int verdict;

            snprintf(name, sizeof(name), "%s.%s", batteries[i]->name, batteries[i]->checks[n].name);
            if (!is_wanted(&batteries[i]->checks[n], name, only))
                continue;
            verdict = run_one(&batteries[i]->checks[n]);
            ran++;
            failed += verdict != HOLDS && verdict != SKIPPED_CHECK;
            skipped += verdict == SKIPPED_CHECK;
            printf("%s %s", word_of(verdict), name);
            if (verdict > SKIPPED_CHECK)
                printf(": ended with %d", verdict);
            putchar('\n');
        }
    printf("%d checks, %d failed, %d skipped\n", ran, failed, skipped);
    fflush(stdout);
    return ran == 0 || failed != 0;
}

static int is_capable(void)
{
    struct {
        uint32_t version;
        int pid;
    } head = {0x20080522, 0};
    uint32_t sets[6] = {0};

    if (syscall(SYS_capget, &head, sets) < 0)
        return 2;
    return (sets[0] | sets[1] | sets[3] | sets[4]) != 0;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";

    if (strcmp(word, "--true") == 0)
        return 0;
    if (strcmp(word, "--is-root") == 0)
        return geteuid() == 0 || getegid() == 0;
    if (strcmp(word, "--is-capable") == 0)
        return is_capable();
    if (strcmp(word, "--bomb") == 0 && argc > 2)
        return bomb_main(argv[2]);
    if (strcmp(word, "--stay") == 0)
        return stay_main();
    if (strcmp(word, "--traps") == 0)
        return traps_main();
    if (strcmp(word, "--exchange") == 0 && argc > 3)
        return exchange_main(argv[2], argv[3]);
    if (strcmp(word, "--look") == 0 || strcmp(word, "--trace") == 0)
        return spin_main(strcmp(word, "--trace") == 0);
    if (strcmp(word, "--as") == 0 && argc > 2)
        return become((unsigned)atoi(argv[2]), argv + 2);
    return run_all(argc > 1 ? word : NULL);
}
