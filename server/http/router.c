/* routes.def → table → handler, one request at a time: see router.h. */
#include "http/router.h"

#include <civetweb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "common/utf8.h"
#include "http/gate.h"
#include "http/serve.h"
#include "server/metrics.h"
#include "server/settings.h"

enum { SEGMENTS_MAX = 16, METHODS = 5 };

static const char *const method_names[METHODS] = {
    [METHOD_GET] = "GET",     [METHOD_POST] = "POST",     [METHOD_PUT] = "PUT",
    [METHOD_PATCH] = "PATCH", [METHOD_DELETE] = "DELETE",
};

/* --- matching
 * ----------------------------------------------------------------------------------------------------------
 */

/* A path, split on '/' first and decoded after. */
struct path {
    const char *segments[SEGMENTS_MAX];
    size_t count;
};

static bool is_text(const char *bytes, size_t length)
{
    for (size_t at = 0, step; at < length; at += step) {
        step = utf8_length(bytes + at, length - at);
        if (!step || !bytes[at])
            return false;
    }
    return true;
}

/* False for what no route can have: NUL, bytes that are not UTF-8, too many segments. */
static bool split_path(const char *text, struct arena *arena, struct path *path)
{
    path->count = 0;
    if (*text != '/')
        return false;
    while (*text) {
        size_t length = strcspn(++text, "/"), size;

        if (path->count == SEGMENTS_MAX)
            return false;
        path->segments[path->count] = request_unescape(arena, text, length, false, &size);
        if (!is_text(path->segments[path->count++], size))
            return false;
        text += length;
    }
    return true;
}

/* Walk the route's template along the path; `values` may be half filled when they differ. */
static bool fits(const char *template, const struct path *path, const char *values[PATH_VALUES_MAX])
{
    size_t value = 0;

    for (size_t i = 0; i < path->count; i++) {
        const char *segment = path->segments[i];
        size_t length;

        if (*template != '/')
            return false;
        length = strcspn(++template, "/");
        if (*template == '{') {
            if (!*segment || value == PATH_VALUES_MAX)
                return false;
            values[value++] = segment;
        } else if (strlen(segment) != length || memcmp(template, segment, length) != 0) {
            return false;
        }
        template += length;
    }
    return !*template;
}

/* HEAD is not implied by GET, but for documents. */
static bool takes_head(const struct route *route)
{
    return route->reply_type == REPLY_TEXT && route->caller == RULE_PUBLIC;
}

static bool takes(const struct route *route, const char *method)
{
    return strcmp(method, method_names[route->method]) == 0 ||
           (takes_head(route) && strcmp(method, "HEAD") == 0);
}

const struct route *router_match(const char *method, const char *path, struct arena *arena,
                                 const char *values[PATH_VALUES_MAX], const char **allow)
{
    auto_buffer struct buffer others = {0};
    struct path split;

    *allow = NULL;
    memset(values, 0, PATH_VALUES_MAX * sizeof(*values));
    if (!split_path(path, arena, &split))
        return NULL;
    for (size_t i = 0; i < route_count; i++) {
        const char *found[PATH_VALUES_MAX] = {0};

        if (!routes[i].run || !fits(routes[i].path, &split, found))
            continue;
        if (takes(&routes[i], method)) {
            memcpy(values, found, sizeof(found));
            return &routes[i];
        }
        buffer_format(&others, "%s%s%s", others.length ? ", " : "", method_names[routes[i].method],
                      takes_head(&routes[i]) ? ", HEAD" : "");
    }
    if (others.length)
        *allow = arena_copy(arena, others.data, others.length);
    return NULL;
}

/* --- seats: what a thread keeps from one request to the next
 * ------------------------------------------------------------- */

static const struct seat_hooks *hooks;

struct seat {
    struct arena arena;
    struct sandbox_link *link;
};

static pthread_key_t seat_key;
static pthread_once_t seat_once = PTHREAD_ONCE_INIT;

static void seat_free(void *pointer)
{
    struct seat *seat = pointer;

    if (seat->link && hooks && hooks->link_close)
        hooks->link_close(seat->link);
    arena_done(&seat->arena);
    free(seat);
}

static void seat_key_make(void)
{
    if (pthread_key_create(&seat_key, seat_free) != 0)
        abort();
}

static struct seat *seat_get(void)
{
    struct seat *seat;

    pthread_once(&seat_once, seat_key_make);
    seat = pthread_getspecific(seat_key);
    if (seat)
        return seat;
    seat = calloc(1, sizeof(*seat));
    if (!seat || pthread_setspecific(seat_key, seat) != 0)
        abort();
    return seat;
}

