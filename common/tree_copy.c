/* A copy of all that is beneath a folder: see tree_copy.h. */
#include "common/tree_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/scope.h"
#include "common/tree.h"
#include "common/tree_digest.h"

enum { COPY_AT_ONCE = 1 << 26, LINKS_ROOM = 256 };

/* A file with several names: where its first one is. */
struct link {
    uint64_t inode; /* 0: free */
    const char *path;
};

struct copy {
    enum tree_copy_way way;
    int to;
    int parent; /* the folder in `to` that was used last, whose path is: */
    const char *parent_path;
    struct arena arena;
    struct link *links;
    size_t link_count, link_room;
};

static int failed(const char *path, struct error *err)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return error_set(err, ERR_TOO_LARGE, "no space is left for '%.100s'", path);
    return error_set_errno(err, ERR_INTERNAL, "copy '%.100s'", path);
}

/* --- files with several names ---------------------------------------------------------------- */

static struct link *link_place(struct link *links, size_t room, uint64_t inode)
{
    size_t at = (size_t)(inode * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (room - 1);

    while (links[at].inode && links[at].inode != inode)
        at = (at + 1) & (room - 1);
    return &links[at];
}

static struct link *find_link(struct copy *copy, uint64_t inode)
{
    if (2 * (copy->link_count + 1) > copy->link_room) {
        size_t room = copy->link_room ? 2 * copy->link_room : LINKS_ROOM;
        struct link *more = calloc(room, sizeof(*more));

        if (!more)
            abort();
        for (size_t i = 0; i < copy->link_room; i++)
            if (copy->links[i].inode)
                *link_place(more, room, copy->links[i].inode) = copy->links[i];
        free(copy->links);
        copy->links = more;
        copy->link_room = room;
    }
    return link_place(copy->links, copy->link_room, inode);
}

/* --- one entry ------------------------------------------------------------------------------- */

static int open_beneath(int folder, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };

    return (int)syscall(SYS_openat2, folder, *path ? path : ".", &how, sizeof(how));
}

static int open_parent(struct copy *copy, const char *path, const char *name, struct error *err)
{
    size_t length = strlen(path) - strlen(name);

    length -= length > 0; /* the slash */
    if (copy->parent >= 0 && strlen(copy->parent_path) == length &&
        memcmp(copy->parent_path, path, length) == 0)
        return 0;
    scope_close(&copy->parent);
    copy->parent_path = arena_copy(&copy->arena, path, length);
    copy->parent = open_beneath(copy->to, copy->parent_path, O_RDONLY | O_DIRECTORY);
    return copy->parent < 0 ? failed(path, err) : 0;
}

/* Only what is written; a hole stays one. */
static int copy_content(int from, int to, int64_t size, const char *path, struct error *err)
{
    int64_t at = 0;

    if (ftruncate(to, size) < 0)
        return failed(path, err);
    if (size == 0 || ioctl(to, FICLONE, from) == 0)
        return 0;
    while ((at = lseek(from, at, SEEK_DATA)) >= 0 && at < size) {
        int64_t end = lseek(from, at, SEEK_HOLE);

        if (lseek(to, at, SEEK_SET) < 0)
            return failed(path, err);
        while (at < end) {
            int64_t left = end - at;
            ssize_t got =
                sendfile(to, from, &at, (size_t)(left < COPY_AT_ONCE ? left : COPY_AT_ONCE));

            if (got < 0)
                return failed(path, err);
            if (got == 0)
                return 0;
        }
    }
    return at < 0 && errno != ENXIO ? failed(path, err) : 0;
}

static int copy_attribute(int fd, const char *name, const void *value, size_t length, void *context,
                          struct error *err)
{
    (void)fd;
    return fsetxattr(*(const int *)context, name, value, length, 0) < 0
               ? error_set_errno(err, ERR_INTERNAL, "set %s", name)
               : 0;
}

/* The mode comes behind the owner, who takes set-id bits away; both before the attributes, of which
 * one is the file's capabilities. */
static int copy_status(int from, int to, const struct stat *status, const char *path,
                       struct error *err)
{
    if (fchown(to, status->st_uid, status->st_gid) < 0 || fchmod(to, status->st_mode & 07777) < 0)
        return failed(path, err);
    if (tree_each_attribute(from, copy_attribute, &to, err) < 0)
        return error_add_context(err, "'%.100s'", path);
    return futimens(to, (const struct timespec[]){status->st_atim, status->st_mtim}) < 0
               ? failed(path, err)
               : 0;
}

