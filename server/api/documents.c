/* The API's description, and two pages that show it; both need nothing from outside. */
#include <string.h>

#include "api/handlers.h"
#include "common/scope.h"
#include "http/openapi.h"

#define ASSET(symbol, file, type) extern const char asset_##symbol[], asset_##symbol##_end[];
#include "server/api/assets.def"
#undef ASSET

struct asset {
    const char *name;
    const char *content_type;
    const char *begin, *end;
};

static const struct asset assets[] = {
#define ASSET(symbol, file, type) {file, type, asset_##symbol, asset_##symbol##_end},
#include "server/api/assets.def"
#undef ASSET
};

static int show(struct response *res, const char *name, struct error *err)
{
    for (size_t i = 0; i < COUNT(assets); i++) {
        if (strcmp(assets[i].name, name) != 0)
            continue;
        res->status = 200;
        res->content_type = assets[i].content_type;
        buffer_add(&res->body, assets[i].begin, (size_t)(assets[i].end - assets[i].begin));
        return 0;
    }
    return error_set(err, ERR_NOT_FOUND, "Not Found");
}

int documents_openapi(struct request *req, struct response *res, struct error *err)
{
    size_t length;
    const char *text = openapi_text(&length);

    (void)req, (void)err;
    res->status = 200;
    res->content_type = "application/json";
    buffer_add(&res->body, text, length);
    return 0;
}

int documents_swagger(struct request *req, struct response *res, struct error *err)
{
    (void)req;
    return show(res, "docs.html", err);
}

int documents_redoc(struct request *req, struct response *res, struct error *err)
{
    (void)req;
    return show(res, "redoc.html", err);
}

/* They change with the program only: a browser may keep them for an hour. */
int documents_asset(struct request *req, struct response *res, struct error *err)
{
    if (show(res, req->path_values[0], err) < 0)
        return -1;
    response_header(res, "Cache-Control", "public, max-age=3600");
    return 0;
}
