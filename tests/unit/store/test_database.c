/* The pool, transactions and what becomes of errors, against a private PostgreSQL. */
#include <pthread.h>

#include "store/backend.h"
#include "store/bus.h"
#include "tests/unit/store/postgres.h"
#include "tests/unit/unit.h"

static struct pool *pool;
static struct error err;

static void setup(void)
{
    ck_assert_int_eq(pool_open(&pool, postgres_url, 2, &err), 0);
}

static void teardown(void)
{
    pool_close(pool);
}

static void borrow(struct database **db)
{
    ck_assert_msg(database_borrow(pool, 1000, db, &err) == 0, "%s", err.message);
}

static void sql(struct database *db, const char *text)
{
    ck_assert_msg(backend_run(db->connection, text, text, NULL, &err) == 0, "%s: %s", text,
                  err.message);
}

static int64_t number(struct database *db, const char *text)
{
    PGresult *result;
    int64_t value;

    ck_assert_msg(backend_run(db->connection, text, text, &result, &err) == 0, "%s: %s", text,
                  err.message);
    value = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return value;
}

START_TEST(a_borrowed_connection_answers)
{
    auto_database struct database *db = NULL;

    borrow(&db);
    ck_assert_int_eq(database_version(db, &err), migrate_current());
}
END_TEST

START_TEST(sessions_have_what_the_program_relies_on)
{
    static const struct {
        const char *name, *value;
    } expected[] = {
        {"TimeZone", "UTC"},
        {"client_encoding", "UTF8"},
        {"statement_timeout", "30s"},
        {"idle_in_transaction_session_timeout", "1min"},
        {"transaction_isolation", "read committed"},
        {"work_mem", "2MB"}, /* of the URL */
        {"application_name", "sandbox-server"},
    };
    auto_database struct database *db = NULL;
    char url[256];

    pool_close(pool);
    snprintf(url, sizeof(url), "%s&options=-c%%20work_mem%%3D2MB", postgres_url);
    ck_assert_int_eq(pool_open(&pool, url, 2, &err), 0);
    borrow(&db);
    for (size_t i = 0; i < COUNT(expected); i++) {
        char text[80];
        PGresult *result;

        snprintf(text, sizeof(text), "SHOW %s", expected[i].name);
        ck_assert_int_eq(backend_run(db->connection, text, text, &result, &err), 0);
        ck_assert_str_eq(PQgetvalue(result, 0, 0), expected[i].value);
        PQclear(result);
    }
}
END_TEST

