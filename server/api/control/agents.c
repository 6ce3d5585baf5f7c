/* Agents: definitions that sessions are opened from. */
#include "api/control/agents.h"

#include <string.h>

#include "api/control/definition.h"
#include "api/handlers.h"
#include "common/json.h"
#include "run/turns.h"

#define TRANSPORTS "proxy|litellm|openai"
#define EFFORTS "none|low|medium|high|xhigh|max"
#define CAPABILITIES "shell|filesystem|compaction|memory|skills"
#define NO_MANIFEST "{\"entries\":{},\"environment\":{}}"
#define IDLE_TTL_RULE .min = 0, .max = INT32_MAX
#define PORT_RULE .min = 1, .max = 65535

/* --- what is answered ------------------------------------------------------------------------- */

struct agent {
    const char *id;
    const char *slug;
    const char *name;
    const char *description;
    const char *instructions;
    const char *transport;
    const char *model;
    const char *reasoning_effort;
    const char *image;
    struct texts capabilities;
    const char *skills_source;
    const char *workspace_source;
    const char *manifest;
    struct numbers exposed_ports;
    const char *client_tools;
    const char *secret_bindings;
    const char *subagents;
    const int64_t *idle_ttl_seconds;
    const char *environment_id;
    int64_t version;
    const char *archived_at;
    const char *created_at;
    const char *updated_at;
};

static const struct field agent_fields[] = {
    {TEXT(agent, id)},
    {TEXT(agent, slug)},
    {TEXT(agent, name)},
    {TEXT(agent, description)},
    {TEXT(agent, instructions)},
    {TEXT(agent, transport)},
    {TEXT(agent, model), .about = "the server's default when none was set"},
    {TEXT(agent, reasoning_effort), .nullable = true},
    {TEXT(agent, image), .nullable = true},
    {TEXTS(agent, capabilities), .nullable = true, .about = "null: the server's default set"},
    {JSON(agent, skills_source), .nullable = true, .shape = SHAPE_OBJECT,
     .element = &schema_skills_source},
    {JSON(agent, workspace_source), .nullable = true, .shape = SHAPE_OBJECT,
     .element = &schema_workspace_source},
    {JSON(agent, manifest), .shape = SHAPE_OBJECT, .element = &schema_manifest},
    {NUMBERS(agent, exposed_ports)},
    {JSON(agent, client_tools), .shape = SHAPE_LIST, .element = &schema_client_tool},
    {JSON(agent, secret_bindings), .shape = SHAPE_LIST, .element = &schema_secret_binding},
    {JSON(agent, subagents), .shape = SHAPE_LIST, .element = &schema_subagent},
    {MAYBE_NUMBER(agent, idle_ttl_seconds), .nullable = true},
    {TEXT(agent, environment_id), .nullable = true},
    {NUMBER(agent, version)},
    {TEXT(agent, archived_at), .nullable = true},
    {TEXT(agent, created_at)},
    {TEXT(agent, updated_at)},
};
SCHEMA(agent);

static const struct field agent_found_fields[] = {
    {TEXT(agent_found, id)},
    {TEXT(agent_found, slug)},
    {FLAG(agent_found, archived)},
    {FLAG(agent_found, has_skills)},
    {FLAG(agent_found, has_workspace)},
};
SCHEMA(agent_found);

/* --- what is asked ---------------------------------------------------------------------------- */

struct agents_filter {
    bool include_archived;
};

static const struct field agents_filter_fields[] = {
    {FLAG(agents_filter, include_archived), .fallback = "false"},
};
SCHEMA(agents_filter);

/* Null is the default everywhere, since release 0.1.0 of the client sends it. */
struct agent_create {
    const char *slug;
    const char *name;
    const char *description;
    const char *instructions;
    const char *transport;
    const char *model;
    const char *reasoning_effort;
    const char *image;
    struct texts capabilities;
    const char *skills_source;
    const char *workspace_source;
    const char *manifest;
    struct numbers exposed_ports;
    const char *client_tools;
    const char *secret_bindings;
    const char *subagents;
    const int64_t *idle_ttl_seconds;
    const char *environment_id;
};

