/* Trees into packs: see pack.h. The tree is a tenant's: nothing of it is followed, each folder is
 * reached from the one above it, and what is opened is looked at before it is read. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/scope.h"
#include "supervisor/pack.h"

enum { FIRST_BUCKETS = 1024, LIST_MAX = 64 * 1024 };

/* A folder on the way down. */
struct level {
    struct level *above;
    struct stat status;
    struct buffer names; /* each with its NUL */
    size_t at;
};

/* Files with several names. */
struct links {
    ino_t *inodes; /* 0: free */
    uint64_t *numbers;
    size_t room;
    uint64_t count;
};

struct writer {
    int out;
    struct sha256 *digest;
    int folder; /* of the level */
    dev_t device;
    struct level *level;
    struct links links;
    struct buffer pending;
    char *chunk;
    int64_t entries_max;
    pack_room *room;
    void *data;
    struct pack_result result;
};

/* --- out ------------------------------------------------------------------------------------- */

static int flush(struct writer *writer, struct error *err)
{
    size_t done = 0;

    if (writer->room && writer->room(writer->data, (int64_t)writer->pending.length, err) < 0)
        return -1;
    if (writer->digest && writer->pending.length)
        sha256_add(writer->digest, writer->pending.data, writer->pending.length);
    while (writer->out >= 0 && done < writer->pending.length) {
        ssize_t written =
            write(writer->out, writer->pending.data + done, writer->pending.length - done);

        if (written < 0 && errno != EINTR)
            return error_set_errno(
                err, errno == ENOSPC || errno == EDQUOT ? ERR_UNAVAILABLE : ERR_INTERNAL,
                "write a snapshot");
        done += written > 0 ? (size_t)written : 0;
    }
    writer->result.size += (int64_t)writer->pending.length;
    writer->pending.length = 0;
    return 0;
}

static int add(struct writer *writer, const void *bytes, size_t length, struct error *err)
{
    buffer_add(&writer->pending, bytes, length);
    return writer->pending.length < PACK_CHUNK ? 0 : flush(writer, err);
}

static struct pack_entry entry_of(enum pack_type type, const struct stat *status)
{
    return (struct pack_entry){
        .type = type,
        .mode = status->st_mode & 07777,
        .uid = status->st_uid,
        .gid = status->st_gid,
        .modified_s = status->st_mtim.tv_sec,
        .modified_ns = (uint32_t)status->st_mtim.tv_nsec,
    };
}

static int add_entry(struct writer *writer, struct pack_entry *entry, const char *name,
                     const char *target, const struct buffer *xattrs, struct error *err)
{
    entry->name_length = (uint32_t)strlen(name);
    entry->target_length = (uint32_t)strlen(target);
    entry->xattrs_length = (uint32_t)xattrs->length;
    if (entry->type != PACK_LEAVE && ++writer->result.entries > writer->entries_max)
        return error_set(err, ERR_TOO_LARGE, "more than %lld files are too many for a snapshot",
                         (long long)writer->entries_max);
    if (add(writer, entry, sizeof(*entry), err) < 0 ||
        add(writer, name, entry->name_length, err) < 0 ||
        add(writer, target, entry->target_length, err) < 0)
        return -1;
    return xattrs->length ? add(writer, xattrs->data, xattrs->length, err) : 0;
}

/* --- extended attributes ---------------------------------------------------------------------- */

static int add_xattr(int fd, const char *name, struct buffer *xattrs, struct error *err)
{
    struct pack_xattr head = {.name_length = (uint32_t)strlen(name)};
    ssize_t length = fgetxattr(fd, name, NULL, 0);

    if (length <
        0) /* it went, or is none that can be read: access lists of a file system without */
        return errno == ENODATA || errno == EOPNOTSUPP
                   ? 0
                   : error_set_errno(err, ERR_INTERNAL, "extended attributes");
    head.value_length = (uint32_t)length;
    buffer_add(xattrs, &head, sizeof(head));
    buffer_add(xattrs, name, head.name_length);
    if (fgetxattr(fd, name, buffer_reserve(xattrs, (size_t)length), (size_t)length) != length)
        return error_set(err, ERR_CONFLICT, "the workspace changed while it was copied");
    xattrs->length += (size_t)length;
    return xattrs->length <= PACK_XATTRS_MAX
               ? 0
               : error_set(err, ERR_TOO_LARGE, "extended attributes are too large for a snapshot");
}

/* Only files and folders have any that a tenant can set. `trusted` ones no tenant sees. */
static int read_xattrs(int fd, struct buffer *xattrs, struct error *err)
{
    static char list[LIST_MAX];
    ssize_t length = flistxattr(fd, list, sizeof(list));

    if (length < 0)
        return errno == EOPNOTSUPP ? 0 : error_set_errno(err, ERR_INTERNAL, "extended attributes");
    for (char *name = list; name < list + length; name += strlen(name) + 1)
        if (strncmp(name, "trusted.", 8) != 0 && add_xattr(fd, name, xattrs, err) < 0)
            return -1;
    return 0;
}

