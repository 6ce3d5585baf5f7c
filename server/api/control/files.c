/* Files of a session's workspace: list, read, write, delete. Paths are resolved beneath the
 * workspace by the supervisor. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "api/control/sessions.h"
#include "api/handlers.h"
#include "common/file_name.h"
#include "common/json.h"
#include "run/events.h"
#include "run/sandbox.h"

enum { UPLOAD_MODE = 0644, LIST_BYTES_MAX = 256 * 1024 /* of one that is kept in memory */ };
static const int64_t file_bytes_max = INT64_C(512) << 20;

/* --- schemas ---------------------------------------------------------------------------------- */

struct workspace_entry {
    const char *path;
    const char *kind;
    int64_t size;
    const char *permissions;
    const char *owner;
    const char *group;
};

static const struct field workspace_entry_fields[] = {
    {TEXT(workspace_entry, path),
     .about = "relative to the workspace; a byte that is no UTF-8 stands as U+FFFD and its two "
              "hexadecimal digits, and is meant so wherever a path is given"},
    {TEXT(workspace_entry, kind), .about = "file, directory, symlink or other"},
    {NUMBER(workspace_entry, size)},
    {TEXT(workspace_entry, permissions), .about = "as rw-r--r--"},
    {TEXT(workspace_entry, owner)},
    {TEXT(workspace_entry, group)},
};
SCHEMA(workspace_entry);

struct file_written {
    const char *path;
    int64_t size;
};

static const struct field file_written_fields[] = {
    {TEXT(file_written, path)},
    {NUMBER(file_written, size)},
};
SCHEMA(file_written);

struct files_path {
    const char *path;
};

static const struct field files_path_fields[] = {
    {TEXT(files_path, path), .fallback = "\".\"", .about = "relative to the workspace"},
};
SCHEMA(files_path);

struct files_path_required {
    const char *path;
};

static const struct field files_path_required_fields[] = {
    {TEXT(files_path_required, path), .about = "relative to the workspace"},
};
SCHEMA(files_path_required);

struct files_target {
    const char *path;
};

static const struct field files_target_fields[] = {
    {TEXT(files_target, path), .optional = true,
     .about = "uploads/ and the file's name when absent"},
};
SCHEMA(files_target);

struct files_removal {
    const char *path;
    bool recursive;
};

static const struct field files_removal_fields[] = {
    {TEXT(files_removal, path), .about = "relative to the workspace"},
    {FLAG(files_removal, recursive), .fallback = "false",
     .about = "a directory with what is in it"},
};
SCHEMA(files_removal);

struct file_change {
    const char *path;
    const char *permissions;
};

static const struct field file_change_fields[] = {
    {TEXT(file_change, path), .optional = true, .nullable = true, .about = "where it goes"},
    {TEXT(file_change, permissions), .optional = true, .nullable = true,
     .pattern = "([r-][w-][x-]){3}|0?[0-7]{3}", .about = "as rw-r--r-- or 644"},
};
SCHEMA(file_change);

/* --- paths ------------------------------------------------------------------------------------ */

/* The path without "." and doubled or trailing slashes, "." for the workspace itself, so that an
 * entry has one name. That it stays inside is not decided here: nobody but the kernel can, while
 * the sandbox moves its directories about. */
static int tidy_path(struct arena *arena, const char *path, const char **tidy, struct error *err)
{
    auto_buffer struct buffer out = {0};

    if (!*path)
        return error_set(err, ERR_BAD_REQUEST, "the path is empty");
    if (*path == '/')
        return error_set(err, ERR_BAD_REQUEST, "the path is not relative to the workspace");
    while (*path) {
        size_t length = strcspn(path, "/");

        if (length > NAME_MAX)
            return error_set(err, ERR_BAD_REQUEST, "a component of the path has more than %d bytes",
                             NAME_MAX);
        if (length == 2 && memcmp(path, "..", 2) == 0)
            return error_set(err, ERR_BAD_REQUEST, "the path contains '..'");
        if (length && !(length == 1 && *path == '.')) {
            if (out.length)
                buffer_char(&out, '/');
            buffer_add(&out, path, length);
        }
        path += length + (path[length] == '/');
    }
    if (out.length >= PATH_MAX)
        return error_set(err, ERR_BAD_REQUEST, "the path has more than %d bytes", PATH_MAX - 1);
    *tidy = out.length ? arena_copy(arena, out.data, out.length) : ".";
    return 0;
}

