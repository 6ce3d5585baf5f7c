/* The table of jobs as a queue: who gets what, when, and for how long. */
#include <pthread.h>
#include <string.h>

#include "common/token.h"
#include "store/backend.h"
#include "store/jobs.h"
#include "tests/unit/store/postgres.h"
#include "tests/unit/unit.h"

static struct pool *pool;
static struct database *db;
static struct arena arena;
static struct error err;

static void sql(const char *text)
{
    ck_assert_msg(backend_run(db->connection, text, text, NULL, &err) == 0, "%s: %s", text,
                  err.message);
}

static void setup(void)
{
    ck_assert_int_eq(pool_open(&pool, postgres_url, 8, &err), 0);
    ck_assert_int_eq(database_borrow(pool, 0, &db, &err), 0);
    sql("DELETE FROM jobs");
}

static void teardown(void)
{
    database_return(db);
    pool_close(pool);
    arena_done(&arena);
}

static void add(const char *kind, int run_after_s, int max_attempts)
{
    ck_assert_msg(jobs_add(db, kind, NULL, NULL, "{\"n\":1}", run_after_s, max_attempts, &err) == 0,
                  "%s", err.message);
}

static int lease(const char *owner, struct job *job)
{
    int result = jobs_lease(db, owner, &arena, job, &err);

    ck_assert_msg(result >= 0, "%s", err.message);
    return result;
}

/* What a runner that died leaves behind, after a while. */
static void let_leases_expire(void)
{
    sql("UPDATE jobs SET lease_until = now() - interval '1 second' WHERE state = 'leased'");
}

static void make_due(void)
{
    sql("UPDATE jobs SET run_at = now() WHERE state = 'queued'");
}

