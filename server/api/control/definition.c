/* The parts that agents and sessions are defined by: manifest, tools, bindings, sources. */
#include "api/control/definition.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/token.h"
#include "run/turns.h"

/* --- texts ------------------------------------------------------------------------------------ */

const char *definition_slug(const char *text)
{
    return token_is_uuid(text) ? "a slug is not shaped like an id" : NULL;
}

/* DECISION 29. "." alone is the workspace itself. */
static const char *check_path(const char *text)
{
    size_t whole = strlen(text);

    if (whole == 0)
        return "a path is not empty";
    if (whole >= PATH_MAX)
        return "a path has at most 4095 bytes";
    if (*text == '/')
        return "a path is relative to the workspace";
    for (const char *part = text;; part++) {
        size_t length = strcspn(part, "/");

        if (length == 0)
            return "a path has no empty components";
        if (length > NAME_MAX)
            return "a path's components have at most 255 bytes";
        if (length == 2 && memcmp(part, "..", 2) == 0)
            return "a path does not contain '..'";
        part += length;
        if (!*part)
            return NULL;
    }
}

#define VARIABLE_PATTERN "[A-Za-z_][A-Za-z0-9_]*"

static const char *check_variable(const char *text)
{
    return field_matches(VARIABLE_PATTERN, text)
               ? NULL
               : "variables are letters, digits and underscores, with no digit in front";
}

/* What ends up as an argument of git: no option, no way out of a directory, nothing that means more
 * than a name. */
#define GIT_PART "[A-Za-z0-9_.][A-Za-z0-9_.-]*"
#define REPO_PATTERN GIT_PART "/" GIT_PART
#define REF_PATTERN "[A-Za-z0-9_.][A-Za-z0-9_./+-]*"
#define HOST_PATTERN "[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?"
#define SUBPATH_PATTERN "[A-Za-z0-9_.][A-Za-z0-9_./+@-]*"

static const char *check_subpath(const char *text)
{
    return strstr(text, "/-") ? "a path's components do not start with '-'" : check_path(text);
}

/* --- manifest entries ------------------------------------------------------------------------- */

struct manifest_file {
    const char *kind;
    const char *content;
};

static const struct field manifest_file_fields[] = {
    {TEXT(manifest_file, kind), .choices = "file"},
    {TEXT(manifest_file, content), .about = "the file's text"},
};
SCHEMA(manifest_file);

struct manifest_dir {
    const char *kind;
};

static const struct field manifest_dir_fields[] = {
    {TEXT(manifest_dir, kind), .choices = "dir"},
};
SCHEMA(manifest_dir);

struct manifest_git_repo {
    const char *kind;
    const char *repo;
    const char *ref;
    const char *host;
    const char *subpath;
};

static const struct field manifest_git_repo_fields[] = {
    {TEXT(manifest_git_repo, kind), .choices = "git_repo"},
    {TEXT(manifest_git_repo, repo), .max = 255, .pattern = REPO_PATTERN, .check = check_path,
     .about = "owner/name"},
    {TEXT(manifest_git_repo, ref), .max = 255, .pattern = REF_PATTERN, .check = check_path,
     .fallback = "\"main\""},
    {TEXT(manifest_git_repo, host), .max = 255, .pattern = HOST_PATTERN,
     .fallback = "\"github.com\""},
    {TEXT(manifest_git_repo, subpath), .pattern = SUBPATH_PATTERN, .check = check_subpath,
     .nullable = true, .fallback = "null"},
};
SCHEMA(manifest_git_repo);

struct manifest_local_dir {
    const char *kind;
    const char *src;
};

static const struct field manifest_local_dir_fields[] = {
    {TEXT(manifest_local_dir, kind), .choices = "local_dir"},
    {TEXT(manifest_local_dir, src), NOT_EMPTY, .about = "a directory of the server's host"},
};
SCHEMA(manifest_local_dir);

struct manifest_s3_mount {
    const char *kind;
    const char *bucket;
    const char *prefix;
    bool read_only;
    bool acknowledge_credential_exposure;
};

