/* Credentials and projects, against a private database. */
#include "http/caller.h"

#include <stdio.h>

#include "common/token.h"
#include "tests/unit/http/served.h"
#include "tests/unit/store/postgres.h"

const struct route routes[] = {{.room = "none"}};
const size_t route_count = COUNT(routes);

#define OPERATOR "operator-token-operator-token-operator-token"
#define KEY "ak_0123456789012345678901234567890123456789012"
#define REVOKED "ak_revoked"
#define EXPIRED "ak_expired"
#define METRICS "metrics-key-metrics-key"

/* The handlers' struct, which is another room's: as many columns, to read the list. */
struct key {
    const char *texts[10];
};
#define COLUMN(i)                                                          \
    {                                                                      \
        .name = #i, .type = FIELD_TEXT, .offset = i * sizeof(const char *) \
    }
static const struct field key_fields[] = {COLUMN(0), COLUMN(1), COLUMN(2), COLUMN(3), COLUMN(4),
                                          COLUMN(5), COLUMN(6), COLUMN(7), COLUMN(8), COLUMN(9)};
SCHEMA(key);

static struct pool *pool;
static char first_project[37], second_project[37], key_id[37];

/* The same statements as the program's, so that what is tested is what is stored. */
static void make_key(struct database *db, const char *project, const char *key,
                     const char *expires_at)
{
    char digest[SHA256_HEX_SIZE];
    struct error err;

    token_sha256(key, strlen(key), digest);
    ck_assert_msg(query_run(db, QUERY_keys_insert,
                            PARAMS(project, "a key", "", key, digest, NULL, expires_at), &err) == 1,
                  "%s", err.message);
}

static void id_of(struct database *db, const char *slug, char out[37])
{
    auto_rows struct rows *rows = NULL;
    struct error err;

    ck_assert_int_eq(query_rows(db, QUERY_identity_project, PARAMS(NULL, slug), &rows, &err), 0);
    ck_assert_uint_eq(rows_count(rows), 1);
    strcpy(out, rows_text(rows, 0, 0));
}

static void borrow(struct database **db)
{
    struct error err;

    ck_assert_msg(database_borrow(pool, 1000, db, &err) == 0, "%s", err.message);
}

static void fill(void)
{
    auto_database struct database *db = NULL;
    auto_rows struct rows *rows = NULL;
    char digest[SHA256_HEX_SIZE];
    struct error err;

    borrow(&db);
    ck_assert_int_eq(query_run(db, QUERY_projects_insert, PARAMS("second", "Second", ""), &err), 1);
    id_of(db, "default", first_project);
    id_of(db, "second", second_project);
    make_key(db, second_project, KEY, NULL);
    make_key(db, second_project, EXPIRED, "2020-01-01T00:00:00Z");
    make_key(db, second_project, REVOKED, NULL);
    token_sha256(REVOKED, strlen(REVOKED), digest);
    ck_assert_int_eq(query_rows(db, QUERY_identity_key, PARAMS(digest), &rows, &err), 0);
    ck_assert_int_eq(
        query_run(db, QUERY_keys_revoke, PARAMS(second_project, rows_text(rows, 0, 0)), &err), 1);
    rows_free(rows);
    token_sha256(KEY, strlen(KEY), digest);
    ck_assert_int_eq(query_rows(db, QUERY_identity_key, PARAMS(digest), &rows, &err), 0);
    strcpy(key_id, rows_text(rows, 0, 0));
}

static void setup(void)
{
    struct error err;

    postgres_setup();
    if (pool_open(&pool, postgres_url, 4, &err) < 0)
        postgres_die(err.message);
}

static void teardown(void)
{
    pool_close(pool);
    postgres_teardown();
}

