/* Chat completions over libcurl. */
#include "run/model.h"

#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "run/model_stream.h"
#include "server/settings.h"

enum {
    CONNECT_TIMEOUT_S = 5,
    LIST_TIMEOUT_S = 20,
    REFUSAL_BYTES_MAX = 64 * 1024,
    LIST_BYTES_MAX = 8 << 20,
    RETRY_AFTER_MAX_S = 20,
};

struct model_client {
    CURLM *multi; /* keeps connections */
};

struct endpoint {
    const char *base, *key;
};

static void curl_scope(CURL **curl)
{
    curl_easy_cleanup(*curl);
}
#define auto_curl __attribute__((cleanup(curl_scope)))

static void list_scope(struct curl_slist **list)
{
    curl_slist_free_all(*list);
}
#define auto_slist __attribute__((cleanup(list_scope)))

struct model_client *model_client_new(void)
{
    struct model_client *client = calloc(1, sizeof(*client));

    if (!client || !(client->multi = curl_multi_init()))
        abort();
    return client;
}

void model_client_free(struct model_client *client)
{
    if (!client)
        return;
    curl_multi_cleanup(client->multi);
    free(client);
}

/* --- a call ---------------------------------------------------------------------------------- */

/* Everything but what is sent and where the answer goes. Returns the headers, which live until the
 * call has ended. */
static struct curl_slist *prepare(CURL *curl, const struct endpoint *endpoint, const char *path,
                                  struct arena *arena)
{
    size_t base = strlen(endpoint->base);
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");

    while (base && endpoint->base[base - 1] == '/')
        base--;
    if (endpoint->key[0])
        headers = curl_slist_append(headers,
                                    arena_text(arena, "Authorization: Bearer %s", endpoint->key));
    curl_easy_setopt(curl, CURLOPT_URL,
                     arena_text(arena, "%.*s%s", (int)base, endpoint->base, path));
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* not from the environment */
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "agent-sandbox");
    return headers;
}

/* --- asking for an answer -------------------------------------------------------------------- */

/* One request on its way. */
struct exchange {
    CURL *curl;
    struct model_stream stream;
    struct buffer refusal; /* the body of anything but 200 */
    bool failed;
    struct error failure; /* of the stream */
};

static void exchange_done(struct exchange *exchange)
{
    model_stream_done(&exchange->stream);
    buffer_done(&exchange->refusal);
}

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
    struct exchange *exchange = context;
    size_t length = size * count;
    long status = 0;

    curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        if (exchange->refusal.length + length <= REFUSAL_BYTES_MAX)
            buffer_add(&exchange->refusal, bytes, length);
        return length;
    }
    if (model_stream_feed(&exchange->stream, bytes, length, &exchange->failure) < 0) {
        exchange->failed = true;
        return CURL_WRITEFUNC_ERROR;
    }
    return length;
}

static void write_body(const struct model_request *request, struct buffer *out)
{
    json_format(out, "{\"model\":%s,\"stream\":true,\"stream_options\":{\"include_usage\":true}",
                request->model);
    if (request->reasoning_effort)
        json_format(out, ",\"reasoning_effort\":%s", request->reasoning_effort);
    if (strcmp(request->tools, "[]") != 0)
        json_format(out, ",\"tools\":%j", request->tools);
    buffer_text(out, ",\"messages\":");
    conversation_write(request->conversation, request->system, out);
    buffer_char(out, '}');
}

/* Drive the transfer. 0 with how it ended, 1 when it was stopped. */
static int drive(struct model_client *client, const struct model_request *request,
                 const struct model_answer *answer, CURLcode *outcome)
{
    struct curl_waitfd cancel = {.fd = request->cancel_fd, .events = CURL_WAIT_POLLIN};
    unsigned extra = request->cancel_fd >= 0 ? 1 : 0;
    int running = 1, left;

    for (;;) {
        int pause_ms;
        CURLMsg *message;

        if (curl_multi_perform(client->multi, &running) != CURLM_OK)
            abort();
        while ((message = curl_multi_info_read(client->multi, &left)))
            if (message->msg == CURLMSG_DONE) {
                *outcome = message->data.result;
                return 0;
            }
        pause_ms = request->on_pause ? request->on_pause(request->context, answer->began) : 1000;
        if (pause_ms < 0)
            return 1;
        curl_multi_poll(client->multi, &cancel, extra, pause_ms, NULL);
        if (extra && cancel.revents)
            return 1;
    }
}

