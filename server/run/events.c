/* The log: appending to it, and passing on what is not stored. */
#include "run/events.h"

#include <stdlib.h>
#include <time.h>

#include "common/json.h"
#include "store/bus.h"

int events_append(struct database *db, const char *session_id, const char *run_id, const char *type,
                  const char *payload, int64_t *seq, struct error *err)
{
    auto_rows struct rows *rows = NULL;

    if (query_rows(db, QUERY_events_insert, PARAMS(session_id, run_id, type, payload), &rows, err) <
        0)
        return -1;
    if (rows_count(rows) == 0)
        return error_set(err, ERR_NOT_FOUND, "session not found");
    if (seq)
        *seq = strtoll(rows_text(rows, 0, 0), NULL, 10);
    database_touch(db, session_id);
    return 0;
}

/* As rfc3339() of the migrations writes a time. */
static void add_now(struct buffer *out)
{
    struct timespec now;
    struct tm parts;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    buffer_format(out, "\"%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ\"", parts.tm_year + 1900,
                  parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                  now.tv_nsec / 1000);
}

void events_delta(const char *session_id, const char *run_id, int64_t after, const char *text,
                  size_t length)
{
    auto_buffer struct buffer frame = {0};

    json_format(&frame,
                "data: {\"seq\":0,\"session_id\":%s,\"run_id\":%s,\"type\":\"agent.text_delta\","
                "\"payload\":{\"text\":",
                session_id, run_id);
    json_string_n(&frame, text, length);
    buffer_text(&frame, "},\"created_at\":");
    add_now(&frame);
    buffer_text(&frame, "}\n\n");
    bus_send(BUS_DELTA, session_id, after, frame.data, frame.length);
}
