/* Files beneath a workspace, while its tenant moves things about: see files.h. */
#include "supervisor/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/scope.h"

enum { RACES_MAX = 64, NAME_LENGTH_MAX = 255, LITTLE_DEPTH = 8 };

/* --- paths ----------------------------------------------------------------------------------- */

/* Without "." and doubled slashes; "." for the workspace itself. */
int files_normalise(const char *path, char out[PATH_MAX], struct error *err)
{
    size_t used = 0;

    if (!*path || *path == '/')
        return error_set(err, ERR_BAD_REQUEST, "paths are relative to the workspace and not empty");
    while (*path) {
        size_t length = strcspn(path, "/");

        if (length > NAME_LENGTH_MAX || used + length + 2 > PATH_MAX)
            return error_set(err, ERR_BAD_REQUEST, "a name in the path is too long");
        if (length == 2 && path[0] == '.' && path[1] == '.')
            return error_set(err, ERR_BAD_REQUEST, "paths must not contain '..'");
        if (length && !(length == 1 && *path == '.')) {
            if (used)
                out[used++] = '/';
            memcpy(out + used, path, length);
            used += length;
        }
        path += length;
        path += *path == '/';
    }
    if (!used)
        out[used++] = '.';
    out[used] = '\0';
    return 0;
}

bool files_is_workspace(const char *path)
{
    return strcmp(path, ".") == 0;
}

/* In place. */
void files_split(char *path, const char **parent, const char **name)
{
    char *slash = strrchr(path, '/');

    if (slash)
        *slash = '\0';
    *parent = slash ? path : ".";
    *name = slash ? slash + 1 : path;
}

int files_error(struct error *err, const char *path)
{
    switch (errno) {
    case ENOENT:
        return error_set(err, ERR_NOT_FOUND, "there is no '%.200s'", path);
    case ENOTDIR:
        return error_set(err, ERR_NOT_FOUND, "'%.200s': a part of the path is not a directory",
                         path);
    case EXDEV:
    case ELOOP:
        return error_set(err, ERR_BAD_REQUEST,
                         "'%.200s': a link leads out of the workspace or nowhere", path);
    case ENAMETOOLONG:
        return error_set(err, ERR_BAD_REQUEST, "the path is too long");
    case ENXIO:
    case ENODEV:
        return error_set(err, ERR_BAD_REQUEST, "'%.200s' is not a regular file", path);
    case EISDIR:
        return error_set(err, ERR_BAD_REQUEST, "'%.200s' is a directory", path);
    case EAGAIN:
        return error_set(err, ERR_CONFLICT, "'%.200s' is being changed or locked", path);
    case ENOSPC:
    case EDQUOT:
        return error_set(err, ERR_TOO_LARGE, "the workspace is full");
    default:
        return error_set_errno(err, ERR_INTERNAL, "'%.200s'", path);
    }
}

/* As openat(2), within `folder`. The kernel answers EAGAIN when a rename crossed its way up a "..":
 * then again. */
