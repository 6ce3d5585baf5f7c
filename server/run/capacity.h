/* How much the sandboxes of one project may have together: PROJECT_SANDBOXES, PROJECT_MEMORY_MB,
 * PROJECT_DISK_MB. What those of all projects may have, the supervisor knows. */
#ifndef RUN_CAPACITY_H
#define RUN_CAPACITY_H

#include "store/database.h"

/* Whether there is room for one more sandbox: of a session that is to be made in `project`, or of
 * `session`, which has its disk already; the other is NULL. It stays so until the end of the
 * transaction. ERR_UNAVAILABLE when there is none. */
int capacity_claim(struct database *db, const char *project, const char *session,
                   struct error *err);

#endif
