/* A tenant who takes all that there is of something: the neighbour goes on, the machine keeps its
 * memory, and the sandbox ends when it is told to. */
#include "tests/sandbox/fixture.h"

enum {
    MEMORY_BYTES = 64 * MEGABYTE,
    DISK_BYTES = 64 * MEGABYTE,
    /* What the machine may miss beside the memory that the sandbox may have: others' doings, and
       what the kernel counts for nobody. */
    SLACK_KB = 96 << 10,
    TAKES_MS = 400,
    ANSWERED_MS = 2000, /* with all processors taken by the other */
    ENDED_MS = 5000,
    BOMB_MS = 60000,
};

static const char *const bombs[] = {
#define BOMB(name, processes) #name,
#include "tests/sandbox/battery/bombs.def"
#undef BOMB
};

static long available_kb(void)
{
    char line[128];
    long found = -1;
    FILE *file = fopen("/proc/meminfo", "r");

    while (file && found < 0 && fgets(line, sizeof(line), file))
        if (sscanf(line, "MemAvailable: %ld", &found) != 1)
            found = -1;
    if (file)
        fclose(file);
    return found;
}

static const char *started(void)
{
    const char *id = fixture_id();
    struct create create = {.sandbox = id, .disk_bytes = DISK_BYTES, .disk_inodes = 8192};
    struct start start = fixture_start(id);

    start.memory_bytes = MEMORY_BYTES;
    start.pids = 64;
    ck_done(sandbox_create_sized(fixture_connect(), &create, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    return id;
}

/* Whoever waits for it does so in a process of its own, on a connection of its own. */
static pid_t set_off(const char *id, const char *name)
{
    pid_t pid = fork();

    if (pid == 0) {
        const char *argv[] = {"/battery", "--bomb", name};
        struct sandbox_link *own = sandbox_link_new(fixture_socket);
        struct exec exec = fixture_exec(id, argv, 3, BOMB_MS);
        struct sandbox_output out = {0}, errors = {0};
        struct exec_result result;

        sandbox_exec(own, &exec, KEEP, -1, &out, &errors, &result, &fixture_error);
        _exit(result.exit_code == 127 || result.exit_code == 2);
    }
    return pid;
}

/* How long the neighbour's command took. */
static int64_t neighbour_answers(const char *id)
{
    const char *argv[] = {"/battery", "compat.files"};
    int64_t begin = fixture_now_ms();
    auto_outcome struct outcome outcome = fixture_argv(id, argv, 2, 20000);

    ck_assert_msg(outcome.result.exit_code == 0, "the neighbour: %ld, %s",
                  (long)outcome.result.exit_code, outcome_text(&outcome));
    return fixture_now_ms() - begin;
}

START_TEST(nobody_else_notices)
{
    const char *greedy = started(), *other = started();
    long before = available_kb(), least = before;
    int64_t slowest = 0, begin, took;
    pid_t bomb;
    int status;

    neighbour_answers(other);
    begin = fixture_now_ms();
    bomb = set_off(greedy, bombs[_i]);
    while (fixture_now_ms() < begin + TAKES_MS) {
        long now = available_kb();

        took = neighbour_answers(other);
        slowest = took > slowest ? took : slowest;
        least = now < least ? now : least;
        usleep(20000);
    }
    begin = fixture_now_ms();
    fixture_destroy(greedy);
    took = fixture_now_ms() - begin;
    waitpid(bomb, &status, 0);
    ck_assert_msg(status == 0, "it did not go off");
    if (getenv("SANDBOX_TEST_LOG"))
        printf("%s: %ld MB taken, the neighbour waited %ld ms at most, ended in %ld ms\n",
               bombs[_i], (before - least) >> 10, (long)slowest, (long)took);
    ck_assert_msg(before - least < (MEMORY_BYTES + DISK_BYTES) / 1024 + SLACK_KB,
                  "%s: the machine has %ld MB less", bombs[_i], (before - least) >> 10);
    ck_assert_msg(slowest < ANSWERED_MS, "%s: the neighbour waited %ld ms", bombs[_i],
                  (long)slowest);
    ck_assert_msg(took < ENDED_MS, "%s: ended in %ld ms", bombs[_i], (long)took);
    neighbour_answers(other);
    fixture_destroy(other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bombs");
    TCase *tests = tcase_create("bombs");

    /* The machine is taken to be short of memory all the time. */
    setenv("MEMORY_RESERVE_MB", "1000000000", 1);

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, nobody_else_notices, 0, (int)COUNT(bombs));
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
