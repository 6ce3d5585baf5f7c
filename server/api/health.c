/* Whether the server lives, and whether it is ready for work. */
#include <string.h>

#include "api/handlers.h"
#include "common/log.h"
#include "store/migrate.h"

struct health {
    const char *status;
};

static const struct field health_fields[] = {{TEXT(health, status)}};
SCHEMA(health);

struct readiness {
    const char *status;
    const char *database;
    const char *schema;
};

static const struct field readiness_fields[] = {
    {TEXT(readiness, status), .choices = "ready|not_ready"},
    {TEXT(readiness, database), .choices = "available|unavailable"},
    {TEXT(readiness, schema), .choices = "current|mismatch|unknown"},
};
SCHEMA(readiness);

/* Touches nothing: it is true with the database down. */
int health_live(struct request *req, struct response *res, struct error *err)
{
    (void)req, (void)err;
    return respond(res, 200, &schema_health, &(struct health){"ok"});
}

int health_live_api(struct request *req, struct response *res, struct error *err)
{
    return health_live(req, res, err);
}

int health_ready(struct request *req, struct response *res, struct error *err)
{
    struct readiness answer = {"not_ready", "unavailable", "unknown"};
    int version = request_begin(req, err) < 0 ? -1 : database_version(req->db, err);

    if (version < 0) {
        LOG(WARNING, "not_ready", V("error", err->message));
        return respond(res, 503, &schema_readiness, &answer);
    }
    answer.database = "available";
    if (version != migrate_current()) {
        answer.schema = "mismatch";
        LOG(WARNING, "not_ready", V("schema", version), V("wanted", migrate_current()));
        return respond(res, 503, &schema_readiness, &answer);
    }
    return respond(res, 200, &schema_readiness,
                   &(struct readiness){"ready", "available", "current"});
}
