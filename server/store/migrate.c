/* Migrations: embedded, applied in order under an advisory lock, recorded with their digests. */
#include "store/migrate.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/scope.h"
#include "common/token.h"
#include "store/backend.h"

static const struct migration {
    int number;
    const char *name;
    const char *text;
} migrations[] = {
#define MIGRATION(position, title, sql) {.number = position, .name = title, .text = sql},
#include "sql/migrations.def"
#undef MIGRATION
};

/* A migration may take long, but not wait long: behind a lock that it waits for, all others wait
 * too. The lock of migrations is a session's, so that it spans their transactions, and goes with
 * the connection. */
static const char *const preparations[] = {
    "SET statement_timeout = 0",
    "SET lock_timeout = '60s'",
    "SELECT pg_advisory_lock(7303011526417)",
    "CREATE TABLE IF NOT EXISTS schema_migrations ("
    " number     integer PRIMARY KEY,"
    " name       text NOT NULL,"
    " digest     text NOT NULL," /* SHA-256 of its text, hex */
    " applied_at timestamptz NOT NULL DEFAULT now())",
};

int migrate_current(void)
{
    return migrations[COUNT(migrations) - 1].number;
}

/* As backend_run, but as long as it takes. */
static int run(PGconn *connection, const char *what, const char *sql, PGresult **result,
               struct error *err)
{
    auto_result PGresult *answer = PQexec(connection, sql);

    if (backend_judge(connection, answer, what, err) < 0)
        return -1;
    if (result) {
        *result = answer;
        answer = NULL;
    }
    return 0;
}

static const struct migration *migration_find(int number)
{
    for (size_t i = 0; i < COUNT(migrations); i++)
        if (migrations[i].number == number)
            return &migrations[i];
    return NULL;
}

static void digest_of(const struct migration *migration, char out[SHA256_HEX_SIZE])
{
    token_sha256(migration->text, strlen(migration->text), out);
}

/* Whether what was applied is what we know; applied[i] tells which of ours were. */
static int check_applied(const PGresult *rows, bool *applied, struct error *err)
{
    for (int row = 0; row < PQntuples(rows); row++) {
        int number = (int)strtol(PQgetvalue(rows, row, 0), NULL, 10);
        const struct migration *migration = migration_find(number);
        char digest[SHA256_HEX_SIZE];

        if (!migration)
            return error_set(
                err, ERR_CONFLICT,
                "the database has migration %04d '%s', which this program does not know", number,
                PQgetvalue(rows, row, 1));
        digest_of(migration, digest);
        if (strcmp(digest, PQgetvalue(rows, row, 2)) != 0)
            return error_set(err, ERR_CONFLICT,
                             "migration %04d '%s' was changed after it had been applied", number,
                             migration->name);
        applied[migration - migrations] = true;
    }
    return 0;
}

static int record(PGconn *connection, const struct migration *migration, struct error *err)
{
    auto_result PGresult *answer = NULL;
    char digest[SHA256_HEX_SIZE];

    digest_of(migration, digest);
    answer = PQexecParams(
        connection,
        "INSERT INTO schema_migrations (number, name, digest) VALUES ($1::integer, $2, $3)", 3,
        NULL, (const char *const[]){NUM(migration->number), migration->name, digest}, NULL, NULL,
        0);
    return backend_judge(connection, answer, "schema_migrations", err);
}

/* A failure leaves the transaction open: the connection is closed next, which rolls it back. */
static int apply(PGconn *connection, const struct migration *migration, struct error *err)
{
    if (run(connection, migration->name, "BEGIN", NULL, err) < 0 ||
        run(connection, migration->name, migration->text, NULL, err) < 0) {
        /* The operator's own text: its message may be shown. */
        LOG(ERROR, "migration_failed", V("migration", migration->name),
            V("reason", PQerrorMessage(connection)));
        return error_add_context(err, "migration %04d", migration->number);
    }
    if (record(connection, migration, err) < 0 ||
        run(connection, migration->name, "COMMIT", NULL, err) < 0)
        return error_add_context(err, "migration %04d", migration->number);
    LOG(INFO, "migration_applied", V("number", migration->number), V("name", migration->name));
    return 0;
}

static int migrate_on(PGconn *connection, struct error *err)
{
    auto_result PGresult *rows = NULL;
    bool applied[COUNT(migrations)] = {false};
    int count = 0;

    for (size_t i = 0; i < COUNT(preparations); i++)
        if (run(connection, "migrate", preparations[i], NULL, err) < 0)
            return -1;
    if (run(connection, "migrate",
            "SELECT number, name, digest FROM schema_migrations ORDER BY number", &rows, err) < 0 ||
        check_applied(rows, applied, err) < 0)
        return -1;
    for (size_t i = 0; i < COUNT(migrations); i++) {
        if (applied[i])
            continue;
        if (apply(connection, &migrations[i], err) < 0)
            return -1;
        count++;
    }
    return count;
}

int migrate(const char *url, struct error *err)
{
    auto_backend PGconn *connection = NULL;
    struct target target = {0};
    int result;

    if (target_init(&target, url, err) < 0)
        return -1;
    result = backend_open(&target, &connection, err);
    target_done(&target);
    return result < 0 ? -1 : migrate_on(connection, err);
}
