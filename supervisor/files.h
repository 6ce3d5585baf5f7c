/* Files beneath a workspace, while its tenant moves things about. Every path is resolved by
 * openat2(2), which never leaves the folder whatever happens meanwhile; what is opened is looked at
 * before it is used.
 *
 * Paths are relative; "." is the workspace. */
#ifndef SUPERVISOR_FILES_H
#define SUPERVISOR_FILES_H

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/error.h"
#include "supervisor/supervisor.h"

/* A file that has no name yet. Zero-initialise with parent and file -1. */
struct upload {
    char sandbox[SANDBOX_ID_LENGTH + 1];
    char name[256];
    int parent; /* the folder that it will be in */
    int file;
};

/* A descriptor to read a regular file, owned by the caller; links are followed within the
 * workspace. */
int files_open(int workspace, const char *path, struct stat *status, struct error *err);
/* Make the parents, and a nameless file in the last. Returns a descriptor to write to, owned by the
 * caller. */
int files_create(int workspace, const char *path, mode_t mode, struct upload *upload,
                 struct error *err);
/* Give the file its name, in place of what had it. */
int upload_commit(struct upload *upload, struct error *err);
void upload_forget(struct upload *upload);
int files_make_directory(int workspace, const char *path, struct error *err);
/* What the path is itself, with nothing opened. */
int files_stat(int workspace, const char *path, struct stat *status, struct error *err);
int files_move(int workspace, const char *path, const char *to, struct error *err);
int files_set_mode(int workspace, const char *path, mode_t mode, struct error *err);
/* `trash` is a folder of the same file system that the tenant does not see: what is removed
 * disappears at once, then is deleted there. */
int files_remove(int workspace, int trash, const char *path, bool recursive, struct error *err);
/* Call with each entry of the directory, in the order of the names' bytes, or with the one that
 * `path` is otherwise (files_list.c). */
int files_each(int workspace, const char *path,
               int (*call)(const char *name, const struct stat *status, void *data,
                           struct error *err),
               void *data, struct error *err);

/* Delete a tree in a folder that no tenant sees: any depth, any names, any permissions, two
 * descriptors. Missing is fine. */
int files_delete_tree(int folder, const char *name, struct error *err);
/* The same for a tree of at most *budget entries, which is not deep: true when it is gone. Else a
 * part of it may be; what it took is subtracted from *budget. */
bool files_delete_little(int folder, const char *name, int *budget);
/* Delete all that is in the folder. */
int files_empty(int folder, struct error *err);

/* For those files alone that walk workspaces: a path without "." and doubled slashes, "." for the
 * workspace itself; as openat(2), within `folder`; what `errno` means to who named the path. */
enum { FILES_FOLDER = O_RDONLY | O_DIRECTORY | O_NONBLOCK };
bool files_is_workspace(const char *normal);
/* Into the parent ("." at the top) and the last name. */
void files_split(char *normal, const char **parent, const char **name);
/* The folder `path`, made with its parents where missing; again where one was removed behind us. */
int files_open_made(int workspace, const char *path, struct error *err);
int files_normalise(const char *path, char out[PATH_MAX], struct error *err);
int files_open_beneath(int folder, const char *path, uint64_t flags, mode_t mode);
int files_error(struct error *err, const char *path);

#endif