int files_open_beneath(int folder, const char *path, uint64_t flags, mode_t mode)
{
    struct open_how how = {
        .flags = flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY),
        .mode = mode,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    int fd = -1;

    for (int race = 0; race < RACES_MAX; race++) {
        fd = (int)syscall(SYS_openat2, folder, path, &how, sizeof(how));
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    return fd;
}

static int make_and_open(int workspace, const char *path, struct error *err)
{
    auto_close int at = files_open_beneath(workspace, path, FILES_FOLDER, 0);
    char part[PATH_MAX];

    if (at >= 0)
        return take_fd(&at);
    if (errno != ENOENT)
        return errno == ENOTDIR
                   ? error_set(err, ERR_BAD_REQUEST, "a part of the path is not a directory")
                   : files_error(err, path);
    at = files_open_beneath(workspace, ".", FILES_FOLDER, 0);
    if (at < 0)
        return files_error(err, path);
    snprintf(part, sizeof(part), "%s", path);
    for (char *name = part, *end; name; name = end) {
        int next;

        end = strchr(name, '/');
        if (end)
            *end = '\0';
        if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
            return files_error(err, path);
        next = files_open_beneath(at, name, FILES_FOLDER, 0);
        /* A link that leads up, beyond its folder: from the top, where it may still be within. */
        if (next < 0 && errno == EXDEV)
            next = files_open_beneath(workspace, part, FILES_FOLDER, 0);
        if (next < 0)
            return errno == ENOTDIR
                       ? error_set(err, ERR_BAD_REQUEST, "a part of the path is not a directory")
                       : files_error(err, path);
        close(at);
        at = next;
        if (end)
            *end++ = '/';
    }
    return take_fd(&at);
}

/* The folder `path`, made with its parents where missing; again where one was removed behind us. */
int files_open_made(int workspace, const char *path, struct error *err)
{
    int fd = -1;

    for (int race = 0; race < RACES_MAX; race++) {
        fd = make_and_open(workspace, path, err);
        if (fd >= 0 || err->kind != ERR_NOT_FOUND)
            break;
    }
    return fd;
}

/* --- reading --------------------------------------------------------------------------------- */

int files_open(int workspace, const char *path, struct stat *status, struct error *err)
{
    char normal[PATH_MAX];

    if (files_normalise(path, normal, err) < 0)
        return -1;
    /* Without waiting: not for a writer of a FIFO, not for the holder of a lease. */
    auto_close int fd = files_open_beneath(workspace, normal, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0 || fstat(fd, status) < 0)
        return files_error(err, path);
    if (S_ISDIR(status->st_mode)) {
        errno = EISDIR;
        return files_error(err, path);
    }
    if (!S_ISREG(status->st_mode)) {
        errno = ENXIO;
        return files_error(err, path);
    }
    return take_fd(&fd);
}

/* --- writing --------------------------------------------------------------------------------- */

void upload_forget(struct upload *upload)
{
    scope_close(&upload->parent);
    scope_close(&upload->file);
    upload->parent = upload->file = -1;
}

/* A folder's set-group-id bit and a mask must not have their say. */
static int set_owner(int fd, mode_t mode)
{
    return fchown(fd, 0, 0) < 0 || fchmod(fd, mode) < 0 ? -1 : 0;
}

/* A file without a name yet in the folder `parent`, which is opened, too. */
static int open_unnamed(int workspace, const char *parent, mode_t mode, int *folder,
                        struct error *err)
{
    for (int race = 0; race < RACES_MAX; race++) {
        auto_close int at = files_open_made(workspace, parent, err);
        struct stat status;
        int fd, reason;

        if (at < 0)
            return -1;
        fd = openat(at, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
        reason = errno;
        if (fd >= 0) {
            *folder = take_fd(&at);
            return fd;
        }
        if (fstat(at, &status) == 0 && status.st_nlink > 0) {
            errno = reason;
            return files_error(err, parent);
        }
        /* It was removed, which ext4 calls EPERM: then again. */
    }
    return error_set(err, ERR_CONFLICT, "the folder '%.200s' was removed meanwhile", parent);
}

int files_create(int workspace, const char *path, mode_t mode, struct upload *upload,
                 struct error *err)
{
    char normal[PATH_MAX];
    const char *parent, *name;
    struct stat status;

    upload_forget(upload);
    if (files_normalise(path, normal, err) < 0)
        return -1;
    if (files_is_workspace(normal)) {
        errno = EISDIR;
        return files_error(err, path);
    }
    files_split(normal, &parent, &name);
    auto_close int folder = -1;
    auto_close int file = open_unnamed(workspace, parent, mode, &folder, err);
    if (file < 0)
        return -1;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return files_error(err, path);
    }
    if (set_owner(file, mode) < 0)
        return files_error(err, path);
    /* Another description: the peer's position and flags are its own. */
    char own[64];
    snprintf(own, sizeof(own), "/proc/self/fd/%d", file);
    int out = open(own, O_WRONLY | O_CLOEXEC);
    if (out < 0)
        return files_error(err, path);
    memcpy(upload->name, name, strlen(name) + 1); /* no longer than NAME_LENGTH_MAX */
    upload->parent = take_fd(&folder);
    upload->file = take_fd(&file);
    return out;
}

static void unusual_name(char out[64])
{
    unsigned long long random[2];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        random[0] = (unsigned long long)clock();
    snprintf(out, 64, ".upload-%016llx%016llx", random[0], random[1]);
}

int upload_commit(struct upload *upload, struct error *err)
{
    char own[64], temporary[64];
    int result = 0;

    if (upload->file < 0)
        return error_set(err, ERR_CONFLICT, "no file was created on this connection");
    snprintf(own, sizeof(own), "/proc/self/fd/%d", upload->file);
    if (linkat(AT_FDCWD, own, upload->parent, upload->name, AT_SYMLINK_FOLLOW) == 0) {
        upload_forget(upload);
        return 0;
    }
    if (errno == EEXIST) {
        unusual_name(temporary);
        result = linkat(AT_FDCWD, own, upload->parent, temporary, AT_SYMLINK_FOLLOW);
        if (result == 0 && renameat(upload->parent, temporary, upload->parent, upload->name) < 0) {
            int reason = errno;

            unlinkat(upload->parent, temporary, 0);
            errno = reason;
            result = -1;
        }
    } else {
        result = -1;
    }
    if (result < 0 && errno == ENOENT)
        error_set(err, ERR_CONFLICT, "the folder of '%.200s' was removed meanwhile", upload->name);
    else if (result < 0)
        files_error(err, upload->name);
    upload_forget(upload);
    return result;
}

int files_make_directory(int workspace, const char *path, struct error *err)
{
    char normal[PATH_MAX];

    if (files_normalise(path, normal, err) < 0)
        return -1;
    auto_close int fd = files_open_made(workspace, normal, err);
    return fd < 0 ? -1 : 0;
}

/* --- removing -------------------------------------------------------------------------------- */

static unsigned long long serial; /* of names in trash */

/* Move what is below `folder`/`name` up beside it, folders whole; then `name` is empty. True when
 * nothing hinders. */
static bool flatten(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool clear = directory != NULL;

    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (unlinkat(fd, entry->d_name, AT_REMOVEDIR) == 0)
            continue;
        for (int tries = 0; tries < RACES_MAX; tries++) {
            char elsewhere[64];

            snprintf(elsewhere, sizeof(elsewhere), "%llu-%x", ++serial, (unsigned)getpid());
            if (renameat(fd, entry->d_name, folder, elsewhere) == 0 ||
                (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR))
                break;
        }
    }
    if (directory)
        closedir(directory);
    return clear;
}

