/* What agents can run on: models of the endpoint, and backends for sandboxes. */
#include "api/handlers.h"
#include "common/json.h"
#include "run/model.h"

struct model_info {
    const char *id;
    const char *owned_by;
    const int64_t *max_input_tokens;
    const int64_t *max_output_tokens;
};

static const struct field model_info_fields[] = {
    {TEXT(model_info, id)},
    {TEXT(model_info, owned_by)},
    {MAYBE_NUMBER(model_info, max_input_tokens), .nullable = true},
    {MAYBE_NUMBER(model_info, max_output_tokens), .nullable = true},
};
SCHEMA(model_info);

struct backend {
    const char *name;
    bool is_default;
};

static const struct field backend_fields[] = {
    {TEXT(backend, name)},
    {.name = "default", .type = FIELD_FLAG, .offset = offsetof(struct backend, is_default)},
};
SCHEMA(backend);

/* Read through at every call: an empty list would mean something else than an endpoint that is
 * down. */
int models_list(struct request *req, struct response *res, struct error *err)
{
    auto_buffer struct buffer out = {0};

    if (request_commit(req, err) < 0 || model_list(&out, err) < 0)
        return -1;
    return respond_json(res, 200, out.data);
}

int backends_list(struct request *req, struct response *res, struct error *err)
{
    static const struct backend native = {.name = "native", .is_default = true};
    auto_buffer struct buffer out = {0};

    (void)req, (void)err;
    buffer_char(&out, '[');
    json_encode(&out, &schema_backend, &native);
    buffer_char(&out, ']');
    return respond_json(res, 200, out.data);
}
