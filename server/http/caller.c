/* Who is asking, and in which project: contract/sessions-api.md, section 2. */
#include "http/caller.h"

#include <civetweb.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#include "common/log.h"
#include "common/token.h"
#include "http/request.h"
#include "server/settings.h"

enum { TOKEN_BYTES_MAX = 4096 };

/* --- the credential
 * ------------------------------------------------------------------------------------------------------
 */

/* The one token behind "Bearer", or NULL: no header, another scheme, two headers, two tokens. */
static const char *bearer_token(const struct request *req)
{
    static const char scheme[] = "Bearer";
    const char *value = NULL, *token;
    int headers = 0;

    for (int i = 0; i < req->info->num_headers; i++) {
        if (strcasecmp(req->info->http_headers[i].name, "Authorization") != 0)
            continue;
        value = req->info->http_headers[i].value;
        headers++;
    }
    if (headers != 1 || strncasecmp(value, scheme, strlen(scheme)) != 0)
        return NULL;
    token = value + strlen(scheme);
    if (*token != ' ')
        return NULL;
    token += strspn(token, " ");
    if (!*token || strlen(token) > TOKEN_BYTES_MAX)
        return NULL;
    for (const char *c = token; *c; c++)
        if (*c <= ' ' || *c == 0x7F || (unsigned char)*c >= 0x80 || *c == ',')
            return NULL;
    return token;
}

static bool has_operator_token(void)
{
    return settings.operator_token.value && settings.operator_token.value[0];
}

/* Without a key, a token, and outside production everybody may do everything. Keys that exist once
 * close it for this process's life. */
static int is_open(struct request *req, bool *open, struct error *err)
{
    static atomic_bool closed;
    auto_rows struct rows *rows = NULL;

    *open = false;
    if (!server_settings_relaxed() || has_operator_token() ||
        atomic_load_explicit(&closed, memory_order_relaxed))
        return 0;
    if (query_rows(req->db, QUERY_identity_any_key, NO_PARAMS, &rows, err) < 0)
        return -1;
    *open = *rows_text(rows, 0, 0) == 'f';
    if (!*open)
        atomic_store_explicit(&closed, true, memory_order_relaxed);
    return 0;
}

static int identify_key(struct request *req, const char *token, struct error *err)
{
    char digest[SHA256_HEX_SIZE];
    auto_rows struct rows *rows = NULL;

    token_sha256(token, strlen(token), digest);
    if (query_rows(req->db, QUERY_identity_key, PARAMS(digest), &rows, err) < 0)
        return -1;
    if (!rows_count(rows))
        return 0;
    req->caller = (struct caller){
        .kind = CALLER_KEY,
        .subject = arena_text(req->arena, "%s", rows_text(rows, 0, 0)),
        .label = arena_text(req->arena, "%s", rows_text(rows, 0, 1)),
        .key_project = arena_text(req->arena, "%s", rows_text(rows, 0, 2)),
        .key_project_slug = arena_text(req->arena, "%s", rows_text(rows, 0, 3)),
    };
    if (*rows_text(rows, 0, 4) == 't' &&
        query_run(req->db, QUERY_identity_used, PARAMS(req->caller.subject), err) < 0)
        return -1;
    return 0;
}

int caller_identify(struct request *req, struct error *err)
{
    static const struct caller operator= {
        .kind = CALLER_OPERATOR, .subject = "operator", .label = "operator"};
    const char *token = bearer_token(req);

    req->caller = (struct caller){.kind = CALLER_NOBODY};
    if (token && has_operator_token() && token_equal(token, settings.operator_token.value)) {
        req->caller = operator;
        return 0;
    }
    if (token && strncmp(token, "ak_", 3) == 0 && identify_key(req, token, err) < 0)
        return -1;
    if (req->caller.kind != CALLER_NOBODY)
        return 0;
    if (is_open(req, &req->caller.open, err) < 0)
        return -1;
    if (req->caller.open) {
        req->caller = operator;
        req->caller.open = true;
    }
    return 0;
}

