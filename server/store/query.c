/* Named queries: prepared when first used, and their rows → struct or JSON by field table. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/log.h"
#include "common/scope.h"
#include "store/backend.h"

/* The schemas are defined in other rooms, and a test has not all of them: weak, so that the address
 * of a missing one is NULL. */
#define QUERY(query_name, count, row_name, sql) \
    extern const struct schema schema_##row_name __attribute__((weak));
#include "sql/queries.def"
#undef QUERY

struct query {
    const char *name;
    size_t parameters;
    const char *row;
    const struct schema *schema;
    const char *text;
};

static const struct query queries[QUERIES] = {
#define QUERY(query_name, count, row_name, sql) \
    {.name = #query_name,                       \
     .parameters = count,                       \
     .row = #row_name,                          \
     .schema = &schema_##row_name,              \
     .text = sql},
#include "sql/queries.def"
#undef QUERY
};

struct rows {
    PGresult *result;
    const struct schema *schema; /* NULL: columns are free */
};

static bool has_rows(const struct query *query)
{
    return strcmp(query->row, "nothing") != 0;
}

/* NULL for queries that return nothing, and for a schema that is not part of the program. */
static const struct schema *schema_of(const struct query *query)
{
    return has_rows(query) ? query->schema : NULL;
}

const char *number_text(char out[24], int64_t value)
{
    snprintf(out, 24, "%" PRId64, value);
    return out;
}

/* --- columns against field tables ------------------------------------------------------------ */

/* Of PostgreSQL's catalogue; they never change. */
enum {
    TYPE_BOOL = 16,
    TYPE_INT8 = 20,
    TYPE_INT2 = 21,
    TYPE_INT4 = 23,
    TYPE_TEXT = 25,
    TYPE_JSON = 114,
    TYPE_FLOAT4 = 700,
    TYPE_FLOAT8 = 701,
    TYPE_VARCHAR = 1043,
    TYPE_UUID = 2950,
    TYPE_JSONB = 3802,
};

static const struct {
    const char *name;
    Oid types[4];
} columns_of[] = {
    [FIELD_TEXT] = {"text, varchar or uuid", {TYPE_TEXT, TYPE_VARCHAR, TYPE_UUID}},
    [FIELD_NUMBER] = {"bigint, integer or smallint", {TYPE_INT8, TYPE_INT4, TYPE_INT2}},
    [FIELD_REAL] = {"double precision or real", {TYPE_FLOAT8, TYPE_FLOAT4}},
    [FIELD_FLAG] = {"boolean", {TYPE_BOOL}},
    [FIELD_TEXTS] = {"json or jsonb", {TYPE_JSON, TYPE_JSONB}},
    [FIELD_NUMBERS] = {"json or jsonb", {TYPE_JSON, TYPE_JSONB}},
    [FIELD_JSON] = {"json or jsonb", {TYPE_JSON, TYPE_JSONB}},
};

static bool type_fits(enum field_type type, Oid column)
{
    for (size_t i = 0; i < COUNT(columns_of[type].types); i++)
        if (columns_of[type].types[i] == column)
            return true;
    return false;
}

int columns_check(const struct schema *schema, const PGresult *described, struct error *err)
{
    if (schema->tag)
        return error_set(err, ERR_INTERNAL, "rows of the union %s can't be read", schema->name);
    for (size_t i = 0; i < schema->count && (int)i < PQnfields(described); i++) {
        const struct field *field = &schema->fields[i];

        if (strcmp(PQfname(described, (int)i), field->name) != 0)
            return error_set(err, ERR_INTERNAL, "column %zu is '%s', and struct %s has '%s' there",
                             i + 1, PQfname(described, (int)i), schema->name, field->name);
        if (!type_fits(field->type, PQftype(described, (int)i)))
            return error_set(err, ERR_INTERNAL, "column '%s' has type %u, and struct %s wants %s",
                             field->name, PQftype(described, (int)i), schema->name,
                             columns_of[field->type].name);
    }
    if ((size_t)PQnfields(described) != schema->count)
        return error_set(err, ERR_INTERNAL, "%d columns, and struct %s has %zu members",
                         PQnfields(described), schema->name, schema->count);
    return 0;
}

/* --- running --------------------------------------------------------------------------------- */

static int prepare(struct database *db, enum query_id id, struct error *err)
{
    const struct query *query = &queries[id];
    auto_result PGresult *answer = NULL;

    if (db->prepared[id / 8] & (1u << (id % 8)))
        return 0;
    if (PQsendPrepare(db->connection, query->name, query->text, 0, NULL))
        answer = backend_answer(db->connection, ANSWER_TIMEOUT_MS);
    if (database_judge(db, answer, query->name, err) < 0)
        return -1;
    db->prepared[id / 8] |= (uint8_t)(1u << (id % 8));
    return 0;
}