#define DEFAULT(json) .fallback = json, .null_is_fallback = true
#define NULL_DEFAULT .nullable = true, .fallback = "null"

static const struct field agent_create_fields[] = {
    {TEXT(agent_create, slug), SLUG_RULE},
    {TEXT(agent_create, name), NAME_RULE},
    {TEXT(agent_create, description), DEFAULT("\"\"")},
    {TEXT(agent_create, instructions), DEFAULT("\"\"")},
    {TEXT(agent_create, transport), .choices = TRANSPORTS, DEFAULT("\"proxy\"")},
    {TEXT(agent_create, model), NOT_EMPTY, NULL_DEFAULT},
    {TEXT(agent_create, reasoning_effort), .choices = EFFORTS, NULL_DEFAULT},
    {TEXT(agent_create, image), NOT_EMPTY, NULL_DEFAULT},
    {TEXTS(agent_create, capabilities), .choices = CAPABILITIES, NULL_DEFAULT},
    {JSON(agent_create, skills_source), .shape = SHAPE_OBJECT, .element = &schema_skills_source,
     NULL_DEFAULT},
    {JSON(agent_create, workspace_source), .shape = SHAPE_OBJECT,
     .element = &schema_workspace_source, NULL_DEFAULT},
    {JSON(agent_create, manifest), .shape = SHAPE_OBJECT, .element = &schema_manifest,
     DEFAULT(NO_MANIFEST)},
    {NUMBERS(agent_create, exposed_ports), PORT_RULE, DEFAULT("[]")},
    {JSON(agent_create, client_tools), .shape = SHAPE_LIST, .element = &schema_client_tool,
     DEFAULT("[]")},
    {JSON(agent_create, secret_bindings), .shape = SHAPE_LIST, .element = &schema_secret_binding,
     DEFAULT("[]")},
    {JSON(agent_create, subagents), .shape = SHAPE_LIST, .element = &schema_subagent,
     DEFAULT("[]")},
    {MAYBE_NUMBER(agent_create, idle_ttl_seconds), IDLE_TTL_RULE, NULL_DEFAULT,
     .about = "idle time after which a session is released; 0: never; null: the server's"},
    {TEXT(agent_create, environment_id), NULL_DEFAULT},
};

/* What no element of a list can say. */
static const char *check_lists(const char *client_tools, const char *secret_bindings,
                               const char **field)
{
    const char *wrong;

    if (client_tools && (wrong = definition_tools_fault(client_tools))) {
        *field = "client_tools";
        return wrong;
    }
    if (secret_bindings && (wrong = definition_bindings_fault(secret_bindings))) {
        *field = "secret_bindings";
        return wrong;
    }
    return NULL;
}

static const char *check_agent_create(const void *value, const char **field)
{
    const struct agent_create *body = value;

    return check_lists(body->client_tools, body->secret_bindings, field);
}
SCHEMA_WITH(agent_create, .check = check_agent_create);

struct agent_update {
    int64_t version;
    const char *name;
    const char *description;
    const char *instructions;
    const char *transport;
    const char *model;
    const char *reasoning_effort;
    const char *image;
    struct texts capabilities;
    const char *skills_source;
    const char *workspace_source;
    const char *manifest;
    struct numbers exposed_ports;
    const char *client_tools;
    const char *secret_bindings;
    const char *subagents;
    const int64_t *idle_ttl_seconds;
    const char *environment_id;
};

/* Null clears (DECISION 27): SQL tells it from an absent key. */
#define KEEP .optional = true
#define KEEP_OR_CLEAR .optional = true, .nullable = true

