/* Any bytes as a path and a query string: every value that comes out is text, and what is refused
 * is told in JSON. */
#include <civetweb.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/utf8.h"
#include "http/serve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int nothing(struct request *req, struct response *res, struct error *err)
{
    (void)req, (void)res, (void)err;
    return 0;
}

struct filter {
    const char *name;
    int64_t limit;
    bool all;
    struct texts tags;
    struct numbers ports;
};

static const struct field filter_fields[] = {
    {TEXT(filter, name), .optional = true, .min = 1, .max = 5},
    {NUMBER(filter, limit), .min = 0, .max = 1000, .fallback = "10"},
    {FLAG(filter, all), .fallback = "false"},
    {TEXTS(filter, tags), .optional = true, .choices = "a|b"},
    {NUMBERS(filter, ports), .optional = true},
};
SCHEMA(filter);

const struct route routes[] = {
    {METHOD_GET, "/", nothing, "root", RULE_PUBLIC, .query = &schema_filter},
    {METHOD_GET, "/{a}", nothing, "one", RULE_PUBLIC, .query = &schema_filter},
    {METHOD_POST, "/{a}/b", nothing, "two", RULE_PUBLIC, .query = NULL},
    {METHOD_GET, "/{a}/{b}/{c}/{d}", nothing, "four", RULE_PUBLIC, .query = &schema_filter},
};
const size_t route_count = COUNT(routes);

static void must(bool fine)
{
    if (!fine)
        abort();
}

static void check_text(const char *text)
{
    for (size_t step; *text; text += step) {
        step = utf8_length(text, strlen(text));
        must(step > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena struct arena arena = {0};
    char *path = arena_copy(&arena, (const char *)data, size), *query = strchr(path, '?');
    struct mg_request_info info = {.request_method = "GET", .request_uri = path};
    struct request req = {.arena = &arena, .info = &info, .method = "GET"};
    struct error err = {0};
    const char *allow;

    if (query) {
        *query++ = '\0';
        info.query_string = query;
    }
    req.route = router_match("GET", path, &arena, req.path_values, &allow);
    must(!req.route || !allow);
    for (size_t i = 0; i < PATH_VALUES_MAX && req.path_values[i]; i++) {
        must(*req.path_values[i]);
        check_text(req.path_values[i]);
    }
    if (!req.route || !req.route->query)
        return 0;
    if (request_read_query(&req, &err) == 0) {
        const struct filter *filter = req.query;

        must(filter->limit >= 0 && filter->limit <= 1000);
        if (filter->name)
            check_text(filter->name);
        return 0;
    }
    must(err.kind == ERR_INVALID && err.fields &&
         json_check(err.fields, strlen(err.fields), &err) == 0);
    return 0;
}
