/* Following a session's log: the request is checked here, then the socket goes to the streamer. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "api/handlers.h"
#include "common/token.h"
#include "http/follow.h"
#include "http/gate.h"
#include "http/request.h"

struct events_cursor {
    int64_t after;
};

static const struct field events_cursor_fields[] = {
    {NUMBER(events_cursor, after), .max = INT64_MAX, .fallback = "0",
     .about = "seq of the last event already seen; 0 begins at the beginning"},
};
SCHEMA(events_cursor);

handler events_stream;

/* What a browser sends when it reconnects. Anything but digits is another server's, and is not ours
 * to refuse. */
static int64_t last_event_id(const struct request *req)
{
    const char *text = request_header(req, "Last-Event-ID");

    if (!text || !*text || strlen(text) > 18)
        return 0;
    for (const char *c = text; *c; c++)
        if (!isdigit((unsigned char)*c))
            return 0;
    return strtoll(text, NULL, 10);
}

int events_stream(struct request *req, struct response *res, struct error *err)
{
    const struct events_cursor *query = req->query;
    const char *session = req->path_values[0];
    int64_t last = last_event_id(req);
    struct follow follow = {
        .session = session,
        .key = req->caller.kind == CALLER_KEY ? req->caller.subject : NULL,
        .after = query->after > last ? query->after : last,
    };
    auto_rows struct rows *rows = NULL;
    auto_buffer struct buffer head = {0};

    if (!token_is_uuid(session))
        return error_set(err, ERR_NOT_FOUND, "session not found");
    if (query_rows(req->db, QUERY_stream_session, PARAMS(session, req->project), &rows, err) < 0)
        return -1;
    if (rows_count(rows) == 0)
        return error_set(err, ERR_NOT_FOUND, "session not found");
    /* As PostgreSQL writes it: the streamer compares ids as texts. */
    follow.session = arena_copy(req->arena, rows_text(rows, 0, 0), 36);
    if (request_commit(req, err) < 0)
        return -1;
    response_header(res, "Cache-Control", "no-cache");
    response_header(res, "X-Accel-Buffering", "no");
    response_stream_head(req, res, "text/event-stream; charset=utf-8", &head);
    follow.head = head.data;
    if (follow_hand_over(&follow, req->exchange->fd, err) < 0)
        return -1;
    /* The streamer has a duplicate; ours is given up without a word. */
    close(exchange_take(req->exchange));
    res->handed_over = true;
    return 0;
}