/* The session, and the path of the request tidied; then the connection is given back, since the
 * supervisor is waited for. */
static int find_file(struct request *req, const char *path, bool or_stopped,
                     struct session_found *session, const char **tidy, struct error *err)
{
    if (session_find(req, session, err) < 0 || tidy_path(req->arena, path, tidy, err) < 0 ||
        session_need_workspace(session->status, or_stopped, err) < 0)
        return -1;
    return request_commit(req, err);
}

/* --- list and read ---------------------------------------------------------------------------- */

static const char *kind_of(int64_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    default:
        return "other";
    }
}

/* As ls(1) shows them, without the type. */
static const char *permissions_of(struct arena *arena, int64_t mode)
{
    char *text = arena_text(arena, "rwxrwxrwx");
    static const struct {
        int64_t bit;
        char set, alone;
    } special[] = {{S_ISUID, 's', 'S'}, {S_ISGID, 's', 'S'}, {S_ISVTX, 't', 'T'}};

    for (size_t i = 0; i < 9; i++)
        if (!(mode & (0400 >> i)))
            text[i] = '-';
    for (size_t i = 0; i < COUNT(special); i++)
        if (mode & special[i].bit)
            text[3 * i + 2] = text[3 * i + 2] == 'x' ? special[i].set : special[i].alone;
    return text;
}

/* The one name that every image has; others are numbers, since the sandbox may say what it likes in
 * its /etc/passwd. */
static const char *owner_of(struct arena *arena, int64_t id)
{
    return id ? arena_text(arena, "%ld", (long)id) : "root";
}

static const char *name_text(struct arena *arena, const char *name)
{
    auto_buffer struct buffer text = {0};

    file_name_show(&text, name);
    return arena_copy(arena, text.data ? text.data : "", text.length);
}

static struct workspace_entry show(struct arena *arena, const char *path,
                                   const struct file_entry *entry)
{
    return (struct workspace_entry){
        .path = name_text(arena, path),
        .kind = kind_of(entry->mode),
        .size = entry->size,
        .permissions = permissions_of(arena, entry->mode),
        .owner = owner_of(arena, entry->uid),
        .group = owner_of(arena, entry->gid),
    };
}

static void add_entry(struct arena *arena, const char *path, const struct file_entry *entry,
                      struct buffer *out)
{
    bool itself = strcmp(entry->name, ".") == 0, top = strcmp(path, ".") == 0;
    struct workspace_entry shown = show(arena,
                                        itself ? path
                                        : top  ? entry->name
                                               : arena_text(arena, "%s/%s", path, entry->name),
                                        entry);

    json_encode(out, &schema_workspace_entry, &shown);
}

/* A list as it is written: what does not fit goes to a file, so that no list takes more memory. */
struct shown_list {
    const char *path;
    struct arena arena; /* of one entry */
    struct buffer out;
    int spool; /* -1: not needed yet */
    int64_t spooled;
};

static void shown_list_done(struct shown_list *list)
{
    arena_done(&list->arena);
    buffer_done(&list->out);
    scope_close(&list->spool);
}
#define auto_shown_list __attribute__((cleanup(shown_list_done)))