/* Delete all that is in `folder`, by levels: each pass lifts what lies deeper. */
int files_empty(int folder, struct error *err)
{
    for (int idle = 0; idle < RACES_MAX;) {
        int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *directory = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *entry;
        bool found = false, moved = false;

        if (!directory)
            return error_set_errno(err, ERR_INTERNAL, "delete");
        while ((entry = readdir(directory))) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            found = true;
            if (unlinkat(folder, entry->d_name, 0) < 0 && flatten(folder, entry->d_name) &&
                unlinkat(folder, entry->d_name, AT_REMOVEDIR) < 0)
                continue;
            moved = true;
        }
        closedir(directory);
        if (!found)
            return 0;
        idle = moved ? 0 : idle + 1;
    }
    errno = ENOTEMPTY;
    return error_set_errno(err, ERR_INTERNAL, "delete");
}

int files_delete_tree(int folder, const char *name, struct error *err)
{
    auto_close int fd = -1;

    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        return 0;
    fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : error_set_errno(err, ERR_INTERNAL, "delete %s", name);
    if (files_empty(fd, err) < 0)
        return -1;
    if (unlinkat(folder, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return error_set_errno(err, ERR_INTERNAL, "delete %s", name);
    return 0;
}

static bool delete_little(int folder, const char *name, int *budget, int depth)
{
    struct dirent *entry;
    bool gone = true;
    int fd;

    if (--*budget < 0 || depth == 0)
        return false;
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        return true;
    if (unlinkat(folder, name, AT_REMOVEDIR) == 0)
        return true;
    fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        scope_close(&fd);
        return false;
    }
    while (gone && (entry = readdir(directory)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            gone = delete_little(fd, entry->d_name, budget, depth - 1);
    closedir(directory);
    return gone && unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

bool files_delete_little(int folder, const char *name, int *budget)
{
    return delete_little(folder, name, budget, LITTLE_DEPTH);
}

int files_remove(int workspace, int trash, const char *path, bool recursive, struct error *err)
{
    char normal[PATH_MAX], removed[64];
    const char *parent, *name;
    struct stat status;

    if (files_normalise(path, normal, err) < 0)
        return -1;
    if (files_is_workspace(normal))
        return error_set(err, ERR_BAD_REQUEST, "the workspace itself can't be removed");
    files_split(normal, &parent, &name);
    auto_close int folder = files_open_beneath(workspace, parent, FILES_FOLDER, 0);
    if (folder < 0)
        return files_error(err, path);
    if (unlinkat(folder, name, 0) == 0)
        return 0;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return files_error(err, path);
    if (unlinkat(folder, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno == ENOTEMPTY || errno == EEXIST) {
        if (!recursive)
            return error_set(err, ERR_CONFLICT, "'%.200s' is a directory with content", path);
        unusual_name(removed);
        if (renameat(folder, name, trash, removed) == 0)
            return files_delete_tree(trash, removed, err);
    }
    return files_error(err, path);
}
