/* Looking up the agent that a reference names. */
#ifndef API_CONTROL_AGENTS_H
#define API_CONTROL_AGENTS_H

#include <stdbool.h>

#include "common/token.h"
#include "http/request.h"

struct agent_found {
    const char *id;
    const char *slug;
    bool archived;
    bool has_skills;
    bool has_workspace;
};

/* A reference as two parameters, id and slug; a slug is never shaped like an id. */
#define REFERENCE(ref) token_is_uuid(ref) ? (ref) : NULL, token_is_uuid(ref) ? NULL : (ref)

/* The agent of the request's project with this id or slug; it can't be deleted before the
 * transaction ends. ERR_NOT_FOUND. */
int agent_find(struct request *req, const char *ref, struct agent_found *found, struct error *err);

#endif