static const struct field agent_update_fields[] = {
    {NUMBER(agent_update, version),
     .about = "the version that was read; another one stored is a conflict"},
    {TEXT(agent_update, name), NAME_RULE, KEEP},
    {TEXT(agent_update, description), KEEP},
    {TEXT(agent_update, instructions), KEEP},
    {TEXT(agent_update, transport), .choices = TRANSPORTS, KEEP},
    {TEXT(agent_update, model), NOT_EMPTY, KEEP_OR_CLEAR},
    {TEXT(agent_update, reasoning_effort), .choices = EFFORTS, KEEP_OR_CLEAR},
    {TEXT(agent_update, image), NOT_EMPTY, KEEP_OR_CLEAR},
    {TEXTS(agent_update, capabilities), .choices = CAPABILITIES, KEEP_OR_CLEAR},
    {JSON(agent_update, skills_source), .shape = SHAPE_OBJECT, .element = &schema_skills_source,
     KEEP_OR_CLEAR},
    {JSON(agent_update, workspace_source), .shape = SHAPE_OBJECT,
     .element = &schema_workspace_source, KEEP_OR_CLEAR},
    {JSON(agent_update, manifest), .shape = SHAPE_OBJECT, .element = &schema_manifest,
     KEEP_OR_CLEAR},
    {NUMBERS(agent_update, exposed_ports), PORT_RULE, KEEP_OR_CLEAR},
    {JSON(agent_update, client_tools), .shape = SHAPE_LIST, .element = &schema_client_tool,
     KEEP_OR_CLEAR},
    {JSON(agent_update, secret_bindings), .shape = SHAPE_LIST, .element = &schema_secret_binding,
     KEEP_OR_CLEAR},
    {JSON(agent_update, subagents), .shape = SHAPE_LIST, .element = &schema_subagent,
     KEEP_OR_CLEAR},
    {MAYBE_NUMBER(agent_update, idle_ttl_seconds), IDLE_TTL_RULE, KEEP_OR_CLEAR},
    {TEXT(agent_update, environment_id), KEEP_OR_CLEAR},
};

static const char *check_agent_update(const void *value, const char **field)
{
    const struct agent_update *body = value;

    return check_lists(body->client_tools, body->secret_bindings, field);
}
SCHEMA_WITH(agent_update, .check = check_agent_update);

/* --- references ------------------------------------------------------------------------------- */

/* What a body refers to, of a create and an update alike; NULL: nothing. */
struct references {
    const char *own_slug;
    const char *manifest;
    const char *skills_source;
    const char *secret_bindings;
    const char *subagents;
    const char *environment_id;
};

static int is_self(const char *key, const char *value, void *context)
{
    auto_arena struct arena arena = {0};
    const char *slug = json_member_text(&arena, value, "agent");

    (void)key;
    return slug && strcmp(slug, context) == 0;
}

static int check_subagents(struct request *req, const struct references *refs, struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_rows struct rows *missing = NULL;
    char *own_slug = arena_copy(&arena, refs->own_slug, strlen(refs->own_slug));

    if (definition_list_is_empty(refs->subagents))
        return 0;
    if (json_each(&arena, refs->subagents, is_self, own_slug))
        return error_set(err, ERR_BAD_REQUEST, "an agent is not its own subagent");
    if (query_rows(req->db, QUERY_agents_missing, PARAMS(req->project, refs->subagents), &missing,
                   err) < 0)
        return -1;
    if (rows_count(missing))
        return error_set(err, ERR_BAD_REQUEST, "subagent '%s' does not exist",
                         rows_text(missing, 0, 0));
    return 0;
}

static int check_references(struct request *req, const struct references *refs, struct error *err)
{
    if (definition_manifest_check(req->arena, refs->manifest, err) < 0 ||
        definition_skills_check(req->arena, refs->skills_source, err) < 0 ||
        definition_bindings_check(req->arena, refs->secret_bindings, err) < 0 ||
        check_subagents(req, refs, err) < 0)
        return -1;
    if (refs->environment_id)
        return error_set(err, ERR_BAD_REQUEST, "the environment does not exist");
    return 0;
}

static int need_skills(bool has_skills, bool has_workspace, struct error *err)
{
    if (has_workspace && !has_skills)
        return error_set(err, ERR_BAD_REQUEST,
                         "a workspace source of the skills needs a skills source");
    return 0;
}

/* --- handlers --------------------------------------------------------------------------------- */

int agent_find(struct request *req, const char *ref, struct agent_found *found, struct error *err)
{
    if (query_row(req->db, QUERY_agents_find, PARAMS(req->project, REFERENCE(ref)), req->arena,
                  found, err) == 0)
        return 0;
    return err->kind == ERR_NOT_FOUND ? error_set(err, ERR_NOT_FOUND, "agent not found") : -1;
}

