/* Who is asking, and in which project. */
#ifndef HTTP_CALLER_H
#define HTTP_CALLER_H

#include <stdbool.h>

#include "common/error.h"

struct request;

enum caller_kind {
    CALLER_NOBODY,   /* no credential, or one that is not accepted */
    CALLER_KEY,      /* an API key: acts in its project */
    CALLER_OPERATOR, /* the operator token, or anybody in an open deployment */
    CALLER_METRICS,  /* the metrics credential */
};

/* What a route asks of its caller. */
enum caller_rule {
    RULE_PUBLIC,   /* anybody; the caller is looked at all the same (GET /api/me) */
    RULE_ANY,      /* an accepted credential, no project */
    RULE_PROJECT,  /* an accepted credential and one project: contract/sessions-api.md section 2 */
    RULE_OPERATOR, /* the operator; a key gets 403 */
    RULE_OPERATOR_PROJECT, /* the operator acting in one project (api-keys) */
    RULE_METRICS,          /* the metrics credential */
};

struct caller {
    enum caller_kind kind;
    const char *subject;     /* id of the key, "operator"; NULL for nobody */
    const char *label;       /* its name */
    const char *key_project; /* CALLER_KEY: id of its project; NULL for others */
    const char *key_project_slug;
    bool open; /* the deployment is open: ENV=dev, no operator token, no key */
};

/* Fill req->caller from the Authorization header. Never fails because of a bad credential (kind is
 * CALLER_NOBODY then). */
int caller_identify(struct request *req, struct error *err);
/* Apply the rule: 401, 403; for rules with a project fill req->project from X-Project: 400, 404. */
int caller_admit(struct request *req, enum caller_rule rule, struct error *err);

#endif