static int spool_out(struct shown_list *list, struct error *err)
{
    if (list->spool < 0 && (list->spool = request_spool(err)) < 0)
        return -1;
    for (size_t at = 0; at < list->out.length;) {
        ssize_t done = write(list->spool, list->out.data + at, list->out.length - at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return error_set_errno(err, ERR_UNAVAILABLE, "the list can't be kept");
        at += (size_t)done;
    }
    list->spooled += (int64_t)list->out.length;
    list->out.length = 0;
    return 0;
}

static int show_entry(const struct file_entry *entry, void *data, struct error *err)
{
    struct shown_list *list = data;

    buffer_char(&list->out, list->out.length || list->spooled ? ',' : '[');
    arena_reset(&list->arena);
    add_entry(&list->arena, list->path, entry, &list->out);
    return list->out.length > LIST_BYTES_MAX ? spool_out(list, err) : 0;
}

int files_list(struct request *req, struct response *res, struct error *err)
{
    const struct files_path *query = req->query;
    auto_shown_list struct shown_list list = {.spool = -1};
    struct session_found session;

    if (find_file(req, file_name_read(req->arena, query->path), true, &session, &list.path, err) <
            0 ||
        sandbox_file_each(req->supervisor, session.id, list.path, show_entry, &list, err) < 0)
        return -1;
    buffer_text(&list.out, list.out.length || list.spooled ? "]" : "[]");
    if (list.spool < 0)
        return respond_json(res, 200, list.out.data);
    if (spool_out(&list, err) < 0)
        return -1;
    if (lseek(list.spool, 0, SEEK_SET) < 0)
        return error_set_errno(err, ERR_INTERNAL, "the list");
    return respond_file(res, "application/json", take_fd(&list.spool), list.spooled);
}

int files_read(struct request *req, struct response *res, struct error *err)
{
    const struct files_path_required *query = req->query;
    struct session_found session;
    struct file_info info;
    auto_close int fd = -1;
    const char *path;

    if (find_file(req, file_name_read(req->arena, query->path), true, &session, &path, err) < 0 ||
        sandbox_file_open(req->supervisor, session.id, path, &info, &fd, err) < 0)
        return -1;
    if (info.size > file_bytes_max)
        return error_set(err, ERR_TOO_LARGE,
                         "the file has %ld bytes; files over 512 MiB are not served",
                         (long)info.size);
    return respond_file(res, "application/octet-stream", take_fd(&fd), info.size);
}

/* --- write and delete ------------------------------------------------------------------------- */

/* Where an upload goes. Only the last component of the file's name counts: DECISION 75. */
static int choose_target(struct request *req, const char **path, struct error *err)
{
    const struct files_target *query = req->query;
    const char *name = req->upload.file_name ? req->upload.file_name : "",
               *slash = strrchr(name, '/');
    size_t length;

    if (query->path) {
        length = strlen(query->path);
        if (length && query->path[length - 1] == '/')
            return error_set(err, ERR_BAD_REQUEST, "the path is that of a directory");
        *path = file_name_read(req->arena, query->path);
        return 0;
    }
    if (slash)
        name = slash + 1;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return error_set(err, ERR_BAD_REQUEST, "the file has no name, and no path was given");
    *path = arena_text(req->arena, "uploads/%s", name);
    return 0;
}

/* In the kernel where the two file systems can, else through the page cache. */
static int copy_bytes(int from, int to, int64_t size, struct error *err)
{
    bool reflink = true;

    while (size > 0) {
        size_t piece = size < 1 << 30 ? (size_t)size : (size_t)1 << 30;
        ssize_t done = reflink ? copy_file_range(from, NULL, to, NULL, piece, 0)
                               : sendfile(to, from, NULL, piece);

        if (done < 0 && errno == EINTR)
            continue;
        if (reflink &&
            (done == 0 || (done < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS ||
                                        errno == EOPNOTSUPP || errno == EPERM)))) {
            reflink = false;
            continue;
        }
        if (done < 0)
            return error_set_errno(
                err, errno == ENOSPC || errno == EDQUOT ? ERR_UNAVAILABLE : ERR_INTERNAL,
                "the upload could not be written");
        if (done == 0)
            return error_set(err, ERR_INTERNAL, "the upload's spool file is shorter than it was");
        size -= done;
    }
    return 0;
}

static int put_file(struct request *req, const char *session_id, const char *path,
                    struct error *err)
{
    auto_close int fd = -1;