/* As the router asks: who, then whether. The error's kind, or ERR_NONE. */
static enum error_kind ask(struct served *served, enum caller_rule rule, const char *authorization,
                           const char *project)
{
    const char *const headers[] = {"X-Other",
                                   "x",
                                   authorization ? "authorization" : "X-Other",
                                   authorization ? authorization : "",
                                   project ? "x-project" : NULL,
                                   project,
                                   NULL};
    struct error err = {0};

    serve_begin(served, "GET", "/api/agents", NULL, headers);
    served->req.pool = pool;
    borrow(&served->req.db);
    ck_assert_msg(caller_identify(&served->req, &err) == 0, "%s", err.message);
    if (caller_admit(&served->req, rule, &err) == 0)
        err.kind = ERR_NONE;
    database_return(served->req.db);
    served->req.db = NULL;
    return err.kind;
}

static void configure(const char *env, const char *operator_token)
{
    settings.env = env;
    settings.operator_token.value = operator_token;
    settings.metrics_api_key.value = METRICS;
}

/* --- credentials
 * ---------------------------------------------------------------------------------------------------------------
 */

static const struct {
    const char *authorization;
    enum caller_kind kind;
} credentials[] = {
    {NULL, CALLER_NOBODY},
    {"", CALLER_NOBODY},
    {"Bearer", CALLER_NOBODY},
    {"Bearer ", CALLER_NOBODY},
    {"Bearer " KEY, CALLER_KEY},
    {"bEARER   " KEY, CALLER_KEY},
    {"Bearer\t" KEY, CALLER_NOBODY},
    {"Bearer " KEY " x", CALLER_NOBODY},
    {"Bearer " KEY ",x", CALLER_NOBODY},
    {"Bearer " KEY "x", CALLER_NOBODY},
    {"Basic " KEY, CALLER_NOBODY},
    {"Bearer: " KEY, CALLER_NOBODY},
    {"Bearer" KEY, CALLER_NOBODY},
    {KEY, CALLER_NOBODY},
    {"Bearer " REVOKED, CALLER_NOBODY},
    {"Bearer " EXPIRED, CALLER_NOBODY},
    {"Bearer ak_", CALLER_NOBODY},
    {"Bearer \xFF", CALLER_NOBODY},
    {"Bearer " OPERATOR, CALLER_OPERATOR},
    {"Bearer " OPERATOR "x", CALLER_NOBODY},
    {"Bearer " METRICS, CALLER_NOBODY},
};

START_TEST(a_credential_tells_who_asks)
{
    struct served served;
    enum error_kind kind;

    configure("production", OPERATOR);
    kind = ask(&served, RULE_ANY, credentials[_i].authorization, NULL);
    ck_assert_int_eq(served.req.caller.kind, credentials[_i].kind);
    ck_assert_int_eq(kind, credentials[_i].kind == CALLER_NOBODY ? ERR_UNAUTHENTICATED : ERR_NONE);
    if (credentials[_i].kind == CALLER_KEY) {
        ck_assert_str_eq(served.req.caller.subject, key_id);
        ck_assert_str_eq(served.req.caller.label, "a key");
        ck_assert_str_eq(served.req.caller.key_project, second_project);
    }
    ck_assert(!served.req.caller.open);
    serve_end(&served);
}
END_TEST

START_TEST(two_credentials_are_none)
{
    const char *const headers[] = {"Authorization", "Bearer " KEY, "Authorization", "Bearer " KEY,
                                   NULL};
    struct served served;
    struct error err;

    configure("production", OPERATOR);
    serve_begin(&served, "GET", "/api/agents", NULL, headers);
    borrow(&served.req.db);
    ck_assert_int_eq(caller_identify(&served.req, &err), 0);
    ck_assert_int_eq(served.req.caller.kind, CALLER_NOBODY);
    database_return(served.req.db);
    serve_end(&served);
}
END_TEST

START_TEST(the_use_of_a_key_is_noted)
{
    auto_database struct database *db = NULL;
    auto_rows struct rows *rows = NULL;
    struct served served;
    struct error err;
    bool noted = false;

    configure("production", OPERATOR);
    ask(&served, RULE_ANY, "Bearer " KEY, NULL);
    serve_end(&served);
    borrow(&db);
    ck_assert_int_eq(query_rows(db, QUERY_keys_list, PARAMS(second_project), &rows, &err), 0);
    for (size_t i = 0; i < rows_count(rows); i++)
        if (strcmp(rows_text(rows, i, 0), key_id) == 0)
            noted = rows_text(rows, i, 7) != NULL;
    ck_assert(noted);
}
END_TEST