static const struct field manifest_s3_mount_fields[] = {
    {TEXT(manifest_s3_mount, kind), .choices = "s3_mount"},
    {TEXT(manifest_s3_mount, bucket), NOT_EMPTY},
    {TEXT(manifest_s3_mount, prefix), .nullable = true, .fallback = "null"},
    {FLAG(manifest_s3_mount, read_only), .fallback = "true"},
    {FLAG(manifest_s3_mount, acknowledge_credential_exposure), .fallback = "false"},
};

static const char *check_s3_mount(const void *value, const char **field)
{
    const struct manifest_s3_mount *mount = value;

    if (mount->read_only || mount->acknowledge_credential_exposure)
        return NULL;
    *field = "read_only";
    return "a mount that can be written shows its credential to the sandbox: set "
           "acknowledge_credential_exposure";
}
SCHEMA_WITH(manifest_s3_mount, .check = check_s3_mount);

static const struct variant manifest_entry_variants[] = {
    {"file", &schema_manifest_file},         {"dir", &schema_manifest_dir},
    {"git_repo", &schema_manifest_git_repo}, {"local_dir", &schema_manifest_local_dir},
    {"s3_mount", &schema_manifest_s3_mount},
};
SCHEMA_UNION(manifest_entry, "kind");

struct manifest {
    const char *entries;
    const char *environment;
};

static const struct field manifest_fields[] = {
    {JSON(manifest, entries), .shape = SHAPE_MAP, .element = &schema_manifest_entry,
     .check = check_path, .fallback = "{}", .null_is_fallback = true,
     .about = "what is put into the workspace, by path"},
    {JSON(manifest, environment), .shape = SHAPE_MAP, .check = check_variable, .max = VARIABLES_MAX,
     .fallback = "{}", .null_is_fallback = true, .about = "variables of every command"},
};

static const char *check_manifest(const void *value, const char **field)
{
    const struct manifest *manifest = value;

    if (strlen(manifest->environment) <= ENVIRONMENT_BYTES_MAX)
        return NULL;
    *field = "environment";
    return "the variables have at most 48 KiB in all";
}
SCHEMA_WITH(manifest, .check = check_manifest);

/* --- tools, bindings, subagents --------------------------------------------------------------- */

struct client_tool {
    const char *name;
    const char *description;
    const char *parameters;
    bool deferrable;
    const double *timeout_seconds;
};

static const char *check_tool_name(const char *text)
{
    return turns_is_own_tool(text) ? "the server has a tool of that name" : NULL;
}

#define TOOL_NAME_PATTERN "[A-Za-z0-9_-]{1,64}"

static const struct field client_tool_fields[] = {
    {TEXT(client_tool, name), .pattern = TOOL_NAME_PATTERN, .check = check_tool_name},
    {TEXT(client_tool, description), .fallback = "\"\""},
    {JSON(client_tool, parameters), .shape = SHAPE_OBJECT, .fallback = "{}",
     .about = "a JSON Schema of an object"},
    {FLAG(client_tool, deferrable), .fallback = "false", .null_is_fallback = true,
     .about = "a call ends the turn, and its answer continues the run"},
    {MAYBE_REAL(client_tool, timeout_seconds), .exclusive = true, .above = 0,
     .max = CLIENT_TOOL_SECONDS_MAX, .nullable = true, .fallback = "null",
     .about = "how long a call waits for its answer; null: 120"},
};

static const char *check_client_tool(const void *value, const char **field)
{
    const struct client_tool *tool = value;

    if (!tool->deferrable || !tool->timeout_seconds)
        return NULL;
    *field = "timeout_seconds";
    return "a deferrable call has no timeout";
}
SCHEMA_WITH(client_tool, .check = check_client_tool);

struct secret_binding {
    const char *secret;
    const char *env;
};

static const struct field secret_binding_fields[] = {
    {TEXT(secret_binding, secret), .pattern = "[A-Za-z0-9._-]{1,128}", .about = "a secret's name"},
    {TEXT(secret_binding, env), .max = 255, .check = check_variable,
     .about = "the variable that holds it"},
};
SCHEMA(secret_binding);

struct subagent {
    const char *agent;
    const char *mode;
    const char *tool_name;
    const char *description;
};