START_TEST(a_bad_address_is_refused_without_its_password)
{
    struct pool *other;

    ck_assert_int_eq(pool_open(&other, "postgresql://me:hunter2@host/db?nonsense=1", 1, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
    ck_assert_ptr_null(strstr(err.message, "hunter2"));
}
END_TEST

START_TEST(addresses_of_sqlalchemy_are_taken)
{
    struct pool *other;
    struct database *db;
    char url[200];

    snprintf(url, sizeof(url), "postgresql+asyncpg:%s", strchr(postgres_url, '/'));
    ck_assert_int_eq(pool_open(&other, url, 1, &err), 0);
    ck_assert_int_eq(database_borrow(other, 0, &db, &err), 0);
    database_return(db);
    pool_close(other);
}
END_TEST

START_TEST(the_wait_for_a_connection_is_bounded)
{
    struct database *first, *second, *third;
    int64_t began;

    borrow(&first);
    borrow(&second);
    began = postgres_now_ms();
    ck_assert_int_eq(database_borrow(pool, 200, &third, &err), -1);
    ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
    ck_assert_int_gt(err.retry_after_s, 0);
    ck_assert_int_ge(postgres_now_ms() - began, 195);
    ck_assert_int_lt(postgres_now_ms() - began, 1000);
    ck_assert_int_eq(database_borrow(pool, 0, &third, &err), -1);
    database_return(first);
    borrow(&third);
    database_return(second);
    database_return(third);
}
END_TEST

static void *return_later(void *db)
{
    postgres_sleep_ms(100);
    database_return(db);
    return NULL;
}

START_TEST(a_waiter_gets_what_is_returned)
{
    struct database *first, *second, *third;
    pthread_t thread;

    borrow(&first);
    borrow(&second);
    pthread_create(&thread, NULL, return_later, first);
    borrow(&third);
    pthread_join(thread, NULL);
    database_return(second);
    database_return(third);
}
END_TEST

/* 8 threads on 2 connections: each round adds one. */
static void *add_rounds(void *unused)
{
    (void)unused;
    for (int i = 0; i < 25; i++) {
        auto_database struct database *db = NULL;
        struct error own;

        if (database_borrow(pool, 10000, &db, &own) < 0 || database_begin(db, &own) < 0 ||
            backend_run(db->connection, "add", "UPDATE counted SET n = n + 1", NULL, &own) < 0 ||
            database_commit(db, &own) < 0)
            return "failed";
    }
    return NULL;
}

START_TEST(threads_share_the_pool)
{
    pthread_t threads[8];
    struct database *db;

    borrow(&db);
    sql(db, "DROP TABLE IF EXISTS counted; CREATE TABLE counted AS SELECT 0 AS n");
    database_return(db);
    for (size_t i = 0; i < COUNT(threads); i++)
        pthread_create(&threads[i], NULL, add_rounds, NULL);
    for (size_t i = 0; i < COUNT(threads); i++) {
        void *failure;

        pthread_join(threads[i], &failure);
        ck_assert_ptr_null(failure);
    }
    borrow(&db);
    ck_assert_int_eq(number(db, "SELECT n FROM counted"), 8 * 25);
    database_return(db);
}
END_TEST

START_TEST(a_broken_connection_is_replaced)
{
    struct database *db, *other;
    char kill[80];

    borrow(&db);
    borrow(&other);
    snprintf(kill, sizeof(kill), "SELECT pg_terminate_backend(%d, 5000)",
             PQbackendPID(db->connection));
    database_return(db);
    sql(other, kill);
    /* Found broken while idle: nobody notices. */
    borrow(&db);
    ck_assert_int_eq(database_version(db, &err), migrate_current());
    /* Broken in use: one failure, and the next one works. */
    snprintf(kill, sizeof(kill), "SELECT pg_terminate_backend(%d, 5000)",
             PQbackendPID(db->connection));
    sql(other, kill);
    ck_assert_int_eq(database_version(db, &err), -1);
    ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
    ck_assert_int_gt(err.retry_after_s, 0);
    database_return(db);
    borrow(&db);
    ck_assert_int_eq(database_version(db, &err), migrate_current());
    database_return(db);
    database_return(other);
}
END_TEST

START_TEST(a_restart_of_the_database_is_survived)
{
    struct database *db;
    int64_t began;

    borrow(&db);
    ck_assert_int_eq(database_begin(db, &err), 0);
    postgres_stop();
    ck_assert_int_eq(database_commit(db, &err), -1);
    ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
    database_return(db);
    began = postgres_now_ms();
    ck_assert_int_eq(database_borrow(pool, 1000, &db, &err), -1);
    ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
    ck_assert_int_gt(err.retry_after_s, 0);
    ck_assert_int_lt(postgres_now_ms() - began, 3000);
    postgres_start();
    borrow(&db);
    ck_assert_int_eq(database_version(db, &err), migrate_current());
    database_return(db);
}
END_TEST

START_TEST(what_is_returned_uncommitted_is_rolled_back)
{
    struct database *db;

    borrow(&db);
    sql(db, "DROP TABLE IF EXISTS kept; CREATE TABLE kept (n integer)");
    ck_assert_int_eq(database_begin(db, &err), 0);
    ck_assert(database_in_transaction(db));
    sql(db, "INSERT INTO kept VALUES (1)");
    database_return(db);
    borrow(&db);
    ck_assert(!database_in_transaction(db));
    ck_assert_int_eq(number(db, "SELECT count(*) FROM kept"), 0);
    ck_assert_int_eq(database_begin(db, &err), 0);
    sql(db, "INSERT INTO kept VALUES (1)");
    ck_assert_int_eq(database_commit(db, &err), 0);
    ck_assert_int_eq(number(db, "SELECT count(*) FROM kept"), 1);
    database_return(db);
}
END_TEST

START_TEST(a_failed_transaction_does_not_commit)
{
    auto_database struct database *db = NULL;

    borrow(&db);
    ck_assert_int_eq(database_begin(db, &err), 0);
    ck_assert_int_eq(backend_run(db->connection, "bad", "SELECT 1/0", NULL, &err), -1);
    ck_assert_int_eq(database_commit(db, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INTERNAL);
    ck_assert(!database_in_transaction(db));
    ck_assert_int_eq(database_version(db, &err), migrate_current());
}
END_TEST

START_TEST(transactions_do_not_nest)
{
    auto_database struct database *db = NULL;

    borrow(&db);
    ck_assert_int_eq(database_commit(db, &err), -1);
    ck_assert_int_eq(database_begin(db, &err), 0);
    ck_assert_int_eq(database_begin(db, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INTERNAL);
}
END_TEST

START_TEST(followers_are_woken_after_the_commit_only)
{
    static const char one[] = "11111111-1111-4111-8111-111111111111",
                      two[] = "22222222-2222-4222-8222-222222222222";
    auto_database struct database *db = NULL;
    struct bus_message message;
    char path[96];
    int bus;

    snprintf(path, sizeof(path), "%s/bus-%d", postgres_folder, getpid());
    bus_init(path);
    bus = bus_receive_open(&err);
    ck_assert_int_ge(bus, 0);
    borrow(&db);
    ck_assert_int_eq(database_begin(db, &err), 0);
    database_touch(db, one);
    database_touch(db, two);
    database_touch(db, one);
    ck_assert_int_eq(bus_receive(bus, &message), 0);
    ck_assert_int_eq(database_commit(db, &err), 0);
    ck_assert_int_eq(bus_receive(bus, &message), 1);
    ck_assert_int_eq(message.kind, BUS_WAKE);
    ck_assert_str_eq(message.session, one);
    ck_assert_int_eq(bus_receive(bus, &message), 1);
    ck_assert_str_eq(message.session, two);
    ck_assert_int_eq(bus_receive(bus, &message), 0);
    ck_assert_int_eq(database_begin(db, &err), 0);
    database_touch(db, one);
    database_rollback(db);
    ck_assert_int_eq(database_begin(db, &err), 0);
    ck_assert_int_eq(database_commit(db, &err), 0);
    ck_assert_int_eq(bus_receive(bus, &message), 0);
    close(bus);
}
END_TEST

static const struct {
    const char *state;
    enum error_kind kind;
} states[] = {
    {"23505", ERR_CONFLICT},    {"23503", ERR_CONFLICT},    {"23514", ERR_INTERNAL},
    {"22P02", ERR_INVALID},     {"22021", ERR_INVALID},     {"40001", ERR_UNAVAILABLE},
    {"40P01", ERR_UNAVAILABLE}, {"55P03", ERR_UNAVAILABLE}, {"57014", ERR_UNAVAILABLE},
    {"53300", ERR_UNAVAILABLE}, {"42P01", ERR_INTERNAL},    {"P0001", ERR_INTERNAL},
};

START_TEST(a_state_is_a_kind_of_error)
{
    auto_database struct database *db = NULL;
    char text[120];

    borrow(&db);
    snprintf(text, sizeof(text),
             "DO $$ BEGIN RAISE EXCEPTION 'of somebody' USING ERRCODE = '%s'; END $$",
             states[_i].state);
    ck_assert_int_eq(backend_run(db->connection, "raise", text, NULL, &err), -1);
    ck_assert_int_eq(err.kind, states[_i].kind);
    ck_assert_ptr_null(strstr(err.message, "of somebody"));
    ck_assert((err.retry_after_s > 0) == (err.kind == ERR_UNAVAILABLE));
}
END_TEST

static int insert_job(struct database *db, const char *session, const char *payload)
{
    return query_run(db, QUERY_jobs_insert, PARAMS("test", session, NULL, payload, "0", "1"), &err);
}

START_TEST(the_violated_constraint_is_known_until_the_next_query)
{
    auto_database struct database *db = NULL;

    borrow(&db);
    ck_assert_ptr_null(database_constraint(db));
    ck_assert_int_eq(insert_job(db, "11111111-1111-4111-8111-111111111111", "{}"), -1);
    ck_assert_int_eq(err.kind, ERR_CONFLICT);
    ck_assert_str_eq(database_constraint(db), "jobs_session_id_fkey");
    ck_assert_int_eq(database_version(db, &err), migrate_current());
    ck_assert_ptr_null(database_constraint(db));
}
END_TEST

START_TEST(a_value_that_is_none_is_invalid)
{
    auto_database struct database *db = NULL;

    borrow(&db);
    ck_assert_int_eq(insert_job(db, "no uuid", "{}"), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
    ck_assert_int_eq(insert_job(db, NULL, "{"), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
    ck_assert_int_eq(insert_job(db, NULL, "{\"a\":\"\xff\"}"), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
}
END_TEST

START_TEST(parameters_are_counted)
{
    auto_database struct database *db = NULL;

    borrow(&db);
    ck_assert_int_eq(query_run(db, QUERY_jobs_insert, PARAMS("test"), &err), -1);
    ck_assert_int_eq(err.kind, ERR_INTERNAL);
}
END_TEST

/* --- what the queries fill ------------------------------------------------------------------- */

/* Every embedded query fits the schema of the migrations, and its struct where this program has it.
 */
START_TEST(every_query_can_be_prepared)
{
    auto_database struct database *db = NULL;

    borrow(&db);
    for (int query = 0; query < QUERIES; query++)
        if (query_check(db, (enum query_id)query, &err) < 0 && err.kind != ERR_NOT_FOUND)
            ck_abort_msg("%s", err.message);
}
END_TEST

struct sample {
    const char *text;
    const char *absent;
    int64_t number;
    const int64_t *maybe;
    const int64_t *none;
    double real;
    bool flag;
    const bool *maybe_flag;
    struct texts texts;
    struct numbers numbers;
    const char *json;
};
static const struct field sample_fields[] = {
    {TEXT(sample, text)},         {TEXT(sample, absent), .nullable = true},
    {NUMBER(sample, number)},     {MAYBE_NUMBER(sample, maybe)},
    {MAYBE_NUMBER(sample, none)}, {REAL(sample, real)},
    {FLAG(sample, flag)},         {MAYBE_FLAG(sample, maybe_flag)},
    {TEXTS(sample, texts)},       {NUMBERS(sample, numbers)},
    {JSON(sample, json)},
};
SCHEMA(sample);

#define SAMPLE                                                                                \
    "SELECT E'a \"q\" \\n \u00e9'::text AS text, NULL::text AS absent, -9007199254740993 AS " \
    "number, 7::smallint AS maybe,"                                                           \
    " NULL::integer AS none, 0.5::float8 AS real, true AS flag, false AS maybe_flag,"         \
    " '[\"x\", \"y\\\"z\"]'::jsonb AS texts, '[1, 9223372036854775807]'::json AS numbers, "   \
    "'{\"a\": [1]}'::json AS json"

static struct rows *rows_of(struct database *db, const char *text, const struct schema *schema)
{
    PGresult *result;

    ck_assert_msg(backend_run(db->connection, "rows", text, &result, &err) == 0, "%s", err.message);
    return rows_new(result, schema);
}

START_TEST(a_row_fills_its_struct)
{
    auto_database struct database *db = NULL;
    auto_arena struct arena arena = {0};
    auto_rows struct rows *rows = NULL;
    struct sample value;

    borrow(&db);
    rows = rows_of(db, SAMPLE, &schema_sample);
    ck_assert_uint_eq(rows_count(rows), 1);
    memset(&value, 0xff, sizeof(value));
    rows_value(rows, 0, &arena, &value);
    ck_assert_str_eq(value.text, "a \"q\" \n \u00e9");
    ck_assert_ptr_null(value.absent);
    ck_assert_int_eq(value.number, INT64_C(-9007199254740993));
    ck_assert_int_eq(*value.maybe, 7);
    ck_assert_ptr_null(value.none);
    ck_assert(value.real == 0.5);
    ck_assert(value.flag && !*value.maybe_flag);
    ck_assert_uint_eq(value.texts.count, 2);
    ck_assert_str_eq(value.texts.items[1], "y\"z");
    ck_assert_uint_eq(value.numbers.count, 2);
    ck_assert_int_eq(value.numbers.items[1], INT64_MAX);
    ck_assert_str_eq(value.json, "{\"a\": [1]}");
}
END_TEST

START_TEST(a_row_is_an_object)
{
    auto_database struct database *db = NULL;
    auto_rows struct rows *rows = NULL;
    auto_buffer struct buffer out = {0};

    borrow(&db);
    rows = rows_of(db, SAMPLE " UNION ALL " SAMPLE, &schema_sample);
    rows_json(rows, 1, &out);
    ck_assert_str_eq(
        out.data,
        "{\"text\":\"a \\\"q\\\" \\n \u00e9\",\"absent\":null,\"number\":-9007199254740993,"
        "\"maybe\":7,\"none\":null,\"real\":0.5,\"flag\":true,\"maybe_flag\":false,"
        "\"texts\":[\"x\", \"y\\\"z\"],\"numbers\":[1, 9223372036854775807],\"json\":{\"a\": "
        "[1]}}");
}
END_TEST

struct real {
    double real;
};
static const struct field real_fields[] = {{REAL(real, real)}};
SCHEMA(real);

START_TEST(rows_are_an_array)
{
    auto_database struct database *db = NULL;
    auto_rows struct rows *rows = NULL, *none = NULL;
    auto_buffer struct buffer out = {0};

    borrow(&db);
    rows = rows_of(db,
                   "SELECT x::float8 AS real FROM unnest('{1,1e300,NaN,-Infinity}'::float8[]) AS x",
                   &schema_real);
    rows_json_list(rows, &out);
    ck_assert_str_eq(out.data, "[{\"real\":1},{\"real\":1e+300},{\"real\":null},{\"real\":null}]");
    ck_assert_str_eq(rows_text(rows, 1, 0), "1e+300");
    ck_assert_ptr_null(rows_text(rows, 4, 0));
    ck_assert_ptr_null(rows_text(rows, 0, 1));
    out.length = 0;
    none = rows_of(db, "SELECT 1.0::float8 AS real WHERE false", &schema_real);
    rows_json_list(none, &out);
    ck_assert_str_eq(out.data, "[]");
}
END_TEST

static const struct {
    const char *sql, *complaint;
} misfits[] = {
    {"SELECT 1.5::float8 AS real", NULL},
    {"SELECT 1.5::float4 AS real", NULL},
    {"SELECT 1.5::numeric AS real", "type"},
    {"SELECT now() AS real", "type"},
    {"SELECT 1.5::float8 AS other", "'other'"},
    {"SELECT 1.5::float8 AS real, 1 AS more", "2 columns"},
    {"SELECT", "0 columns"},
};

START_TEST(columns_are_compared_with_the_struct)
{
    auto_database struct database *db = NULL;
    auto_result PGresult *result = NULL;

    borrow(&db);
    ck_assert_int_eq(backend_run(db->connection, "misfit", misfits[_i].sql, &result, &err), 0);
    if (!misfits[_i].complaint) {
        ck_assert_int_eq(columns_check(&schema_real, result, &err), 0);
        return;
    }
    ck_assert_int_eq(columns_check(&schema_real, result, &err), -1);
    ck_assert_msg(strstr(err.message, misfits[_i].complaint) != NULL, "%s", err.message);
}
END_TEST

START_TEST(query_row_says_when_there_is_none)
{
    auto_database struct database *db = NULL;
    auto_arena struct arena arena = {0};
    char job[256];

    borrow(&db);
    sql(db, "DELETE FROM jobs");
    ck_assert_int_eq(query_row(db, QUERY_jobs_take, PARAMS("me", "3", "15"), &arena, job, &err),
                     -1);
    ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
    ck_assert_str_eq(err.message, "not found");
}
END_TEST

/* --- migrations ------------------------------------------------------------------------------ */

START_TEST(what_is_applied_is_not_applied_again)
{
    ck_assert_int_eq(migrate(postgres_url, &err), 0);
}
END_TEST

START_TEST(a_changed_migration_is_refused)
{
    auto_database struct database *db = NULL;

    borrow(&db);
    sql(db, "UPDATE schema_migrations SET digest = reverse(digest) WHERE number = 1");
    ck_assert_int_eq(migrate(postgres_url, &err), -1);
    ck_assert_int_eq(err.kind, ERR_CONFLICT);
    sql(db, "UPDATE schema_migrations SET digest = reverse(digest) WHERE number = 1");
    ck_assert_int_eq(migrate(postgres_url, &err), 0);
}
END_TEST

START_TEST(an_unknown_migration_is_refused)
{
    auto_database struct database *db = NULL;

    borrow(&db);
    sql(db, "INSERT INTO schema_migrations VALUES (9999, 'later', '')");
    ck_assert_int_eq(migrate(postgres_url, &err), -1);
    ck_assert_int_eq(err.kind, ERR_CONFLICT);
    ck_assert_int_eq(database_check(pool, &err), -1);
    ck_assert_int_eq(err.kind, ERR_CONFLICT);
    sql(db, "DELETE FROM schema_migrations WHERE number = 9999");
}
END_TEST

/* Two at once: one applies, the other finds everything applied. */
static void *migrate_there(void *url)
{
    struct error own;

    return (void *)(intptr_t)migrate(url, &own);
}

START_TEST(an_empty_database_is_migrated_once)
{
    auto_database struct database *db = NULL;
    struct pool *other;
    pthread_t threads[2];
    void *applied[2];
    char url[200];

    borrow(&db);
    sql(db, "DROP DATABASE IF EXISTS other");
    sql(db, "CREATE DATABASE other");
    snprintf(url, sizeof(url), "postgresql:///other?%s", strchr(postgres_url, '?') + 1);
    ck_assert_int_eq(pool_open(&other, url, 1, &err), 0);
    ck_assert_int_eq(database_check(other, &err), -1);
    ck_assert_int_eq(err.kind, ERR_CONFLICT);
    for (size_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, migrate_there, url);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], &applied[i]);
    ck_assert_int_eq((intptr_t)applied[0] + (intptr_t)applied[1], migrate_current());
    ck_assert_int_ge((intptr_t)applied[0] * (intptr_t)applied[1], 0);
    pool_close(other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("database");
    TCase *tests = unit_case(suite, "database");

    tcase_set_timeout(tests, 30);
    tcase_add_unchecked_fixture(tests, postgres_setup, postgres_teardown);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_borrowed_connection_answers);
    tcase_add_test(tests, sessions_have_what_the_program_relies_on);
    tcase_add_test(tests, a_bad_address_is_refused_without_its_password);
    tcase_add_test(tests, addresses_of_sqlalchemy_are_taken);
    tcase_add_test(tests, the_wait_for_a_connection_is_bounded);
    tcase_add_test(tests, a_waiter_gets_what_is_returned);
    tcase_add_test(tests, threads_share_the_pool);
    tcase_add_test(tests, a_broken_connection_is_replaced);
    tcase_add_test(tests, what_is_returned_uncommitted_is_rolled_back);
    tcase_add_test(tests, a_failed_transaction_does_not_commit);
    tcase_add_test(tests, transactions_do_not_nest);
    tcase_add_test(tests, followers_are_woken_after_the_commit_only);
    unit_table(tests, a_state_is_a_kind_of_error, states);
    tcase_add_test(tests, the_violated_constraint_is_known_until_the_next_query);
    tcase_add_test(tests, a_value_that_is_none_is_invalid);
    tcase_add_test(tests, parameters_are_counted);
    tcase_add_test(tests, every_query_can_be_prepared);
    tcase_add_test(tests, a_row_fills_its_struct);
    tcase_add_test(tests, a_row_is_an_object);
    tcase_add_test(tests, rows_are_an_array);
    unit_table(tests, columns_are_compared_with_the_struct, misfits);
    tcase_add_test(tests, query_row_says_when_there_is_none);
    tcase_add_test(tests, what_is_applied_is_not_applied_again);
    tcase_add_test(tests, a_changed_migration_is_refused);
    tcase_add_test(tests, an_unknown_migration_is_refused);
    tcase_add_test(tests, an_empty_database_is_migrated_once);
    tcase_add_test(tests, a_restart_of_the_database_is_survived);
    return unit_run(suite);
}
