/* The table behind routes.def. */
#include "http/router.h"

/* Handlers and schemas are declared by the table that names them. */
#define ROOM(title)
#define NO_QUERY
#define QUERY(row) extern const struct schema schema_##row;
#define NO_BODY
#define JSON_BODY(row) extern const struct schema schema_##row;
#define UPLOAD
#define OK(row) extern const struct schema schema_##row;
#define LIST(row) extern const struct schema schema_##row;
#define CREATED(row) extern const struct schema schema_##row;
#define ACCEPTED(row) extern const struct schema schema_##row;
#define NOTHING
#define BYTES
#define EVENTS
#define ROUTE(method, path, handler_name, caller, query, body, reply, summary) \
    handler handler_name;                                                      \
    query body reply
#undef TEXT
#define TEXT(status)
#include "server/routes.def"
#undef ROOM
#undef ROUTE
#undef NO_QUERY
#undef QUERY
#undef NO_BODY
#undef JSON_BODY
#undef UPLOAD
#undef OK
#undef LIST
#undef CREATED
#undef ACCEPTED
#undef NOTHING
#undef BYTES
#undef EVENTS
#undef TEXT

#define NO_QUERY NULL
#define QUERY(row) &schema_##row
#define NO_BODY BODY_NONE, NULL
#define JSON_BODY(row) BODY_JSON, &schema_##row
#define UPLOAD BODY_UPLOAD, NULL
#define OK(row) 200, REPLY_ONE, &schema_##row
#define LIST(row) 200, REPLY_MANY, &schema_##row
#define CREATED(row) 201, REPLY_ONE, &schema_##row
#define ACCEPTED(row) 202, REPLY_ONE, &schema_##row
#define NOTHING 204, REPLY_NOTHING, NULL
#define BYTES 200, REPLY_BYTES, NULL
#define EVENTS 200, REPLY_EVENTS, NULL
#define TEXT(status) status, REPLY_TEXT, NULL
/* The room's title is a row of its own kind: a route without a handler. */
#define ROOM(title) {.room = title},
#define ROUTE(method, path, handler_name, caller, query, body, reply, summary) \
    {METHOD_##method, path, handler_name, #handler_name, RULE_##caller,        \
     query,           body, reply,        summary,       NULL},

const struct route routes[] = {
#include "server/routes.def"
};

const size_t route_count = COUNT(routes);
