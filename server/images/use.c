/* Which images sandboxes stand on: see use.h. */
#include "images/use.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/scope.h"
#include "run/sandbox.h"

enum { STARTING_MS = 15000, STARTING_PAUSE_MS = 100 };

static void scope_link(struct sandbox_link **link)
{
    sandbox_link_free(*link);
}

static void add(struct use *use, int64_t inode)
{
    int64_t *more = arena_alloc(&use->arena, (use->count + 1) * sizeof(*more));

    if (use->count)
        memcpy(more, use->inodes, use->count * sizeof(*more));
    more[use->count++] = inode;
    use->inodes = more;
}

/* 1: some are on their way up. */
static int ask(struct sandbox_link *link, struct use *use, struct error *err)
{
    struct sandbox_entry *entries;
    size_t count;
    bool starting = false;

    arena_reset(&use->arena);
    use->count = 0;
    if (sandbox_list(link, &use->arena, &entries, &count, err) < 0)
        return -1;
    use->inodes = arena_alloc(&use->arena, (count + 1) * sizeof(*use->inodes));
    for (size_t i = 0; i < count; i++) {
        if (entries[i].image == SANDBOX_STARTING)
            starting = true;
        else if (entries[i].image || entries[i].state == SANDBOX_RUNNING)
            use->inodes[use->count++] = entries[i].image;
    }
    return starting;
}

static int read_state(const char *name, void *context, struct error *err)
{
    const struct {
        int folder;
        struct use *use;
    } *reading = context;
    char path[300], text[1024], state[16];
    long long image = 0;
    ssize_t length;

    (void)err;
    snprintf(path, sizeof(path), "%s/state", name);
    auto_close int fd = openat(reading->folder, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    if (sscanf(text,
               "state %15s slot %*d boot %*s pid %*d inode %*u start %*u system %*s image %lld",
               state, &image) >= 1 &&
        strcmp(state, "running") == 0)
        add(reading->use, image);
    return 0;
}

static int read_states(const struct store *store, struct use *use, struct error *err)
{
    auto_close int state = open(store->state, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct {
        int folder;
        struct use *use;
    } reading = {-1, use};
    auto_close int folder =
        state < 0 ? -1 : openat(state, "sandboxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (folder < 0)
        return 0; /* there never was a sandbox */
    reading.folder = folder;
    return store_each(folder, ".", read_state, &reading, err);
}

int use_read(const struct store *store, struct use *use, struct error *err)
{
    __attribute__((cleanup(scope_link))) struct sandbox_link *link =
        sandbox_link_new(store->socket);
    int64_t deadline = clock_ms() + STARTING_MS;
    int starting;

    *use = (struct use){0};
    while ((starting = ask(link, use, err)) > 0 && clock_ms() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = STARTING_PAUSE_MS * 1000000L}, NULL);
    if (starting > 0)
        return error_set(err, ERR_CONFLICT, "sandboxes go on starting, and may use it");
    if (starting < 0 && err->kind == ERR_UNAVAILABLE)
        return read_states(store, use, err);
    return starting;
}

size_t use_count(const struct use *use, int64_t inode)
{
    size_t count = 0;

    for (size_t i = 0; i < use->count; i++)
        count += use->inodes[i] == inode || use->inodes[i] == 0;
    return count;
}

void use_done(struct use *use)
{
    arena_done(&use->arena);
}