/* The endpoint's own words, with the key taken out should it repeat it. */
static const char *reason_of(struct arena *arena, const struct buffer *body, const char *key)
{
    cJSON *object = body->length ? cJSON_ParseWithLength(body->data, body->length) : NULL;
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(object, "error");
    const char *text = cJSON_GetStringValue(
        cJSON_IsString(error) ? error : cJSON_GetObjectItemCaseSensitive(error, "message"));
    char *reason, *found;

    if (!text)
        text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "detail"));
    reason = arena_text(arena, "%s", text ? text : "");
    cJSON_Delete(object);
    while (key[0] && (found = strstr(reason, key)))
        memset(found, '*', strlen(key));
    return reason;
}

static bool is_transient(long status)
{
    return status == 408 || status == 429 || status >= 500;
}

/* The answer was no 200. */
static int refuse(const struct exchange *exchange, long status, const struct endpoint *endpoint,
                  struct arena *arena, struct error *err)
{
    const char *reason = reason_of(arena, &exchange->refusal, endpoint->key);
    curl_off_t wait = 0;

    error_set(err, is_transient(status) ? ERR_UNAVAILABLE : ERR_UPSTREAM,
              "the model endpoint answered %ld%s%s", status, *reason ? ": " : "", reason);
    curl_easy_getinfo(exchange->curl, CURLINFO_RETRY_AFTER, &wait);
    err->retry_after_s = wait > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : (int)wait;
    return -1;
}

/* The transfer has ended. */
static int judge(struct exchange *exchange, CURLcode outcome, const struct endpoint *endpoint,
                 struct arena *arena, struct error *err)
{
    long status = 0;

    curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &status);
    if (exchange->failed) {
        *err = exchange->failure;
        return -1;
    }
    if (status && status != 200)
        return refuse(exchange, status, endpoint, arena, err);
    if (outcome == CURLE_OPERATION_TIMEDOUT && status)
        return error_set(err, ERR_UPSTREAM, "the model sent nothing for %lld seconds",
                         (long long)settings.model_stall_seconds);
    if (outcome != CURLE_OK && !exchange->stream.bytes)
        return error_set(err, ERR_UNAVAILABLE, "the model endpoint does not answer: %s",
                         curl_easy_strerror(outcome));
    return model_stream_end(&exchange->stream,
                            outcome == CURLE_OK ? NULL : curl_easy_strerror(outcome), err);
}

static int endpoint_of(const struct model_request *request, struct endpoint *endpoint,
                       struct error *err)
{
    bool openai = request->transport && strcmp(request->transport, "openai") == 0;

    *endpoint = openai ? (struct endpoint){settings.openai_base_url, settings.openai_api_key.value}
                       : (struct endpoint){settings.model_base_url, settings.model_api_key.value};
    if (endpoint->base[0])
        return 0;
    return error_set(err, ERR_UPSTREAM,
                     "the model %s is not available: %s is not set, which leaves " MODEL_BUILTIN,
                     request->model, openai ? "OPENAI_BASE_URL" : "MODEL_BASE_URL");
}

static int ask(struct model_client *client, const struct model_request *request,
               struct model_answer *answer, struct error *err)
{
    auto_curl CURL *curl = curl_easy_init();
    auto_slist struct curl_slist *headers = NULL;
    auto_buffer struct buffer body = {0};
    auto_arena struct arena arena = {0};
    __attribute__((cleanup(exchange_done))) struct exchange exchange = {.curl = curl};
    struct endpoint endpoint;
    CURLcode outcome = CURLE_OK;
    int stopped;

