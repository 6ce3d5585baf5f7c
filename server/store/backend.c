/* One connection to PostgreSQL: how it is opened, waited for and given up. */
#include "store/backend.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "common/scope.h"

int64_t monotonic_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000) + time.tv_nsec / 1000000;
}

void result_scope(PGresult **result)
{
    PQclear(*result);
}

void backend_scope(PGconn **connection)
{
    PQfinish(*connection);
}

/* --- opening --------------------------------------------------------------------------------- */

struct keyword {
    const char *name, *value;
};

/* A URL may change these. */
static const struct keyword defaults[] = {
    {"connect_timeout", "3"},  {"application_name", "sandbox-server"},
    {"keepalives_idle", "10"}, {"keepalives_interval", "5"},
    {"keepalives_count", "3"}, {"tcp_user_timeout", "20000"},
};

_Static_assert(CONNECT_TIMEOUT_S == 3 && STATEMENT_TIMEOUT_S == 30, "as the tables here say");

/* The program relies on these: its texts are UTF-8, its moments are UTC, and nothing waits for
 * ever. */
static const char options[] =
    "-c timezone=UTC -c statement_timeout=30s -c idle_in_transaction_session_timeout=60s"
    " -c default_transaction_isolation=read\\ committed -c standard_conforming_strings=on";

static void target_add(struct target *target, size_t *count, const char *name, const char *value)
{
    target->keywords[*count] = strdup(name);
    target->values[*count] = strdup(value);
    if (!target->keywords[*count] || !target->values[*count])
        abort();
    ++*count;
}

static void scope_options(PQconninfoOption **parsed)
{
    PQconninfoFree(*parsed);
}

int target_init(struct target *target, const char *url, struct error *err)
{
    static const char foreign[] = "postgresql+asyncpg://", native[] = "postgresql://";
    __attribute__((cleanup(scope_options))) PQconninfoOption *parsed = NULL;
    auto_buffer struct buffer all_options = {0}, own_url = {0};
    size_t given = 0, count = 0;

    if (!strncmp(url, foreign, sizeof(foreign) - 1)) {
        buffer_text(&own_url, native);
        buffer_text(&own_url, url + sizeof(foreign) - 1);
        url = own_url.data;
    }
    /* libpq's message may show the password. */
    parsed = PQconninfoParse(url, NULL);
    if (!parsed)
        return error_set(err, ERR_INVALID, "the address of the database does not parse");
    for (const PQconninfoOption *option = parsed; option->keyword; option++)
        given++;
    target->keywords = calloc(given + COUNT(defaults) + 3, sizeof(char *));
    target->values = calloc(given + COUNT(defaults) + 3, sizeof(char *));
    if (!target->keywords || !target->values)
        abort();
    /* The last value of a keyword counts. */
    for (size_t i = 0; i < COUNT(defaults); i++)
        target_add(target, &count, defaults[i].name, defaults[i].value);
    for (const PQconninfoOption *option = parsed; option->keyword; option++) {
        if (!option->val)
            continue;
        if (!strcmp(option->keyword, "options"))
            buffer_format(&all_options, "%s ", option->val);
        else
            target_add(target, &count, option->keyword, option->val);
    }
    buffer_text(&all_options, options);
    target_add(target, &count, "options", all_options.data);
    target_add(target, &count, "client_encoding", "UTF8");
    return 0;
}

void target_done(struct target *target)
{
    for (size_t i = 0; target->keywords && target->keywords[i]; i++) {
        free((char *)target->keywords[i]);
        free((char *)target->values[i]);
    }
    free(target->keywords);
    free(target->values);
    *target = (struct target){0};
}

/* While the database is away everybody tries: one line a second is enough. */
static void log_refusal(const char *reason)
{
    static _Atomic int64_t next_ms;
    int64_t now = monotonic_ms(), next = next_ms;
    auto_free char *line = strdup(reason);

    if (now < next || !line || !atomic_compare_exchange_strong(&next_ms, &next, now + 1000))
        return;
    for (size_t length = strlen(line); length && line[length - 1] == '\n'; length--)
        line[length - 1] = '\0';
    LOG(WARNING, "database_connect_failed", V("reason", line));
}

static void no_notices(void *context, const char *message)
{
    (void)context;
    (void)message;
}

int backend_open(const struct target *target, PGconn **connection, struct error *err)
{
    PGconn *opened = PQconnectdbParams(target->keywords, target->values, 0);

    if (!opened)
        abort();
    if (PQstatus(opened) != CONNECTION_OK) {
        log_refusal(PQerrorMessage(opened));
        PQfinish(opened);
        error_set(err, ERR_UNAVAILABLE, "the database does not answer");
        err->retry_after_s = 1;
        return -1;
    }
    PQsetNoticeProcessor(opened, no_notices, NULL);
    *connection = opened;
    return 0;
}

