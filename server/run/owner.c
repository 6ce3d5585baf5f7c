/* Names of runners: see owner.h. */
#include "run/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "common/log.h"
#include "common/scope.h"
#include "server/settings.h"

static const char prefix[] = "runner.";

static void name_path(char *path, size_t size, const char *owner, const char *suffix)
{
    snprintf(path, size, "%s/run/%s%s%s", settings.state_dir, prefix, owner, suffix);
}

int owner_claim(char owner[UUID_SIZE], struct error *err)
{
    char path[4096], fresh[4096];
    auto_close int fd = -1;

    token_uuid(owner);
    name_path(path, sizeof(path), owner, "");
    name_path(fresh, sizeof(fresh), owner, ".new");
    fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    /* Renamed once it is locked: who sweeps meets no file that is alive and free. */
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || rename(fresh, path) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", path);
    return take_fd(&fd);
}

void owner_drop(const char *owner)
{
    char path[4096];

    name_path(path, sizeof(path), owner, "");
    unlink(path);
}

/* Whether the runner behind the file has died; then the descriptor holds its lock, so that no
 * second one sweeps the same. */
static bool has_died(const char *path, int *fd)
{
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return *fd >= 0 && flock(*fd, LOCK_EX | LOCK_NB) == 0;
}

static int sweep_one(struct database *db, const char *owner, struct error *err)
{
    char path[4096];
    auto_close int fd = -1;
    int expired;

    name_path(path, sizeof(path), owner, "");
    if (!has_died(path, &fd))
        return 0;
    expired = query_run(db, QUERY_runner_expire, PARAMS(owner), err);
    if (expired < 0)
        return -1;
    if (expired > 0)
        LOG(WARNING, "leases_of_dead_runner_ended", V("jobs", expired));
    unlink(path);
    return 0;
}

int owner_sweep(struct database *db, struct error *err)
{
    char path[4096];
    const struct dirent *entry;
    DIR *folder;
    int result = 0;

    snprintf(path, sizeof(path), "%s/run", settings.state_dir);
    folder = opendir(path);
    if (!folder)
        return error_set_errno(err, ERR_INTERNAL, "%s", path);
    while (result == 0 && (entry = readdir(folder))) {
        const char *owner = entry->d_name + sizeof(prefix) - 1;

        if (strncmp(entry->d_name, prefix, sizeof(prefix) - 1) == 0 && token_is_uuid(owner))
            result = sweep_one(db, owner, err);
    }
    closedir(folder);
    return result;
}
