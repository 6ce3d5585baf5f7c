/* What a handler is given, and what it answers. */
#ifndef HTTP_REQUEST_H
#define HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/field.h"
#include "http/caller.h"
#include "store/database.h"

struct exchange; /* the connection: gate.h */
struct mg_request_info;
struct route; /* router.h */

enum { PATH_VALUES_MAX = 4 };

/* A file that came as multipart/form-data (RFC 7578), streamed to an unlinked file in the spool
 * folder. */
struct upload {
    int fd; /* at offset 0; the router closes it */
    int64_t size;
    const char
        *file_name; /* as contract/sessions-api.md section 6 undoes it; "" when the part had none */
};

struct request {
    const struct route *route;
    const struct mg_request_info *info; /* the head, as it came */
    const char *method;
    const char *id;   /* request id: in X-Request-Id and in every log line */
    const char *peer; /* the client's address as text */
    const char *path_values[PATH_VALUES_MAX]; /* of the {names} of the route, in order,
                                                 percent-decoded, without NUL */
    struct caller caller;
    const char *project; /* id of the project acted in; NULL for routes without one */

    const void *query; /* struct of the route's query schema */
    const void *body;  /* struct of the route's body schema; NULL: none */
    uint64_t given,
        nulls; /* fields of the body that were there, that were null: struct decoded of json.h */
    const char *body_json; /* the body again, normalised */
    struct upload upload;

    struct arena *arena;
    struct database
        *db; /* in a transaction that the router commits on 0 and rolls back on -1; with GET each
              * query is by itself. NULL on PUBLIC and METRICS routes: request_begin */
    struct pool *pool; /* where `db` comes from: for calls that borrow for themselves */
    struct sandbox_link *supervisor; /* run/sandbox.h; this thread's own */
    struct exchange *exchange;
};

/* A request header, by name in any case; NULL when absent. The first of several. */
const char *request_header(const struct request *req, const char *name);
/* A descriptor that is readable (POLLRDHUP, POLLHUP) when the client has gone: to be polled by
 * calls that wait long. */
int request_client_fd(const struct request *req);
/* This call is about to wait for long, and keeps its thread. ERR_UNAVAILABLE when too many do: the
 * others must be answered, too. */
int request_hold(struct request *req, struct error *err);
/* Commit what was done so far and give the database connection back, before a wait. `req->db` is
 * NULL then. */
int request_commit(struct request *req, struct error *err);
/* Borrow a connection (again) and, but for GET, begin. */
int request_begin(struct request *req, struct error *err);

/* An empty file in the spool folder, which is gone when its descriptor is; the caller's. */
int request_spool(struct error *err);

struct response {
    int status;
    struct buffer body;
    const char *content_type;
    struct buffer headers; /* further header lines, each ending in \r\n */
    int file; /* -1, or a descriptor whose `file_size` bytes are the body (closed by the router) */
    int64_t file_size;
    bool handed_over; /* the socket has gone to another process: nothing more is sent */
    /* Runs once the transaction is committed and `db` was given back, before the answer is written;
     * a failure becomes the answer. */
    int (*after_commit)(struct request *req, struct response *res, void *context,
                        struct error *err);
    void *context;
};

void response_header(struct response *res, const char *name, const char *value);
/* The head of an answer without length or end, as the router would write it (status 200, every
 * header of the router, Connection: close): for a socket that is handed over to the streamer, which
 * writes it. */
void response_stream_head(const struct request *req, const struct response *res,
                          const char *content_type, struct buffer *out);

/* The ways to answer. They return 0, so that a handler can end in `return respond(…)`. */

/* The object of `schema` and `value`. */
int respond(struct response *res, int status, const struct schema *schema, const void *value);
/* JSON text as it is. */
int respond_json(struct response *res, int status, const char *json);
/* No body: 204. */
int respond_nothing(struct response *res);
/* `size` bytes from `fd`, which the response owns from now on. */
int respond_file(struct response *res, const char *content_type, int fd, int64_t size);
/* Run a query and answer its first row; ERR_NOT_FOUND with the sentence "<what> not found" when
 * there is none. */
int respond_row(struct request *req, struct response *res, int status, enum query_id query,
                struct params params, const char *what, struct error *err);
/* Run a query and answer all its rows as an array. */
int respond_rows(struct request *req, struct response *res, enum query_id query,
                 struct params params, struct error *err);

#endif
