/* API keys of a project: made, listed, stopped. Only a digest is stored. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/control/definition.h"
#include "api/handlers.h"
#include "common/token.h"

enum { KEY_RANDOM_BYTES = 32, KEY_SIZE = 64 };

struct key {
    const char *id;
    const char *name;
    const char *description;
    const char *project_id;
    const char *prefix;
    const char *created_by;
    const char *created_at;
    const char *last_used_at;
    const char *expires_at;
    const char *revoked_at;
};

static const struct field key_fields[] = {
    {TEXT(key, id)},
    {TEXT(key, name)},
    {TEXT(key, description)},
    {TEXT(key, project_id), .nullable = true},
    {TEXT(key, prefix), .about = "the key's first 11 characters"},
    {TEXT(key, created_by), .nullable = true},
    {TEXT(key, created_at)},
    {TEXT(key, last_used_at), .nullable = true},
    {TEXT(key, expires_at), .nullable = true},
    {TEXT(key, revoked_at), .nullable = true},
};
SCHEMA(key);

struct key_created {
    const char *id;
    const char *name;
    const char *description;
    const char *project_id;
    const char *prefix;
    const char *created_by;
    const char *created_at;
    const char *last_used_at;
    const char *expires_at;
    const char *revoked_at;
    const char *key;
};

static const struct field key_created_fields[] = {
    {TEXT(key_created, id)},
    {TEXT(key_created, name)},
    {TEXT(key_created, description)},
    {TEXT(key_created, project_id), .nullable = true},
    {TEXT(key_created, prefix)},
    {TEXT(key_created, created_by), .nullable = true},
    {TEXT(key_created, created_at)},
    {TEXT(key_created, last_used_at), .nullable = true},
    {TEXT(key_created, expires_at), .nullable = true},
    {TEXT(key_created, revoked_at), .nullable = true},
    {TEXT(key_created, key), .about = "shown in this answer only"},
};
SCHEMA(key_created);

struct key_create {
    const char *name;
    const char *description;
    const char *expires_at;
};

/* Date and time of RFC 3339; seconds, fraction and offset may be missing. `T` may be a space. */
#define MOMENT_PATTERN               \
    "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt " \
    "][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?([Zz]|[+-][0-9]{2}:?[0-9]{2})?"

static bool has_offset(const char *moment)
{
    const char *clock = moment + strlen("YYYY-MM-DDT");

    return strpbrk(clock, "Zz+-") != NULL;
}

/* Seconds since the epoch; no offset is UTC. -1 for a day or an hour that no calendar has. */
static int parse_moment(const char *moment, time_t *seconds)
{
    struct tm want = {0}, got;
    int offset_hours = 0, offset_minutes = 0;
    const char *offset = strpbrk(moment + strlen("YYYY-MM-DDT"), "+-");

    if (sscanf(moment, "%4d-%2d-%2d%*1c%2d:%2d:%2d", &want.tm_year, &want.tm_mon, &want.tm_mday,
               &want.tm_hour, &want.tm_min, &want.tm_sec) < 5)
        return -1;
    if (want.tm_year < 1 || want.tm_hour > 23 || want.tm_min > 59 || want.tm_sec > 59)
        return -1;
    want.tm_year -= 1900;
    want.tm_mon -= 1;
    got = want;
    *seconds = timegm(&got);
    if (got.tm_mon != want.tm_mon || got.tm_mday != want.tm_mday)
        return -1;
    if (!offset)
        return 0;
    if (sscanf(offset + 1, offset[3] == ':' ? "%2d:%2d" : "%2d%2d", &offset_hours,
               &offset_minutes) != 2 ||
        offset_hours > 15 || offset_minutes > 59)
        return -1;
    *seconds -= (*offset == '-' ? -60L : 60L) * (60 * offset_hours + offset_minutes);
    return 0;
}

static const char *check_future(const char *text)
{
    time_t seconds;

    if (!field_matches(MOMENT_PATTERN, text) || parse_moment(text, &seconds) < 0)
        return "a time looks like 2026-04-15T08:30:00Z";
    return seconds <= time(NULL) ? "the time is in the past" : NULL;
}

static const struct field key_create_fields[] = {
    {TEXT(key_create, name), NAME_RULE},
    {TEXT(key_create, description), .fallback = "\"\"", .null_is_fallback = true},
    {TEXT(key_create, expires_at), .check = check_future, .optional = true, .nullable = true,
     .about = "without an offset it is UTC; null: never"},
};
SCHEMA(key_create);

/* A path's {key_id} as a parameter: what is no id is nobody's. */
static const char *key_id(const struct request *req)
{
    return token_is_uuid(req->path_values[0]) ? req->path_values[0] : NULL;
}

int keys_list(struct request *req, struct response *res, struct error *err)
{
    return respond_rows(req, res, QUERY_keys_list, PARAMS(req->project), err);
}

int keys_create(struct request *req, struct response *res, struct error *err)
{
    const struct key_create *body = req->body;
    const char *expires_at = body->expires_at;
    char key[KEY_SIZE], digest[SHA256_HEX_SIZE];

    token_make("ak_", KEY_RANDOM_BYTES, key, sizeof(key));
    token_sha256(key, strlen(key), digest);
    if (expires_at && !has_offset(expires_at))
        expires_at = arena_text(req->arena, "%sZ", expires_at);
    return respond_row(req, res, 201, QUERY_keys_insert,
                       PARAMS(req->project, body->name, body->description, key, digest,
                              req->caller.subject, expires_at),
                       "key", err);
}

int keys_revoke(struct request *req, struct response *res, struct error *err)
{
    return respond_row(req, res, 200, QUERY_keys_revoke, PARAMS(req->project, key_id(req)), "key",
                       err);
}

int keys_delete(struct request *req, struct response *res, struct error *err)
{
    int gone = query_run(req->db, QUERY_keys_delete, PARAMS(req->project, key_id(req)), err);

    if (gone < 0)
        return -1;
    return gone ? respond_nothing(res) : error_set(err, ERR_NOT_FOUND, "key not found");
}
