/* What one project may have: see capacity.h. */
#include "run/capacity.h"

#include "common/arena.h"
#include "common/field.h"
#include "server/settings.h"

enum { RETRY_AFTER_S = 10 };

struct capacity_used {
    int64_t sandboxes;
    int64_t disks;
};

static const struct field capacity_used_fields[] = {
    {NUMBER(capacity_used, sandboxes)},
    {NUMBER(capacity_used, disks)},
};
SCHEMA(capacity_used);

static int check(const char *what, const char *variable, int64_t wanted, int64_t most,
                 struct error *err)
{
    if (!most || wanted <= most)
        return 0;
    error_set(err, ERR_UNAVAILABLE,
              "no room for another sandbox: the project would have %lld %s, and %s is %lld",
              (long long)wanted, what, variable, (long long)most);
    err->retry_after_s = RETRY_AFTER_S;
    return -1;
}

int capacity_claim(struct database *db, const char *project, const char *session, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct capacity_used used;

    if (!settings.project_sandboxes && !settings.project_memory_mb && !settings.project_disk_mb)
        return 0;
    if (query_run(db, QUERY_capacity_lock, PARAMS(project, session), err) < 0 ||
        query_row(db, QUERY_capacity_used, PARAMS(project, session), &arena, &used, err) < 0)
        return -1;
    if (check("that run", "PROJECT_SANDBOXES", used.sandboxes + 1, settings.project_sandboxes,
              err) < 0 ||
        check("MiB of memory", "PROJECT_MEMORY_MB",
              (used.sandboxes + 1) * settings.sandbox_memory_mb, settings.project_memory_mb,
              err) < 0)
        return -1;
    return session
               ? 0
               : check("MiB of disks", "PROJECT_DISK_MB",
                       (used.disks + 1) * settings.sandbox_disk_mb, settings.project_disk_mb, err);
}
