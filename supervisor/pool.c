/* Sandboxes that are started ahead: see pool.h. */
#include "supervisor/pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/create.h"
#include "supervisor/exec.h"
#include "supervisor/image.h"
#include "supervisor/lifecycle.h"
#include "supervisor/statistics.h"

enum {
    REFILL_MS = 5, /* out of the way of what a new sandbox does first */
    RETRY_MS = 5000,
    NAME_MS = 5000,
    LEARNED_AFTER = 2, /* equal starts in a row */
};
enum { NAMING_HOST = 1, NAMING_FILES = 2 };

static struct spawn_request learned; /* without what is one sandbox's own */
static char hostname[sizeof(learned.hostname)]; /* that was asked for last */
static bool knows;
static struct spawn_request candidate;
static int repeated;
static struct timer refill;

/* What two sandboxes may share. Requests are zeroed before they are filled, so bytes can be
 * compared. */
static struct spawn_request general(const struct spawn_request *request)
{
    struct spawn_request rest = *request;

    memset(rest.sandbox, 0, sizeof(rest.sandbox));
    memset(rest.cgroup, 0, sizeof(rest.cgroup));
    memset(rest.hostname, 0, sizeof(rest.hostname));
    rest.slot = 0;
    return rest;
}

static bool same(const struct spawn_request *a, const struct spawn_request *b)
{
    return memcmp(a, b, sizeof(*a)) == 0; /* NOLINT: see general */
}

static bool was_made_as(const struct sandbox *box, const struct spawn_request *wanted)
{
    const struct spawn_request made = general(box->made);

    return same(&made, wanted);
}

/* --- making them ----------------------------------------------------------------------------- */

static void name_spare(char name[SANDBOX_ID_LENGTH + 1])
{
    static unsigned long long began;
    static unsigned serial;

    /* Unlike any of an earlier supervisor, whose cgroups may still be in use under that name. */
    if (!began) {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        began = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    }
    snprintf(name, SANDBOX_ID_LENGTH + 1, "warm-%llx-%x", began, ++serial);
}

static int start_spare(struct sandbox *box, struct error *err)
{
    struct spawn_request request = *box->made;

    if (lifecycle_begin(box, &request, err) == 0)
        return 0;
    lifecycle_discard(box, "a spare did not start");
    return -1;
}

static void disk_made(void *data, const struct error *result)
{
    struct sandbox *box = data;
    struct error error;

    box->busy = false;
    if (create_finish(box, result, &error) == 0 && start_spare(box, &error) == 0)
        return;
    LOG(WARNING, "pool", V("reason", (const char *)error.message));
    if (!box->attached)
        sandbox_forget(box);
    pool_failed();
}

static int make_spare(struct error *err)
{
    char name[SANDBOX_ID_LENGTH + 1];
    struct sandbox *box;
    struct disk disk;
    int made;

    if (storage_size(0, 0, &disk, err) < 0)
        return -1;
    name_spare(name);
    box = sandbox_add(name, SANDBOX_CREATED);
    box->disk = disk;
    box->spare = true;
    box->made = malloc(sizeof(learned));
    if (!box->made)
        abort();
    *box->made = learned;
    memcpy(box->made->hostname, hostname, sizeof(hostname));
    made = create_disk(box, disk_made, err);
    if (made < 0) {
        sandbox_forget(box);
        return -1;
    }
    if (made)
        return start_spare(box, err);
    box->busy = true;
    return 0;
}

static void fill(struct timer *timer)
{
    int64_t ready = 0, taken = 0;
    struct error error;

    for (struct sandbox *box = sandbox_first(), *next; box; box = next) {
        next = box->next;
        taken += box->slot >= 0;
        if (!box->spare || box->destroyed)
            continue;
        if (box->busy) /* one at a time */
            return;
        if (!was_made_as(box, &learned)) {
            lifecycle_discard(box, "another kind of sandbox is asked for");
            loop_set(timer, REFILL_MS, fill);
            return;
        }
        ready++;
    }
    /* The last ranges of ids are for who asks for them. */
    if (ready >= settings.warm_pool || taken + 2 * settings.warm_pool >= settings.sandboxes_max)
        return;
    if (make_spare(&error) < 0) {
        LOG(WARNING, "pool", V("reason", (const char *)error.message));
        pool_failed();
    }
}