/* --- counting
 * ------------------------------------------------------------------------------------------------------------
 */

/* Index of each route's path among the values of the label `handler`; one more for the unmatched.
 */
static int *handler_labels;

static const struct {
    const char *name;
    int label; /* in metrics.def */
} counted_methods[] = {{"GET", 0},    {"POST", 1}, {"PUT", 2},    {"PATCH", 3},
                       {"DELETE", 4}, {"HEAD", 5}, {"OPTIONS", 6}};

const char *router_labels(void)
{
    static struct buffer labels;

    if (labels.length)
        return labels.data;
    buffer_text(&labels, "none");
    for (size_t i = 0; i < route_count; i++) {
        bool seen = !routes[i].run;

        for (size_t j = 0; j < i && !seen; j++)
            seen = routes[j].run && strcmp(routes[j].path, routes[i].path) == 0;
        if (!seen)
            buffer_format(&labels, "|%s", routes[i].path);
    }
    return labels.data;
}

void router_init(const struct seat_hooks *given)
{
    hooks = given;
    free(handler_labels);
    handler_labels = calloc(route_count + 1, sizeof(*handler_labels));
    if (!handler_labels)
        abort();
    for (size_t i = 0; i < route_count; i++)
        handler_labels[i] =
            routes[i].run ? counter_label(METRIC_http_requests_total, 0, routes[i].path) : -1;
    handler_labels[route_count] = counter_label(METRIC_http_requests_total, 0, "none");
}

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* Taken before the answer leaves: how fast the client reads is not counted. */
static void count(const struct request *req, const struct response *res, int64_t begin_us)
{
    double seconds = (double)(now_us() - begin_us) / 1e6;
    int labels[3] = {-1, -1, res->status / 100 - 2};

    if (!handler_labels)
        return;
    labels[0] = handler_labels[req->route ? (size_t)(req->route - routes) : route_count];
    for (size_t i = 0; i < COUNT(counted_methods); i++)
        if (strcmp(counted_methods[i].name, req->method) == 0)
            labels[1] = counted_methods[i].label;
    counter_add(METRIC_http_requests_total, labels, 1);
    counter_add(METRIC_http_request_size_bytes_count, labels, 1);
    counter_add(METRIC_http_request_size_bytes_sum, labels,
                req->exchange->content_length > 0 ? req->exchange->content_length : 0);
    counter_add(METRIC_http_response_size_bytes_count, labels, 1);
    counter_add(METRIC_http_response_size_bytes_sum, labels,
                res->file >= 0 ? res->file_size : (int64_t)res->body.length);
    counter_observe(METRIC_http_request_duration_highr_seconds, NULL, seconds);
    counter_observe(METRIC_http_request_duration_seconds, labels, seconds);
}

/* --- before routing: 1 when answered, 0 to go on, -1 with an error
 * ---------------------------------------------------------- */

typedef int refusal(struct request *req, struct response *res, struct error *err);

static int refuse_host(struct request *req, struct response *res, struct error *err)
{
    if (origin_host_allowed(settings.allowed_hosts, request_header(req, "Host")))
        return 0;
    if (request_is_api(req))
        return error_set(err, ERR_BAD_REQUEST, "Invalid host header");
    response_plain(res, 400, "Invalid host header");
    return 1;
}

/* A declared size is refused before a byte of it is read; the sessions API's bounds depend on the
 * route. */
static int refuse_size(struct request *req, struct response *res, struct error *err)
{
    (void)res;
    if (request_is_api(req) || req->exchange->content_length <= settings.max_request_bytes)
        return 0;
    return error_set(err, ERR_TOO_LARGE, "Request body too large");
}

static int answer_preflight(struct request *req, struct response *res, struct error *err)
{
    (void)err;
    return origin_preflight(req, res);
}

static refusal *const refusals[] = {refuse_host, refuse_size, answer_preflight};

/* --- routing
 * -----------------------------------------------------------------------------------------------------------------
 */

/* Outside /api a path that a slash too many keeps from being served is shown the way: 1, or 0. */
static int redirect(struct request *req, struct response *res)
{
    const char *path = req->info->request_uri, *host = request_header(req, "Host"), *allow,
               *values[PATH_VALUES_MAX];
    const char *query = req->info->query_string;
    size_t length = strlen(path);
    char *shorter;

    if (request_is_api(req) || length < 2 || path[length - 1] != '/' || !host)
        return 0;
    shorter = arena_copy(req->arena, path, length - 1);
    if (!router_match(req->method, shorter, req->arena, values, &allow) && !allow)
        return 0;
    res->status = 307;
    response_header(res, "Location",
                    arena_text(req->arena, "%s://%s%s%s%s", req->info->is_ssl ? "https" : "http",
                               host, shorter, query ? "?" : "", query ? query : ""));
    return 1;
}