/* --- contents --------------------------------------------------------------------------------- */

/* Whole, also when the file has become shorter: zeros are what would be read then. */
static int add_extent(struct writer *writer, int fd, const struct pack_extent *extent,
                      struct error *err)
{
    int64_t done = 0;

    if (add(writer, extent, sizeof(*extent), err) < 0)
        return -1;
    while (done < extent->length) {
        size_t wanted =
            extent->length - done < PACK_CHUNK ? (size_t)(extent->length - done) : PACK_CHUNK;
        ssize_t got = pread(fd, writer->chunk, wanted, extent->offset + done);

        if (got < 0)
            return error_set_errno(err, ERR_INTERNAL, "read a file of the workspace");
        if (got == 0) {
            memset(writer->chunk, 0, wanted);
            got = (ssize_t)wanted;
        }
        if (add(writer, writer->chunk, (size_t)got, err) < 0)
            return -1;
        done += got;
    }
    writer->result.bytes += done;
    return 0;
}

static int add_content(struct writer *writer, int fd, int64_t size, struct error *err)
{
    struct pack_extent extent = {0};

    for (;;) {
        off_t start = lseek(fd, extent.offset + extent.length, SEEK_DATA);
        off_t end = start < 0 ? -1 : lseek(fd, start, SEEK_HOLE);

        if (start < 0 && errno != ENXIO)
            return error_set_errno(err, ERR_INTERNAL, "read a file of the workspace");
        if (end < 0 || start >= size)
            break;
        extent = (struct pack_extent){start, (end < size ? end : size) - start};
        if (add_extent(writer, fd, &extent, err) < 0)
            return -1;
    }
    return add(writer, &(struct pack_extent){.offset = size}, sizeof(extent), err);
}

/* --- files with several names ----------------------------------------------------------------- */

static size_t find_link(const struct links *links, ino_t inode)
{
    size_t at = (size_t)(inode * 0x9E3779B97F4A7C15u) & (links->room - 1);

    while (links->inodes[at] && links->inodes[at] != inode)
        at = (at + 1) & (links->room - 1);
    return at;
}

static void grow_links(struct links *links)
{
    struct links larger = {.room = links->room ? 2 * links->room : FIRST_BUCKETS,
                           .count = links->count};

    larger.inodes = calloc(larger.room, sizeof(*larger.inodes));
    larger.numbers = calloc(larger.room, sizeof(*larger.numbers));
    if (!larger.inodes || !larger.numbers)
        abort();
    for (size_t i = 0; i < links->room; i++)
        if (links->inodes[i]) {
            size_t at = find_link(&larger, links->inodes[i]);

            larger.inodes[at] = links->inodes[i];
            larger.numbers[at] = links->numbers[i];
        }
    free(links->inodes);
    free(links->numbers);
    *links = larger;
}

/* Its number; *known when it was met before. */
static uint64_t number_of(struct links *links, ino_t inode, bool *known)
{
    size_t at;

    if (2 * (links->count + 1) > links->room)
        grow_links(links);
    at = find_link(links, inode);
    *known = links->inodes[at] != 0;
    if (!*known) {
        links->inodes[at] = inode;
        links->numbers[at] = ++links->count;
    }
    return links->numbers[at];
}

/* --- entries ---------------------------------------------------------------------------------- */

static int gone(struct error *err)
{
    return errno == ENOENT ? 0 : error_set_errno(err, ERR_INTERNAL, "a file of the workspace");
}

