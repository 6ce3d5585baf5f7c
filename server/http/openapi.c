/* routes.def and field tables → /openapi.json: see openapi.h. What is written here is what the
 * decoder checks and the encoder writes, so the document cannot lie. */
#include "http/openapi.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "http/router.h"

#define OPENAPI_VERSION "3.1.0"
#define API_TITLE "Agent Sandbox"
#define API_DESCRIPTION "Sessions of software agents, each with a sandbox of its own"
#define API_VERSION "1.0.0"

/* A schema is described once for what is asked and once for what is answered: defaults make members
 * optional in the first only. */
enum use { USE_ASKED = 1, USE_ANSWERED = 2 };

struct component {
    const struct schema *schema;
    unsigned uses;
};

struct document {
    struct buffer *out;
    struct component *components;
    size_t count;
};

/* --- which schemas there are
 * -----------------------------------------------------------------------------------------------
 */

static unsigned uses_of(const struct document *document, const struct schema *schema)
{
    for (size_t i = 0; i < document->count; i++)
        if (document->components[i].schema == schema)
            return document->components[i].uses;
    return 0;
}

static struct component *component_of(struct document *document, const struct schema *schema)
{
    for (size_t i = 0; i < document->count; i++)
        if (document->components[i].schema == schema)
            return &document->components[i];
    document->components =
        reallocarray(document->components, document->count + 1, sizeof(*document->components));
    if (!document->components)
        abort();
    document->components[document->count] = (struct component){.schema = schema};
    return &document->components[document->count++];
}

/* Note the schema and all that it refers to. */
static void collect(struct document *document, const struct schema *schema, enum use use)
{
    struct component *component;

    if (!schema)
        return;
    component = component_of(document, schema);
    if (component->uses & use)
        return;
    component->uses |= use;
    for (size_t i = 0; i < schema->count; i++)
        collect(document, schema->fields[i].element, use);
    for (size_t i = 0; i < schema->variant_count; i++)
        collect(document, schema->variants[i].schema, use);
}

/* --- small pieces
 * ------------------------------------------------------------------------------------------------------------
 */

/* A comma, unless something was just opened. */
static void comma(struct buffer *out)
{
    if (out->length && !strchr("{[,:", out->data[out->length - 1]))
        buffer_char(out, ',');
}

static void member(struct buffer *out, const char *name)
{
    comma(out);
    json_string(out, name);
    buffer_char(out, ':');
}

static void member_text(struct buffer *out, const char *name, const char *text)
{
    member(out, name);
    json_string(out, text);
}

static void member_number(struct buffer *out, const char *name, int64_t value)
{
    member(out, name);
    json_number(out, value);
}

/* "session_create" → "SessionCreate", with Input behind it for what is asked when the same is
 * answered elsewhere. */
static void component_name(const struct document *document, const struct schema *schema,
                           enum use use, char name[128])
{
    size_t used = 0;
    bool upper = true;

    for (const char *c = schema->name; *c && used < 100; c++) {
        if (*c == '_') {
            upper = true;
            continue;
        }
        name[used++] = (char)(upper ? toupper((unsigned char)*c) : *c);
        upper = false;
    }
    name[used] = '\0';
    if (use == USE_ASKED && (uses_of(document, schema) & USE_ANSWERED))
        strcpy(name + used, "Input");
}

static void reference(struct document *document, const struct schema *schema, enum use use)
{
    char name[128];

    component_name(document, schema, use, name);
    buffer_format(document->out, "{\"$ref\":\"#/components/schemas/%s\"}", name);
}

/* --- fields
 * ----------------------------------------------------------------------------------------------------------------------
 */

static bool takes_null(const struct field *field, enum use use)
{
    return field->nullable || (use == USE_ASKED && field->null_is_fallback);
}

static void add_type(struct buffer *out, const char *type, bool null)
{
    member(out, "type");
    if (null)
        buffer_format(out, "[\"%s\",\"null\"]", type);
    else
        buffer_format(out, "\"%s\"", type);
}

static void add_choices(struct buffer *out, const char *choices, bool null)
{
    member(out, "enum");
    buffer_char(out, '[');
    for (;;) {
        size_t length = strcspn(choices, "|");

        comma(out);
        json_string_n(out, choices, length);
        if (!choices[length])
            break;
        choices += length + 1;
    }
    if (null)
        buffer_text(out, ",null");
    buffer_char(out, ']');
}

