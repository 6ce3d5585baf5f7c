/* What a handler is given: headers, query and body by the route's tables, and the database
 * connection. */
#include "http/request.h"

#include <civetweb.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/json.h"
#include "common/token.h"
#include "common/utf8.h"
#include "http/gate.h"
#include "http/multipart.h"
#include "http/serve.h"
#include "server/settings.h"

const char *request_header(const struct request *req, const char *name)
{
    for (int i = 0; i < req->info->num_headers; i++)
        if (strcasecmp(req->info->http_headers[i].name, name) == 0)
            return req->info->http_headers[i].value;
    return NULL;
}

int request_client_fd(const struct request *req)
{
    return req->exchange->fd;
}

int request_hold(struct request *req, struct error *err)
{
    if (exchange_hold(req->exchange))
        return 0;
    error_set(err, ERR_UNAVAILABLE, "the server waits for as many commands as it can");
    err->retry_after_s = 1;
    return -1;
}

bool request_is_api(const struct request *req)
{
    const char *path = req->info->request_uri;

    return path && strncmp(path, "/api", 4) == 0 && (path[4] == '/' || !path[4]);
}

const char *request_make_id(const struct request *req, char fresh[37])
{
    const char *given = request_header(req, "X-Request-Id");

    if (given && field_matches("[A-Za-z0-9._:/+=-]{1,64}", given))
        return given;
    token_uuid(fresh);
    return fresh;
}

/* --- the database
 * ----------------------------------------------------------------------------------------------------
 */

int request_commit(struct request *req, struct error *err)
{
    int result = 0;

    if (req->db && database_in_transaction(req->db))
        result = database_commit(req->db, err);
    database_return(req->db);
    req->db = NULL;
    return result;
}

int request_begin(struct request *req, struct error *err)
{
    bool reads = req->route && req->route->method == METHOD_GET;

    if (!req->db && database_borrow(req->pool, BORROW_WAIT_MS, &req->db, err) < 0)
        return -1;
    return reads || database_in_transaction(req->db) ? 0 : database_begin(req->db, err);
}

/* --- the query string
 * ------------------------------------------------------------------------------------------------
 */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *request_unescape(struct arena *arena, const char *text, size_t length, bool plus,
                       size_t *size)
{
    char *out = arena_alloc(arena, length + 1);
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        if (text[i] == '%' && i + 2 < length && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
            out[used++] = (char)(hex(text[i + 1]) << 4 | hex(text[i + 2]));
            i += 2;
        } else {
            out[used++] = plus && text[i] == '+' ? ' ' : text[i];
        }
    }
    *size = used;
    return out;
}

static bool is_text(const char *bytes, size_t length)
{
    for (size_t at = 0, step; at < length; at += step) {
        step = utf8_length(bytes + at, length - at);
        if (!step || !bytes[at])
            return false;
    }
    return true;
}

/* One name=value, decoded. */
struct pair {
    const char *name, *value;
    bool broken; /* the value holds NUL, or is not UTF-8 */
};

struct pairs {
    struct pair *items;
    size_t count;
};

static struct pairs split_query(struct arena *arena, const char *query)
{
    struct pairs pairs = {0};
    size_t room = 1;

    for (const char *c = query; *c; c++)
        room += *c == '&';
    pairs.items = arena_alloc(arena, room * sizeof(*pairs.items));
    while (*query) {
        size_t length = strcspn(query, "&"), size;
        const char *equals = memchr(query, '=', length);
        size_t name = equals ? (size_t)(equals - query) : length;
        struct pair *pair = &pairs.items[pairs.count];

        if (length) {
            pair->name = request_unescape(arena, query, name, true, &size);
            pair->value =
                equals ? request_unescape(arena, equals + 1, length - name - 1, true, &size) : "";
            pair->broken = equals && !is_text(pair->value, size);
            pairs.count++;
        }
        query += length + (query[length] == '&');
    }
    return pairs;
}

static bool is_integer(const char *text)
{
    text += *text == '-';
    return *text && strspn(text, "0123456789") == strlen(text);
}

/* A value as the JSON that its field wants; what does not look like it becomes a string, which the
 * decoder refuses. */
static void add_value(struct buffer *out, enum field_type type, const char *text)
{
    const char *digits = text + (*text == '-');

    if ((type == FIELD_NUMBER || type == FIELD_NUMBERS) && is_integer(text)) {
        digits += strspn(digits, "0");
        buffer_format(out, "%s%s", *text == '-' && *digits ? "-" : "", *digits ? digits : "0");
    } else if (type == FIELD_FLAG && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)) {
        buffer_text(out, text);
    } else {
        json_string(out, text);
    }
}

static bool is_list(enum field_type type)
{
    return type == FIELD_TEXTS || type == FIELD_NUMBERS;
}

