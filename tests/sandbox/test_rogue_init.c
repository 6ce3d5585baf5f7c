/* A tenant who has taken over init can harm itself alone: the supervisor checks what init says. */
#include "tests/sandbox/fixture.h"

enum { PATIENCE_MS = 1000, BACKSTOP_MS = 12000, ANSWERED_MS = 1000 };

/* What init does: see rogue_init.c. */
static const char *const roles[] = {"flood",       "flood-without-reading",
                                    "nonsense",    "shorter",
                                    "longer",      "empty",
                                    "descriptors", "twice",
                                    "odd-status",  "odd-refusal",
                                    "deaf",        "gone",
                                    "hung-up"};

struct cost {
    int descriptors;
    long memory_kb;
};

static struct cost cost_now(void)
{
    struct cost cost = {0};
    char path[64], line[256];

    snprintf(path, sizeof(path), "/proc/%d/fd", fixture_supervisor);
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        cost.descriptors++;
    if (directory)
        closedir(directory);
    snprintf(path, sizeof(path), "/proc/%d/status", fixture_supervisor);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmRSS: %ld", &cost.memory_kb) == 1)
            break;
    if (file)
        fclose(file);
    return cost;
}

/* A command whose asker waits elsewhere, on a connection of its own. */
static pid_t ask(const char *id)
{
    pid_t pid = fork();

    if (pid == 0) {
        const char *argv[] = {"/bin/true"};
        struct sandbox_link *own = sandbox_link_new(fixture_socket);
        struct exec exec = fixture_exec(id, argv, 1, PATIENCE_MS);
        struct sandbox_output out = {0}, errors = {0};
        struct exec_result result;

        _exit(sandbox_exec(own, &exec, KEEP, -1, &out, &errors, &result, &fixture_error) < 0);
    }
    return pid;
}

static int start_as(struct sandbox_link *link, const char *id, const char *role)
{
    struct start start = fixture_start(id);

    start.hostname = role;
    ck_done(sandbox_create(link, id, &fixture_error));
    return sandbox_start(link, &start, &fixture_error);
}

START_TEST(only_its_own_sandbox_suffers)
{
    const char *other = fixture_running(), *id = fixture_id();
    struct cost before = cost_now();
    int64_t begin;
    pid_t asker;

    ck_done(start_as(fixture_connect(), id, roles[_i]));
    asker = ask(id);
    for (int i = 0; i < 20; i++) {
        begin = fixture_now_ms();
        ck_prints(other, "echo served", "served\n");
        ck_assert_int_lt(fixture_now_ms() - begin, ANSWERED_MS);
    }
    begin = fixture_now_ms();
    fixture_destroy(id);
    ck_assert_int_lt(fixture_now_ms() - begin, 5000);
    /* Whoever waited for it is told. */
    ck_assert_int_eq(waitpid(asker, NULL, 0), asker);
    ck_soon(cost_now().descriptors <= before.descriptors, 3000);
    ck_assert_int_lt(cost_now().memory_kb, before.memory_kb + 4096);
    fixture_destroy(other);
}
END_TEST

/* A start that does not come to its end, in a process of its own. */
static pid_t start_in_vain(const char *role)
{
    const char *id = fixture_id();
    pid_t pid = fork();

    if (pid == 0) {
        struct sandbox_link *own = sandbox_link_new(fixture_socket);

        _exit(start_as(own, id, role) == 0 || sandbox_destroy(own, id, &fixture_error) < 0);
    }
    return pid;
}

/* All at once, since each of them takes the supervisor's whole patience. */
START_TEST(nobody_waits_for_ever)
{
    const char *id = fixture_id();
    int64_t begin = fixture_now_ms();
    pid_t waiting[3];

    ck_done(start_as(fixture_connect(), id, "deaf"));
    waiting[0] = ask(id);
    waiting[1] = start_in_vain("silent");
    waiting[2] = start_in_vain("never-ready");
    for (size_t i = 0; i < COUNT(waiting); i++) {
        int status;

        ck_assert_int_eq(waitpid(waiting[i], &status, 0), waiting[i]);
        ck_assert_msg(i == 0 || status == 0, "%zu: %x", i, status);
    }
    ck_assert_int_lt(fixture_now_ms() - begin, PATIENCE_MS + BACKSTOP_MS + 2000);
    fixture_destroy(id);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rogue init");
    TCase *tests = tcase_create("rogue init");

    tcase_set_timeout(tests, 60);
    setenv("SANDBOX_TEST_INIT", "tests/sandbox/rogue_init", 1);
    tcase_add_loop_test(tests, only_its_own_sandbox_suffers, 0, (int)COUNT(roles));
    tcase_add_test(tests, nobody_waits_for_ever);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