static const struct field subagent_fields[] = {
    {TEXT(subagent, agent), NOT_EMPTY, .about = "an agent's slug"},
    {TEXT(subagent, mode), .choices = "tool|handoff", .fallback = "\"tool\""},
    {TEXT(subagent, tool_name), .pattern = TOOL_NAME_PATTERN, .check = check_tool_name,
     .nullable = true, .fallback = "null"},
    {TEXT(subagent, description), .fallback = "\"\""},
};
SCHEMA(subagent);

/* --- sources ---------------------------------------------------------------------------------- */

struct skills_git_repo {
    const char *kind;
    const char *repo;
    const char *ref;
    const char *host;
    const char *subpath;
    const char *ssh_key_id;
};

static const struct field skills_git_repo_fields[] = {
    {TEXT(skills_git_repo, kind), .choices = "git_repo"},
    {TEXT(skills_git_repo, repo), .max = 255, .pattern = REPO_PATTERN, .check = check_path,
     .about = "owner/name"},
    {TEXT(skills_git_repo, ref), .max = 255, .pattern = REF_PATTERN, .check = check_path,
     .fallback = "\"main\""},
    {TEXT(skills_git_repo, host), .max = 255, .pattern = HOST_PATTERN,
     .fallback = "\"github.com\""},
    {TEXT(skills_git_repo, subpath), .pattern = SUBPATH_PATTERN, .check = check_subpath,
     .nullable = true, .fallback = "null"},
    {TEXT(skills_git_repo, ssh_key_id), .nullable = true, .fallback = "null",
     .about = "a deploy key's id"},
};
SCHEMA(skills_git_repo);

struct skills_local_dir {
    const char *kind;
    const char *src;
    const char *subpath;
    bool lazy;
};

static const struct field skills_local_dir_fields[] = {
    {TEXT(skills_local_dir, kind), .choices = "local_dir"},
    {TEXT(skills_local_dir, src), NOT_EMPTY},
    {TEXT(skills_local_dir, subpath), .check = check_path, .nullable = true, .fallback = "null"},
    {FLAG(skills_local_dir, lazy), .fallback = "true"},
};
SCHEMA(skills_local_dir);

struct skills_bundle {
    const char *kind;
    const char *bundle;
    const char *version;
    const char *subpath;
    bool lazy;
};

static const struct field skills_bundle_fields[] = {
    {TEXT(skills_bundle, kind), .choices = "bundle"},
    {TEXT(skills_bundle, bundle), SLUG_RULE, .about = "a bundle's slug"},
    {JSON(skills_bundle, version), .fallback = "\"latest\"",
     .about = "a number from 1, or \"latest\""},
    {TEXT(skills_bundle, subpath), .check = check_path, .nullable = true, .fallback = "null"},
    {FLAG(skills_bundle, lazy), .fallback = "true"},
};

static const char *check_skills_bundle(const void *value, const char **field)
{
    const struct skills_bundle *source = value;

    if (strcmp(source->version, "\"latest\"") == 0 ||
        field_matches("[1-9][0-9]{0,8}", source->version))
        return NULL;
    *field = "version";
    return "a version is a number from 1, or \"latest\"";
}
SCHEMA_WITH(skills_bundle, .check = check_skills_bundle);

static const struct variant skills_source_variants[] = {
    {"git_repo", &schema_skills_git_repo},
    {"local_dir", &schema_skills_local_dir},
    {"bundle", &schema_skills_bundle},
};
SCHEMA_UNION(skills_source, "kind");

struct workspace_source {
    const char *kind;
    const char *dest;
    const char *docs_file;
    const char *instructions;
    struct texts ensure_dirs;
};

static const struct field workspace_source_fields[] = {
    {TEXT(workspace_source, kind), .choices = "same_as_skills", .fallback = "\"same_as_skills\""},
    {TEXT(workspace_source, dest), .check = check_path, .fallback = "\"pstack\""},
    {TEXT(workspace_source, docs_file), .check = check_path, .fallback = "\"CLAUDE.md\""},
    {TEXT(workspace_source, instructions), .nullable = true, .fallback = "null"},
    {TEXTS(workspace_source, ensure_dirs), .check = check_path, .fallback = "[]",
     .null_is_fallback = true},
};
SCHEMA(workspace_source);