bool backend_alive(PGconn *connection)
{
    struct pollfd socket = {.fd = PQsocket(connection), .events = POLLIN};

    if (PQstatus(connection) != CONNECTION_OK)
        return false;
    while (poll(&socket, 1, 0) > 0)
        if (!PQconsumeInput(connection))
            return false;
    return PQstatus(connection) == CONNECTION_OK;
}

/* --- answers --------------------------------------------------------------------------------- */

/* Until PQgetResult does not block: 0, or -1 when there is nothing to wait for any more. */
static int wait_answer(PGconn *connection, int64_t deadline)
{
    while (PQisBusy(connection)) {
        struct pollfd socket = {.fd = PQsocket(connection), .events = POLLIN};
        int64_t left = deadline - monotonic_ms();
        int ready;

        if (left <= 0 || socket.fd < 0)
            return -1;
        ready = poll(&socket, 1, (int)left);
        if (ready < 0 && errno != EINTR)
            return -1;
        /* A connection that ended makes PQgetResult tell so. */
        if (ready > 0 && !PQconsumeInput(connection))
            return 0;
    }
    return 0;
}

PGresult *backend_answer(PGconn *connection, int timeout_ms)
{
    int64_t deadline = monotonic_ms() + timeout_ms;
    PGresult *answer = NULL;

    for (;;) {
        PGresult *next;

        if (wait_answer(connection, deadline) < 0) {
            PQclear(answer);
            return NULL;
        }
        next = PQgetResult(connection);
        if (!next)
            return answer;
        PQclear(answer);
        answer = next;
        if (PQstatus(connection) != CONNECTION_OK)
            return answer;
    }
}

struct failure {
    const char *state; /* SQLSTATE, or how it begins */
    enum error_kind kind;
    int retry_after_s;
    const char *message;
};

/* The first that matches. */
static const struct failure failures[] = {
    {"23505", ERR_CONFLICT, 0, "it exists already"},
    {"23503", ERR_CONFLICT, 0,
     "it refers to something that does not exist, or something refers to it"},
    {"22", ERR_INVALID, 0, "a value can't be stored"},
    {"54000", ERR_TOO_LARGE, 0, "a value is too large"},
    {"40001", ERR_UNAVAILABLE, 1, "somebody changed the same at the same time"},
    {"40P01", ERR_UNAVAILABLE, 1, "somebody changed the same at the same time"},
    {"55P03", ERR_UNAVAILABLE, 1, "the database is busy"},
    {"57014", ERR_UNAVAILABLE, 1, "the database took too long"},
    {"57P", ERR_UNAVAILABLE, 1, "the database is going down"},
    {"53", ERR_UNAVAILABLE, 5, "the database is out of resources"},
    {"25006", ERR_UNAVAILABLE, 5, "the database is read-only"},
    {"25P03", ERR_UNAVAILABLE, 1, "the transaction took too long"},
    {"08", ERR_UNAVAILABLE, 1, "the connection to the database was lost"},
};

static int fail_as(const struct failure *failure, struct error *err)
{
    error_set(err, failure->kind, "%s", failure->message);
    err->retry_after_s = failure->retry_after_s;
    return -1;
}

int backend_judge(PGconn *connection, const PGresult *result, const char *what, struct error *err)
{
    static const struct failure lost = {NULL, ERR_UNAVAILABLE, 1,
                                        "the connection to the database was lost"};
    ExecStatusType status = PQresultStatus(result);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *constraint = PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME);

    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
        return 0;
    if (!result || PQstatus(connection) != CONNECTION_OK)
        return fail_as(&lost, err);
    if (!state)
        state = "";
    for (size_t i = 0; i < COUNT(failures); i++)
        if (!strncmp(state, failures[i].state, strlen(failures[i].state)))
            return fail_as(&failures[i], err);
    /* Class 42, a query that does not fit the schema, is the only one whose message has names and
     * no values. */
    LOG(ERROR, "query_failed", V("query", what), V("sqlstate", state),
        V("constraint", constraint ? constraint : ""),
        V("reason", !strncmp(state, "42", 2) && message ? message : ""));
    return error_set(err, ERR_INTERNAL, "query %s failed (SQLSTATE %s)", what, state);
}

bool backend_spent(PGconn *connection, const PGresult *result)
{
    /* A server that became a standby; prepared queries that are gone, or whose columns a migration
     * changed. */
    static const char *const states[] = {"25006", "26000", "0A000"};
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

    if (!result || PQstatus(connection) != CONNECTION_OK)
        return true;
    for (size_t i = 0; state && i < COUNT(states); i++)
        if (!strcmp(state, states[i]))
            return true;
    return false;
}

int backend_run(PGconn *connection, const char *what, const char *sql, PGresult **result,
                struct error *err)
{
    auto_result PGresult *answer = NULL;

    if (PQsendQuery(connection, sql))
        answer = backend_answer(connection, ANSWER_TIMEOUT_MS);
    if (backend_judge(connection, answer, what, err) < 0)
        return -1;
    if (result) {
        *result = answer;
        answer = NULL;
    }
    return 0;
}
