/* The session that a path names, for every handler below /api/sessions/{session_id}. */
#ifndef API_CONTROL_SESSIONS_H
#define API_CONTROL_SESSIONS_H

#include <stdbool.h>

#include "http/request.h"

enum { TURNS_DEFAULT = 50, TURNS_MAX = 10000, BOOT_ATTEMPTS = 3 };

struct session_found {
    const char *id; /* as the table has it, whatever the path looked like */
    const char *status;
    const char *stopped_reason;
    const char *workdir;
};

/* The path's {session_id} as a parameter: NULL, which finds nothing, when it is no id. */
const char *session_parameter(const struct request *req);
/* The session of the path in the request's project. ERR_NOT_FOUND, also for another project's. */
int session_find(struct request *req, struct session_found *found, struct error *err);
/* ERR_CONFLICT unless its sandbox is up, or, with `or_stopped`, it has a workspace that can be
 * read. */
int session_need_workspace(const char *status, bool or_stopped, struct error *err);
/* Note that it is in use now, so that it is not released for being idle. */
int session_use(struct request *req, const char *id, struct error *err);
/* Add the job that boots it, in the current transaction. */
int session_boot(struct request *req, const char *id, int64_t generation, struct error *err);

#endif
