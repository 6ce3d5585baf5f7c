/* Sessions: one conversation each, and the sandbox that it owns. */
#include "api/control/sessions.h"

#include <string.h>

#include "api/control/agents.h"
#include "api/control/definition.h"
#include "api/handlers.h"
#include "common/json.h"
#include "run/capacity.h"
#include "run/events.h"
#include "run/lifecycle.h"
#include "run/turns.h"

/* --- what is answered ------------------------------------------------------------------------- */

#define SESSION_MEMBERS           \
    const char *id;               \
    const char *agent_id;         \
    const char *title;            \
    const char *status;           \
    const char *activity;         \
    const char *error;            \
    const char *stopped_reason;   \
    const char *backend;          \
    const char *container_id;     \
    struct numbers exposed_ports; \
    const char *workdir;          \
    const char *model;            \
    const char *usage;            \
    const char *metadata;         \
    const char *created_at;       \
    const char *updated_at;       \
    const char *last_event_at;

/* clang-format off */
#define SESSION_FIELDS(owner)                                                                      \
    {TEXT(owner, id)},                                                                             \
    {TEXT(owner, agent_id)},                                                                       \
    {TEXT(owner, title)},                                                                          \
    {TEXT(owner, status), .about = "of the sandbox: provisioning, running, stopped or error"},     \
    {TEXT(owner, activity), .about = "of the conversation: busy or idle"},                         \
    {TEXT(owner, error), .nullable = true},                                                        \
    {TEXT(owner, stopped_reason), .nullable = true, .about = "requested, idle or restart"},        \
    {TEXT(owner, backend)},                                                                        \
    {TEXT(owner, container_id), .nullable = true},                                                 \
    {NUMBERS(owner, exposed_ports)},                                                               \
    {TEXT(owner, workdir)},                                                                        \
    {TEXT(owner, model), .nullable = true, .about = "in place of the agent's"},                    \
    {JSON(owner, usage), .shape = SHAPE_OBJECT},                                                   \
    {JSON(owner, metadata), .shape = SHAPE_OBJECT},                                                \
    {TEXT(owner, created_at)},                                                                     \
    {TEXT(owner, updated_at)},                                                                     \
    {TEXT(owner, last_event_at), .nullable = true}
/* clang-format on */

extern const struct schema schema_agent, schema_run;

struct session {
    SESSION_MEMBERS
};

static const struct field session_fields[] = {SESSION_FIELDS(session)};
SCHEMA(session);

struct session_detail {
    SESSION_MEMBERS
    const char *agent;
    const char *runs;
    double sandbox_seconds;
};

static const struct field session_detail_fields[] = {
    SESSION_FIELDS(session_detail),
    {JSON(session_detail, agent), .shape = SHAPE_OBJECT, .element = &schema_agent},
    {JSON(session_detail, runs), .shape = SHAPE_LIST, .element = &schema_run,
     .about = "oldest first"},
    {REAL(session_detail, sandbox_seconds), .about = "time up over every boot, counted to now"},
};
SCHEMA(session_detail);

static const struct field session_found_fields[] = {
    {TEXT(session_found, id)},
    {TEXT(session_found, status)},
    {TEXT(session_found, stopped_reason), .nullable = true},
    {TEXT(session_found, workdir)},
};
SCHEMA(session_found);

struct session_made {
    const char *id;
    int64_t generation;
};

static const struct field session_made_fields[] = {
    {TEXT(session_made, id)},
    {NUMBER(session_made, generation)},
};
SCHEMA(session_made);

/* --- what is asked ---------------------------------------------------------------------------- */

struct sessions_filter {
    const char *agent_id;
    const char *status;
    int64_t limit;
    int64_t offset;
};

static const struct field sessions_filter_fields[] = {
    {TEXT(sessions_filter, agent_id), .optional = true,
     .about = "id or slug; an unknown one has no sessions"},
    {TEXT(sessions_filter, status), .choices = "provisioning|running|stopped|error",
     .optional = true},
    {NUMBER(sessions_filter, limit), .min = 1, .max = 1000, .fallback = "100"},
    {NUMBER(sessions_filter, offset), .min = 0, .max = INT64_MAX, .fallback = "0"},
};
SCHEMA(sessions_filter);

struct session_create {
    const char *agent_id;
    const char *title;
    const char *metadata;
    const char *model;
    const char *instructions;
    const char *manifest;
    const char *secret_bindings;
    const char *from_snapshot_id;
    const char *environment_id;
    const char *prompt;
};

