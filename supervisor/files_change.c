/* What a file is, and what it is called and allowed: see files.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/scope.h"
#include "supervisor/files.h"

/* The thing itself: what it is may be looked at, and no FIFO waits for it. */
static int open_itself(int workspace, const char *path, struct stat *status, struct error *err)
{
    char normal[PATH_MAX];

    if (files_normalise(path, normal, err) < 0)
        return -1;
    auto_close int fd = files_open_beneath(workspace, normal, O_PATH | O_NOFOLLOW, 0);
    if (fd < 0 || fstat(fd, status) < 0)
        return files_error(err, path);
    return take_fd(&fd);
}

int files_stat(int workspace, const char *path, struct stat *status, struct error *err)
{
    auto_close int fd = open_itself(workspace, path, status, err);

    return fd < 0 ? -1 : 0;
}

int files_set_mode(int workspace, const char *path, mode_t mode, struct error *err)
{
    struct stat status = {0};
    auto_close int fd = open_itself(workspace, path, &status, err);
    char own[64];

    if (fd < 0)
        return -1;
    if (S_ISLNK(status.st_mode))
        return error_set(err, ERR_BAD_REQUEST, "'%.200s': a link has no permissions of its own",
                         path);
    /* Safe: it leads to what was opened, whatever has its name by now. chmod(2) has no other way
     * from a mere place before fchmodat2(2). */
    snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
    return chmod(own, mode) < 0 ? files_error(err, path) : 0;
}

static int move_error(struct error *err, const char *path, const char *to)
{
    switch (errno) {
    case ENOTEMPTY:
    case EEXIST:
        return error_set(err, ERR_CONFLICT, "'%.200s' is a directory with content", to);
    case EISDIR:
        return error_set(err, ERR_CONFLICT, "'%.200s' is a directory", to);
    case ENOTDIR:
        return error_set(err, ERR_CONFLICT, "'%.200s' is there, and no directory", to);
    case EINVAL:
        return error_set(err, ERR_BAD_REQUEST, "'%.200s' can't be moved into itself", path);
    default:
        return files_error(err, path);
    }
}

int files_move(int workspace, const char *path, const char *to, struct error *err)
{
    char from_path[PATH_MAX], to_path[PATH_MAX];
    const char *from_parent, *from_name, *to_parent, *to_name;
    struct stat status;

    if (files_normalise(path, from_path, err) < 0 || files_normalise(to, to_path, err) < 0)
        return -1;
    if (files_is_workspace(from_path) || files_is_workspace(to_path))
        return error_set(err, ERR_BAD_REQUEST, "the workspace itself can't be moved or replaced");
    files_split(from_path, &from_parent, &from_name);
    files_split(to_path, &to_parent, &to_name);
    auto_close int from = files_open_beneath(workspace, from_parent, FILES_FOLDER, 0);
    /* Before anything is made for its sake. */
    if (from < 0 || fstatat(from, from_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return files_error(err, path);
    auto_close int folder = files_open_made(workspace, to_parent, err);
    if (folder < 0)
        return -1;
    /* Both folders were beneath the workspace when they were opened, and nothing leads a folder out
     * of it: a tenant's rename(2) ends at the mount. */
    return renameat(from, from_name, folder, to_name) < 0 ? move_error(err, path, to) : 0;
}
