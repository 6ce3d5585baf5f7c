/* Ids of the sandboxes beside those of the machine: see ids.h. */
#include "common/ids.h"

#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <string.h>

#include "common/scope.h"

struct ids ids_of_sandboxes(int64_t base, int64_t sandboxes)
{
    return (struct ids){base, base + (sandboxes + 1) * IDS_OF_A_SANDBOX};
}

static bool overlap(struct ids a, struct ids b)
{
    return a.first < b.end && b.first < a.end;
}

static bool has(struct ids ids, int64_t id)
{
    return ids.first <= id && id < ids.end;
}

static FILE *open_under(const char *root, const char *path)
{
    char full[PATH_MAX];

    snprintf(full, sizeof(full), "%s%s", root, path);
    return fopen(full, "re");
}

static void check_users(const char *root, struct ids ids, struct refusals *refusals)
{
    auto_fclose FILE *file = open_under(root, "/etc/passwd");
    const struct passwd *entry;

    while (file && (entry = fgetpwent(file)))
        if (has(ids, entry->pw_uid))
            refusal_add(refusals, "ID_BASE: user '%s' of /etc/passwd has an id of the sandboxes",
                        entry->pw_name);
}

static void check_groups(const char *root, struct ids ids, struct refusals *refusals)
{
    auto_fclose FILE *file = open_under(root, "/etc/group");
    const struct group *entry;

    while (file && (entry = fgetgrent(file)))
        if (has(ids, entry->gr_gid))
            refusal_add(refusals, "ID_BASE: group '%s' of /etc/group has an id of the sandboxes",
                        entry->gr_name);
}

/* One line. Ids of the sandboxes may stand there as root's, so that nobody else gets them, but then
 * all of them. */
static void check_grant(const char *path, const char *line, struct ids ours,
                        struct refusals *refusals)
{
    struct ids theirs;
    char name[256];
    int64_t size;

    if (sscanf(line, "%255[^:]:%" SCNd64 ":%" SCNd64, name, &theirs.first, &size) != 3)
        return;
    theirs.end = theirs.first + size;
    if (!overlap(ours, theirs))
        return;
    if (strcmp(name, "root") != 0 && strcmp(name, "0") != 0)
        refusal_add(refusals,
                    "ID_BASE: %s gives '%s' ids of the sandboxes, which are %" PRId64
                    " to %" PRId64,
                    path, name, ours.first, ours.end - 1);
    else if (theirs.first > ours.first || theirs.end < ours.end)
        refusal_add(refusals,
                    "SANDBOXES_MAX: the sandboxes need the ids %" PRId64 " to %" PRId64
                    ", and %s gives root %" PRId64 " to %" PRId64 " only",
                    ours.first, ours.end - 1, path, theirs.first, theirs.end - 1);
}

static void check_grants(const char *root, const char *path, struct ids ids,
                         struct refusals *refusals)
{
    auto_fclose FILE *file = open_under(root, path);
    char line[512];

    while (file && fgets(line, sizeof(line), file))
        check_grant(path, line, ids, refusals);
}

void ids_check(const char *root, struct ids ids, struct refusals *refusals)
{
    check_users(root, ids, refusals);
    check_groups(root, ids, refusals);
    check_grants(root, "/etc/subuid", ids, refusals);
    check_grants(root, "/etc/subgid", ids, refusals);
    if (ids.end > UINT32_MAX)
        refusal_add(refusals, "ID_BASE and SANDBOXES_MAX need ids beyond 2^32");
}
