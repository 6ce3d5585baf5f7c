/* The parts that agents and sessions are defined by: what each may look like, and what can't be had
 * here. */
#ifndef API_CONTROL_DEFINITION_H
#define API_CONTROL_DEFINITION_H

#include <stdbool.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/field.h"

/* DECISION 21; the check refuses what is shaped like a UUID, so that a reference is an id or a slug
 * and never both. */
#define SLUG_PATTERN "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
#define SLUG_RULE .pattern = SLUG_PATTERN, .check = definition_slug
#define NAME_RULE .min = 1, .max = 200
/* min 1 and no upper bound */
#define NOT_EMPTY .min = 1

enum {
    ENVIRONMENT_BYTES_MAX =
        48 * 1024,        /* as JSON; with a command of 128 KiB it still fits one packet */
    VARIABLES_MAX = 1000, /* with ours below the 1024 of the message */
    CLIENT_TOOL_SECONDS_MAX = 3600,
};

extern const struct schema schema_manifest, schema_client_tool, schema_secret_binding,
    schema_subagent, schema_skills_source, schema_workspace_source;

field_check definition_slug;

/* Members of lists in JSON that have passed their schema. */

/* Whether two objects of the list have the same text in `member`. */
bool definition_repeats(const char *list, const char *member);
/* What a list of client tools must be as a whole: NULL, or a sentence. */
const char *definition_tools_fault(const char *tools);
/* The same for secret bindings. */
const char *definition_bindings_fault(const char *bindings);
bool definition_list_is_empty(const char *list);

/* ERR_BAD_REQUEST for entries that this server does not stage. NULL passes. */
int definition_manifest_check(struct arena *arena, const char *manifest, struct error *err);
/* ERR_BAD_REQUEST for a skills source that does not resolve here. NULL passes. */
int definition_skills_check(struct arena *arena, const char *skills_source, struct error *err);
/* ERR_BAD_REQUEST for a binding of a secret that does not exist. NULL passes. */
int definition_bindings_check(struct arena *arena, const char *bindings, struct error *err);

#endif