static void add_count(struct buffer *out, const struct field *field, const char *low,
                      const char *high)
{
    if (field_has_min(field) && field->min > 0)
        member_number(out, low, field->min);
    if (field_has_max(field))
        member_number(out, high, field->max);
}

static void add_bounds(struct buffer *out, const struct field *field)
{
    if (field->exclusive) {
        member(out, "exclusiveMinimum");
        json_real(out, field->above);
    } else if (field_has_min(field)) {
        member_number(out, "minimum", field->min);
    }
    if (field_has_max(field))
        member_number(out, "maximum", field->max);
}

static void add_text_rules(struct buffer *out, const struct field *field, bool null)
{
    if (field->choices)
        add_choices(out, field->choices, null);
    if (field->pattern) {
        auto_buffer struct buffer whole = {0};

        buffer_format(&whole, "^(?:%s)$", field->pattern);
        member_text(out, "pattern", whole.data);
    }
}

static void add_json(struct document *document, const struct field *field, enum use use, bool null)
{
    struct buffer *out = document->out;
    const char *type = field->shape == SHAPE_LIST ? "array" : "object";

    if (field->shape == SHAPE_ANY)
        return;
    if (field->shape == SHAPE_OBJECT && field->element && null) {
        member(out, "anyOf");
        buffer_char(out, '[');
        reference(document, field->element, use);
        buffer_text(out, ",{\"type\":\"null\"}]");
        return;
    }
    if (field->shape == SHAPE_OBJECT && field->element) {
        member(out, "allOf");
        buffer_char(out, '[');
        reference(document, field->element, use);
        buffer_char(out, ']');
        return;
    }
    add_type(out, type, null);
    if (field->shape == SHAPE_OBJECT)
        return;
    add_count(out, field, field->shape == SHAPE_LIST ? "minItems" : "minProperties",
              field->shape == SHAPE_LIST ? "maxItems" : "maxProperties");
    member(out, field->shape == SHAPE_LIST ? "items" : "additionalProperties");
    if (field->element)
        reference(document, field->element, use);
    else
        buffer_text(out, field->shape == SHAPE_LIST ? "{}" : "{\"type\":\"string\"}");
}

static void add_array(struct buffer *out, const struct field *field, bool null)
{
    add_type(out, "array", null);
    if (field->type == FIELD_TEXTS)
        add_count(out, field, "minItems", "maxItems");
    member(out, "items");
    if (field->type == FIELD_TEXTS) {
        buffer_text(out, "{\"type\":\"string\"");
        add_text_rules(out, field, false);
    } else {
        buffer_text(out, "{\"type\":\"integer\"");
        add_bounds(out, field);
    }
    buffer_char(out, '}');
}

/* The schema of one field's value. */
static void add_field(struct document *document, const struct field *field, enum use use)
{
    struct buffer *out = document->out;
    bool null = takes_null(field, use);

    buffer_char(out, '{');
    switch (field->type) {
    case FIELD_TEXT:
        add_type(out, "string", null);
        add_count(out, field, "minLength", "maxLength");
        add_text_rules(out, field, null);
        break;
    case FIELD_NUMBER:
        add_type(out, "integer", null);
        add_bounds(out, field);
        break;
    case FIELD_REAL:
        add_type(out, "number", null);
        add_bounds(out, field);
        break;
    case FIELD_FLAG:
        add_type(out, "boolean", null);
        break;
    case FIELD_TEXTS:
    case FIELD_NUMBERS:
        add_array(out, field, null);
        break;
    case FIELD_JSON:
        add_json(document, field, use, null);
        break;
    }
    if (use == USE_ASKED && field->fallback) {
        member(out, "default");
        buffer_text(out, field->fallback);
    }
    if (field->about)
        member_text(out, "description", field->about);
    buffer_char(out, '}');
}

static bool is_required(const struct field *field, enum use use)
{
    return !field->optional && (use == USE_ANSWERED || !field->fallback);
}

/* --- components
 * -------------------------------------------------------------------------------------------------------------------
 */

static void add_object(struct document *document, const struct schema *schema, enum use use)
{
    struct buffer *out = document->out;
    size_t required = 0;

    buffer_text(out, "{\"type\":\"object\",\"properties\":{");
    for (size_t i = 0; i < schema->count; i++) {
        member(out, schema->fields[i].name);
        add_field(document, &schema->fields[i], use);
        required += is_required(&schema->fields[i], use);
    }
    buffer_char(out, '}');
    if (required) {
        member(out, "required");
        buffer_char(out, '[');
        for (size_t i = 0; i < schema->count; i++) {
            if (!is_required(&schema->fields[i], use))
                continue;
            comma(out);
            json_string(out, schema->fields[i].name);
        }
        buffer_char(out, ']');
    }
    if (schema->closed && use == USE_ASKED) {
        member(out, "additionalProperties");
        buffer_text(out, "false");
    }
    buffer_char(out, '}');
}

