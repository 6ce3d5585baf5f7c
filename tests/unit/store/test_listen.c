/* Notifications: they come, they are not missed after a lost connection, and the wait can be ended.
 */
#include <string.h>

#include "store/backend.h"
#include "store/jobs.h"
#include "tests/unit/store/postgres.h"
#include "tests/unit/unit.h"

static struct pool *pool;
static struct database *db;
static struct listening *listener;
static const char *channel, *payload;
static struct error err;

static void setup(void)
{
    ck_assert_int_eq(pool_open(&pool, postgres_url, 2, &err), 0);
    ck_assert_int_eq(database_borrow(pool, 0, &db, &err), 0);
    ck_assert_int_eq(listen_open(&listener, postgres_url,
                                 (const char *const[]){"jobs", "Odd \"name", NULL}, &err),
                     0);
}

static void teardown(void)
{
    listen_close(listener);
    database_return(db);
    pool_close(pool);
}

static void sql(const char *text)
{
    ck_assert_msg(backend_run(db->connection, text, text, NULL, &err) == 0, "%s: %s", text,
                  err.message);
}

static int wait_ms(int timeout_ms)
{
    return listen_wait(listener, timeout_ms, -1, &channel, &payload, &err);
}

START_TEST(notifications_come_in_order)
{
    sql("NOTIFY jobs, 'one'; NOTIFY \"Odd \"\"name\", 'two'; NOTIFY other, 'x'");
    ck_assert_int_eq(wait_ms(2000), 1);
    ck_assert_str_eq(channel, "jobs");
    ck_assert_str_eq(payload, "one");
    ck_assert_int_eq(wait_ms(2000), 1);
    ck_assert_str_eq(channel, "Odd \"name");
    ck_assert_str_eq(payload, "two");
    ck_assert_int_eq(wait_ms(0), 0);
}
END_TEST

START_TEST(the_wait_is_bounded)
{
    int64_t began = postgres_now_ms();

    ck_assert_int_eq(wait_ms(150), 0);
    ck_assert_int_ge(postgres_now_ms() - began, 145);
    ck_assert_int_lt(postgres_now_ms() - began, 1000);
}
END_TEST

START_TEST(a_descriptor_ends_the_wait)
{
    int64_t began = postgres_now_ms();
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], "x", 1), 1);
    ck_assert_int_eq(listen_wait(listener, 5000, ends[0], &channel, &payload, &err), 0);
    ck_assert_int_lt(postgres_now_ms() - began, 1000);
    /* What has come is told first. */
    sql("NOTIFY jobs, 'one'");
    postgres_sleep_ms(100);
    ck_assert_int_eq(listen_wait(listener, 5000, ends[0], &channel, &payload, &err), 1);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(a_new_job_notifies_at_the_commit)
{
    ck_assert_int_eq(database_begin(db, &err), 0);
    ck_assert_int_eq(jobs_add(db, "boot", NULL, NULL, "{}", 0, 1, &err), 0);
    ck_assert_int_eq(wait_ms(100), 0);
    ck_assert_int_eq(database_commit(db, &err), 0);
    ck_assert_int_eq(wait_ms(2000), 1);
    ck_assert_str_eq(channel, "jobs");
    ck_assert_str_eq(payload, "boot");
}
END_TEST

/* Something may have been missed: each channel is told once, then the real ones come. */
static void assert_announced(void)
{
    ck_assert_int_eq(wait_ms(8000), 1);
    ck_assert_str_eq(channel, "jobs");
    ck_assert_str_eq(payload, "");
    ck_assert_int_eq(wait_ms(0), 1);
    ck_assert_str_eq(channel, "Odd \"name");
    ck_assert_str_eq(payload, "");
    ck_assert_int_eq(wait_ms(0), 0);
}

START_TEST(a_lost_connection_is_opened_again)
{
    sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND query LIKE 'LISTEN%'");
    assert_announced();
    sql("NOTIFY jobs, 'after'");
    ck_assert_int_eq(wait_ms(2000), 1);
    ck_assert_str_eq(payload, "after");
}
END_TEST

START_TEST(a_restart_of_the_database_is_survived)
{
    int64_t began;

    postgres_stop();
    began = postgres_now_ms();
    ck_assert_int_eq(wait_ms(700), 0);
    ck_assert_int_ge(postgres_now_ms() - began, 695);
    postgres_start();
    assert_announced();
}
END_TEST

START_TEST(without_a_database_it_does_not_open)
{
    struct listening *other;

    ck_assert_int_eq(listen_open(&other, "postgresql:///x?host=/nonexistent",
                                 (const char *const[]){"jobs", NULL}, &err),
                     -1);
    ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
    ck_assert_int_eq(listen_open(&other, "host", (const char *const[]){"jobs", NULL}, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("listen");
    TCase *tests = unit_case(suite, "listen");

    tcase_set_timeout(tests, 30);
    tcase_add_unchecked_fixture(tests, postgres_setup, postgres_teardown);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, notifications_come_in_order);
    tcase_add_test(tests, the_wait_is_bounded);
    tcase_add_test(tests, a_descriptor_ends_the_wait);
    tcase_add_test(tests, a_new_job_notifies_at_the_commit);
    tcase_add_test(tests, a_lost_connection_is_opened_again);
    tcase_add_test(tests, without_a_database_it_does_not_open);
    tcase_add_test(tests, a_restart_of_the_database_is_survived);
    return unit_run(suite);
}
