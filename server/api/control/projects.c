/* Projects: what keeps one customer's things from another's. */
#include <ctype.h>
#include <string.h>

#include "api/control/agents.h"
#include "api/control/definition.h"
#include "api/handlers.h"
#include "run/lifecycle.h"

enum { SLUG_BYTES_MAX = 63, SLUG_TRIES = 20 };

struct project {
    const char *id;
    const char *slug;
    const char *name;
    const char *description;
    const char *created_at;
    const char *updated_at;
    const char *role;
};

static const struct field project_fields[] = {
    {TEXT(project, id)},
    {TEXT(project, slug)},
    {TEXT(project, name)},
    {TEXT(project, description)},
    {TEXT(project, created_at)},
    {TEXT(project, updated_at)},
    {TEXT(project, role), .nullable = true,
     .about = "of the person who asks; null for keys and the operator"},
};
SCHEMA(project);

struct project_create {
    const char *name;
    const char *slug;
    const char *description;
};

/* The empty slug asks for one made from the name. */
#define SLUG_OR_NOTHING "(" SLUG_PATTERN ")?"

static const struct field project_create_fields[] = {
    {TEXT(project_create, name), NAME_RULE},
    {TEXT(project_create, slug), .pattern = SLUG_OR_NOTHING, .check = definition_slug,
     .fallback = "\"\"", .null_is_fallback = true, .about = "empty: made from the name"},
    {TEXT(project_create, description), .fallback = "\"\"", .null_is_fallback = true},
};
SCHEMA(project_create);

struct project_update {
    const char *name;
    const char *description;
};

static const struct field project_update_fields[] = {
    {TEXT(project_update, name), NAME_RULE, .optional = true},
    {TEXT(project_update, description), .optional = true},
};
SCHEMA(project_update);

/* Letters and digits of the name in lower case, dashes between; never shaped like an id. */
static void derive_slug(const char *name, char slug[SLUG_BYTES_MAX + 1])
{
    size_t length = 0;

    for (; *name && length < SLUG_BYTES_MAX; name++) {
        if (isascii((unsigned char)*name) && isalnum((unsigned char)*name))
            slug[length++] = (char)tolower((unsigned char)*name);
        else if (length && slug[length - 1] != '-')
            slug[length++] = '-';
    }
    while (length && slug[length - 1] == '-')
        length--;
    slug[length] = '\0';
    if (!length || token_is_uuid(slug))
        strcpy(slug, "project");
}

static int answer(struct request *req, struct response *res, int status, const char *ref,
                  struct error *err)
{
    return respond_row(req, res, status, QUERY_projects_get,
                       PARAMS(REFERENCE(ref), req->caller.key_project), "project", err);
}

int projects_list(struct request *req, struct response *res, struct error *err)
{
    return respond_rows(req, res, QUERY_projects_list, PARAMS(req->caller.key_project), err);
}

/* Insert under a slug made from the name; others may take it between the look and the insert. */
static int insert_derived(struct request *req, const struct project_create *body,
                          struct rows **made, struct error *err)
{
    char slug[SLUG_BYTES_MAX + 1];

    derive_slug(body->name, slug);
    for (int i = 0; i < SLUG_TRIES; i++) {
        auto_rows struct rows *free_slug = NULL;

        rows_free(*made);
        *made = NULL;
        if (query_rows(req->db, QUERY_projects_free_slug, PARAMS(slug), &free_slug, err) < 0 ||
            query_rows(req->db, QUERY_projects_insert,
                       PARAMS(rows_text(free_slug, 0, 0), body->name, body->description), made,
                       err) < 0)
            return -1;
        if (rows_count(*made))
            return 0;
    }
    return 0;
}

int projects_create(struct request *req, struct response *res, struct error *err)
{
    const struct project_create *body = req->body;
    auto_rows struct rows *made = NULL;
    int outcome = *body->slug
                      ? query_rows(req->db, QUERY_projects_insert,
                                   PARAMS(body->slug, body->name, body->description), &made, err)
                      : insert_derived(req, body, &made, err);

    if (outcome < 0)
        return -1;
    if (!rows_count(made))
        return error_set(err, ERR_CONFLICT, "the slug '%s' is taken", body->slug);
    return answer(req, res, 201, rows_text(made, 0, 0), err);
}

int projects_get(struct request *req, struct response *res, struct error *err)
{
    return answer(req, res, 200, req->path_values[0], err);
}

int projects_update(struct request *req, struct response *res, struct error *err)
{
    const char *ref = req->path_values[0];

    if (query_run(req->db, QUERY_projects_update, PARAMS(REFERENCE(ref), req->body_json), err) < 0)
        return -1;
    return answer(req, res, 200, ref, err);
}

/* The project, locked, and its sessions; ERR_CONFLICT while one of them has a sandbox. */
static int lock_project(struct request *req, const char *ref, const char **id,
                        struct rows **sessions, struct error *err)
{
    auto_rows struct rows *locked = NULL;

    if (query_rows(req->db, QUERY_projects_lock, PARAMS(REFERENCE(ref)), &locked, err) < 0)
        return -1;
    if (!rows_count(locked))
        return error_set(err, ERR_NOT_FOUND, "project not found");
    *id = arena_text(req->arena, "%s", rows_text(locked, 0, 0));
    if (query_rows(req->db, QUERY_projects_sessions, PARAMS(*id), sessions, err) < 0)
        return -1;
    for (size_t i = 0; i < rows_count(*sessions); i++)
        if (*rows_text(*sessions, i, 1) == 't')
            return error_set(err, ERR_CONFLICT,
                             "session %s of the project has a sandbox: stop it first",
                             rows_text(*sessions, i, 0));
    return 0;
}

/* Stopped sessions still have a workspace: each goes as if it were deleted by itself, and without a
 * database connection held. */
int projects_delete(struct request *req, struct response *res, struct error *err)
{
    auto_rows struct rows *before = NULL, *after = NULL;
    const char *ref = req->path_values[0], *id;

    if (lock_project(req, ref, &id, &before, err) < 0)
        return -1;
    if (rows_count(before)) {
        if (request_commit(req, err) < 0)
            return -1;
        for (size_t i = 0; i < rows_count(before); i++)
            if (lifecycle_delete(req->pool, req->supervisor, rows_text(before, i, 0), err) < 0 &&
                err->kind != ERR_NOT_FOUND)
                return -1;
        if (request_begin(req, err) < 0 || lock_project(req, id, &id, &after, err) < 0)
            return -1;
        if (rows_count(after))
            return error_set(err, ERR_CONFLICT,
                             "a session came into the project while it was being deleted");
    }
    if (query_run(req->db, QUERY_projects_delete, PARAMS(id), err) < 0)
        return -1;
    return respond_nothing(res);
}