static void add_union(struct document *document, const struct schema *schema, enum use use)
{
    struct buffer *out = document->out;

    buffer_text(out, "{\"oneOf\":[");
    for (size_t i = 0; i < schema->variant_count; i++) {
        comma(out);
        reference(document, schema->variants[i].schema, use);
    }
    json_format(out, "],\"discriminator\":{\"propertyName\":%s,\"mapping\":{", schema->tag);
    for (size_t i = 0; i < schema->variant_count; i++) {
        char name[128];

        component_name(document, schema->variants[i].schema, use, name);
        member(out, schema->variants[i].value);
        buffer_format(out, "\"#/components/schemas/%s\"", name);
    }
    buffer_text(out, "}}}");
}

static void add_components(struct document *document)
{
    static const enum use uses[] = {USE_ASKED, USE_ANSWERED};
    struct buffer *out = document->out;

    buffer_text(out,
                "\"components\":{\"schemas\":{"
                "\"Error\":{\"type\":\"object\",\"properties\":{\"detail\":{\"type\":\"string\"}},"
                "\"required\":[\"detail\"]},"
                "\"ValidationError\":{\"type\":\"object\",\"properties\":{\"detail\":{\"type\":"
                "\"array\",\"items\":{"
                "\"type\":\"object\",\"properties\":{"
                "\"loc\":{\"type\":\"array\",\"items\":{\"type\":[\"string\",\"integer\"]}},"
                "\"msg\":{\"type\":\"string\"},\"type\":{\"type\":\"string\"}},"
                "\"required\":[\"loc\",\"msg\",\"type\"]}}},\"required\":[\"detail\"]}");
    for (size_t i = 0; i < document->count; i++) {
        const struct component *component = &document->components[i];

        for (size_t j = 0; j < COUNT(uses); j++) {
            char name[128];

            if (!(component->uses & uses[j]))
                continue;
            component_name(document, component->schema, uses[j], name);
            member(out, name);
            if (component->schema->tag)
                add_union(document, component->schema, uses[j]);
            else
                add_object(document, component->schema, uses[j]);
        }
    }
    buffer_text(out,
                "},\"securitySchemes\":{\"HTTPBearer\":{\"type\":\"http\",\"scheme\":\"bearer\","
                "\"description\":\"An API key (ak_…), or the operator's token\"}}}");
}

/* --- operations
 * ---------------------------------------------------------------------------------------------------------------------
 */

static bool in_project(const struct route *route)
{
    return route->caller == RULE_PROJECT || route->caller == RULE_OPERATOR_PROJECT;
}

static void add_parameter_head(struct buffer *out, const char *name, size_t length, const char *in,
                               bool required)
{
    comma(out);
    buffer_text(out, "{\"name\":");
    json_string_n(out, name, length);
    json_format(out, ",\"in\":%s,\"required\":%b,\"schema\":", in, required);
}

static void add_path_parameters(struct buffer *out, const char *path)
{
    while ((path = strchr(path, '{'))) {
        size_t length = strcspn(++path, "}");

        add_parameter_head(out, path, length, "path", true);
        buffer_text(out, "{\"type\":\"string\",\"minLength\":1}}");
    }
}

static void add_query_parameters(struct document *document, const struct schema *query)
{
    for (size_t i = 0; query && i < query->count; i++) {
        const struct field *field = &query->fields[i];
        struct field described = *field;

        /* A parameter has no null: it is there, or not. */
        described.nullable = described.null_is_fallback = false;
        described.about = NULL;
        if (described.fallback && strcmp(described.fallback, "null") == 0)
            described.fallback = NULL;
        add_parameter_head(document->out, field->name, strlen(field->name), "query",
                           is_required(field, USE_ASKED));
        add_field(document, &described, USE_ASKED);
        if (field->about)
            member_text(document->out, "description", field->about);
        buffer_char(document->out, '}');
    }
}