    model_stream_init(&exchange.stream, answer, request->on_text, request->context);
    if (!curl)
        abort();
    if (endpoint_of(request, &endpoint, err) < 0)
        return -1;
    headers = prepare(curl, &endpoint, "/chat/completions", &arena);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Accept: text/event-stream");
    write_body(request, &body);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.length);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)settings.model_stall_seconds);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
    curl_multi_add_handle(client->multi, curl);
    stopped = drive(client, request, answer, &outcome);
    curl_multi_remove_handle(client->multi, curl);
    if (stopped)
        return 1;
    answer->usage.requests = 1;
    return judge(&exchange, outcome, &endpoint, &arena, err);
}

int model_ask(struct model_client *client, const struct model_request *request,
              struct model_answer *answer, struct error *err)
{
    if (strcmp(request->model, MODEL_BUILTIN) != 0)
        return ask(client, request, answer, err);
    model_shell_ask(request, answer);
    return 0;
}

/* --- the list of models ---------------------------------------------------------------------- */

static size_t keep(char *bytes, size_t size, size_t count, void *into)
{
    struct buffer *body = into;

    if (body->length + size * count > LIST_BYTES_MAX)
        return CURL_WRITEFUNC_ERROR;
    buffer_add(body, bytes, size * count);
    return size * count;
}

static int fetch_list(struct buffer *body, struct error *err)
{
    auto_curl CURL *curl = curl_easy_init();
    auto_slist struct curl_slist *headers = NULL;
    auto_arena struct arena arena = {0};
    const struct endpoint endpoint = {settings.model_base_url, settings.model_api_key.value};
    long status = 0;
    CURLcode outcome;

    if (!curl)
        abort();
    headers = prepare(curl, &endpoint, "/models", &arena);
    headers = curl_slist_append(headers, "Accept: application/json");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)LIST_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    outcome = curl_easy_perform(curl);
    if (outcome != CURLE_OK)
        return error_set(err, ERR_UPSTREAM, "the model endpoint does not answer: %s",
                         curl_easy_strerror(outcome));
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return error_set(err, ERR_UPSTREAM,
                         "the model endpoint answered %ld to a question for its models", status);
    return 0;
}

static void add_limit(struct buffer *out, const cJSON *model, const char *name)
{
    const cJSON *limit = cJSON_GetObjectItemCaseSensitive(model, name);

    json_format(out, ",\"%j\":", name);
    if (cJSON_IsNumber(limit) && limit->valuedouble >= 1 && limit->valuedouble < 1e15)
        json_number(out, (int64_t)limit->valuedouble);
    else
        buffer_text(out, "null");
}

static void add_model(struct buffer *out, const cJSON *model)
{
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(model, "id"));
    const char *owner = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(model, "owned_by"));

    if (!id || !*id || strcmp(id, MODEL_BUILTIN) == 0)
        return;
    json_format(out, "{\"id\":%s,\"owned_by\":%s", id, owner ? owner : "");
    add_limit(out, model, "max_input_tokens");
    add_limit(out, model, "max_output_tokens");
    buffer_text(out, "},");
}

int model_list(struct buffer *json_array, struct error *err)
{
    auto_buffer struct buffer body = {0};

    buffer_char(json_array, '[');
    if (settings.model_base_url[0]) {
        const cJSON *list, *model;
        cJSON *answer;
        bool is_list;

        if (fetch_list(&body, err) < 0)
            return -1;
        answer = body.length ? cJSON_ParseWithLength(body.data, body.length) : NULL;
        list = cJSON_GetObjectItemCaseSensitive(answer, "data");
        is_list = cJSON_IsArray(list);
        cJSON_ArrayForEach(model, list) add_model(json_array, model);
        cJSON_Delete(answer);
        if (!is_list)
            return error_set(
                err, ERR_UPSTREAM,
                "the model endpoint answers with something else than a list of models");
    }
    json_format(json_array,
                "{\"id\":%s,\"owned_by\":\"builtin\",\"max_input_tokens\":null,"
                "\"max_output_tokens\":null}]",
                MODEL_BUILTIN);
    return 0;
}
