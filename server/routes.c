/* The table behind routes.def. */
#include "http/router.h"

/* Handlers and schemas are declared by the table that names them. */
#define ROOM(title)
#define NO_QUERY
#define QUERY(schema) extern const struct schema schema_##schema;
#define NO_BODY
#define JSON_BODY(schema) extern const struct schema schema_##schema;
#define UPLOAD
#define OK(schema) extern const struct schema schema_##schema;
#define LIST(schema) extern const struct schema schema_##schema;
#define CREATED(schema) extern const struct schema schema_##schema;
#define ACCEPTED(schema) extern const struct schema schema_##schema;
#define NOTHING
#define BYTES
#define EVENTS
#define ROUTE(method, path, handler_name, caller, query, body, reply, summary)                     \
    handler handler_name;                                                                          \
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
#define QUERY(schema) &schema_##schema
#define NO_BODY BODY_NONE, NULL
#define JSON_BODY(schema) BODY_JSON, &schema_##schema
#define UPLOAD BODY_UPLOAD, NULL
#define OK(schema) 200, REPLY_ONE, &schema_##schema
#define LIST(schema) 200, REPLY_MANY, &schema_##schema
#define CREATED(schema) 201, REPLY_ONE, &schema_##schema
#define ACCEPTED(schema) 202, REPLY_ONE, &schema_##schema
#define NOTHING 204, REPLY_NOTHING, NULL
#define BYTES 200, REPLY_BYTES, NULL
#define EVENTS 200, REPLY_EVENTS, NULL
#define TEXT(status) status, REPLY_TEXT, NULL
/* The room's title is a row of its own kind: a route without a handler. */
#define ROOM(title) {.room = title},
#define ROUTE(method, path, handler_name, caller, query, body, reply, summary)                     \
    {METHOD_##method, path, handler_name, #handler_name, RULE_##caller, query, body, reply, summary, NULL},

const struct route routes[] = {
#include "server/routes.def"
};

const size_t route_count = COUNT(routes);
