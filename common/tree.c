/* A walk over a folder: see tree.h. */
#include "common/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/scope.h"

struct pending {
    const char *path;
    struct pending *next;
};

static int open_folder(int folder, const char *path)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };

    return (int)syscall(SYS_openat2, folder, *path ? path : ".", &how, sizeof(how));
}

static int compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int walk_folder(int folder, const char *path, struct pending **pending, struct arena *arena,
                       tree_call *call, void *context, struct error *err)
{
    auto_close int directory = open_folder(folder, path);
    struct dirent **entries;
    int count, result = 0;

    if (directory < 0)
        return error_set_errno(err, ERR_INTERNAL, "open a folder");
    count = scandirat(directory, ".", &entries, is_entry, compare);
    if (count < 0)
        return error_set_errno(err, ERR_INTERNAL, "read a folder");
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        struct stat status;

        if (result == 0 && fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
            const char *whole =
                *path ? arena_text(arena, "%s/%s", path, name) : arena_text(arena, "%s", name);

            result = call(directory, whole, name, &status, context, err);
            if (result == 0 && S_ISDIR(status.st_mode)) {
                struct pending *more = arena_alloc(arena, sizeof(*more));

                *more = (struct pending){whole, *pending};
                *pending = more;
            }
        }
        free(entries[i]);
    }
    free(entries);
    return result;
}

int tree_each(int folder, tree_call *call, void *context, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct pending *pending = arena_alloc(&arena, sizeof(*pending));

    *pending = (struct pending){.path = ""};
    while (pending) {
        const struct pending *next = pending;

        pending = next->next;
        if (walk_folder(folder, next->path, &pending, &arena, call, context, err) < 0)
            return -1;
    }
    return 0;
}

/* --- removing -------------------------------------------------------------------------------- */

struct folders {
    struct arena arena;
    struct pending *last; /* what is within comes before what it is in */
};

static int empty_entry(int directory, const char *path, const char *name, const struct stat *status,
                       void *context, struct error *err)
{
    struct folders *folders = context;
    struct pending *folder;

    if (!S_ISDIR(status->st_mode))
        return unlinkat(directory, name, 0) < 0 && errno != ENOENT
                   ? error_set_errno(err, ERR_INTERNAL, "remove a file")
                   : 0;
    folder = arena_alloc(&folders->arena, sizeof(*folder));
    *folder = (struct pending){arena_copy(&folders->arena, path, strlen(path)), folders->last};
    folders->last = folder;
    return 0;
}

int tree_remove(int folder, const char *name, struct error *err)
{
    auto_close int top = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct folders folders = {0};
    int result;

    if (top < 0)
        return unlinkat(folder, name, 0) < 0 && errno != ENOENT
                   ? error_set_errno(err, ERR_INTERNAL, "remove %s", name)
                   : 0;
    result = tree_each(top, empty_entry, &folders, err);
    for (const struct pending *at = folders.last; at && result == 0; at = at->next)
        if (unlinkat(top, at->path, AT_REMOVEDIR) < 0 && errno != ENOENT)
            result = error_set_errno(err, ERR_INTERNAL, "remove a folder");
    arena_done(&folders.arena);
    if (result == 0 && unlinkat(folder, name, AT_REMOVEDIR) < 0)
        return error_set_errno(err, ERR_INTERNAL, "remove %s", name);
    return result;
}
