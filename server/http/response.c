/* What a handler answers, and how it goes over the wire. */
#include "http/request.h"

#include <civetweb.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/json.h"
#include "common/log.h"
#include "http/gate.h"
#include "http/serve.h"
#include "server/settings.h"

enum {
    JOINED_BYTES_MAX = 256 * 1024, /* a body up to this leaves in one write with its head */
    FILE_STEP_BYTES = 256 * 1024,
};

/* --- the ways to answer
 * -----------------------------------------------------------------------------------------------
 */

static const char json_type[] = "application/json";
static const char plain_type[] = "text/plain; charset=utf-8";

void response_header(struct response *res, const char *name, const char *value)
{
    buffer_format(&res->headers, "%s: %s\r\n", name, value);
}

int respond(struct response *res, int status, const struct schema *schema, const void *value)
{
    res->status = status;
    res->content_type = json_type;
    json_encode(&res->body, schema, value);
    return 0;
}

int respond_json(struct response *res, int status, const char *json)
{
    res->status = status;
    res->content_type = json_type;
    buffer_text(&res->body, json);
    return 0;
}

int respond_nothing(struct response *res)
{
    res->status = 204;
    return 0;
}

int respond_file(struct response *res, const char *content_type, int fd, int64_t size)
{
    res->status = 200;
    res->content_type = content_type;
    res->file = fd;
    res->file_size = size;
    return 0;
}

int respond_row(struct request *req, struct response *res, int status, enum query_id query,
                struct params params, const char *what, struct error *err)
{
    auto_rows struct rows *rows = NULL;

    if (query_rows(req->db, query, params, &rows, err) < 0)
        return -1;
    if (!rows_count(rows))
        return error_set(err, ERR_NOT_FOUND, "%s not found", what);
    res->status = status;
    res->content_type = json_type;
    rows_json(rows, 0, &res->body);
    return 0;
}

int respond_rows(struct request *req, struct response *res, enum query_id query,
                 struct params params, struct error *err)
{
    auto_rows struct rows *rows = NULL;

    if (query_rows(req->db, query, params, &rows, err) < 0)
        return -1;
    res->status = 200;
    res->content_type = json_type;
    rows_json_list(rows, &res->body);
    return 0;
}

void response_plain(struct response *res, int status, const char *text)
{
    res->status = status;
    res->content_type = plain_type;
    buffer_text(&res->body, text);
}

void response_done(struct response *res)
{
    buffer_done(&res->body);
    buffer_done(&res->headers);
    if (res->file >= 0)
        close(res->file);
    res->file = -1;
}

/* --- errors
 * ------------------------------------------------------------------------------------------------------------
 */

/* The first element of `loc` for a failure that no table found. */
static const char *blamed(const struct request *req)
{
    if (req->route && req->route->body_type != BODY_NONE)
        return "body";
    return req->route && req->route->query ? "query" : "path";
}

static void add_detail(const struct request *req, const struct error *err, struct buffer *out)
{
    auto_buffer struct buffer list = {0};

    if (err->kind == ERR_INTERNAL) {
        buffer_text(out, "{\"detail\":\"internal error\"}");
    } else if (err->kind != ERR_INVALID) {
        json_format(out, "{\"detail\":%s}", err->message);
    } else if (err->fields) {
        json_format(out, "{\"detail\":%j}", err->fields);
    } else {
        json_field_error(&list, arena_text(req->arena, "[\"%s\"]", blamed(req)), "value_error",
                         err->message);
        json_format(out, "{\"detail\":[%j]}", list.data);
    }
}

/* What the network API answers as plain text (its contract, 1.5 and 2.3). */
static const char *plain_error(const struct request *req, const struct error *err)
{
    if (request_is_api(req))
        return NULL;
    if (err->kind == ERR_INTERNAL)
        return "Internal Server Error";
    return err->kind == ERR_TOO_LARGE ? "Request body too large" : NULL;
}

static void log_failure(const struct request *req, const struct error *err, int status)
{
    const char *route = req->route ? req->route->name : "none";

    if (err->kind == ERR_INTERNAL)
        LOG(ERROR, "request_failed", V("route", route), V("status", status),
            V("error", err->message));
    else if (status >= 500)
        LOG(WARNING, "request_failed", V("route", route), V("status", status),
            V("error", err->message));
}