static const struct field session_create_fields[] = {
    {TEXT(session_create, agent_id), .about = "id or slug"},
    {TEXT(session_create, title), .fallback = "\"\""},
    {JSON(session_create, metadata), .shape = SHAPE_OBJECT, .fallback = "{}",
     .null_is_fallback = true},
    {TEXT(session_create, model), NOT_EMPTY, .nullable = true, .fallback = "null"},
    {TEXT(session_create, instructions), .nullable = true, .fallback = "null"},
    {JSON(session_create, manifest), .shape = SHAPE_OBJECT, .element = &schema_manifest,
     .nullable = true, .fallback = "null"},
    {JSON(session_create, secret_bindings), .shape = SHAPE_LIST, .element = &schema_secret_binding,
     .fallback = "[]", .null_is_fallback = true},
    {TEXT(session_create, from_snapshot_id), .nullable = true, .fallback = "null"},
    {TEXT(session_create, environment_id), .nullable = true, .fallback = "null"},
    {TEXT(session_create, prompt), NOT_EMPTY, .nullable = true, .fallback = "null",
     .about = "a first turn, which begins when the sandbox is up"},
};

static const char *check_session_create(const void *value, const char **field)
{
    const struct session_create *body = value;

    *field = "secret_bindings";
    return definition_bindings_fault(body->secret_bindings);
}
SCHEMA_WITH(session_create, .check = check_session_create);

struct session_update {
    const char *title;
    const char *metadata;
};

static const struct field session_update_fields[] = {
    {TEXT(session_update, title), .optional = true},
    {JSON(session_update, metadata), .shape = SHAPE_OBJECT, .optional = true,
     .about = "merged into the stored: null removes a key"},
};
SCHEMA(session_update);

/* --- shared by the handlers below a session --------------------------------------------------- */

const char *session_parameter(const struct request *req)
{
    return token_is_uuid(req->path_values[0]) ? req->path_values[0] : NULL;
}

int session_find(struct request *req, struct session_found *found, struct error *err)
{
    if (query_row(req->db, QUERY_sessions_find, PARAMS(req->project, session_parameter(req)),
                  req->arena, found, err) == 0)
        return 0;
    return err->kind == ERR_NOT_FOUND ? error_set(err, ERR_NOT_FOUND, "session not found") : -1;
}

int session_need_workspace(const char *status, bool or_stopped, struct error *err)
{
    if (strcmp(status, "running") == 0 || (or_stopped && strcmp(status, "stopped") == 0))
        return 0;
    if (strcmp(status, "provisioning") == 0)
        return error_set(err, ERR_CONFLICT, "the session's sandbox is still booting");
    if (strcmp(status, "error") == 0)
        return error_set(err, ERR_CONFLICT, "the session's sandbox could not boot: start it again");
    return error_set(err, ERR_CONFLICT, "the session is stopped: start it first");
}

int session_use(struct request *req, const char *id, struct error *err)
{
    return query_run(req->db, QUERY_sessions_use, PARAMS(id), err) < 0 ? -1 : 0;
}

int session_boot(struct request *req, const char *id, int64_t generation, struct error *err)
{
    return jobs_add(req->db, "boot", id, NULL,
                    arena_text(req->arena, "{\"generation\":%ld}", (long)generation), 0,
                    BOOT_ATTEMPTS, err);
}

static int answer(struct request *req, struct response *res, int status, const char *id,
                  struct error *err)
{
    return respond_row(req, res, status, QUERY_sessions_get, PARAMS(req->project, id), "session",
                       err);
}

/* --- list, get, update ------------------------------------------------------------------------ */

int sessions_list(struct request *req, struct response *res, struct error *err)
{
    const struct sessions_filter *filter = req->query;
    const char *agent = filter->agent_id;
    const char *agent_id = agent && token_is_uuid(agent) ? agent : NULL,
               *slug = agent_id ? NULL : agent;
    auto_rows struct rows *total = NULL;

    if (query_rows(req->db, QUERY_sessions_count,
                   PARAMS(req->project, agent_id, slug, filter->status), &total, err) < 0)
        return -1;
    response_header(res, "X-Total-Count", rows_text(total, 0, 0));
    return respond_rows(req, res, QUERY_sessions_list,
                        PARAMS(req->project, agent_id, slug, filter->status, NUM(filter->limit),
                               NUM(filter->offset)),
                        err);
}