/* --- lists as a whole ------------------------------------------------------------------------- */

struct collected {
    struct arena *arena;
    const char *member;
    const char **texts;
    size_t count;
    size_t capacity;
};

static int collect(const char *key, const char *value, void *context)
{
    struct collected *all = context;
    const char *text = json_member_text(all->arena, value, all->member);

    (void)key;
    if (!text)
        return 0;
    if (all->count == all->capacity) {
        size_t capacity = all->capacity ? 2 * all->capacity : 16;
        const char **texts = arena_alloc(all->arena, capacity * sizeof(*texts));

        if (all->count)
            memcpy(texts, all->texts, all->count * sizeof(*texts));
        all->texts = texts;
        all->capacity = capacity;
    }
    all->texts[all->count++] = text;
    return 0;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, since a list may be as long as a body allows. */
bool definition_repeats(const char *list, const char *member)
{
    auto_arena struct arena arena = {0};
    struct collected all = {.arena = &arena, .member = member};

    json_each(&arena, list, collect, &all);
    if (all.count)
        qsort(all.texts, all.count, sizeof(*all.texts), compare_texts);
    for (size_t i = 1; i < all.count; i++)
        if (strcmp(all.texts[i - 1], all.texts[i]) == 0)
            return true;
    return false;
}

const char *definition_tools_fault(const char *tools)
{
    return definition_repeats(tools, "name") ? "two tools have the same name" : NULL;
}

const char *definition_bindings_fault(const char *bindings)
{
    return definition_repeats(bindings, "env") ? "two bindings are for the same variable" : NULL;
}

static int stop_at_once(const char *key, const char *value, void *context)
{
    (void)key, (void)value, (void)context;
    return 1;
}

bool definition_list_is_empty(const char *list)
{
    auto_arena struct arena arena = {0};

    return !list || !json_each(&arena, list, stop_at_once, NULL);
}

/* --- references ------------------------------------------------------------------------------- */

struct staging {
    struct arena *arena;
    struct error *err;
};

static int refuse_entry(const char *key, const char *value, void *context)
{
    struct staging *staging = context;
    const char *kind = json_member_text(staging->arena, value, "kind");

    (void)key;
    if (kind && strcmp(kind, "local_dir") == 0)
        return error_set(
            staging->err, ERR_BAD_REQUEST,
            "local_dir entries are refused: the operator has listed no directory for them");
    if (kind && strcmp(kind, "s3_mount") == 0)
        return error_set(staging->err, ERR_BAD_REQUEST,
                         "s3_mount entries are refused: no object store is configured");
    return 0;
}

int definition_manifest_check(struct arena *arena, const char *manifest, struct error *err)
{
    struct staging staging = {arena, err};
    const char *entries = manifest ? json_member(arena, manifest, "entries") : NULL;

    return entries ? json_each(arena, entries, refuse_entry, &staging) : 0;
}

int definition_skills_check(struct arena *arena, const char *skills_source, struct error *err)
{
    const char *kind = skills_source ? json_member_text(arena, skills_source, "kind") : NULL;

    if (!kind)
        return 0;
    if (strcmp(kind, "local_dir") == 0)
        return error_set(
            err, ERR_BAD_REQUEST,
            "a local_dir skills source is refused: the operator has listed no directory for it");
    if (strcmp(kind, "bundle") == 0)
        return error_set(err, ERR_BAD_REQUEST, "skill bundle '%s' does not exist",
                         json_member_text(arena, skills_source, "bundle"));
    if (json_member_text(arena, skills_source, "ssh_key_id"))
        return error_set(err, ERR_BAD_REQUEST,
                         "the skills source names a git key that does not exist");
    return 0;
}

static int refuse_binding(const char *key, const char *value, void *context)
{
    struct staging *staging = context;

    (void)key;
    return error_set(staging->err, ERR_BAD_REQUEST, "secret '%s' does not exist",
                     json_member_text(staging->arena, value, "secret"));
}

int definition_bindings_check(struct arena *arena, const char *bindings, struct error *err)
{
    struct staging staging = {arena, err};

    return bindings ? json_each(arena, bindings, refuse_binding, &staging) : 0;
}