int query_check(struct database *db, enum query_id id, struct error *err)
{
    const struct query *query = &queries[id];
    auto_result PGresult *described = NULL;

    if (prepare(db, id, err) < 0)
        return -1;
    if (PQsendDescribePrepared(db->connection, query->name))
        described = backend_answer(db->connection, ANSWER_TIMEOUT_MS);
    if (database_judge(db, described, query->name, err) < 0)
        return -1;
    if ((size_t)PQnparams(described) != query->parameters)
        return error_set(err, ERR_INTERNAL,
                         "query %s: %d parameters, of which %zu were seen in its text", query->name,
                         PQnparams(described), query->parameters);
    if (!has_rows(query))
        return 0;
    if (!query->schema)
        return error_set(err, ERR_NOT_FOUND, "query %s: this program has no schema_%s", query->name,
                         query->row);
    return columns_check(query->schema, described, err) < 0
               ? error_add_context(err, "query %s", query->name)
               : 0;
}

static int run(struct database *db, enum query_id id, struct params params, PGresult **result,
               struct error *err)
{
    const struct query *query = &queries[id];
    auto_result PGresult *answer = NULL;

    if (params.count != query->parameters)
        return error_set(err, ERR_INTERNAL, "query %s takes %zu parameters, and was given %zu",
                         query->name, query->parameters, params.count);
    if (prepare(db, id, err) < 0)
        return -1;
    if (PQsendQueryPrepared(db->connection, query->name, (int)params.count, params.values, NULL,
                            NULL, 0))
        answer = backend_answer(db->connection, ANSWER_TIMEOUT_MS);
    if (database_judge(db, answer, query->name, err) < 0)
        return -1;
    *result = answer;
    answer = NULL;
    return 0;
}

int query_rows(struct database *db, enum query_id id, struct params params, struct rows **rows,
               struct error *err)
{
    const struct query *query = &queries[id];
    PGresult *result = NULL;

    if (run(db, id, params, &result, err) < 0)
        return -1;
    /* What database_check compares is relied on below: without the table, or with another number of
     * columns, nothing is read. */
    if (has_rows(query) && (!query->schema || (size_t)PQnfields(result) != query->schema->count)) {
        PQclear(result);
        return error_set(err, ERR_INTERNAL, "query %s does not fill struct %s", query->name,
                         query->row);
    }
    *rows = rows_new(result, schema_of(query));
    return 0;
}

int query_run(struct database *db, enum query_id id, struct params params, struct error *err)
{
    auto_result PGresult *result = NULL;

    if (run(db, id, params, &result, err) < 0)
        return -1;
    if (PQresultStatus(result) == PGRES_TUPLES_OK)
        return PQntuples(result);
    return (int)strtol(PQcmdTuples(result), NULL, 10);
}

int query_row(struct database *db, enum query_id id, struct params params, struct arena *arena,
              void *value, struct error *err)
{
    auto_rows struct rows *rows = NULL;

    if (query_rows(db, id, params, &rows, err) < 0)
        return -1;
    if (!schema_of(&queries[id]))
        return error_set(err, ERR_INTERNAL, "query %s fills no struct", queries[id].name);
    if (rows_count(rows) == 0)
        return error_set(err, ERR_NOT_FOUND, "not found");
    rows_value(rows, 0, arena, value);
    return 0;
}

/* --- rows ------------------------------------------------------------------------------------ */

struct rows *rows_new(PGresult *result, const struct schema *schema)
{
    struct rows *rows = malloc(sizeof(*rows));

    if (!rows)
        abort();
    *rows = (struct rows){.result = result, .schema = schema};
    return rows;
}

void rows_free(struct rows *rows)
{
    if (!rows)
        return;
    PQclear(rows->result);
    free(rows);
}

void rows_scope(struct rows **rows)
{
    rows_free(*rows);
}

size_t rows_count(const struct rows *rows)
{
    return (size_t)PQntuples(rows->result);
}

const struct schema *rows_schema(const struct rows *rows)
{
    return rows->schema;
}

const char *rows_text(const struct rows *rows, size_t row, size_t column)
{
    if (row >= rows_count(rows) || column >= (size_t)PQnfields(rows->result) ||
        PQgetisnull(rows->result, (int)row, (int)column))
        return NULL;
    return PQgetvalue(rows->result, (int)row, (int)column);
}