static void query_text(const char *text, char out[64])
{
    auto_result PGresult *result = NULL;

    ck_assert_int_eq(backend_run(db->connection, text, text, &result, &err), 0);
    snprintf(out, 64, "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
}

#define assert_sql(text, expected)          \
    do {                                    \
        char value_[64];                    \
                                            \
        query_text(text, value_);           \
        ck_assert_str_eq(value_, expected); \
    } while (0)

START_TEST(a_job_is_leased_once_and_finished)
{
    struct job job, other;

    ck_assert_int_eq(lease("me", &job), 0);
    add("boot", 0, 3);
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_str_eq(job.kind, "boot");
    ck_assert_str_eq(job.payload, "{\"n\": 1}");
    ck_assert_ptr_null(job.session_id);
    ck_assert_ptr_null(job.run_id);
    ck_assert_int_eq(job.attempts, 1);
    ck_assert_int_eq(job.max_attempts, 3);
    ck_assert_int_eq(lease("you", &other), 0);
    ck_assert_int_eq(jobs_hold(db, &job, &err), 0);
    ck_assert_int_eq(jobs_finish(db, &job, &err), 0);
    assert_sql("SELECT count(*) FROM jobs", "0");
    ck_assert_int_eq(jobs_finish(db, &job, &err), -1);
    ck_assert_int_eq(err.kind, ERR_CONFLICT);
}
END_TEST

START_TEST(jobs_come_in_the_order_they_are_due)
{
    struct job job;

    add("second", 0, 1);
    add("first", 0, 1);
    sql("UPDATE jobs SET run_at = now() - interval '5 s' WHERE kind = 'first'");
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_str_eq(job.kind, "first");
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_str_eq(job.kind, "second");
}
END_TEST

START_TEST(a_job_waits_for_its_time)
{
    struct job job;

    ck_assert_int_eq(jobs_next_due(db, 30, &err), 30);
    add("later", 20, 1);
    ck_assert_int_eq(lease("me", &job), 0);
    ck_assert_int_eq(jobs_next_due(db, 30, &err), 20);
    ck_assert_int_eq(jobs_next_due(db, 5, &err), 5);
    make_due();
    ck_assert_int_eq(jobs_next_due(db, 30, &err), 0);
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_int_eq(jobs_next_due(db, 30, &err), JOB_LEASE_S);
}
END_TEST

START_TEST(a_job_is_added_with_its_transaction)
{
    struct job job;

    ck_assert_int_eq(database_begin(db, &err), 0);
    add("never", 0, 1);
    database_rollback(db);
    ck_assert_int_eq(lease("me", &job), 0);
}
END_TEST

START_TEST(an_expired_lease_is_taken_up_by_another)
{
    struct job mine, yours;

    add("turn", 0, 3);
    ck_assert_int_eq(lease("me", &mine), 1);
    let_leases_expire();
    ck_assert_int_eq(jobs_next_due(db, 30, &err), 0);
    /* Late, but nobody else has it: it is mine still. */
    ck_assert_int_eq(jobs_hold(db, &mine, &err), 0);
    ck_assert_int_eq(lease("you", &yours), 1);
    ck_assert_int_eq(yours.id, mine.id);
    ck_assert_int_eq(yours.attempts, 2);
    ck_assert_str_ne(yours.lease, mine.lease);
    ck_assert_int_eq(jobs_hold(db, &mine, &err), -1);
    ck_assert_int_eq(err.kind, ERR_CONFLICT);
    ck_assert_int_eq(jobs_finish(db, &mine, &err), -1);
    ck_assert_int_eq(jobs_fail(db, &mine, "late", &err), -1);
    ck_assert_int_eq(err.kind, ERR_CONFLICT);
    ck_assert_int_eq(jobs_finish(db, &yours, &err), 0);
}
END_TEST

/* A heartbeat for these two; the second may be NULL. */
static int beat(const struct job *one, const struct job *other)
{
    char leases[2 * UUID_SIZE + 4];

    snprintf(leases, sizeof(leases), "{%s%s%s}", one->lease, other ? "," : "",
             other ? other->lease : "");
    return jobs_heartbeat(db, leases, &err);
}

START_TEST(a_heartbeat_keeps_the_leases_that_are_worked_on)
{
    struct job job, first, second;

    add("a", 0, 3);
    add("b", 0, 3);
    add("c", 0, 3);
    ck_assert_int_eq(lease("me", &first), 1);
    ck_assert_int_eq(lease("me", &second), 1);
    ck_assert_int_eq(lease("me", &job), 1); /* and the answer is lost */
    let_leases_expire();
    ck_assert_int_eq(beat(&first, &second), 0);
    assert_sql("SELECT count(*) FROM jobs WHERE lease_until > now() + interval '14 s'", "2");
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_str_eq(job.kind, "c");
    ck_assert_int_eq(lease("me", &job), 0);
}
END_TEST

START_TEST(a_heartbeat_does_not_wait_for_a_job_that_writes)
{
    struct database *writer;
    struct job first, second;
    int64_t began;

    add("a", 0, 3);
    add("b", 0, 3);
    ck_assert_int_eq(lease("me", &first), 1);
    ck_assert_int_eq(lease("me", &second), 1);
    ck_assert_int_eq(database_borrow(pool, 0, &writer, &err), 0);
    ck_assert_int_eq(database_begin(writer, &err), 0);
    let_leases_expire();
    ck_assert_int_eq(jobs_hold(writer, &first, &err), 0);
    began = postgres_now_ms();
    ck_assert_int_eq(beat(&first, &second), 0);
    ck_assert_int_lt(postgres_now_ms() - began, 1000);
    assert_sql("SELECT count(*) FROM jobs WHERE lease_until > now()", "1");
    /* Nobody takes what is held, expired or not. */
    ck_assert_int_eq(lease("you", &second), 0);
    ck_assert_int_eq(jobs_finish(writer, &first, &err), 0);
    ck_assert_int_eq(database_commit(writer, &err), 0);
    database_return(writer);
}
END_TEST

START_TEST(a_failed_job_comes_again_later)
{
    struct job job;

    add("webhook", 0, 3);
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_int_eq(jobs_fail(db, &job, "no answer", &err), 0);
    assert_sql(
        "SELECT last_error FROM jobs WHERE state = 'queued' AND owner IS NULL AND lease IS NULL",
        "no answer");
    assert_sql("SELECT run_at - now() BETWEEN interval '1.5 s' AND interval '2.5 s' FROM jobs",
               "t");
    ck_assert_int_eq(lease("me", &job), 0);
    make_due();
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_int_eq(job.attempts, 2);
    ck_assert_int_eq(jobs_fail(db, &job, "no answer", &err), 0);
    assert_sql("SELECT run_at - now() BETWEEN interval '3.1 s' AND interval '4.9 s' FROM jobs",
               "t");
}
END_TEST

START_TEST(the_backoff_has_an_end)
{
    struct job job;

    add("webhook", 0, 100);
    sql("UPDATE jobs SET attempts = 80");
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_int_eq(jobs_fail(db, &job, "no answer", &err), 0);
    assert_sql("SELECT run_at - now() BETWEEN interval '239 s' AND interval '361 s' FROM jobs",
               "t");
}
END_TEST

/* The two ways in which the last attempt ends. */
static void attempt_fails(const struct job *job)
{
    ck_assert_int_eq(jobs_fail(db, job, "no", &err), 0);
}

static void attempt_dies(const struct job *job)
{
    (void)job;
    let_leases_expire();
}

static void (*const endings[])(const struct job *) = {attempt_fails, attempt_dies};

START_TEST(after_the_last_attempt_its_kind_writes_the_end)
{
    struct job job;

    add("turn", 0, 2);
    for (int attempt = 1; attempt <= 2; attempt++) {
        ck_assert_int_eq(lease("me", &job), 1);
        ck_assert_int_eq(job.attempts, attempt);
        endings[_i](&job);
        if (attempt == 1)
            make_due();
    }
    /* At once. */
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_int_eq(job.attempts, 3);
    ck_assert_int_eq(jobs_hold(db, &job, &err), 0);
    ck_assert_int_eq(jobs_finish(db, &job, &err), 0);
    assert_sql("SELECT count(*) FROM jobs", "0");
}
END_TEST

START_TEST(a_job_whose_end_fails_is_dead)
{
    struct job job;

    add("webhook", 0, 1);
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_int_eq(jobs_fail(db, &job, "no", &err), 0);
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_int_gt(job.attempts, job.max_attempts);
    ck_assert_int_eq(jobs_fail(db, &job, "no end", &err), 0);
    assert_sql("SELECT last_error FROM jobs WHERE state = 'dead'", "no end");
    make_due();
    ck_assert_int_eq(lease("me", &job), 0);
    ck_assert_int_eq(jobs_next_due(db, 30, &err), 30);
}
END_TEST

/* A job that kills its runners does so a bounded number of times. */
START_TEST(a_poisonous_job_is_buried)
{
    struct job job;
    int leases = 0;

    add("poison", 0, 2);
    while (leases < 20 && lease("me", &job) == 1) {
        leases++;
        let_leases_expire();
    }
    ck_assert_int_eq(leases, 5);
    assert_sql("SELECT state FROM jobs", "dead");
    add("innocent", 0, 1);
    ck_assert_int_eq(lease("me", &job), 1);
    ck_assert_str_eq(job.kind, "innocent");
}
END_TEST

enum { LEASERS = 6, LEASED_JOBS = 120 };
static int64_t leased[LEASERS][LEASED_JOBS];
static int leased_count[LEASERS];

static void *lease_all(void *argument)
{
    int me = (int)(intptr_t)argument;
    auto_database struct database *own = NULL;
    auto_arena struct arena memory = {0};
    struct error failure;
    struct job job;

    if (database_borrow(pool, 0, &own, &failure) < 0)
        return NULL;
    while (leased_count[me] < LEASED_JOBS && jobs_lease(own, "me", &memory, &job, &failure) == 1)
        leased[me][leased_count[me]++] = job.id;
    return NULL;
}

START_TEST(no_two_leasers_get_the_same_job)
{
    pthread_t threads[LEASERS];
    int64_t seen[LEASED_JOBS];
    int count = 0;

    sql("INSERT INTO jobs (kind, max_attempts) SELECT 'race', 3 FROM generate_series(1, 120)");
    /* Half of them with expired leases. */
    sql("UPDATE jobs SET state = 'leased', attempts = 1, lease = gen_random_uuid(), lease_until = "
        "now() - interval '1 s'"
        " WHERE id % 2 = 0");
    for (int i = 0; i < LEASERS; i++)
        pthread_create(&threads[i], NULL, lease_all, (void *)(intptr_t)i);
    for (int i = 0; i < LEASERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < LEASERS; i++)
        for (int j = 0; j < leased_count[i]; j++) {
            for (int k = 0; k < count; k++)
                ck_assert_int_ne(seen[k], leased[i][j]);
            ck_assert_int_lt(count, LEASED_JOBS);
            seen[count++] = leased[i][j];
        }
    /* A leaser that met locked rows only may have left early; what it left is still there. */
    for (struct job job; count < LEASED_JOBS; count++)
        ck_assert_int_eq(lease("me", &job), 1);
    assert_sql(
        "SELECT count(DISTINCT lease) FROM jobs WHERE state = 'leased' AND lease_until > now()",
        "120");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jobs");
    TCase *tests = unit_case(suite, "jobs");

    tcase_set_timeout(tests, 20);
    tcase_add_unchecked_fixture(tests, postgres_setup, postgres_teardown);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_job_is_leased_once_and_finished);
    tcase_add_test(tests, jobs_come_in_the_order_they_are_due);
    tcase_add_test(tests, a_job_waits_for_its_time);
    tcase_add_test(tests, a_job_is_added_with_its_transaction);
    tcase_add_test(tests, an_expired_lease_is_taken_up_by_another);
    tcase_add_test(tests, a_heartbeat_keeps_the_leases_that_are_worked_on);
    tcase_add_test(tests, a_heartbeat_does_not_wait_for_a_job_that_writes);
    tcase_add_test(tests, a_failed_job_comes_again_later);
    tcase_add_test(tests, the_backoff_has_an_end);
    unit_table(tests, after_the_last_attempt_its_kind_writes_the_end, endings);
    tcase_add_test(tests, a_job_whose_end_fails_is_dead);
    tcase_add_test(tests, a_poisonous_job_is_buried);
    tcase_add_test(tests, no_two_leasers_get_the_same_job);
    return unit_run(suite);
}