/* --- the project
 * -----------------------------------------------------------------------------------------------------------
 */

static int project_missing(struct error *err)
{
    return error_set(err, ERR_NOT_FOUND, "project not found");
}

/* What no slug can hold is not shown to the database. */
static bool is_slug(const char *text)
{
    size_t length = strlen(text);

    return length <= 63 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

/* A key acts in its own project; naming another finds nothing. */
static int project_of_key(struct request *req, const char *named, struct error *err)
{
    const struct caller *caller = &req->caller;

    if (named && strcasecmp(named, caller->key_project) != 0 &&
        strcmp(named, caller->key_project_slug) != 0)
        return project_missing(err);
    req->project = caller->key_project;
    return 0;
}

static int project_named(struct request *req, const char *named, struct error *err)
{
    bool is_id = token_is_uuid(named);
    auto_rows struct rows *rows = NULL;

    if (!is_id && !is_slug(named))
        return project_missing(err);
    if (query_rows(req->db, QUERY_identity_project,
                   PARAMS(is_id ? named : NULL, is_id ? NULL : named), &rows, err) < 0)
        return -1;
    if (!rows_count(rows))
        return project_missing(err);
    req->project = arena_text(req->arena, "%s", rows_text(rows, 0, 0));
    return 0;
}

/* Refused, not guessed. */
static int project_only(struct request *req, struct error *err)
{
    auto_rows struct rows *rows = NULL;

    if (query_rows(req->db, QUERY_identity_projects, NO_PARAMS, &rows, err) < 0)
        return -1;
    if (!rows_count(rows))
        return error_set(err, ERR_CONFLICT, "there is no project: make one first");
    if (rows_count(rows) > 1)
        return error_set(err, ERR_BAD_REQUEST, "there are several projects: name one in X-Project");
    req->project = arena_text(req->arena, "%s", rows_text(rows, 0, 0));
    return 0;
}

static int find_project(struct request *req, struct error *err)
{
    const char *named = request_header(req, "X-Project");

    if (named && !*named)
        named = NULL;
    if (req->caller.kind == CALLER_KEY)
        return project_of_key(req, named, err);
    return named ? project_named(req, named, err) : project_only(req, err);
}

/* --- rules
 * -----------------------------------------------------------------------------------------------------------------
 */

static int admit_metrics(struct request *req, struct error *err)
{
    const char *token = bearer_token(req), *key = settings.metrics_api_key.value;

    if (!key || !*key)
        return error_set(err, ERR_UNAVAILABLE, "Metrics endpoint is not configured");
    if (!token || !token_equal(token, key))
        return error_set(err, ERR_UNAUTHENTICATED, "Invalid or missing metrics credential");
    req->caller = (struct caller){.kind = CALLER_METRICS, .subject = "metrics", .label = "metrics"};
    return 0;
}

/* Keys are managed by the operator; where there is none, a key may manage those of its project
 * (DECISION 10). */
static bool operator_needed(enum caller_rule rule)
{
    return rule == RULE_OPERATOR || (rule == RULE_OPERATOR_PROJECT && has_operator_token());
}

int caller_admit(struct request *req, enum caller_rule rule, struct error *err)
{
    if (rule == RULE_PUBLIC)
        return 0;
    if (rule == RULE_METRICS)
        return admit_metrics(req, err);
    if (req->caller.kind == CALLER_NOBODY)
        return error_set(err, ERR_UNAUTHENTICATED, "%s",
                         request_header(req, "Authorization")
                             ? "the credential is not accepted"
                             : "a credential is needed: Authorization: Bearer <key>");
    if (req->caller.kind == CALLER_KEY && operator_needed(rule))
        return error_set(err, ERR_FORBIDDEN,
                         "an API key may not do this: it takes the operator's token");
    return rule == RULE_PROJECT || rule == RULE_OPERATOR_PROJECT ? find_project(req, err) : 0;
}