/* A JSON array into the member, through the decoder that knows arrays. */
struct text_list {
    struct texts items;
};
static const struct field text_list_fields[] = {{TEXTS(text_list, items)}};
static const struct schema text_list_schema = {
    .name = "text_list", .fields = text_list_fields, .count = 1, .size = sizeof(struct text_list)};

struct number_list {
    struct numbers items;
};
static const struct field number_list_fields[] = {{NUMBERS(number_list, items)}};
static const struct schema number_list_schema = {.name = "number_list",
                                                 .fields = number_list_fields,
                                                 .count = 1,
                                                 .size = sizeof(struct number_list)};

static void set_list(const struct schema *schema, const char *name, const char *text,
                     struct arena *arena, void *member)
{
    const char *object = arena_text(arena, "{\"items\":%s}", text);
    struct decoded decoded;
    struct error err = {0};

    if (json_decode(schema, "column", object, strlen(object), arena, &decoded, &err) < 0)
        LOG(ERROR, "column_is_no_list", V("column", name));
    else
        memcpy(member, decoded.value, schema->size);
}

/* `size` bytes into the member, or behind the pointer that it is. */
static void set_plain(const struct field *field, const void *content, size_t size,
                      struct arena *arena, void *member)
{
    void *target = member;

    if (field->indirect)
        *(void **)member = target = arena_alloc(arena, size);
    memcpy(target, content, size);
}

static void set_member(const struct field *field, const char *text, size_t length,
                       struct arena *arena, void *member)
{
    switch (field->type) {
    case FIELD_TEXT:
    case FIELD_JSON:
        *(const char **)member = arena_copy(arena, text, length);
        break;
    case FIELD_NUMBER: {
        int64_t number = strtoll(text, NULL, 10);

        set_plain(field, &number, sizeof(number), arena, member);
        break;
    }
    case FIELD_REAL: {
        double real = strtod(text, NULL);

        set_plain(field, &real, sizeof(real), arena, member);
        break;
    }
    case FIELD_FLAG: {
        bool flag = text[0] == 't';

        set_plain(field, &flag, sizeof(flag), arena, member);
        break;
    }
    case FIELD_TEXTS:
        set_list(&text_list_schema, field->name, text, arena, member);
        break;
    case FIELD_NUMBERS:
        set_list(&number_list_schema, field->name, text, arena, member);
        break;
    }
}

void rows_value(const struct rows *rows, size_t row, struct arena *arena, void *value)
{
    const struct schema *schema = rows_schema(rows);

    memset(value, 0, schema->size);
    for (size_t i = 0; i < schema->count; i++)
        if (!PQgetisnull(rows->result, (int)row, (int)i))
            set_member(&schema->fields[i], PQgetvalue(rows->result, (int)row, (int)i),
                       (size_t)PQgetlength(rows->result, (int)row, (int)i), arena,
                       (char *)value + schema->fields[i].offset);
}

/* PostgreSQL's text of these types is JSON already, but for booleans, NaN and the infinities. */
static void add_column(struct buffer *out, enum field_type type, const char *text, size_t length)
{
    switch (type) {
    case FIELD_TEXT:
        json_string_n(out, text, length);
        break;
    case FIELD_FLAG:
        buffer_text(out, text[0] == 't' ? "true" : "false");
        break;
    case FIELD_REAL:
        if (text[length - 1] < '0' || text[length - 1] > '9')
            buffer_text(out, "null");
        else
            buffer_add(out, text, length);
        break;
    case FIELD_NUMBER:
    case FIELD_TEXTS:
    case FIELD_NUMBERS:
    case FIELD_JSON:
        buffer_add(out, text, length);
        break;
    }
}

void rows_json(const struct rows *rows, size_t row, struct buffer *out)
{
    const struct schema *schema = rows_schema(rows);

    buffer_char(out, '{');
    for (size_t i = 0; i < schema->count; i++) {
        buffer_text(out, i ? ",\"" : "\"");
        buffer_text(out, schema->fields[i].name);
        buffer_text(out, "\":");
        if (PQgetisnull(rows->result, (int)row, (int)i))
            buffer_text(out, "null");
        else
            add_column(out, schema->fields[i].type, PQgetvalue(rows->result, (int)row, (int)i),
                       (size_t)PQgetlength(rows->result, (int)row, (int)i));
    }
    buffer_char(out, '}');
}

void rows_json_list(const struct rows *rows, struct buffer *out)
{
    buffer_char(out, '[');
    for (size_t row = 0; row < rows_count(rows); row++) {
        if (row)
            buffer_char(out, ',');
        rows_json(rows, row, out);
    }
    buffer_char(out, ']');
}
