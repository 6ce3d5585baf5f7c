/* routes.def → table → handler. The one place where an error becomes a response. */
#ifndef HTTP_ROUTER_H
#define HTTP_ROUTER_H

#include <stddef.h>

#include "http/request.h"

typedef int handler(struct request *req, struct response *res, struct error *err);

enum route_method { METHOD_GET, METHOD_POST, METHOD_PUT, METHOD_PATCH, METHOD_DELETE };

enum body_type {
    BODY_NONE, /* whatever comes is read and dropped */
    BODY_JSON,
    BODY_UPLOAD, /* multipart/form-data with one part `file` */
};

enum reply_type {
    REPLY_NOTHING,
    REPLY_ONE,    /* an object of the schema */
    REPLY_MANY,   /* an array of them */
    REPLY_BYTES,  /* application/octet-stream */
    REPLY_EVENTS, /* text/event-stream */
    REPLY_TEXT,   /* text or HTML */
};

/* One row of routes.def. */
struct route {
    enum route_method method;
    const char *path; /* "/api/sessions/{session_id}/events" */
    handler *run;
    const char *name; /* of the handler: operationId, and `handler` of nothing else */
    enum caller_rule caller;
    const struct schema *query; /* NULL: none */
    enum body_type body_type;
    const struct schema *body;
    int status; /* of success */
    enum reply_type reply_type;
    const struct schema *reply;
    const char *summary; /* one line, for /openapi.json */
    const char *
        room; /* a row with no handler: the title of the rows that follow, a tag in /openapi.json */
};

extern const struct route routes[];
extern const size_t route_count;

/* What a worker lends its threads, from before the first request until after the last. */
struct sandbox_link;
struct seat_hooks {
    struct pool *pool;
    /* A link to the supervisor for the calling thread (made when a request first may need one;
     * never fails), and its end. Both NULL: none. */
    struct sandbox_link *(*link_open)(void);
    void (*link_close)(struct sandbox_link *link);
    /* Whether what the path names exists, else ERR_NOT_FOUND: asked when a query or body did not
     * validate, since 404 goes before 422 (contract/sessions-api.md, DECISION 85). NULL: nothing is
     * asked. */
    int (*find)(struct request *req, struct error *err);
};

/* Once a process, before gate_run; `hooks` must stay. */
void router_init(const struct seat_hooks *hooks);
/* "none|/healthz|…": the values of every label `handler`, for metrics_open. */
const char *router_labels(void);

/* Handle the request whose head CivetWeb has parsed; called by gate.c in a CivetWeb thread. Always
 * answers. */
struct mg_connection;
void router_serve(struct mg_connection *connection, struct exchange *exchange);

/* Find a route by the path as it came, still percent-encoded: NULL with `*allow` set (a comma list)
 * when only the method is wrong, NULL with it NULL when the path is unknown. `values` receives the
 * percent-decoded {names}. */
const struct route *router_match(const char *method, const char *path, struct arena *arena,
                                 const char *values[PATH_VALUES_MAX], const char **allow);

#endif
