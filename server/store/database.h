/* PostgreSQL: a pool of prepared connections, transactions, named queries.
 *
 * Connections are opened after the fork, never before. A query is prepared when a connection first
 * uses it. database_check, at the start of a program, prepares all of them and compares their
 * columns with the field tables of the structs that they fill; a difference stops the program. */
#ifndef STORE_DATABASE_H
#define STORE_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/field.h"

struct pool;     /* shared by the threads of one process */
struct database; /* one connection, used by one thread at a time */

/* Opens nothing yet. `url` as libpq takes it; postgresql+asyncpg:// means postgresql://. At most
 * `size` connections. */
int pool_open(struct pool **pool, const char *url, int size, struct error *err);
void pool_close(struct pool *pool);
/* Borrow a connection, waiting up to `wait_ms` for one. A connection that broke is replaced here.
 * ERR_UNAVAILABLE with retry_after_s when the database does not answer or the wait ran out. */
int database_borrow(struct pool *pool, int wait_ms, struct database **db, struct error *err);
/* Give it back; an open transaction is rolled back. NULL is fine. */
void database_return(struct database *db);
void database_scope(struct database **db);
#define auto_database __attribute__((cleanup(database_scope)))

/* Compare every query with its struct on a fresh connection, and the schema version with ours
 * (ERR_CONFLICT). The start of every program. */
int database_check(struct pool *pool, struct error *err);

int database_begin(struct database *db, struct error *err);
/* Commit, then wake followers (bus.h) for every session noted with database_touch. */
int database_commit(struct database *db, struct error *err);
void database_rollback(struct database *db);
bool database_in_transaction(const struct database *db);
/* After the commit of the current transaction followers of this session look at its log. */
void database_touch(struct database *db, const char *session_id);

/* The constraint (or unique index) that the last query of this connection violated, so that a
 * handler can word its own 409; NULL when it failed otherwise or not at all. Valid until the next
 * query. */
const char *database_constraint(const struct database *db);
/* The newest migration of this database (migrate_current() is ours). */
int database_version(struct database *db, struct error *err);

/* --- named queries
 * ---------------------------------------------------------------------------------------------------
 */

/* QUERY_agents_find and so on, one for each `-- name:` in sql/queries. */
enum query_id {
#define QUERY(name, parameters, row, text) QUERY_##name,
#include "sql/queries.def"
#undef QUERY
    QUERIES
};

/* Parameters are texts (NULL: SQL NULL), in PostgreSQL's text format; the query casts where it
 * must. */
struct params {
    const char *const *values;
    size_t count;
};
#define PARAMS(...)                                      \
    ((struct params){(const char *const[]){__VA_ARGS__}, \
                     sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)})
#define NO_PARAMS ((struct params){NULL, 0})
/* A number as a parameter: lives as long as the enclosing block. */
#define NUM(value) number_text((char[24]){0}, (int64_t)(value))
const char *number_text(char out[24], int64_t value);
#define FLAG_TEXT(value) ((value) ? "true" : "false")

/* Rows of an answer. */
struct rows;
void rows_free(struct rows *rows);
void rows_scope(struct rows **rows);
#define auto_rows __attribute__((cleanup(rows_scope)))

/* Run a query. Errors: unique violation and foreign key violation ERR_CONFLICT, a value that
 * PostgreSQL can't read ERR_INVALID, a lost connection ERR_UNAVAILABLE, a deadlock or serialisation
 * failure ERR_UNAVAILABLE (retry_after_s 1), anything else ERR_INTERNAL (logged with the SQLSTATE,
 * never with values). */
int query_rows(struct database *db, enum query_id query, struct params params, struct rows **rows,
               struct error *err);
/* The same for a query whose rows are of no interest. Returns how many rows it touched or answered.
 */
int query_run(struct database *db, enum query_id query, struct params params, struct error *err);
/* The first row into `value`, a struct of the query's schema; texts live in `arena`. ERR_NOT_FOUND
 * without a row (with the message "not found"). */
int query_row(struct database *db, enum query_id query, struct params params, struct arena *arena,
              void *value, struct error *err);

size_t rows_count(const struct rows *rows);
/* Row `row` into `value`, as query_row. */
void rows_value(const struct rows *rows, size_t row, struct arena *arena, void *value);
/* Row `row` as a JSON object by the query's field table, straight from the result: json and jsonb
 * columns are not copied twice. */
void rows_json(const struct rows *rows, size_t row, struct buffer *out);
/* All rows as a JSON array. */
void rows_json_list(const struct rows *rows, struct buffer *out);
/* A single column's text, NULL for SQL NULL; valid until rows_free. For queries `returns nothing`,
 * columns are free. */
const char *rows_text(const struct rows *rows, size_t row, size_t column);
const struct schema *rows_schema(const struct rows *rows);

/* --- notifications
 * -----------------------------------------------------------------------------------------------
 */

/* A connection of its own that listens on `channels` (NULL-terminated). ERR_UNAVAILABLE when the
 * database does not answer now. */
struct listening;
int listen_open(struct listening **listener, const char *url, const char *const *channels,
                struct error *err);
/* Wait up to `timeout_ms` for a notification, or until `wake_fd` (or -1) is readable. Returns 1
 * with channel and payload (valid until the next call), 0 when nothing came. Reconnects by itself;
 * after a reconnect one notification with an empty payload comes for each channel, since some may
 * have been missed. */
int listen_wait(struct listening *listener, int timeout_ms, int wake_fd, const char **channel,
                const char **payload, struct error *err);
void listen_close(struct listening *listener);

#endif