void response_error(const struct request *req, struct response *res, const struct error *err)
{
    int status = error_status(err->kind);
    const char *plain = plain_error(req, err);

    log_failure(req, err, status);
    response_done(res);
    *res = (struct response){.file = -1, .status = status};
    if (plain) {
        response_plain(res, status, plain);
    } else {
        res->content_type = json_type;
        add_detail(req, err, &res->body);
    }
    if (err->retry_after_s > 0)
        response_header(res, "Retry-After", arena_text(req->arena, "%d", err->retry_after_s));
    if (status == 401 &&
        (request_is_api(req) || (req->route && req->route->caller == RULE_METRICS)))
        response_header(res, "WWW-Authenticate", "Bearer");
}

/* --- the head
 * ----------------------------------------------------------------------------------------------------------
 */

const char *response_reason(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
    };

    for (size_t i = 0; i < COUNT(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].phrase;
    return "Status";
}

const char *response_date(void)
{
    static _Thread_local char text[40];
    static _Thread_local time_t written;
    time_t now = time(NULL);
    struct tm utc;

    if (now != written && gmtime_r(&now, &utc)) {
        strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc);
        written = now;
    }
    return text;
}

/* Everything but what tells where the body ends and how the connection goes on. */
static void add_head(const struct request *req, const struct response *res,
                     const char *content_type, struct buffer *out)
{
    buffer_format(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: agent-sandbox\r\n", res->status,
                  response_reason(res->status), response_date());
    if (content_type)
        buffer_format(out, "Content-Type: %s\r\n", content_type);
#define HEADER(name, value) buffer_text(out, name ": " value "\r\n");
#include "http/hardening.def"
#undef HEADER
    if (settings.security_hsts_seconds > 0)
        buffer_format(out, "Strict-Transport-Security: max-age=%ld\r\n",
                      (long)settings.security_hsts_seconds);
    if (request_is_api(req))
        buffer_format(out, "X-Request-Id: %s\r\n", req->id);
    origin_headers(req, out);
    if (res->headers.length)
        buffer_add(out, res->headers.data, res->headers.length);
}

void response_stream_head(const struct request *req, const struct response *res,
                          const char *content_type, struct buffer *out)
{
    struct response ok = *res;

    ok.status = 200;
    add_head(req, &ok, content_type, out);
    buffer_text(out, "Connection: close\r\n\r\n");
}

/* --- the wire
 * -----------------------------------------------------------------------------------------------------------
 */

/* A file that became shorter, or can't be read, ends the connection: the client sees that bytes are
 * missing. */
static void send_file(const struct request *req, struct response *res)
{
    char *step = arena_alloc(req->arena, FILE_STEP_BYTES);
    int64_t left = res->file_size;

    while (left > 0) {
        ssize_t got =
            read(res->file, step, left < FILE_STEP_BYTES ? (size_t)left : FILE_STEP_BYTES);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || exchange_write(req->exchange, step, (size_t)got) < 0) {
            req->exchange->keep_alive = false;
            return;
        }
        left -= got;
    }
}

/* Before the head is written it must be known whether the connection can go on. */
static void add_connection(const struct request *req, struct buffer *out)
{
    bool old = req->info->http_version && strcmp(req->info->http_version, "1.0") == 0;

    if (!exchange_complete(req->exchange))
        req->exchange->keep_alive = false;
    if (!req->exchange->keep_alive)
        buffer_text(out, "Connection: close\r\n");
    else if (old)
        buffer_text(out, "Connection: keep-alive\r\n");
}

void response_send(const struct request *req, struct response *res)
{
    auto_buffer struct buffer head = {0};
    bool bare = strcmp(req->method, "HEAD") == 0 || res->status == 204 || res->status == 304;
    int64_t length = res->file >= 0 ? res->file_size : (int64_t)res->body.length;

    add_head(req, res, res->content_type, &head);
    if (res->status != 204 && res->status != 304)
        buffer_format(&head, "Content-Length: %ld\r\n", (long)length);
    add_connection(req, &head);
    buffer_text(&head, "\r\n");
    if (!bare && res->file < 0 && res->body.length <= JOINED_BYTES_MAX)
        buffer_add(&head, res->body.data, res->body.length);
    if (exchange_write(req->exchange, head.data, head.length) < 0 || bare)
        return;
    if (res->file >= 0)
        send_file(req, res);
    else if (res->body.length > JOINED_BYTES_MAX)
        exchange_write(req->exchange, res->body.data, res->body.length);
}
