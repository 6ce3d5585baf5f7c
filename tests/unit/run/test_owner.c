/* Names of runners, and the leases of those that died. */
#include "run/owner.h"

#include <sys/wait.h>

#include "server/settings.h"
#include "store/jobs.h"
#include "tests/unit/store/postgres.h"
#include "tests/unit/unit.h"

static struct pool *pool;
static struct database *db;
static struct arena arena;
static struct error err;
static char folder[64];

static void open_all(void)
{
    char path[80];

    strcpy(folder, "/tmp/owner-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/run", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    settings.state_dir = folder;
    ck_assert_int_eq(pool_open(&pool, postgres_url, 2, &err), 0);
    ck_assert_int_eq(database_borrow(pool, 5000, &db, &err), 0);
}

static void close_all(void)
{
    char command[96];

    database_return(db);
    pool_close(pool);
    arena_done(&arena);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void add_and_lease(const char *owner, struct job *job)
{
    ck_assert_int_eq(jobs_add(db, "test", NULL, NULL, "{}", 0, 3, &err), 0);
    ck_assert_int_eq(jobs_lease(db, owner, &arena, job, &err), 1);
}

/* A runner that leases under its name until it is killed. */
static pid_t start_runner(char owner[UUID_SIZE])
{
    int said[2];
    pid_t pid;

    ck_assert_int_eq(pipe(said), 0);
    pid = fork();
    if (pid == 0) {
        char name[UUID_SIZE];

        if (owner_claim(name, &err) < 0 || write(said[1], name, sizeof(name)) != sizeof(name))
            _exit(1);
        pause();
        _exit(0);
    }
    ck_assert_int_eq(read(said[0], owner, UUID_SIZE), UUID_SIZE);
    close(said[0]);
    close(said[1]);
    return pid;
}

START_TEST(jobs_of_a_dead_runner_are_taken_up_at_once)
{
    char owner[UUID_SIZE];
    struct job job, again;
    pid_t pid = start_runner(owner);

    add_and_lease(owner, &job);
    ck_assert_int_eq(owner_sweep(db, &err), 0);
    ck_assert_int_eq(jobs_lease(db, "other", &arena, &again, &err), 0); /* it lives */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ck_assert_int_eq(owner_sweep(db, &err), 0);
    ck_assert_int_eq(jobs_lease(db, "other", &arena, &again, &err), 1);
    ck_assert_int_eq(again.id, job.id);
    ck_assert_int_eq(again.attempts, 2); /* a death is a failed attempt */
    ck_assert_int_eq(jobs_finish(db, &again, &err), 0);
}
END_TEST

START_TEST(a_runner_that_left_in_order_leaves_no_file)
{
    char owner[UUID_SIZE], path[128];
    int fd = owner_claim(owner, &err);

    ck_assert_int_ge(fd, 0);
    snprintf(path, sizeof(path), "%s/run/runner.%s", folder, owner);
    ck_assert_int_eq(access(path, F_OK), 0);
    owner_drop(owner);
    ck_assert_int_ne(access(path, F_OK), 0);
    close(fd);
    ck_assert_int_eq(owner_sweep(db, &err), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("owner");
    TCase *tests = unit_case(suite, "owner");

    tcase_add_unchecked_fixture(tests, postgres_setup, postgres_teardown);
    tcase_add_checked_fixture(tests, open_all, close_all);
    tcase_add_test(tests, jobs_of_a_dead_runner_are_taken_up_at_once);
    tcase_add_test(tests, a_runner_that_left_in_order_leaves_no_file);
    return unit_run(suite);
}