int sessions_get(struct request *req, struct response *res, struct error *err)
{
    return respond_row(req, res, 200, QUERY_sessions_detail,
                       PARAMS(req->project, session_parameter(req), turns_default_model()),
                       "session", err);
}

int sessions_update(struct request *req, struct response *res, struct error *err)
{
    const char *id = session_parameter(req);

    if (query_run(req->db, QUERY_sessions_update, PARAMS(req->project, id, req->body_json), err) <
        0)
        return -1;
    return answer(req, res, 200, id, err);
}

/* --- create ----------------------------------------------------------------------------------- */

/* Objects first (404), then references (400), then states (409): DECISION 85. */
static int check_create(struct request *req, const struct session_create *body,
                        struct agent_found *agent, struct error *err)
{
    if (agent_find(req, body->agent_id, agent, err) < 0)
        return -1;
    if (body->from_snapshot_id)
        return error_set(err, ERR_NOT_FOUND, "snapshot not found");
    if (body->environment_id)
        return error_set(err, ERR_NOT_FOUND, "environment not found");
    if (definition_manifest_check(req->arena, body->manifest, err) < 0 ||
        definition_bindings_check(req->arena, body->secret_bindings, err) < 0)
        return -1;
    if (agent->archived)
        return error_set(err, ERR_CONFLICT, "agent '%s' is archived", agent->slug);
    return 0;
}

static int log_created(struct request *req, const char *id, const struct agent_found *agent,
                       const struct session_create *body, struct error *err)
{
    auto_buffer struct buffer payload = {0};

    json_format(&payload, "{\"agent_id\":%s,\"agent\":%s,\"title\":%s,\"from_snapshot_id\":%s}",
                agent->id, agent->slug, body->title, body->from_snapshot_id);
    return events_append(req->db, id, NULL, "session.created", payload.data, NULL, err);
}

/* The row comes first: a sandbox that no row knows is a stray and may be destroyed. */
int sessions_create(struct request *req, struct response *res, struct error *err)
{
    const struct session_create *body = req->body;
    struct agent_found agent;
    struct session_made made;
    char run_id[UUID_SIZE];

    if (check_create(req, body, &agent, err) < 0 ||
        capacity_claim(req->db, req->project, NULL, err) < 0 ||
        query_row(req->db, QUERY_sessions_insert, PARAMS(req->project, agent.id, req->body_json),
                  req->arena, &made, err) < 0 ||
        log_created(req, made.id, &agent, body, err) < 0)
        return -1;
    if (body->prompt &&
        turns_begin(req->db, made.id, body->prompt, TURNS_DEFAULT, "[]", true, run_id, err) < 0)
        return -1;
    if (session_boot(req, made.id, made.generation, err) < 0)
        return -1;
    return answer(req, res, 202, made.id, err);
}

/* --- start, stop, interrupt, delete ----------------------------------------------------------- */

/* Find it, then give the connection back: what follows waits for the supervisor. */
static int find_and_let_go(struct request *req, struct session_found *found, struct error *err)
{
    return session_find(req, found, err) < 0 ? -1 : request_commit(req, err);
}

static int answer_again(struct request *req, struct response *res, const char *id,
                        struct error *err)
{
    return request_begin(req, err) < 0 ? -1 : answer(req, res, 200, id, err);
}

int sessions_start(struct request *req, struct response *res, struct error *err)
{
    struct session_found session;

    if (find_and_let_go(req, &session, err) < 0 ||
        lifecycle_start(req->pool, req->supervisor, session.id, err) < 0)
        return -1;
    return answer_again(req, res, session.id, err);
}

int sessions_stop(struct request *req, struct response *res, struct error *err)
{
    struct session_found session;

    if (find_and_let_go(req, &session, err) < 0 ||
        lifecycle_stop(req->pool, req->supervisor, session.id, "requested", err) < 0)
        return -1;
    return answer_again(req, res, session.id, err);
}

int sessions_interrupt(struct request *req, struct response *res, struct error *err)
{
    struct session_found session;

    if (find_and_let_go(req, &session, err) < 0 ||
        lifecycle_interrupt(req->pool, session.id, err) < 0)
        return -1;
    return answer_again(req, res, session.id, err);
}

int sessions_delete(struct request *req, struct response *res, struct error *err)
{
    struct session_found session;

    if (find_and_let_go(req, &session, err) < 0 ||
        lifecycle_delete(req->pool, req->supervisor, session.id, err) < 0)
        return -1;
    return respond_nothing(res);
}
