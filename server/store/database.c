/* The pool of connections, and transactions on them. */
#include "store/database.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/scope.h"
#include "store/backend.h"
#include "store/bus.h"
#include "store/migrate.h"

struct pool {
    struct target target;
    int size;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t returned;
    int open; /* lent or idle */
    int idle_count;
    struct database **idle; /* the last returned is lent first: the others may rest */
};

/* --- the pool -------------------------------------------------------------------------------- */

int pool_open(struct pool **pool, const char *url, int size, struct error *err)
{
    struct target target = {0};
    pthread_condattr_t attributes;
    struct pool *opened;

    if (target_init(&target, url, err) < 0)
        return -1;
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        abort();
    opened->target = target;
    opened->size = size > 0 ? size : 1;
    opened->idle = calloc((size_t)opened->size, sizeof(*opened->idle));
    if (!opened->idle)
        abort();
    pthread_mutex_init(&opened->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&opened->returned, &attributes);
    pthread_condattr_destroy(&attributes);
    *pool = opened;
    return 0;
}

static void database_free(struct database *db)
{
    PQfinish(db->connection);
    free(db->touched);
    free(db);
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    for (int i = 0; i < pool->idle_count; i++)
        database_free(pool->idle[i]);
    free(pool->idle);
    target_done(&pool->target);
    pthread_cond_destroy(&pool->returned);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

static int connect_to(struct pool *pool, struct database **db, struct error *err)
{
    PGconn *connection;

    if (backend_open(&pool->target, &connection, err) < 0)
        return -1;
    *db = calloc(1, sizeof(**db));
    if (!*db)
        abort();
    (*db)->connection = connection;
    (*db)->pool = pool;
    return 0;
}

/* Take an idle connection (*db), or the right to open one (*db NULL). */
static int pool_take(struct pool *pool, int wait_ms, struct database **db, struct error *err)
{
    int64_t deadline_ms = monotonic_ms() + wait_ms;
    struct timespec deadline = {.tv_sec = deadline_ms / 1000,
                                .tv_nsec = deadline_ms % 1000 * 1000000};
    int timed_out = 0;
    bool taken;

    *db = NULL;
    pthread_mutex_lock(&pool->lock);
    while (!pool->idle_count && pool->open >= pool->size && !timed_out)
        timed_out =
            wait_ms > 0 ? pthread_cond_timedwait(&pool->returned, &pool->lock, &deadline) : 1;
    taken = pool->idle_count || pool->open < pool->size;
    if (pool->idle_count)
        *db = pool->idle[--pool->idle_count];
    else if (taken)
        pool->open++;
    pthread_mutex_unlock(&pool->lock);
    if (taken)
        return 0;
    error_set(err, ERR_UNAVAILABLE, "every connection to the database is in use");
    err->retry_after_s = 1;
    return -1;
}

/* Give back a connection, or (NULL) the right to one. */
static void pool_give(struct pool *pool, struct database *db)
{
    pthread_mutex_lock(&pool->lock);
    if (db)
        pool->idle[pool->idle_count++] = db;
    else
        pool->open--;
    pthread_cond_signal(&pool->returned);
    pthread_mutex_unlock(&pool->lock);
}

int database_borrow(struct pool *pool, int wait_ms, struct database **db, struct error *err)
{
    struct database *taken;

    if (pool_take(pool, wait_ms, &taken, err) < 0)
        return -1;
    if (taken && !backend_alive(taken->connection)) {
        database_free(taken);
        taken = NULL;
    }
    if (!taken && connect_to(pool, &taken, err) < 0) {
        pool_give(pool, NULL);
        return -1;
    }
    *db = taken;
    return 0;
}

void database_return(struct database *db)
{
    struct pool *pool;

    if (!db)
        return;
    pool = db->pool;
    database_rollback(db);
    db->constraint[0] = '\0';
    if (db->broken || PQtransactionStatus(db->connection) != PQTRANS_IDLE) {
        database_free(db);
        db = NULL;
    }
    pool_give(pool, db);
}

void database_scope(struct database **db)
{
    database_return(*db);
}

/* --- transactions ---------------------------------------------------------------------------- */

int database_judge(struct database *db, const PGresult *result, const char *what, struct error *err)
{
    const char *constraint = PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME);

    db->constraint[0] = '\0';
    if (constraint)
        strncat(db->constraint, constraint, sizeof(db->constraint) - 1);
    if (backend_spent(db->connection, result))
        db->broken = true;
    return backend_judge(db->connection, result, what, err);
}

