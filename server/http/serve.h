/* What router.c, request.c, response.c and origin.c share: the steps from a head to an answer. */
#ifndef HTTP_SERVE_H
#define HTTP_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/request.h"
#include "http/router.h"

enum {
    BORROW_WAIT_MS = 5000,
    JSON_BYTES_MAX = 8 << 20,
    REQUEST_ID_MAX = 64,
};

/* 512 MiB of a file; the body around it may have a little more. */
static const int64_t upload_bytes_max = (int64_t)512 << 20;
static const int64_t upload_envelope_max = (int64_t)1 << 20;

/* Paths of the sessions API, which has other rules than the rest. */
bool request_is_api(const struct request *req);

/* --- request.c
 * -----------------------------------------------------------------------------------------------------
 */

/* Undo percent-encoding of `length` bytes; `plus`: + is a space. *size is without the NUL behind.
 * What is no escape stays. */
char *request_unescape(struct arena *arena, const char *text, size_t length, bool plus,
                       size_t *size);
/* The X-Request-Id of the client when it is one, else a new one. */
const char *request_make_id(const struct request *req, char fresh[37]);
/* Fill req->query from the query string by the route's table. ERR_INVALID. */
int request_read_query(struct request *req, struct error *err);
/* Take the body: decode JSON, spool an upload, or drop it. */
int request_read_body(struct request *req, struct error *err);

/* --- origin.c
 * ------------------------------------------------------------------------------------------------------
 */

/* Whether `host`, the Host header, is one of ALLOWED_HOSTS. */
bool origin_host_allowed(const char *allowed_hosts, const char *host);
/* Answer a CORS preflight: 1 when it was one. */
int origin_preflight(const struct request *req, struct response *res);
/* The CORS headers of any response. */
void origin_headers(const struct request *req, struct buffer *out);

/* --- response.c
 * ----------------------------------------------------------------------------------------------------
 */

/* The phrase behind a status, RFC 9110 section 15. */
const char *response_reason(int status);
/* Now, as the Date field has it; made once a second. */
const char *response_date(void);
/* Turn an error into the answer; what was answered so far is forgotten. */
void response_error(const struct request *req, struct response *res, const struct error *err);
/* A text/plain answer. */
void response_plain(struct response *res, int status, const char *text);
/* Write it all. `keep_alive` of the exchange says how the connection goes on. */
void response_send(const struct request *req, struct response *res);
void response_done(struct response *res);

#endif
