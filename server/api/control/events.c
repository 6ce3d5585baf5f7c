/* The log in pages; following it is in stream.c. */
#include "api/control/sessions.h"
#include "api/handlers.h"

enum { EVENTS_PAGE_MAX = 1000 };

struct event {
    int64_t seq;
    const char *session_id;
    const char *run_id;
    const char *type;
    const char *payload;
    const char *created_at;
};

static const struct field event_fields[] = {
    {NUMBER(event, seq)},
    {TEXT(event, session_id)},
    {TEXT(event, run_id), .nullable = true},
    {TEXT(event, type)},
    {JSON(event, payload), .shape = SHAPE_OBJECT},
    {TEXT(event, created_at)},
};
SCHEMA(event);

struct events_filter {
    int64_t after;
    int64_t limit;
};

static const struct field events_filter_fields[] = {
    {NUMBER(events_filter, after), .min = 0, .max = INT64_MAX, .fallback = "0"},
    {NUMBER(events_filter, limit), .min = 1, .max = EVENTS_PAGE_MAX, .fallback = "500"},
};
SCHEMA(events_filter);

int events_list(struct request *req, struct response *res, struct error *err)
{
    const struct events_filter *filter = req->query;
    struct session_found session;

    if (session_find(req, &session, err) < 0)
        return -1;
    return respond_rows(req, res, QUERY_events_list,
                        PARAMS(session.id, NUM(filter->after), NUM(filter->limit)), err);
}
