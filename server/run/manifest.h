/* What an agent or a session puts into a fresh workspace. */
#ifndef RUN_MANIFEST_H
#define RUN_MANIFEST_H

#include <stdbool.h>

#include "run/sandbox.h"

/* Write the entries (an object: path → entry) in the order of their paths. `go_on` is asked before
 * each and ends it early (returns 1). ERR_… with a sentence that names the entry. */
int manifest_write(struct sandbox_link *link, const char *session_id, const char *entries,
                   bool (*go_on)(void *context), void *context, struct error *err);

#endif