static int copy_file(const struct copy *copy, int directory, const char *path, const char *name,
                     const struct stat *status, struct error *err)
{
    auto_close int from =
        openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    auto_close int to =
        openat(copy->parent, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (from < 0 || to < 0)
        return failed(path, err);
    return copy_content(from, to, status->st_size, path, err) < 0
               ? -1
               : copy_status(from, to, status, path, err);
}

static int copy_regular(struct copy *copy, int directory, const char *path, const char *name,
                        const struct stat *status, struct error *err)
{
    struct link *link = status->st_nlink > 1 ? find_link(copy, status->st_ino) : NULL;

    if (link && link->inode)
        return linkat(copy->to, link->path, copy->parent, name, 0) < 0 ? failed(path, err) : 0;
    if (copy_file(copy, directory, path, name, status, err) < 0)
        return -1;
    if (link) {
        *link = (struct link){status->st_ino, arena_copy(&copy->arena, path, strlen(path))};
        copy->link_count++;
    }
    return 0;
}

static int copy_symlink(const struct copy *copy, int directory, const char *path, const char *name,
                        const struct stat *status, struct error *err)
{
    char target[4097];
    ssize_t length = readlinkat(directory, name, target, sizeof(target) - 1);

    if (length < 0)
        return failed(path, err);
    target[length] = '\0';
    return symlinkat(target, copy->parent, name) < 0 ||
                   fchownat(copy->parent, name, status->st_uid, status->st_gid,
                            AT_SYMLINK_NOFOLLOW) < 0 ||
                   utimensat(copy->parent, name,
                             (const struct timespec[]){status->st_atim, status->st_mtim},
                             AT_SYMLINK_NOFOLLOW) < 0
               ? failed(path, err)
               : 0;
}

/* FIFOs, and marks of what is hidden: character devices of number 0, which is no device. */
static int copy_node(const struct copy *copy, const char *path, const char *name,
                     const struct stat *status, struct error *err)
{
    if (!S_ISFIFO(status->st_mode) && !(S_ISCHR(status->st_mode) && status->st_rdev == 0))
        return 0;
    return mknodat(copy->parent, name, (status->st_mode & S_IFMT) | 0600, 0) < 0 ||
                   fchownat(copy->parent, name, status->st_uid, status->st_gid,
                            AT_SYMLINK_NOFOLLOW) < 0 ||
                   fchmodat(copy->parent, name, status->st_mode & 07777, 0) < 0
               ? failed(path, err)
               : 0;
}

static int copy_entry(int directory, const char *path, const char *name, const struct stat *status,
                      void *context, struct error *err)
{
    struct copy *copy = context;

    if (open_parent(copy, path, name, err) < 0)
        return -1;
    if (copy->way == TREE_LINK && !S_ISDIR(status->st_mode))
        return linkat(directory, name, copy->parent, name, 0) < 0 ? failed(path, err) : 0;
    if (S_ISREG(status->st_mode))
        return copy_regular(copy, directory, path, name, status, err);
    if (S_ISLNK(status->st_mode))
        return copy_symlink(copy, directory, path, name, status, err);
    if (!S_ISDIR(status->st_mode))
        return copy_node(copy, path, name, status, err);
    return mkdirat(copy->parent, name, 0700) < 0 ? failed(path, err) : 0;
}

/* When nothing more is made in them, which would change their times. */
static int finish_folder(int directory, const char *path, const char *name,
                         const struct stat *status, void *context, struct error *err)
{
    const struct copy *copy = context;

    if (!S_ISDIR(status->st_mode))
        return 0;
    auto_close int from = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int to = open_beneath(copy->to, path, O_RDONLY | O_DIRECTORY);
    return from < 0 || to < 0 ? failed(path, err) : copy_status(from, to, status, path, err);
}

int tree_copy(int from, int to, enum tree_copy_way way, struct error *err)
{
    struct copy copy = {.way = way, .to = to, .parent = -1};
    int result = tree_each(from, copy_entry, &copy, err);

    if (result == 0)
        result = tree_each(from, finish_folder, &copy, err);
    scope_close(&copy.parent);
    free(copy.links);
    arena_done(&copy.arena);
    return result;
}
