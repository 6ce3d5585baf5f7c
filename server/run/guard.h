/* One at a time brings a session's sandbox up or down, in all processes of this machine. */
#ifndef RUN_GUARD_H
#define RUN_GUARD_H

#include "common/error.h"

/* Wait for the session's turn, at most two minutes. Returns a descriptor: closing it, or dying,
 * lets the next one in. Not to be waited for in a transaction. ERR_UNAVAILABLE when it took too
 * long. */
int guard_take(const char *session_id, struct error *err);

#endif