    if (sandbox_file_create(req->supervisor, session_id, path, UPLOAD_MODE, &fd, err) < 0 ||
        copy_bytes(req->upload.fd, fd, req->upload.size, err) < 0)
        return -1;
    return sandbox_file_commit(req->supervisor, session_id, err);
}

int files_write(struct request *req, struct response *res, struct error *err)
{
    auto_buffer struct buffer payload = {0};
    struct session_found session;
    struct file_written written;
    const char *target, *path;

    if (session_find(req, &session, err) < 0 || choose_target(req, &target, err) < 0 ||
        find_file(req, target, false, &session, &path, err) < 0)
        return -1;
    if (strcmp(path, ".") == 0)
        return error_set(err, ERR_BAD_REQUEST, "the path is that of a directory");
    written = (struct file_written){name_text(req->arena, path), req->upload.size};
    if (put_file(req, session.id, path, err) < 0 || request_begin(req, err) < 0)
        return -1;
    json_format(&payload, "{\"path\":%s,\"size\":%d}", written.path, written.size);
    if (events_append(req->db, session.id, NULL, "user.file", payload.data, NULL, err) < 0 ||
        session_use(req, session.id, err) < 0)
        return -1;
    return respond(res, 201, &schema_file_written, &written);
}

int files_delete(struct request *req, struct response *res, struct error *err)
{
    const struct files_removal *query = req->query;
    struct session_found session;
    const char *path;

    if (find_file(req, file_name_read(req->arena, query->path), false, &session, &path, err) < 0)
        return -1;
    if (strcmp(path, ".") == 0)
        return error_set(err, ERR_BAD_REQUEST, "the workspace itself is not deleted");
    if (sandbox_file_remove(req->supervisor, session.id, path, query->recursive, err) < 0 ||
        request_begin(req, err) < 0 || session_use(req, session.id, err) < 0)
        return -1;
    return respond_nothing(res);
}

/* --- move and permissions --------------------------------------------------------------------- */

static int64_t mode_of(const char *permissions)
{
    int64_t mode = 0;

    if (strlen(permissions) < 9)
        return strtol(permissions, NULL, 8);
    for (size_t i = 0; i < 9; i++)
        if (permissions[i] != '-')
            mode |= 0400 >> i;
    return mode;
}

static int change(struct request *req, const char *session_id, const char *path, const char *to,
                  const char *permissions, struct error *err)
{
    struct file_entry before;

    /* What can be told of the second step is told before the first. */
    if (to && permissions) {
        if (sandbox_file_stat(req->supervisor, session_id, path, req->arena, &before, err) < 0)
            return -1;
        if (S_ISLNK(before.mode))
            return error_set(err, ERR_BAD_REQUEST, "a link has no permissions of its own");
    }
    if (to && sandbox_file_move(req->supervisor, session_id, path, to, err) < 0)
        return -1;
    return permissions ? sandbox_file_mode(req->supervisor, session_id, to ? to : path,
                                           mode_of(permissions), err)
                       : 0;
}

int files_change(struct request *req, struct response *res, struct error *err)
{
    const struct files_path_required *query = req->query;
    const struct file_change *body = req->body;
    struct workspace_entry shown;
    struct session_found session;
    struct file_entry entry;
    const char *path, *to = NULL;

    if (find_file(req, file_name_read(req->arena, query->path), false, &session, &path, err) < 0 ||
        (body->path && tidy_path(req->arena, file_name_read(req->arena, body->path), &to, err) < 0))
        return -1;
    if (change(req, session.id, path, to, body->permissions, err) < 0)
        return -1;
    if (sandbox_file_stat(req->supervisor, session.id, to ? to : path, req->arena, &entry, err) <
            0 ||
        request_begin(req, err) < 0 || session_use(req, session.id, err) < 0)
        return -1;
    shown = show(req->arena, to ? to : path, &entry);
    return respond(res, 200, &schema_workspace_entry, &shown);
}