/* Of a repeated parameter the last counts, but for lists. */
static void add_parameter(struct buffer *out, const struct field *field, const struct pairs *pairs)
{
    const char *last = NULL;
    size_t found = 0;

    for (size_t i = 0; i < pairs->count; i++) {
        if (strcmp(pairs->items[i].name, field->name) != 0)
            continue;
        last = pairs->items[i].value;
        if (!is_list(field->type))
            continue;
        if (found++) {
            buffer_char(out, ',');
        } else {
            json_format(out, "%s:[", field->name);
        }
        add_value(out, field->type, last);
    }
    if (found) {
        buffer_text(out, "],");
    } else if (last) {
        json_format(out, "%s:", field->name);
        add_value(out, field->type, last);
        buffer_char(out, ',');
    }
}

static int refuse_broken(struct request *req, const struct pairs *pairs, struct error *err)
{
    const struct schema *schema = req->route->query;
    auto_buffer struct buffer list = {0};

    for (size_t f = 0; f < schema->count; f++) {
        for (size_t i = 0; i < pairs->count; i++) {
            if (!pairs->items[i].broken ||
                strcmp(pairs->items[i].name, schema->fields[f].name) != 0)
                continue;
            json_field_error(&list,
                             arena_text(req->arena, "[\"query\",\"%s\"]", schema->fields[f].name),
                             "value_error", "the value is not UTF-8 text without NUL");
            break;
        }
    }
    if (!list.length)
        return 0;
    error_set(err, ERR_INVALID, "a query parameter is no text");
    err->fields = arena_text(req->arena, "[%s]", list.data);
    return -1;
}

int request_read_query(struct request *req, struct error *err)
{
    const struct schema *schema = req->route->query;
    const char *query = req->info->query_string ? req->info->query_string : "";
    auto_buffer struct buffer object = {0};
    struct decoded decoded;
    struct pairs pairs;

    if (!schema)
        return 0;
    pairs = split_query(req->arena, query);
    if (refuse_broken(req, &pairs, err) < 0)
        return -1;
    buffer_char(&object, '{');
    for (size_t i = 0; i < schema->count; i++)
        add_parameter(&object, &schema->fields[i], &pairs);
    if (object.data[object.length - 1] == ',')
        object.length--;
    buffer_char(&object, '}');
    if (json_decode(schema, "query", object.data, object.length, req->arena, &decoded, err) < 0)
        return -1;
    req->query = decoded.value;
    return 0;
}

/* --- the body
 * --------------------------------------------------------------------------------------------------------
 */

/* The sessions API has bounds of its own; MAX_REQUEST_BYTES is the network API's. */
static int64_t body_limit(const struct request *req)
{
    if (!request_is_api(req))
        return settings.max_request_bytes;
    return req->route->body_type == BODY_UPLOAD ? upload_bytes_max + upload_envelope_max
                                                : JSON_BYTES_MAX;
}

static int read_json(struct request *req, struct error *err)
{
    auto_buffer struct buffer body = {0};
    struct decoded decoded;
    int got;

    do {
        got = exchange_read(req->exchange, buffer_reserve(&body, 32 * 1024), 32 * 1024,
                            body_limit(req), err);
        if (got < 0)
            return -1;
        body.length += (size_t)got;
        body.data[body.length] = '\0';
    } while (got > 0);
    if (json_decode(req->route->body, "body", body.data, body.length, req->arena, &decoded, err) <
        0)
        return -1;
    req->body = decoded.value;
    req->given = decoded.given;
    req->nulls = decoded.nulls;
    req->body_json = decoded.json;
    return 0;
}

static int drop_body(struct request *req, struct error *err)
{
    char *waste = arena_alloc(req->arena, 16 * 1024);
    int got;

    if (req->exchange->content_length <= 0 && !req->exchange->chunked)
        return 0;
    do
        got = exchange_read(req->exchange, waste, 16 * 1024, body_limit(req), err);
    while (got > 0);
    return got;
}

int request_spool(struct error *err)
{
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/spool", settings.state_dir);
    fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        snprintf(path, sizeof(path), "%s/spool/upload-XXXXXX", settings.state_dir);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            unlink(path);
    }
    return fd < 0 ? error_set_errno(err, ERR_INTERNAL, "open a spool file") : fd;
}

static int read_exchange(void *context, void *into, size_t size, struct error *err)
{
    struct request *req = context;

    return exchange_read(req->exchange, into, size, body_limit(req), err);
}

static int read_upload(struct request *req, struct error *err)
{
    /* Told before anything is read. */
    if (req->exchange->content_length > body_limit(req))
        return exchange_read(req->exchange, &(char){0}, 1, body_limit(req), err);
    req->upload.fd = request_spool(err);
    if (req->upload.fd < 0)
        return -1;
    return multipart_receive(request_header(req, "Content-Type"), read_exchange, req,
                             upload_bytes_max, req->arena, &req->upload, err);
}

int request_read_body(struct request *req, struct error *err)
{
    switch (req->route->body_type) {
    case BODY_JSON:
        return read_json(req, err);
    case BODY_UPLOAD:
        return read_upload(req, err);
    case BODY_NONE:
        break;
    }
    return drop_body(req, err);
}