static int find_route(struct request *req, struct response *res, struct error *err)
{
    const char *allow;

    req->route =
        router_match(req->method, req->info->request_uri, req->arena, req->path_values, &allow);
    if (req->route)
        return 0;
    if (!allow)
        return redirect(req, res) ? 1 : error_set(err, ERR_NOT_FOUND, "Not Found");
    error_set(err, ERR_METHOD, "Method Not Allowed");
    response_error(req, res, err);
    response_header(res, "Allow", allow);
    return 1;
}

/* --- running
 * --------------------------------------------------------------------------------------------------------------------
 */

static bool needs_database(const struct route *route)
{
    return route->caller != RULE_PUBLIC && route->caller != RULE_METRICS;
}

/* Who asks, and whether this caller may: 401, 403, then the project's 400 and 404. Before the body,
 * so that nobody without a credential makes us store one. */
static int admit(struct request *req, struct error *err)
{
    if (needs_database(req->route) &&
        (database_borrow(req->pool, BORROW_WAIT_MS, &req->db, err) < 0 ||
         caller_identify(req, err) < 0))
        return -1;
    log_context(req->id, req->caller.subject);
    return caller_admit(req, req->route->caller, err);
}

/* Query and body. A client that takes its time to send must not hold a database connection. */
static int read_input(struct request *req, struct error *err)
{
    if (!exchange_complete(req->exchange)) {
        database_return(req->db);
        req->db = NULL;
    }
    if (request_read_query(req, err) < 0)
        return -1;
    return request_read_body(req, err);
}

/* Whether what the path names exists. */
static int find_object(struct request *req, struct error *err)
{
    if (!hooks || !hooks->find || !req->path_values[0] || !needs_database(req->route))
        return 0;
    if (!req->db && database_borrow(req->pool, BORROW_WAIT_MS, &req->db, err) < 0)
        return -1;
    return hooks->find(req, err);
}

/* The object's 404 goes before what is wrong with the body. */
static int object_first(struct request *req, struct error *err)
{
    struct error missing = {0};

    if ((err->kind == ERR_INVALID || err->kind == ERR_BAD_REQUEST) &&
        find_object(req, &missing) < 0 && missing.kind == ERR_NOT_FOUND)
        *err = missing;
    return -1;
}

static int run(struct request *req, struct response *res, struct error *err)
{
    if (admit(req, err) < 0)
        return -1;
    /* Nobody uploads to what is not there. */
    if (req->route->body_type == BODY_UPLOAD && find_object(req, err) < 0)
        return -1;
    if (read_input(req, err) < 0)
        return object_first(req, err);
    if (needs_database(req->route) && request_begin(req, err) < 0)
        return -1;
    if (req->route->run(req, res, err) < 0 || request_commit(req, err) < 0)
        return -1;
    return res->after_commit ? res->after_commit(req, res, res->context, err) : 0;
}

static int answer(struct request *req, struct response *res, struct error *err)
{
    int done = 0;

    for (size_t i = 0; i < COUNT(refusals) && done == 0; i++)
        done = refusals[i](req, res, err);
    if (done == 0)
        done = find_route(req, res, err);
    return done == 0 ? run(req, res, err) : done;
}

/* A link to the supervisor opens nothing until it is used. */
static struct sandbox_link *seat_link(struct seat *seat)
{
    if (!seat->link && hooks && hooks->link_open)
        seat->link = hooks->link_open();
    return seat->link;
}

void router_serve(struct mg_connection *connection, struct exchange *exchange)
{
    struct seat *seat = seat_get();
    const struct mg_request_info *info = mg_get_request_info(connection);
    char fresh[37];
    int64_t begin_us = now_us();
    struct response res = {.file = -1};
    struct error err = {0};
    struct request req = {
        .info = info,
        .method = info->request_method,
        .peer = exchange->peer,
        .arena = &seat->arena,
        .pool = hooks ? hooks->pool : NULL,
        .supervisor = seat_link(seat),
        .exchange = exchange,
        .upload = {.fd = -1, .file_name = ""},
    };

    req.id = request_make_id(&req, fresh);
    log_context(req.id, NULL);
    if (answer(&req, &res, &err) < 0)
        response_error(&req, &res, &err);
    database_return(req.db);
    if (res.handed_over)
        res.status = 200;
    count(&req, &res, begin_us);
    if (!res.handed_over)
        response_send(&req, &res);
    response_done(&res);
    if (req.upload.fd >= 0)
        close(req.upload.fd);
    log_context(NULL, NULL);
    arena_reset(&seat->arena);
}
