/* The log: what happened in a session, in order. */
#ifndef RUN_EVENTS_H
#define RUN_EVENTS_H

#include <stdint.h>

#include "store/database.h"

/* Append one event in the current transaction; its seq goes to `*seq` (may be NULL). Locks the
 * session's row (that is what makes commit order seq order) and notes the session for its
 * followers. `run_id` may be NULL. `payload` is a JSON object without U+0000. ERR_NOT_FOUND when
 * the session is gone. */
int events_append(struct database *db, const char *session_id, const char *run_id, const char *type,
                  const char *payload, int64_t *seq, struct error *err);
/* Pass a delta on to whoever follows now; never stored. `text` is UTF-8. `after` is the seq of the
 * run's last stored event: the streamer shows the delta behind it, and never behind the
 * agent.message that it is part of. */
void events_delta(const char *session_id, const char *run_id, int64_t after, const char *text,
                  size_t length);

#endif