static int answer(struct request *req, struct response *res, int status, const char *ref,
                  struct error *err)
{
    return respond_row(req, res, status, QUERY_agents_get,
                       PARAMS(req->project, REFERENCE(ref), turns_default_model()), "agent", err);
}

int agents_list(struct request *req, struct response *res, struct error *err)
{
    const struct agents_filter *filter = req->query;

    return respond_rows(
        req, res, QUERY_agents_list,
        PARAMS(req->project, turns_default_model(), FLAG_TEXT(filter->include_archived)), err);
}

int agents_create(struct request *req, struct response *res, struct error *err)
{
    const struct agent_create *body = req->body;
    auto_rows struct rows *made = NULL;

    if (check_references(req,
                         &(struct references){body->slug, body->manifest, body->skills_source,
                                              body->secret_bindings, body->subagents,
                                              body->environment_id},
                         err) < 0 ||
        need_skills(body->skills_source, body->workspace_source, err) < 0)
        return -1;
    if (query_rows(req->db, QUERY_agents_insert, PARAMS(req->project, req->body_json), &made, err) <
        0)
        return -1;
    if (!rows_count(made))
        return error_set(err, ERR_CONFLICT, "the slug '%s' is taken", body->slug);
    return answer(req, res, 201, rows_text(made, 0, 0), err);
}

int agents_get(struct request *req, struct response *res, struct error *err)
{
    return answer(req, res, 200, req->path_values[0], err);
}

/* Whether the body says something of a field, and what. */
static bool after_update(bool stored, const char *value, bool given)
{
    return given ? value != NULL : stored;
}

static bool was_given(const struct request *req, const char *name)
{
    for (size_t i = 0; i < schema_agent_update.count; i++)
        if (strcmp(agent_update_fields[i].name, name) == 0)
            return req->given >> i & 1;
    return false;
}

int agents_update(struct request *req, struct response *res, struct error *err)
{
    const struct agent_update *body = req->body;
    struct agent_found agent;
    int changed;

    if (agent_find(req, req->path_values[0], &agent, err) < 0 ||
        check_references(req,
                         &(struct references){agent.slug, body->manifest, body->skills_source,
                                              body->secret_bindings, body->subagents,
                                              body->environment_id},
                         err) < 0 ||
        need_skills(
            after_update(agent.has_skills, body->skills_source, was_given(req, "skills_source")),
            after_update(agent.has_workspace, body->workspace_source,
                         was_given(req, "workspace_source")),
            err) < 0)
        return -1;
    changed = query_run(req->db, QUERY_agents_update,
                        PARAMS(agent.id, NUM(body->version), req->body_json), err);
    if (changed < 0)
        return -1;
    if (changed == 0)
        return error_set(err, ERR_CONFLICT,
                         "agent '%s' was changed meanwhile: version %ld is not the stored one",
                         agent.slug, (long)body->version);
    return answer(req, res, 200, agent.id, err);
}

static int set_archived(struct request *req, struct response *res, bool archived, struct error *err)
{
    const char *ref = req->path_values[0];

    if (query_run(req->db, QUERY_agents_archive,
                  PARAMS(req->project, REFERENCE(ref), FLAG_TEXT(archived)), err) < 0)
        return -1;
    return answer(req, res, 200, ref, err);
}

int agents_archive(struct request *req, struct response *res, struct error *err)
{
    return set_archived(req, res, true, err);
}

int agents_unarchive(struct request *req, struct response *res, struct error *err)
{
    return set_archived(req, res, false, err);
}

int agents_delete(struct request *req, struct response *res, struct error *err)
{
    auto_rows struct rows *used = NULL;
    struct agent_found agent;

    if (agent_find(req, req->path_values[0], &agent, err) < 0 ||
        query_rows(req->db, QUERY_agents_used, PARAMS(req->project, agent.id, agent.slug), &used,
                   err) < 0)
        return -1;
    if (rows_text(used, 0, 0))
        return error_set(err, ERR_CONFLICT, "agent '%s' can't be deleted: %s", agent.slug,
                         rows_text(used, 0, 0));
    if (query_run(req->db, QUERY_agents_delete, PARAMS(agent.id), err) < 0)
        return -1;
    return respond_nothing(res);
}
