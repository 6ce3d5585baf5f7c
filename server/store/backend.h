/* One connection to PostgreSQL. For the files of this room only: nobody else sees libpq. */
#ifndef STORE_BACKEND_H
#define STORE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "store/database.h"

enum {
    CONNECT_TIMEOUT_S = 3,
    STATEMENT_TIMEOUT_S = 30,
    ANSWER_TIMEOUT_MS =
        (STATEMENT_TIMEOUT_S + 5) * 1000, /* a server that does not even cancel is gone */
};

/* Where to connect, and how: parsed once. */
struct target {
    const char **keywords, **values; /* NULL-terminated, on the heap */
};

/* ERR_INVALID when `url` does not parse; the message does not repeat it. */
int target_init(struct target *target, const char *url, struct error *err);
void target_done(struct target *target);

/* Open a connection; waits at most CONNECT_TIMEOUT_S a host. The caller closes it with PQfinish. */
int backend_open(const struct target *target, PGconn **connection, struct error *err);
/* Whether an idle connection can be used still, by what has come in meanwhile. Asks nobody. */
bool backend_alive(PGconn *connection);
/* The result of what was sent (PQsend…), or NULL when the connection broke or `timeout_ms` passed;
 * it is of no more use then. */
PGresult *backend_answer(PGconn *connection, int timeout_ms);
/* Send one text and wait for its result. ERR_… as query_rows; `what` names it in the log. */
int backend_run(PGconn *connection, const char *what, const char *sql, PGresult **result,
                struct error *err);
/* Whether `result` is a success. Otherwise fills `err` as query_rows says, logs what is a defect,
 * and returns -1. */
int backend_judge(PGconn *connection, const PGresult *result, const char *what, struct error *err);

/* Whether, after this result, the connection is not to be used again. */
bool backend_spent(PGconn *connection, const PGresult *result);

void result_scope(PGresult **result);
#define auto_result __attribute__((cleanup(result_scope)))
void backend_scope(PGconn **connection);
#define auto_backend __attribute__((cleanup(backend_scope)))

int64_t monotonic_ms(void);

/* --- what database.c and query.c share ------------------------------------------------------- */

struct database {
    PGconn *connection;
    struct pool *pool;
    bool broken; /* to be closed instead of reused */
    bool in_transaction;
    char constraint[64]; /* of the last error; "" */
    char (*touched)[37]; /* sessions to wake at the commit */
    size_t touched_count, touched_room;
    uint8_t prepared[(QUERIES + 7) / 8];
};

/* Note for the connection's owner what `result` says about it, and judge it: backend_judge. */
int database_judge(struct database *db, const PGresult *result, const char *what,
                   struct error *err);
/* Prepare one query and compare its columns with its field table. ERR_NOT_FOUND, after the query
 * was prepared, when its field table is not part of the program. */
int query_check(struct database *db, enum query_id query, struct error *err);
/* Whether the columns are the members of the struct: names, order, types. */
int columns_check(const struct schema *schema, const PGresult *described, struct error *err);
/* Rows that own `result`. */
struct rows *rows_new(PGresult *result, const struct schema *schema);

#endif
