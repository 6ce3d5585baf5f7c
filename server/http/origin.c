/* Which hosts are answered, and which origins a browser may call from. */
#include <civetweb.h>
#include <string.h>

#include "common/arena.h"
#include "common/scope.h"
#include "http/serve.h"
#include "server/settings.h"

/* Step through a comma list, blanks around the entries skipped: the next entry's start and *length,
 * NULL at the end. */
static const char *next_entry(const char **list, size_t *length)
{
    for (;;) {
        const char *begin = *list + strspn(*list, " \t,");
        size_t size = strcspn(begin, ",");

        if (!*begin)
            return NULL;
        *list = begin + size;
        while (size && (begin[size - 1] == ' ' || begin[size - 1] == '\t'))
            size--;
        *length = size;
        return begin;
    }
}

static bool host_is(const char *host, size_t length, const char *entry, size_t entry_length)
{
    /* "*.domain": any depth, and not the domain itself. */
    if (entry_length > 2 && entry[0] == '*' && entry[1] == '.')
        return length > entry_length - 1 &&
               strncasecmp(host + length - (entry_length - 1), entry + 1, entry_length - 1) == 0;
    return length == entry_length && strncasecmp(host, entry, length) == 0;
}

bool origin_host_allowed(const char *allowed_hosts, const char *host)
{
    static const char *const always[] = {"localhost", "127.0.0.1"};
    const char *list = allowed_hosts, *entry;
    size_t length, entry_length;
    bool any = true;

    while ((entry = next_entry(&list, &entry_length))) {
        any = false;
        if (entry_length == 1 && *entry == '*')
            return true;
    }
    if (any)
        return true;
    if (!host)
        return false;
    length = strcspn(host, ":");
    for (size_t i = 0; i < COUNT(always); i++)
        if (host_is(host, length, always[i], strlen(always[i])))
            return true;
    list = allowed_hosts;
    while ((entry = next_entry(&list, &entry_length)))
        if (host_is(host, length, entry, entry_length))
            return true;
    return false;
}

/* --- CORS
 * ------------------------------------------------------------------------------------------------------------
 */

static bool any_origin(void)
{
    return strcmp(settings.cors_origins, "*") == 0;
}

static bool origin_listed(const char *origin)
{
    const char *list = settings.cors_origins, *entry;
    size_t length;

    while ((entry = next_entry(&list, &length)))
        if (strlen(origin) == length && memcmp(origin, entry, length) == 0)
            return true;
    return false;
}

static void add_header(struct buffer *out, const char *name, const char *value)
{
    buffer_format(out, "%s: %s\r\n", name, value);
}

void origin_headers(const struct request *req, struct buffer *out)
{
    const char *origin = request_header(req, "Origin");

    if (!origin)
        return;
    if (any_origin()) {
        add_header(out, "Access-Control-Allow-Origin", "*");
        return;
    }
    add_header(out, "Access-Control-Allow-Credentials", "true");
    if (origin_listed(origin)) {
        add_header(out, "Access-Control-Allow-Origin", origin);
        add_header(out, "Vary", "Origin");
    }
}

int origin_preflight(const struct request *req, struct response *res)
{
    static const char methods[] = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";
    const char *origin = request_header(req, "Origin");
    const char *method = request_header(req, "Access-Control-Request-Method");
    const char *headers = request_header(req, "Access-Control-Request-Headers");
    bool listed;

    if (strcmp(req->method, "OPTIONS") != 0 || !origin || !method)
        return 0;
    listed = any_origin() || origin_listed(origin);
    if (!listed)
        response_plain(res, 400, "Disallowed CORS origin");
    else if (!field_matches("DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT", method))
        response_plain(res, 400, "Disallowed CORS method");
    else
        response_plain(res, 200, "OK");
    response_header(res, "Access-Control-Allow-Methods", methods);
    response_header(res, "Access-Control-Max-Age", "600");
    if (headers)
        response_header(res, "Access-Control-Allow-Headers", headers);
    /* origin_headers has said it for those that are listed. */
    if (!any_origin() && !listed)
        response_header(res, "Vary", "Origin");
    return 1;
}
