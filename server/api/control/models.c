/* What agents can run on: models of the endpoint, and backends for sandboxes. */
#include <curl/curl.h>
#include <string.h>

#include "api/handlers.h"
#include "common/json.h"
#include "run/turns.h"
#include "server/settings.h"

#define BUILTIN_MODEL "builtin/shell"

enum { CONNECT_TIMEOUT_S = 5, ANSWER_TIMEOUT_S = 20, ANSWER_BYTES_MAX = 8 << 20 };

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

/* --- asking the endpoint ---------------------------------------------------------------------- */

static void curl_scope(CURL **curl)
{
    curl_easy_cleanup(*curl);
}

static void headers_scope(struct curl_slist **headers)
{
    curl_slist_free_all(*headers);
}

static size_t keep(char *bytes, size_t size, size_t count, void *into)
{
    struct buffer *body = into;

    if (body->length + size * count > ANSWER_BYTES_MAX)
        return CURL_WRITEFUNC_ERROR;
    buffer_add(body, bytes, size * count);
    return size * count;
}

/* The model list as the endpoint gives it. */
static int ask(struct request *req, struct buffer *body, struct error *err)
{
    __attribute__((cleanup(curl_scope))) CURL *curl = curl_easy_init();
    __attribute__((cleanup(headers_scope))) struct curl_slist *headers = NULL;
    size_t base = strlen(settings.model_base_url);
    char reason[CURL_ERROR_SIZE] = "";
    long status = 0;
    CURLcode outcome;

    if (!curl)
        return error_set(err, ERR_INTERNAL, "curl_easy_init");
    while (base && settings.model_base_url[base - 1] == '/')
        base--;
    headers = curl_slist_append(headers, "Accept: application/json");
    if (settings.model_api_key.value[0])
        headers = curl_slist_append(headers, arena_text(req->arena, "Authorization: Bearer %s",
                                                        settings.model_api_key.value));
    curl_easy_setopt(curl, CURLOPT_URL,
                     arena_text(req->arena, "%.*s/models", (int)base, settings.model_base_url));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)ANSWER_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    outcome = curl_easy_perform(curl);
    if (outcome != CURLE_OK)
        return error_set(err, ERR_UPSTREAM, "the model endpoint does not answer: %s",
                         *reason ? reason : curl_easy_strerror(outcome));
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return error_set(err, ERR_UPSTREAM,
                         "the model endpoint answers %ld to a question for its models", status);
    return 0;
}

/* --- what it said ----------------------------------------------------------------------------- */

struct listing {
    struct arena *arena;
    struct buffer *out;
};

/* The member's number, or NULL for what is no positive integer. */
static const int64_t *limit_of(struct arena *arena, const char *model, const char *name)
{
    int64_t *limit = arena_alloc(arena, sizeof(*limit));

    *limit = json_member_number(arena, model, name, 0);
    return *limit > 0 ? limit : NULL;
}

static int add_model(const char *key, const char *value, void *context)
{
    struct listing *listing = context;
    const char *owner = json_member_text(listing->arena, value, "owned_by");
    struct model_info model = {
        .id = json_member_text(listing->arena, value, "id"),
        .owned_by = owner ? owner : "",
        .max_input_tokens = limit_of(listing->arena, value, "max_input_tokens"),
        .max_output_tokens = limit_of(listing->arena, value, "max_output_tokens"),
    };

    (void)key;
    if (!model.id || !*model.id || strcmp(model.id, BUILTIN_MODEL) == 0)
        return 0;
    json_encode(listing->out, &schema_model_info, &model);
    buffer_char(listing->out, ',');
    return 0;
}

/* Read through at every call: an empty list would mean something else than an endpoint that is
 * down. */
int models_list(struct request *req, struct response *res, struct error *err)
{
    static const struct model_info builtin = {.id = BUILTIN_MODEL, .owned_by = "builtin"};
    auto_buffer struct buffer answer = {0}, out = {0};
    struct listing listing = {req->arena, &out};
    const char *list;

    buffer_char(&out, '[');
    if (settings.model_base_url[0]) {
        if (request_commit(req, err) < 0 || ask(req, &answer, err) < 0)
            return -1;
        if (!answer.length || json_check(answer.data, answer.length, err) < 0 ||
            !(list = json_member(req->arena, answer.data, "data")) || *list != '[')
            return error_set(
                err, ERR_UPSTREAM,
                "the model endpoint answers with something else than a list of models");
        json_each(req->arena, list, add_model, &listing);
    }
    json_encode(&out, &schema_model_info, &builtin);
    buffer_char(&out, ']');
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