/* --- rules
 * ------------------------------------------------------------------------------------------------------------------------
 */

enum named {
    NAMES_NONE,
    NAMES_FIRST_ID,
    NAMES_SECOND_ID,
    NAMES_SECOND_SLUG,
    NAMES_UNKNOWN_ID,
    NAMES_UNKNOWN,
    NAMES_ODD
};

static const struct {
    enum caller_rule rule;
    const char *authorization, *operator_token;
    enum named named;
    enum error_kind kind;
    char project; /* '1', '2', or 0: none */
} rules[] = {
    {RULE_PUBLIC, NULL, OPERATOR, NAMES_UNKNOWN, ERR_NONE, 0},
    {RULE_ANY, NULL, OPERATOR, NAMES_NONE, ERR_UNAUTHENTICATED, 0},
    {RULE_ANY, "Bearer " KEY, OPERATOR, NAMES_UNKNOWN, ERR_NONE, 0},
    {RULE_PROJECT, NULL, OPERATOR, NAMES_UNKNOWN, ERR_UNAUTHENTICATED, 0},
    {RULE_PROJECT, "Bearer " KEY, OPERATOR, NAMES_NONE, ERR_NONE, '2'},
    {RULE_PROJECT, "Bearer " KEY, OPERATOR, NAMES_SECOND_ID, ERR_NONE, '2'},
    {RULE_PROJECT, "Bearer " KEY, OPERATOR, NAMES_SECOND_SLUG, ERR_NONE, '2'},
    {RULE_PROJECT, "Bearer " KEY, OPERATOR, NAMES_FIRST_ID, ERR_NOT_FOUND, 0},
    {RULE_PROJECT, "Bearer " KEY, OPERATOR, NAMES_UNKNOWN, ERR_NOT_FOUND, 0},
    {RULE_PROJECT, "Bearer " OPERATOR, OPERATOR, NAMES_NONE, ERR_BAD_REQUEST, 0},
    {RULE_PROJECT, "Bearer " OPERATOR, OPERATOR, NAMES_FIRST_ID, ERR_NONE, '1'},
    {RULE_PROJECT, "Bearer " OPERATOR, OPERATOR, NAMES_SECOND_SLUG, ERR_NONE, '2'},
    {RULE_PROJECT, "Bearer " OPERATOR, OPERATOR, NAMES_UNKNOWN_ID, ERR_NOT_FOUND, 0},
    {RULE_PROJECT, "Bearer " OPERATOR, OPERATOR, NAMES_UNKNOWN, ERR_NOT_FOUND, 0},
    {RULE_PROJECT, "Bearer " OPERATOR, OPERATOR, NAMES_ODD, ERR_NOT_FOUND, 0},
    {RULE_OPERATOR, "Bearer " KEY, OPERATOR, NAMES_NONE, ERR_FORBIDDEN, 0},
    {RULE_OPERATOR, "Bearer " KEY, "", NAMES_NONE, ERR_FORBIDDEN, 0},
    {RULE_OPERATOR, "Bearer " OPERATOR, OPERATOR, NAMES_NONE, ERR_NONE, 0},
    {RULE_OPERATOR_PROJECT, "Bearer " KEY, OPERATOR, NAMES_NONE, ERR_FORBIDDEN, 0},
    {RULE_OPERATOR_PROJECT, "Bearer " KEY, "", NAMES_NONE, ERR_NONE, '2'},
    {RULE_OPERATOR_PROJECT, "Bearer " OPERATOR, OPERATOR, NAMES_SECOND_ID, ERR_NONE, '2'},
    {RULE_OPERATOR_PROJECT, "Bearer " OPERATOR, OPERATOR, NAMES_NONE, ERR_BAD_REQUEST, 0},
    {RULE_METRICS, "Bearer " METRICS, OPERATOR, NAMES_NONE, ERR_NONE, 0},
    {RULE_METRICS, "Bearer " OPERATOR, OPERATOR, NAMES_NONE, ERR_UNAUTHENTICATED, 0},
    {RULE_METRICS, NULL, OPERATOR, NAMES_NONE, ERR_UNAUTHENTICATED, 0},
};

