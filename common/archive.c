/* Unpacking archives beneath a folder: see archive.h. */
#include "common/archive.h"

#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/archive_source.h"
#include "common/arena.h"
#include "common/scope.h"

enum { NAME_LENGTH_MAX = 255, OWNER_MAX = 65535, DEPTH_MAX = 256 };

/* What a folder gets at the end, when nothing is made in it any more. */
struct later {
    const char *path;
    mode_t mode;
    uid_t user;
    gid_t group;
    struct timespec modified;
    struct later *next;
};

struct unpack {
    int folder;
    const struct archive_rules *rules;
    struct archive_result *result;
    struct archive_source *source;
    struct archive *tar;
    struct later *later; /* the last one first: what is within before what it is in */
    struct arena arena;
    int parent; /* of the entry before; most have the same */
    char parent_path[PATH_MAX];
    char temporary[64];
};

static int refuse(const char *name, const char *reason, struct error *err)
{
    char shown[128];

    return error_set(err, ERR_INVALID, "'%s': %s", archive_source_show(name, shown), reason);
}

static int disk_error(const char *name, struct error *err)
{
    char shown[128];

    archive_source_show(name, shown);
    switch (errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return error_set(err, ERR_TOO_LARGE, "'%s': there is no room for it", shown);
    case ELOOP:
    case ENOTDIR:
    case EXDEV:
        return error_set(err, ERR_INVALID, "'%s': its place is in no folder of the archive", shown);
    case ENAMETOOLONG:
        return error_set(err, ERR_INVALID, "'%s': the name is too long", shown);
    default:
        return error_set_errno(err, ERR_INTERNAL, "'%s'", shown);
    }
}

/* --- names ----------------------------------------------------------------------------------- */

/* Without "." and doubled slashes; empty for the folder itself. */
static int normalise(const char *path, char out[PATH_MAX], struct error *err)
{
    size_t used = 0, depth = 0;

    if (!path || !*path)
        return error_set(err, ERR_INVALID, "an entry of the archive has no name");
    if (*path == '/')
        return refuse(path, "the name is absolute", err);
    for (const char *at = path; *at;) {
        size_t length = strcspn(at, "/");

        if (length > NAME_LENGTH_MAX || used + length + 2 > PATH_MAX)
            return refuse(path, "the name is too long", err);
        if (length == 2 && at[0] == '.' && at[1] == '.')
            return refuse(path, "the name has '..'", err);
        if (length && !(length == 1 && *at == '.')) {
            if (++depth > DEPTH_MAX)
                return refuse(path, "the name is too deep", err);
            if (used)
                out[used++] = '/';
            memcpy(out + used, at, length);
            used += length;
        }
        at += length;
        at += *at == '/';
    }
    out[used] = '\0';
    return 0;
}

/* Cut at the last slash. The parent is "." at the top. */
static const char *split(char *path, const char **parent)
{
    char *slash = strrchr(path, '/');

    *parent = slash ? path : ".";
    if (!slash)
        return path;
    *slash = '\0';
    return slash + 1;
}

static int open_beneath(int folder, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };

    return (int)syscall(SYS_openat2, folder, path, &how, sizeof(how));
}

/* Open a folder step by step, making what is missing. */
static int make_folders(int folder, const char *path, struct error *err)
{
    auto_close int at = open_beneath(folder, ".", O_PATH | O_DIRECTORY);
    char name[NAME_LENGTH_MAX + 1];

    for (const char *part = path; at >= 0 && *part;) {
        size_t length = strcspn(part, "/");
        int next;

        memcpy(name, part, length);
        name[length] = '\0';
        next = open_beneath(at, name, O_PATH | O_DIRECTORY);
        if (next < 0 && errno == ENOENT && mkdirat(at, name, 0755) == 0)
            next = open_beneath(at, name, O_PATH | O_DIRECTORY);
        if (next < 0)
            return disk_error(path, err);
        close(at);
        at = next;
        part += length;
        part += *part == '/';
    }
    return at < 0 ? disk_error(path, err) : take_fd(&at);
}