void pool_learn(const struct spawn_request *wanted)
{
    struct spawn_request now = general(wanted);

    if (settings.warm_pool == 0)
        return;
    repeated = same(&now, &candidate) ? repeated + 1 : 1;
    candidate = now;
    if (!knows || repeated >= LEARNED_AFTER)
        learned = now;
    memcpy(hostname, wanted->hostname, sizeof(hostname));
    knows = true;
    loop_set(&refill, REFILL_MS, fill);
}

void pool_ready(struct sandbox *box)
{
    box->warm = true;
    loop_set(&refill, REFILL_MS, fill);
}

void pool_failed(void)
{
    loop_set(&refill, RETRY_MS, fill);
}

/* --- giving them away ------------------------------------------------------------------------ */

struct sandbox *pool_take(const struct disk *disk)
{
    for (struct sandbox *box = sandbox_first(); box; box = box->next)
        if (box->spare && box->warm && !box->busy && !box->destroyed && was_made_as(box, &learned) &&
            box->disk.bytes == disk->bytes && box->disk.inodes == disk->inodes)
            return box;
    return NULL;
}

bool pool_fits(const struct sandbox *box, const struct spawn_request *wanted)
{
    static int images = -1;
    const struct spawn_request now = general(wanted);
    auto_image struct image image = {0};
    struct error error;

    if (!box->made || !was_made_as(box, &now) || box->control.fd < 0)
        return false;
    if (images < 0)
        images = open(settings.images, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return image_open(images, wanted->image, &image, &error) == 0 && image.inode == box->image;
}

static void claimed(struct sandbox *box)
{
    LOG(INFO, "sandbox_claimed", V("sandbox", (const char *)box->id));
    lifecycle_started(box);
}

static void learned_name(struct sandbox *box, unsigned part)
{
    box->naming &= ~part;
    if (!box->naming)
        claimed(box);
}

static void host_named(struct watch *watch, uint32_t events)
{
    struct sandbox *box = OWNER(watch, struct sandbox, spawning);
    struct spawn_report report;
    struct error error;
    int process = -1, heard = spawn_hear(watch->fd, &report, &process);

    (void)events;
    scope_close(&process);
    if (heard == 0)
        return;
    if (heard > 0 && report.stage == SPAWN_STARTED) {
        spawn_end(watch);
        learned_name(box, NAMING_HOST);
        return;
    }
    error_set(&error, ERR_INTERNAL, "the sandbox did not take its name");
    lifecycle_failed(box, &error);
}

static void files_named(struct sandbox *box, int status)
{
    struct error error;

    if (status == 0) {
        learned_name(box, NAMING_FILES);
        return;
    }
    error_set(&error, ERR_INTERNAL, "the sandbox did not write its name: %s", strerror(status));
    lifecycle_failed(box, &error);
}

int pool_claim(struct sandbox *box, const struct spawn_request *wanted, struct error *err)
{
    struct spawn_request request = *wanted;
    int reports;

    box->way = START_CLAIMED;
    box->begun = statistics_now();
    if (strcmp(box->made->hostname, wanted->hostname) == 0) {
        box->warm = false;
        claimed(box);
        return 0;
    }
    request.task = SPAWN_NAME;
    reports = spawn_begin(&request, box->process.fd, err);
    if (reports < 0)
        return -1;
    if (loop_watch(&box->spawning, reports, EPOLLIN, host_named, err) < 0) {
        spawn_forget(reports);
        return -1;
    }
    box->busy = true;
    box->warm = false;
    box->naming = NAMING_HOST | NAMING_FILES;
    loop_set(&box->deadline, NAME_MS, lifecycle_overdue);
    exec_name(box, request.hostname, files_named);
    return 0;
}

/* --- the end --------------------------------------------------------------------------------- */

void pool_close(void)
{
    struct error error;

    loop_clear(&refill);
    settings.warm_pool = 0;
    for (struct sandbox *box = sandbox_first(); box; box = box->next) {
        if (!box->warm && !box->spare)
            continue;
        if (!lifecycle_kill(box->cgroup, box->process.fd) ||
            (box->spare && storage_remove("sandboxes", box->id, &error) < 0))
            LOG(ERROR, "sandbox_left_over", V("sandbox", (const char *)box->id));
        else
            box->slot = -1;
    }
}