static void add_parameters(struct document *document, const struct route *route)
{
    struct buffer *out = document->out;

    if (!strchr(route->path, '{') && !route->query && !in_project(route))
        return;
    member(out, "parameters");
    buffer_char(out, '[');
    add_path_parameters(out, route->path);
    add_query_parameters(document, route->query);
    if (in_project(route)) {
        add_parameter_head(out, "X-Project", strlen("X-Project"), "header", false);
        buffer_text(out, "{\"type\":\"string\"},\"description\":\"The project to act in, by id or "
                         "slug; not needed with a "
                         "key, or where there is one project only\"}");
    }
    buffer_char(out, ']');
}

static void add_body(struct document *document, const struct route *route)
{
    struct buffer *out = document->out;

    if (route->body_type == BODY_NONE)
        return;
    member(out, "requestBody");
    buffer_text(out, "{\"required\":true,\"content\":{");
    if (route->body_type == BODY_JSON) {
        buffer_text(out, "\"application/json\":{\"schema\":");
        reference(document, route->body, USE_ASKED);
    } else {
        buffer_text(
            out,
            "\"multipart/form-data\":{\"schema\":{\"type\":\"object\",\"properties\":{\"file\":{"
            "\"type\":\"string\",\"contentMediaType\":\"application/octet-stream\"}},"
            "\"required\":[\"file\"]}");
    }
    buffer_text(out, "}}}");
}

static void add_reply(struct document *document, const struct route *route)
{
    static const char *const phrases[] = {"Done", "Made", "Accepted", "",
                                          "Done, and nothing to say"};
    struct buffer *out = document->out;
    int phrase = route->status - 200;

    buffer_format(out, "\"%d\":", route->status);
    json_format(out, "{\"description\":%s",
                phrase >= 0 && phrase < (int)COUNT(phrases) ? phrases[phrase] : "Done");
    switch (route->reply_type) {
    case REPLY_NOTHING:
        break;
    case REPLY_ONE:
        buffer_text(out, ",\"content\":{\"application/json\":{\"schema\":");
        reference(document, route->reply, USE_ANSWERED);
        buffer_text(out, "}}");
        break;
    case REPLY_MANY:
        buffer_text(
            out, ",\"content\":{\"application/json\":{\"schema\":{\"type\":\"array\",\"items\":");
        reference(document, route->reply, USE_ANSWERED);
        buffer_text(out, "}}}");
        break;
    case REPLY_BYTES:
        buffer_text(out, ",\"content\":{\"application/octet-stream\":{}}");
        break;
    case REPLY_EVENTS:
        /* Its schema would be taken for that of each event. */
        buffer_text(out, ",\"content\":{\"text/event-stream\":{}}");
        break;
    case REPLY_TEXT:
        break;
    }
    buffer_char(out, '}');
}

/* Which errors a route can answer follows from its columns. */
struct failure {
    int status;
    const char *description;
    bool (*applies)(const struct route *route);
};

static bool wants_credential(const struct route *route)
{
    return route->caller != RULE_PUBLIC;
}

static bool wants_operator(const struct route *route)
{
    return route->caller == RULE_OPERATOR || route->caller == RULE_OPERATOR_PROJECT;
}

static bool names_something(const struct route *route)
{
    return in_project(route) || strchr(route->path, '{');
}

static bool may_conflict(const struct route *route)
{
    return route->caller != RULE_PUBLIC && route->caller != RULE_METRICS;
}

static bool has_body(const struct route *route)
{
    return route->body_type != BODY_NONE;
}

static bool has_input(const struct route *route)
{
    return has_body(route) || route->query;
}

static bool always(const struct route *route)
{
    (void)route;
    return true;
}

static const struct failure failures[] = {
    {400, "The request cannot mean anything here", always},
    {401, "No credential, or not accepted", wants_credential},
    {403, "Accepted, but not allowed", wants_operator},
    {404, "It does not exist, or not within reach", names_something},
    {408, "The body came too slowly", has_body},
    {409, "The request is fine, the state is not", may_conflict},
    {413, "The body is too large", always},
    {422, "A value did not validate", has_input},
    {500, "A defect of the server", always},
    {502, "Something that this answer depends on failed", may_conflict},
    {503, "Try again later", always},
};

/* Outside /api some errors are plain text (response_error). */
static bool is_plain(const struct route *route, int status)
{
    return (status == 400 || status == 413 || status == 500) &&
           strncmp(route->path, "/api/", 5) != 0;
}

/* A public route that is not ready says so in its own words. */
static bool answers_itself(const struct route *route, int status)
{
    return status == 503 && route->caller == RULE_PUBLIC && route->reply_type == REPLY_ONE;
}