static int open_parent(struct unpack *unpack, const char *path, struct error *err)
{
    if (unpack->parent >= 0 && strcmp(unpack->parent_path, path) == 0)
        return 0;
    scope_close(&unpack->parent);
    unpack->parent = open_beneath(unpack->folder, path, O_PATH | O_DIRECTORY);
    if (unpack->parent < 0 && errno == ENOENT)
        unpack->parent = make_folders(unpack->folder, path, err);
    else if (unpack->parent < 0)
        return disk_error(path, err);
    if (unpack->parent < 0)
        return -1;
    snprintf(unpack->parent_path, sizeof(unpack->parent_path), "%s", path);
    return 0;
}

/* --- what an entry says ---------------------------------------------------------------------- */

static mode_t mode_of(const struct unpack *unpack, struct archive_entry *entry)
{
    return archive_entry_perm(entry) & (unpack->rules->flags & ARCHIVE_SET_ID ? 07777 : 0777);
}

static struct timespec modified_of(struct archive_entry *entry)
{
    long nanoseconds = archive_entry_mtime_nsec(entry);

    if (!archive_entry_mtime_is_set(entry))
        return (struct timespec){.tv_nsec = UTIME_NOW};
    return (struct timespec){.tv_sec = archive_entry_mtime(entry),
                             .tv_nsec =
                                 nanoseconds < 0 || nanoseconds > 999999999 ? 0 : nanoseconds};
}

static int owners_of(const struct unpack *unpack, const char *name, struct archive_entry *entry,
                     uid_t *user, gid_t *group, struct error *err)
{
    la_int64_t uid = archive_entry_uid(entry), gid = archive_entry_gid(entry);

    *user = (uid_t)-1;
    *group = (gid_t)-1;
    if (!(unpack->rules->flags & ARCHIVE_OWNERS))
        return 0;
    if (uid < 0 || uid > OWNER_MAX || gid < 0 || gid > OWNER_MAX)
        return refuse(name, "its owner is not in 0 to 65535", err);
    *user = (uid_t)uid;
    *group = (gid_t)gid;
    return 0;
}

/* --- making things, each under a temporary name in `unpack->parent` ----------------------------
 */

/* Put it in its place. A second name of the same file is not moved by a rename (rename(2)). */
static int place(const struct unpack *unpack, const char *name, struct error *err)
{
    int result = renameat(unpack->parent, unpack->temporary, unpack->parent, name);

    if (result < 0 && (errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST))
        refuse(name, "a folder is in its place", err);
    else if (result < 0)
        disk_error(name, err);
    unlinkat(unpack->parent, unpack->temporary, 0);
    return result;
}

static int write_whole(int fd, const char *bytes, size_t length, int64_t at)
{
    while (length) {
        ssize_t done = pwrite(fd, bytes, length, at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        bytes += done;
        length -= (size_t)done;
        at += done;
    }
    return 0;
}

/* Returns the size, or -1. Blocks come in order; what is between them is a hole. */
static int64_t write_content(struct unpack *unpack, int fd, const char *name, int64_t declared,
                             struct error *err)
{
    int64_t room = unpack->rules->bytes_max - unpack->result->bytes, size = 0;
    const void *bytes;
    size_t length;
    la_int64_t offset;
    int got;

    while ((got = archive_read_data_block(unpack->tar, &bytes, &length, &offset)) == ARCHIVE_OK) {
        if (offset < size || (declared >= 0 && offset > declared))
            return refuse(name, "its parts are out of order", err);
        if (offset > room || (int64_t)length > room - offset ||
            archive_source_is_bomb(unpack->source, unpack->result->bytes + offset))
            return error_set(err, ERR_TOO_LARGE, "the archive holds more than %lld bytes",
                             (long long)unpack->rules->bytes_max);
        if (write_whole(fd, bytes, length, offset) < 0)
            return disk_error(name, err);
        size = offset + (int64_t)length;
    }
    if (got != ARCHIVE_EOF)
        return archive_source_error(unpack->source, unpack->tar, err);
    if (declared > size && ftruncate(fd, declared) < 0)
        return disk_error(name, err);
    return declared > size ? declared : size;
}

static int fill_file(struct unpack *unpack, int fd, const char *name, struct archive_entry *entry,
                     struct error *err)
{
    int64_t declared = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : -1, size;
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, modified_of(entry)};
    uid_t user;
    gid_t group;

    if (declared > unpack->rules->bytes_max - unpack->result->bytes)
        return error_set(err, ERR_TOO_LARGE, "the archive holds more than %lld bytes",
                         (long long)unpack->rules->bytes_max);
    if (owners_of(unpack, name, entry, &user, &group, err) < 0)
        return -1;
    size = write_content(unpack, fd, name, declared, err);
    if (size < 0)
        return -1;
    unpack->result->bytes += size;
    /* In this order: a change of the owner takes set-id bits away (chown(2)). */
    if (fchown(fd, user, group) < 0 || fchmod(fd, mode_of(unpack, entry)) < 0 ||
        futimens(fd, times) < 0)
        return disk_error(name, err);
    return 0;
}