START_TEST(a_rule_admits_or_refuses)
{
    const char *const names[] = {[NAMES_NONE] = NULL,
                                 [NAMES_FIRST_ID] = first_project,
                                 [NAMES_SECOND_ID] = second_project,
                                 [NAMES_SECOND_SLUG] = "second",
                                 [NAMES_UNKNOWN_ID] = "00000000-0000-4000-8000-000000000000",
                                 [NAMES_UNKNOWN] = "unknown",
                                 [NAMES_ODD] = "../\xFF"};
    struct served served;

    configure("production", rules[_i].operator_token);
    ck_assert_int_eq(ask(&served, rules[_i].rule, rules[_i].authorization, names[rules[_i].named]),
                     rules[_i].kind);
    if (rules[_i].project)
        ck_assert_str_eq(served.req.project,
                         rules[_i].project == '1' ? first_project : second_project);
    else
        ck_assert_ptr_null(served.req.project);
    serve_end(&served);
}
END_TEST

START_TEST(metrics_without_a_key_are_unavailable)
{
    struct served served;

    configure("production", OPERATOR);
    settings.metrics_api_key.value = "";
    ck_assert_int_eq(ask(&served, RULE_METRICS, "Bearer x", NULL), ERR_UNAVAILABLE);
    serve_end(&served);
}
END_TEST

/* --- open deployments
 * ---------------------------------------------------------------------------------------------------------------
 */

/* Runs before there is any key. */
START_TEST(without_keys_and_outside_production_everybody_is_the_operator)
{
    struct served served;

    configure("dev", "");
    ck_assert_int_eq(ask(&served, RULE_PROJECT, NULL, NULL), ERR_NONE);
    ck_assert(served.req.caller.open);
    ck_assert_int_eq(served.req.caller.kind, CALLER_OPERATOR);
    ck_assert_ptr_nonnull(served.req.project);
    serve_end(&served);
    ck_assert_int_eq(ask(&served, RULE_OPERATOR, "Bearer nonsense", NULL), ERR_NONE);
    serve_end(&served);

    configure("dev", OPERATOR);
    ck_assert_int_eq(ask(&served, RULE_ANY, NULL, NULL), ERR_UNAUTHENTICATED);
    serve_end(&served);
    configure("production", "");
    ck_assert_int_eq(ask(&served, RULE_ANY, NULL, NULL), ERR_UNAUTHENTICATED);
    ck_assert(!served.req.caller.open);
    serve_end(&served);
    fill();
}
END_TEST

START_TEST(a_key_closes_the_deployment)
{
    struct served served;

    configure("dev", "");
    ck_assert_int_eq(ask(&served, RULE_ANY, NULL, NULL), ERR_UNAUTHENTICATED);
    ck_assert(!served.req.caller.open);
    serve_end(&served);
    ck_assert_int_eq(ask(&served, RULE_ANY, "Bearer " KEY, NULL), ERR_NONE);
    serve_end(&served);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("caller");
    TCase *tests = unit_case(suite, "caller");

    /* In one process: the database is filled by the first test, and used by the others. */
    setenv("CK_FORK", "no", 0);
    tcase_add_unchecked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, without_keys_and_outside_production_everybody_is_the_operator);
    tcase_add_test(tests, a_key_closes_the_deployment);
    unit_table(tests, a_credential_tells_who_asks, credentials);
    tcase_add_test(tests, two_credentials_are_none);
    tcase_add_test(tests, the_use_of_a_key_is_noted);
    unit_table(tests, a_rule_admits_or_refuses, rules);
    tcase_add_test(tests, metrics_without_a_key_are_unavailable);
    return unit_run(suite);
}
