/* The files of a recipe: see context.h. */
#include "images/context.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/scope.h"
#include "common/sha256.h"
#include "common/tree.h"

enum { READ_BLOCK = 64 * 1024, SEND_AT_ONCE = 1 << 26 };

/* What is done with each file or folder; `fd` is open on it. */
struct visit {
    int (*take)(int fd, const char *path, const struct stat *status, void *context,
                struct error *err);
    void *context;
    const char *prefix; /* of the paths of a walk */
};

static int open_beneath(int folder, const char *path)
{
    struct open_how how = {
        .flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };

    return (int)syscall(SYS_openat2, folder, path, &how, sizeof(how));
}

static int visit_one(const struct visit *visit, int fd, const char *path, struct error *err)
{
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        return errno == ELOOP
                   ? error_set(err, ERR_INVALID, "'%.200s' is a link, which is not copied", path)
                   : error_set_errno(err, ERR_NOT_FOUND, "'%.200s'", path);
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        return error_set(err, ERR_INVALID, "'%.200s' is neither a file nor a folder", path);
    return visit->take(fd, path, &status, visit->context, err);
}

static int visit_entry(int directory, const char *path, const char *name, const struct stat *status,
                       void *context, struct error *err)
{
    const struct visit *visit = context;
    auto_arena struct arena arena = {0};
    auto_close int fd = open_beneath(directory, name);

    (void)status;
    return visit_one(visit, fd, arena_text(&arena, "%s/%s", visit->prefix, path), err);
}

static int visit_all(int folder, const struct texts *paths, struct visit *visit, struct error *err)
{
    for (size_t i = 0; i < paths->count; i++) {
        struct stat status;
        auto_close int fd = open_beneath(folder, paths->items[i]);

        if (visit_one(visit, fd, paths->items[i], err) < 0)
            return -1;
        visit->prefix = paths->items[i];
        if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) &&
            tree_each(fd, visit_entry, visit, err) < 0)
            return -1;
    }
    return 0;
}

/* --- the digest ------------------------------------------------------------------------------ */

static int add_to_digest(int fd, const char *path, const struct stat *status, void *context,
                         struct error *err)
{
    struct sha256 *sha256 = context;
    char block[READ_BLOCK];
    int length =
        snprintf(block, sizeof(block), "%o %lld %zu ", status->st_mode & (S_IFMT | 0777),
                 S_ISREG(status->st_mode) ? (long long)status->st_size : 0LL, strlen(path));
    ssize_t got = 0;

    sha256_add(sha256, block, (size_t)length);
    sha256_add(sha256, path, strlen(path));
    while (S_ISREG(status->st_mode) && (got = read(fd, block, sizeof(block))) > 0)
        sha256_add(sha256, block, (size_t)got);
    return got < 0 ? error_set_errno(err, ERR_INTERNAL, "read '%.200s'", path) : 0;
}

int context_digest(int folder, const struct texts *paths, char digest[SHA256_HEX_SIZE],
                   struct error *err)
{
    struct sha256 sha256;
    struct visit visit = {.take = add_to_digest, .context = &sha256};

    sha256_begin(&sha256);
    if (visit_all(folder, paths, &visit, err) < 0)
        return -1;
    sha256_end(&sha256, digest);
    return 0;
}

/* --- into the sandbox ------------------------------------------------------------------------ */

struct giving {
    struct sandbox_link *link;
    const char *sandbox;
};

static int give(int fd, const char *path, const struct stat *status, void *context,
                struct error *err)
{
    const struct giving *giving = context;
    auto_close int to = -1;
    ssize_t sent;

    if (S_ISDIR(status->st_mode))
        return sandbox_directory_make(giving->link, giving->sandbox, path, err);
    if (sandbox_file_create(giving->link, giving->sandbox, path, status->st_mode & 0777, &to, err) <
        0)
        return -1;
    while ((sent = sendfile(to, fd, NULL, SEND_AT_ONCE)) > 0)
        ;
    if (sent < 0)
        return error_set_errno(err, ERR_INTERNAL, "copy '%.200s'", path);
    return sandbox_file_commit(giving->link, giving->sandbox, err);
}

int context_give(int folder, const struct texts *paths, struct sandbox_link *link,
                 const char *sandbox, struct error *err)
{
    struct giving giving = {link, sandbox};
    struct visit visit = {.take = give, .context = &giving};

    return visit_all(folder, paths, &visit, err);
}