static int unpack_file(struct unpack *unpack, const char *name, struct archive_entry *entry,
                       struct error *err)
{
    auto_close int fd = openat(unpack->parent, unpack->temporary,
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return disk_error(name, err);
    if (fill_file(unpack, fd, name, entry, err) < 0) {
        unlinkat(unpack->parent, unpack->temporary, 0);
        return -1;
    }
    return place(unpack, name, err);
}

static int unpack_symlink(struct unpack *unpack, const char *name, struct archive_entry *entry,
                          struct error *err)
{
    const char *target = archive_entry_symlink(entry);
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, modified_of(entry)};
    uid_t user;
    gid_t group;

    if (!target)
        target = archive_entry_symlink_utf8(entry);
    if (!target || !*target || strlen(target) >= PATH_MAX)
        return refuse(name, "the link has no usable target", err);
    if (owners_of(unpack, name, entry, &user, &group, err) < 0)
        return -1;
    if (symlinkat(target, unpack->parent, unpack->temporary) < 0)
        return disk_error(name, err);
    if (fchownat(unpack->parent, unpack->temporary, user, group, AT_SYMLINK_NOFOLLOW) < 0 ||
        utimensat(unpack->parent, unpack->temporary, times, AT_SYMLINK_NOFOLLOW) < 0) {
        disk_error(name, err);
        unlinkat(unpack->parent, unpack->temporary, 0);
        return -1;
    }
    return place(unpack, name, err);
}

/* To a file that is beneath the folder, found as every other name is. */
static int unpack_hard_link(struct unpack *unpack, const char *name, const char *target,
                            struct error *err)
{
    char path[PATH_MAX];
    const char *parent, *last;
    struct stat status;

