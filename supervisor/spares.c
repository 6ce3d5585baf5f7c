/* Disks that are made ahead, so that a sandbox gets one by a rename: see storage.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/disks.h"
#include "supervisor/loop.h"
#include "supervisor/sandbox.h"
#include "supervisor/storage.h"
#include "supervisor/storekeeper.h"
#include "supervisor/supervisor.h"

enum { SPARES_MAX = 256, NICE = 10, PAUSE_MS = 5000, LATER_MS = 20 };

static int folder = -1;
static unsigned ready[SPARES_MAX]; /* their names */
static size_t count;
static unsigned serial, making; /* the next name, and how many are being made */
static struct disk usual;
static struct timer refill;

static void name_of(char name[32], unsigned number, const char *prefix)
{
    snprintf(name, 32, "%s%u", prefix, number);
}

/* Each is complete before it has its name. */
static int make_one(const char *place, int at, unsigned number, const struct disk *disk,
                    struct error *err)
{
    struct sandbox box = {.state = SANDBOX_CREATED, .slot = -1, .disk = *disk};
    char name[32], half[32], path[PATH_MAX];

    name_of(name, number, "");
    name_of(half, number, ".");
    snprintf(path, sizeof(path), "%s/%s", place, half);
    if (mkdirat(at, half, 0700) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir of a spare disk");
    if (disk_make(path, disk, err) < 0)
        return -1;
    auto_close int own = openat(at, half, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own < 0 || sandbox_save_in(own, &box, err) < 0 || renameat(at, half, at, name) < 0)
        return error_set_errno(err, ERR_INTERNAL, "spare disk");
    return 0;
}

int spares_make(const char *place, const struct store_request *request, struct error *err)
{
    auto_close int at = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (at < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", place);
    setpriority(PRIO_PROCESS, 0, NICE);
    for (unsigned i = 0; i < request->count; i++)
        if (make_one(place, at, request->first + i, &request->disk, err) < 0)
            return -1;
    return 0;
}

static void begin(struct timer *timer);

/* Count what is there; what is half-made goes at the next start. */
static void made(void)
{
    char name[32];
    struct stat status;

    for (unsigned i = 0; i < making; i++) {
        name_of(name, serial + i, "");
        if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
            ready[count++] = serial + i;
    }
    serial += making;
    making = 0;
}

static void answered(void *data, const struct error *result)
{
    (void)data;
    made();
    if (result->kind == ERR_NONE)
        return;
    /* A sandbox that finds none has its own made. */
    LOG(WARNING, "spare_disks", V("reason", (const char *)result->message));
    loop_set(&refill, PAUSE_MS, begin);
}

static void begin(struct timer *timer)
{
    struct store_request request = {
        .work = STORE_SPARES, .path = "spares", .disk = usual, .first = serial};
    size_t wanted = (size_t)settings.disks_ready;
    struct error error;

    if (making || count >= wanted)
        return;
    request.count = (unsigned)(wanted - count);
    if (storekeeper_begin(&request, answered, NULL, &error) < 0)
        loop_set(timer, PAUSE_MS, begin);
    else
        making = request.count;
}

static void sweep(void)
{
    DIR *directory = fdopendir(dup(folder));
    struct dirent *entry;
    struct error error;

    while (directory && (entry = readdir(directory)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            storage_remove("spares", entry->d_name, &error) < 0)
            LOG(ERROR, "sweep", V("folder", (const char *)entry->d_name),
                V("reason", (const char *)error.message));
    if (directory)
        closedir(directory);
}

int storage_spares_open(struct error *err)
{
    folder = sandbox_open_place("spares", err);
    if (folder < 0 || storage_size(0, 0, &usual, err) < 0)
        return -1;
    sweep();
    if (usual.kind != STORAGE_PLAIN) /* which are made as fast as renamed */
        loop_set(&refill, 0, begin);
    return 0;
}

bool storage_take_spare(const char *id, const struct disk *disk)
{
    while (count && disk->kind == usual.kind && disk->bytes == usual.bytes &&
           disk->inodes == usual.inodes) {
        char name[32];

        name_of(name, ready[--count], "");
        /* Half of them are made in one go, a little later, when whoever asked has been served. */
        if (count * 2 <= (size_t)settings.disks_ready && !making)
            loop_set(&refill, LATER_MS, begin);
        if (renameat2(folder, name, sandbox_folder(), id, RENAME_NOREPLACE) == 0)
            return true;
    }
    return false;
}