static void add_failure(struct document *document, const struct route *route,
                        const struct failure *failure)
{
    struct buffer *out = document->out;

    buffer_format(out, ",\"%d\":", failure->status);
    json_format(out, "{\"description\":%s,\"content\":{", failure->description);
    if (is_plain(route, failure->status)) {
        buffer_text(out, "\"text/plain\":{\"schema\":{\"type\":\"string\"}}}}");
        return;
    }
    buffer_text(out, "\"application/json\":{\"schema\":");
    if (answers_itself(route, failure->status)) {
        buffer_text(out, "{\"anyOf\":[{\"$ref\":\"#/components/schemas/Error\"},");
        reference(document, route->reply, USE_ANSWERED);
        buffer_text(out, "]}");
    } else {
        buffer_format(out, "{\"$ref\":\"#/components/schemas/%s\"}",
                      failure->status == 422 ? "ValidationError" : "Error");
    }
    buffer_text(out, "}}}");
}

static void add_responses(struct document *document, const struct route *route)
{
    struct buffer *out = document->out;

    member(out, "responses");
    buffer_char(out, '{');
    add_reply(document, route);
    for (size_t i = 0; i < COUNT(failures); i++)
        if (failures[i].applies(route))
            add_failure(document, route, &failures[i]);
    buffer_char(out, '}');
}

static void add_operation(struct document *document, const struct route *route, const char *tag)
{
    static const char *const methods[] = {[METHOD_GET] = "get",
                                          [METHOD_POST] = "post",
                                          [METHOD_PUT] = "put",
                                          [METHOD_PATCH] = "patch",
                                          [METHOD_DELETE] = "delete"};
    struct buffer *out = document->out;

    member(out, methods[route->method]);
    json_format(out, "{\"operationId\":%s,\"summary\":%s", route->name, route->summary);
    if (tag)
        json_format(out, ",\"tags\":[%s]", tag);
    add_parameters(document, route);
    add_body(document, route);
    add_responses(document, route);
    if (route->caller != RULE_PUBLIC)
        buffer_text(out, ",\"security\":[{\"HTTPBearer\":[]}]");
    buffer_char(out, '}');
}

/* The title of the room that a row stands in. */
static const char *tag_of(size_t row)
{
    while (row-- > 0)
        if (!routes[row].run)
            return routes[row].room;
    return NULL;
}

/* The documents themselves, and the metrics, are for others than the API's clients. */
static bool is_described(const struct route *route)
{
    return route->run && route->reply_type != REPLY_TEXT;
}

static bool is_first_of_path(size_t row)
{
    for (size_t i = 0; i < row; i++)
        if (routes[i].run && strcmp(routes[i].path, routes[row].path) == 0)
            return false;
    return true;
}

static void add_paths(struct document *document)
{
    struct buffer *out = document->out;

    buffer_text(out, "\"paths\":{");
    for (size_t row = 0; row < route_count; row++) {
        if (!is_described(&routes[row]) || !is_first_of_path(row))
            continue;
        member(out, routes[row].path);
        buffer_char(out, '{');
        for (size_t same = row; same < route_count; same++)
            if (is_described(&routes[same]) && strcmp(routes[same].path, routes[row].path) == 0)
                add_operation(document, &routes[same], tag_of(same));
        buffer_char(out, '}');
    }
    buffer_text(out, "},");
}

void openapi_write(struct buffer *out)
{
    struct document document = {.out = out};

    for (size_t i = 0; i < route_count; i++) {
        collect(&document, routes[i].body, USE_ASKED);
        collect(&document, routes[i].reply, USE_ANSWERED);
    }
    json_format(out, "{\"openapi\":%s,\"info\":{\"title\":%s,\"description\":%s,\"version\":%s},",
                OPENAPI_VERSION, API_TITLE, API_DESCRIPTION, API_VERSION);
    add_paths(&document);
    add_components(&document);
    buffer_char(out, '}');
    free(document.components);
}

/* --- once
 * ------------------------------------------------------------------------------------------------------------------------------
 */

static struct buffer written;
static pthread_once_t write_once = PTHREAD_ONCE_INIT;

static void write_it(void)
{
    openapi_write(&written);
}

const char *openapi_text(size_t *length)
{
    pthread_once(&write_once, write_it);
    *length = written.length;
    return written.data;
}

void openapi_print(FILE *out)
{
    size_t length;
    const char *text = openapi_text(&length);

    fwrite(text, 1, length, out);
    fputc('\n', out);
}