static int add_file(struct writer *writer, const char *name, uint64_t same, struct error *err)
{
    auto_close int fd =
        openat(writer->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
    auto_buffer struct buffer xattrs = {0};
    struct pack_entry entry;
    struct stat status;

    if (fd < 0 && errno != ELOOP)
        return gone(err);
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
        return error_set(err, ERR_CONFLICT, "the workspace changed while it was copied");
    entry = entry_of(PACK_FILE, &status);
    entry.size = status.st_size;
    entry.same = same;
    if (read_xattrs(fd, &xattrs, err) < 0 || add_entry(writer, &entry, name, "", &xattrs, err) < 0)
        return -1;
    return add_content(writer, fd, status.st_size, err);
}

static int add_other(struct writer *writer, enum pack_type type, const char *name,
                     const struct stat *status, uint64_t same, struct error *err)
{
    struct pack_entry entry = entry_of(type, status);
    char target[PACK_TARGET_MAX + 1] = "";
    ssize_t length = 0;

    if (type == PACK_LINK)
        length = readlinkat(writer->folder, name, target, sizeof(target));
    if (length < 0)
        return gone(err);
    if (length == sizeof(target))
        return error_set(err, ERR_TOO_LARGE, "a symbolic link is too long for a snapshot");
    target[length] = '\0';
    entry.same = same;
    return add_entry(writer, &entry, name, target, &(struct buffer){0}, err);
}

/* 0: no kind that a tenant can make. */
static enum pack_type type_of(const struct stat *status)
{
    switch (status->st_mode & S_IFMT) {
    case S_IFREG:
        return PACK_FILE;
    case S_IFLNK:
        return PACK_LINK;
    case S_IFIFO:
        return PACK_FIFO;
    case S_IFSOCK:
        return PACK_SOCKET;
    case S_IFCHR:
        return status->st_rdev == 0 ? PACK_WHITEOUT : 0;
    default:
        return 0;
    }
}

static int add_name(struct writer *writer, const char *name, const struct stat *status,
                    struct error *err)
{
    enum pack_type type = type_of(status);
    bool known = false;
    uint64_t same = status->st_nlink > 1 ? number_of(&writer->links, status->st_ino, &known) : 0;

    if (!type)
        return 0;
    if (known)
        return add_entry(writer, &(struct pack_entry){.type = PACK_SAME, .same = same}, name, "",
                         &(struct buffer){0}, err);
    return type == PACK_FILE ? add_file(writer, name, same, err)
                             : add_other(writer, type, name, status, same, err);
}

/* --- folders ---------------------------------------------------------------------------------- */

static int read_names(struct level *level, int folder, struct error *err)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);
    DIR *directory = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;

    if (!directory)
        return error_set_errno(err, ERR_INTERNAL, "a folder of the workspace");
    while ((entry = readdir(directory)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            buffer_add(&level->names, entry->d_name, strlen(entry->d_name) + 1);
    closedir(directory);
    return 0;
}

/* Takes the descriptor. */
static int enter(struct writer *writer, int folder, struct error *err)
{
    struct level *level = calloc(1, sizeof(*level));

    if (!level)
        abort();
    scope_close(&writer->folder);
    writer->folder = folder;
    level->above = writer->level;
    writer->level = level;
    if (fstat(folder, &level->status) < 0)
        return error_set_errno(err, ERR_INTERNAL, "a folder of the workspace");
    return read_names(level, folder, err);
}

static void drop_level(struct writer *writer)
{
    struct level *level = writer->level;

    writer->level = level->above;
    buffer_done(&level->names);
    free(level);
}

/* Back to the folder above, which must be the one that we came from. */
static int leave(struct writer *writer, struct error *err)
{
    struct pack_entry entry = entry_of(PACK_LEAVE, &writer->level->status);
    auto_buffer struct buffer xattrs = {0};
    struct stat status;

    if (read_xattrs(writer->folder, &xattrs, err) < 0 ||
        add_entry(writer, &entry, "", "", &xattrs, err) < 0)
        return -1;
    drop_level(writer);
    if (!writer->level)
        return 0;
    int above = openat(writer->folder, "..", O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);
    scope_close(&writer->folder);
    writer->folder = above;
    if (above < 0 || fstat(above, &status) < 0 || status.st_dev != writer->device ||
        status.st_ino != writer->level->status.st_ino)
        return error_set(err, ERR_CONFLICT, "the workspace changed while it was copied");
    return 0;
}

static int next(struct writer *writer, struct error *err)
{
    struct level *level = writer->level;
    const char *name = level->names.data + level->at;
    struct stat status;

    level->at += strlen(name) + 1;
    if (fstatat(writer->folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return gone(err);
    if (!S_ISDIR(status.st_mode))
        return add_name(writer, name, &status, err);
    auto_close int folder =
        openat(writer->folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);
    if (folder < 0)
        return gone(err);
    if (fstat(folder, &status) < 0 || status.st_dev != writer->device)
        return 0; /* something is mounted there */
    if (add_entry(writer, &(struct pack_entry){.type = PACK_ENTER}, name, "", &(struct buffer){0},
                  err) < 0)
        return -1;
    return enter(writer, take_fd(&folder), err);
}

static int walk(struct writer *writer, int folder, struct error *err)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);

    if (copy < 0)
        return error_set_errno(err, ERR_INTERNAL, "workspace");
    if (enter(writer, copy, err) < 0)
        return -1;
    writer->device = writer->level->status.st_dev;
    buffer_add(&writer->pending, PACK_MAGIC, strlen(PACK_MAGIC));
    while (writer->level)
        if ((writer->level->at < writer->level->names.length ? next : leave)(writer, err) < 0)
            return -1;
    return flush(writer, err);
}

int pack_write(int folder, int out, struct sha256 *digest, int64_t entries_max, pack_room *room,
               void *data, struct pack_result *result, struct error *err)
{
    struct writer writer = {.out = out,
                            .digest = digest,
                            .folder = -1,
                            .chunk = malloc(PACK_CHUNK),
                            .entries_max = entries_max,
                            .room = room,
                            .data = data};
    int done;

    if (!writer.chunk)
        abort();
    done = walk(&writer, folder, err);
    while (writer.level)
        drop_level(&writer);
    scope_close(&writer.folder);
    buffer_done(&writer.pending);
    free(writer.chunk);
    free(writer.links.inodes);
    free(writer.links.numbers);
    if (done == 0)
        *result = writer.result;
    return done;
}