const char *database_constraint(const struct database *db)
{
    return db->constraint[0] ? db->constraint : NULL;
}

static int command(struct database *db, const char *sql, PGresult **result, struct error *err)
{
    auto_result PGresult *answer = NULL;

    if (PQsendQuery(db->connection, sql))
        answer = backend_answer(db->connection, ANSWER_TIMEOUT_MS);
    if (database_judge(db, answer, sql, err) < 0)
        return -1;
    if (result) {
        *result = answer;
        answer = NULL;
    }
    return 0;
}

int database_begin(struct database *db, struct error *err)
{
    if (db->in_transaction)
        return error_set(err, ERR_INTERNAL, "there is a transaction already");
    if (command(db, "BEGIN", NULL, err) < 0)
        return -1;
    db->in_transaction = true;
    return 0;
}

static void wake_touched(struct database *db)
{
    for (size_t i = 0; i < db->touched_count; i++)
        bus_send(BUS_WAKE, db->touched[i], 0, NULL, 0);
    db->touched_count = 0;
}

int database_commit(struct database *db, struct error *err)
{
    auto_result PGresult *result = NULL;

    if (!db->in_transaction)
        return error_set(err, ERR_INTERNAL, "there is no transaction");
    db->in_transaction = false;
    if (command(db, "COMMIT", &result, err) < 0) {
        /* A connection that broke here leaves open whether it was committed: a look too many hurts
         * nobody. */
        wake_touched(db);
        return -1;
    }
    /* PostgreSQL answers COMMIT in a failed transaction with a rollback, and calls that a success.
     */
    if (strcmp(PQcmdStatus(result), "COMMIT") != 0) {
        db->touched_count = 0;
        return error_set(err, ERR_INTERNAL, "a failed transaction can't be committed");
    }
    wake_touched(db);
    return 0;
}

void database_rollback(struct database *db)
{
    struct error ignored; /* a connection that can't roll back is closed, which does */

    db->touched_count = 0;
    if (!db->in_transaction)
        return;
    db->in_transaction = false;
    if (db->broken || command(db, "ROLLBACK", NULL, &ignored) < 0)
        db->broken = true;
}

bool database_in_transaction(const struct database *db)
{
    return db->in_transaction;
}

void database_touch(struct database *db, const char *session_id)
{
    if (!db->in_transaction) {
        bus_send(BUS_WAKE, session_id, 0, NULL, 0);
        return;
    }
    for (size_t i = 0; i < db->touched_count; i++)
        if (!strcmp(db->touched[i], session_id))
            return;
    if (db->touched_count == db->touched_room) {
        db->touched_room = db->touched_room ? 2 * db->touched_room : 4;
        db->touched = reallocarray(db->touched, db->touched_room, sizeof(*db->touched));
        if (!db->touched)
            abort();
    }
    db->touched[db->touched_count][0] = '\0';
    strncat(db->touched[db->touched_count++], session_id, sizeof(*db->touched) - 1);
}

/* --- the start of a program ------------------------------------------------------------------ */

int database_version(struct database *db, struct error *err)
{
    auto_rows struct rows *rows = NULL;

    if (query_rows(db, QUERY_store_version, NO_PARAMS, &rows, err) < 0)
        return -1;
    return (int)strtol(rows_text(rows, 0, 0), NULL, 10);
}

static int check_version(struct database *db, struct error *err)
{
    auto_result PGresult *table = NULL;
    int version = 0;

    if (command(db, "SELECT to_regclass('schema_migrations')::text", &table, err) < 0)
        return -1;
    if (!PQgetisnull(table, 0, 0) && (version = database_version(db, err)) < 0)
        return -1;
    if (version == migrate_current())
        return 0;
    return error_set(
        err, ERR_CONFLICT, "the database's schema has version %d, and this program needs %d: %s",
        version, migrate_current(),
        version < migrate_current() ? "migrate it first" : "it was migrated by a newer one");
}

int database_check(struct pool *pool, struct error *err)
{
    struct database *db;
    int result;

    if (connect_to(pool, &db, err) < 0)
        return -1;
    result = check_version(db, err);
    for (int query = 0; query < QUERIES && result == 0; query++)
        result = query_check(db, (enum query_id)query, err);
    database_free(db);
    return result;
}