    if (normalise(target, path, err) < 0)
        return -1;
    last = split(path, &parent);
    if (!*last)
        return refuse(name, "a link to a folder", err);
    auto_close int from = open_beneath(unpack->folder, parent, O_PATH | O_DIRECTORY);
    if (from < 0 || fstatat(from, last, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return refuse(name, "a link to what the archive does not have", err);
    if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
        return refuse(name, "a link to what is no file", err);
    if (linkat(from, last, unpack->parent, unpack->temporary, 0) < 0)
        return disk_error(name, err);
    return place(unpack, name, err);
}

static int remember(struct unpack *unpack, const char *path, struct archive_entry *entry,
                    struct error *err)
{
    struct later *later = arena_alloc(&unpack->arena, sizeof(*later));

    *later = (struct later){.path = arena_copy(&unpack->arena, path, strlen(path)),
                            .mode = mode_of(unpack, entry),
                            .modified = modified_of(entry),
                            .next = unpack->later};
    if (owners_of(unpack, path, entry, &later->user, &later->group, err) < 0)
        return -1;
    unpack->later = later;
    return 0;
}

static int unpack_folder(struct unpack *unpack, const char *name, struct error *err)
{
    struct stat status;

    if (mkdirat(unpack->parent, name, 0700) == 0)
        return 0;
    if (errno != EEXIST || fstatat(unpack->parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return disk_error(name, err);
    if (!S_ISDIR(status.st_mode))
        return refuse(name, "something that is no folder is in its place", err);
    return 0;
}

static int finish_folders(struct unpack *unpack, struct error *err)
{
    for (const struct later *later = unpack->later; later; later = later->next) {
        const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, later->modified};
        auto_close int fd =
            open_beneath(unpack->folder, *later->path ? later->path : ".", O_RDONLY | O_DIRECTORY);

        if (fd < 0 || fchown(fd, later->user, later->group) < 0 || fchmod(fd, later->mode) < 0 ||
            futimens(fd, times) < 0)
            return disk_error(later->path, err);
    }
    return 0;
}

/* --- entries --------------------------------------------------------------------------------- */

static int unpack_special(struct unpack *unpack, const char *name, struct error *err)
{
    if (!(unpack->rules->flags & ARCHIVE_SKIP_SPECIAL))
        return refuse(name, "devices, FIFOs and sockets are not taken", err);
    unpack->result->skipped++;
    return 0;
}

static int unpack_entry(struct unpack *unpack, struct archive_entry *entry, struct error *err)
{
    const char *given = archive_entry_pathname(entry), *parent, *name, *target;
    char path[PATH_MAX], whole[PATH_MAX];

    if (!given)
        given = archive_entry_pathname_utf8(entry);
    if (normalise(given, path, err) < 0)
        return -1;
    if (++unpack->result->entries > unpack->rules->entries_max)
        return error_set(err, ERR_TOO_LARGE, "the archive has more than %lld entries",
                         (long long)unpack->rules->entries_max);
    if (archive_entry_is_encrypted(entry))
        return refuse(given, "it is encrypted", err);
    if (!*path && archive_entry_filetype(entry) == AE_IFDIR)
        return remember(unpack, path, entry, err);
    if (!*path)
        return refuse(given, "something that is no folder is called as the folder", err);
    memcpy(whole, path, sizeof(whole));
    name = split(path, &parent);
    if (open_parent(unpack, parent, err) < 0)
        return -1;
    target = archive_entry_hardlink(entry);
    if (!target)
        target = archive_entry_hardlink_utf8(entry);
    if (target)
        return unpack_hard_link(unpack, name, target, err);
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return unpack_file(unpack, name, entry, err);
    case AE_IFLNK:
        return unpack_symlink(unpack, name, entry, err);
    case AE_IFDIR:
        return unpack_folder(unpack, name, err) < 0 ? -1 : remember(unpack, whole, entry, err);
    default:
        return unpack_special(unpack, given, err);
    }
}

static int unpack_entries(struct unpack *unpack, struct error *err)
{
    struct archive_entry *entry;
    int got;

    /* A warning is a name in another alphabet, or an attribute that is not taken anyway. */
    while ((got = archive_read_next_header(unpack->tar, &entry)) == ARCHIVE_OK ||
           got == ARCHIVE_WARN)
        if (unpack_entry(unpack, entry, err) < 0)
            return -1;
    if (got != ARCHIVE_EOF)
        return archive_source_error(unpack->source, unpack->tar, err);
    return archive_source_finish(unpack->source, unpack->result, err) < 0
               ? -1
               : finish_folders(unpack, err);
}

int archive_unpack(int fd, int folder, const struct archive_rules *rules,
                   struct archive_result *result, struct error *err)
{
    auto_free struct archive_source *source = malloc(sizeof(*source));
    struct unpack unpack = {
        .folder = folder, .rules = rules, .result = result, .source = source, .parent = -1};
    /* Names that are UTF-8 by the archive's own word stay as they are only where the locale is. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0), before = (locale_t)0;
    int status;

    if (!source)
        abort();
    *result = (struct archive_result){0};
    if (utf8)
        before = uselocale(utf8);
    token_make(".unpack-", 16, unpack.temporary, sizeof(unpack.temporary));
    status = archive_source_open(source, fd, rules, err);
    unpack.tar = source->tar;
    if (status == 0)
        status = unpack_entries(&unpack, err);
    archive_source_close(source);
    scope_close(&unpack.parent);
    arena_done(&unpack.arena);
    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    return status;
}
