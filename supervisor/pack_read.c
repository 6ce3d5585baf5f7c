/* Packs into trees: see pack.h. What is read may be damaged in any way, so nothing in it is
 * believed before it was checked; nobody else sees the tree while it is made. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/scope.h"
#include "supervisor/files.h"
#include "supervisor/pack.h"

enum { ID_LAST = 65535, MODE_MASK = 07777, SECOND = 1000000000 };

#define LINKS "links" /* in `aside`: the files with several names, by number */

struct reader {
    int in;
    int folder; /* that is filled */
    int links;
    int64_t depth;
    uint64_t same_count;
    struct sha256 digest;
    char *chunk;
    size_t at, end; /* of what is in the chunk */
    struct pack_entry entry;
    char name[PACK_NAME_MAX + 1];
    char target[PACK_TARGET_MAX + 1];
    struct buffer xattrs;
};

static int damaged(struct error *err)
{
    return error_set(err, ERR_CONFLICT, "the snapshot is damaged");
}

/* What a system call found on the way: there may be no room. */
static int failed(struct error *err, const char *what)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return error_set(err, ERR_TOO_LARGE, "the snapshot does not fit the sandbox's disk");
    return error_set_errno(err, ERR_INTERNAL, "restore %s", what);
}

/* --- in -------------------------------------------------------------------------------------- */

static int fill(struct reader *reader, struct error *err)
{
    ssize_t got;

    do
        got = read(reader->in, reader->chunk, PACK_CHUNK);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EIO ? damaged(err) : error_set_errno(err, ERR_INTERNAL, "read a snapshot");
    sha256_add(&reader->digest, reader->chunk, (size_t)got);
    reader->at = 0;
    reader->end = (size_t)got;
    return got > 0 ? 0 : damaged(err); /* it ends too early */
}

static int take(struct reader *reader, void *bytes, size_t length, struct error *err)
{
    char *to = bytes;

    while (length) {
        size_t part = reader->end - reader->at;

        if (!part) {
            if (fill(reader, err) < 0)
                return -1;
            continue;
        }
        part = part < length ? part : length;
        memcpy(to, reader->chunk + reader->at, part);
        reader->at += part;
        to += part;
        length -= part;
    }
    return 0;
}

static bool is_name(const char *name, size_t length)
{
    return length > 0 && strlen(name) == length && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static int take_entry(struct reader *reader, struct error *err)
{
    struct pack_entry *entry = &reader->entry;

    if (take(reader, entry, sizeof(*entry), err) < 0)
        return -1;
    if (entry->name_length > PACK_NAME_MAX || entry->target_length > PACK_TARGET_MAX ||
        entry->xattrs_length > PACK_XATTRS_MAX || entry->mode > MODE_MASK || entry->uid > ID_LAST ||
        entry->gid > ID_LAST || entry->modified_ns >= SECOND || entry->size < 0)
        return damaged(err);
    reader->xattrs.length = 0;
    if (take(reader, reader->name, entry->name_length, err) < 0 ||
        take(reader, reader->target, entry->target_length, err) < 0 ||
        take(reader, buffer_reserve(&reader->xattrs, entry->xattrs_length), entry->xattrs_length,
             err) < 0)
        return -1;
    reader->xattrs.length = entry->xattrs_length;
    reader->name[entry->name_length] = '\0';
    reader->target[entry->target_length] = '\0';
    if (entry->type != PACK_LEAVE && !is_name(reader->name, entry->name_length))
        return damaged(err);
    return 0;
}

/* --- attributes ------------------------------------------------------------------------------- */

static int set_xattr(int fd, const char *name, const void *value, size_t length, struct error *err)
{
    if (fsetxattr(fd, name, value, length, 0) == 0)
        return 0;
    /* A disk of another kind may know no such. */
    return errno == EOPNOTSUPP ? 0 : failed(err, "extended attributes");
}

static int set_xattrs(const struct reader *reader, int fd, struct error *err)
{
    size_t at = 0, end = reader->xattrs.length;

    while (at < end) {
        char name[PACK_NAME_MAX + 1];
        struct pack_xattr head;

        if (end - at < sizeof(head))
            return damaged(err);
        memcpy(&head, reader->xattrs.data + at, sizeof(head));
        at += sizeof(head);
        if (head.name_length > PACK_NAME_MAX || head.name_length > end - at ||
            head.value_length > end - at - head.name_length)
            return damaged(err);
        memcpy(name, reader->xattrs.data + at, head.name_length);
        name[head.name_length] = '\0';
        at += head.name_length;
        if (set_xattr(fd, name, reader->xattrs.data + at, head.value_length, err) < 0)
            return -1;
        at += head.value_length;
    }
    return 0;
}

static struct timespec modified(const struct pack_entry *entry)
{
    return (struct timespec){.tv_sec = entry->modified_s, .tv_nsec = entry->modified_ns};
}

/* In this order: a change of the owner takes set-user-id bits and capabilities, and anything
 * changes the time. */
static int set_attributes(const struct reader *reader, int fd, struct error *err)
{
    const struct pack_entry *entry = &reader->entry;
    struct timespec times[2] = {modified(entry), modified(entry)};

    if (fchown(fd, entry->uid, entry->gid) < 0 || fchmod(fd, entry->mode) < 0)
        return failed(err, "an owner");
    if (set_xattrs(reader, fd, err) < 0)
        return -1;
    return futimens(fd, times) < 0 ? failed(err, "a time") : 0;
}

static int set_attributes_of_name(const struct reader *reader, struct error *err)
{
    const struct pack_entry *entry = &reader->entry;
    struct timespec times[2] = {modified(entry), modified(entry)};

    if (fchownat(reader->folder, reader->name, entry->uid, entry->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return failed(err, "an owner");
    if (entry->type != PACK_LINK && fchmodat(reader->folder, reader->name, entry->mode, 0) < 0)
        return failed(err, "a mode");
    return utimensat(reader->folder, reader->name, times, AT_SYMLINK_NOFOLLOW) < 0
               ? failed(err, "a time")
               : 0;
}

/* --- entries ---------------------------------------------------------------------------------- */

static int put_extent(struct reader *reader, int fd, const struct pack_extent *extent,
                      struct error *err)
{
    int64_t done = 0;

    while (done < extent->length) {
        size_t part = reader->end - reader->at;
        ssize_t written;

        if (!part) {
            if (fill(reader, err) < 0)
                return -1;
            continue;
        }
        if ((int64_t)part > extent->length - done)
            part = (size_t)(extent->length - done);
        written = pwrite(fd, reader->chunk + reader->at, part, extent->offset + done);
        if (written <= 0)
            return failed(err, "a file");
        reader->at += (size_t)written;
        done += written;
    }
    return 0;
}

static int put_content(struct reader *reader, int fd, struct error *err)
{
    int64_t size = reader->entry.size, at = 0;
    struct pack_extent extent;

    if (ftruncate(fd, size) < 0)
        return errno == EINVAL || errno == EFBIG
                   ? error_set(err, ERR_TOO_LARGE, "a file does not fit the sandbox's disk")
                   : failed(err, "a file");
    for (;;) {
        if (take(reader, &extent, sizeof(extent), err) < 0)
            return -1;
        if (extent.length == 0)
            return extent.offset == size ? 0 : damaged(err);
        if (extent.length < 0 || extent.offset < at || extent.offset > size ||
            extent.length > size - extent.offset)
            return damaged(err);
        if (put_extent(reader, fd, &extent, err) < 0)
            return -1;
        at = extent.offset + extent.length;
    }
}

static int put_file(struct reader *reader, struct error *err)
{
    auto_close int fd = openat(reader->folder, reader->name,
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return errno == EEXIST ? damaged(err) : failed(err, "a file");
    return put_content(reader, fd, err) < 0 ? -1 : set_attributes(reader, fd, err);
}

static int put_other(struct reader *reader, struct error *err)
{
    static const struct {
        enum pack_type type;
        mode_t kind;
    } kinds[] = {{PACK_FIFO, S_IFIFO}, {PACK_SOCKET, S_IFSOCK}, {PACK_WHITEOUT, S_IFCHR}};
    int made = -1;

    errno = EINVAL;
    if (reader->entry.type == PACK_LINK)
        made = symlinkat(reader->target, reader->folder, reader->name);
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (kinds[i].type == (enum pack_type)reader->entry.type)
            made = mknodat(reader->folder, reader->name, kinds[i].kind | 0600, makedev(0, 0));
    if (made < 0)
        return errno == EEXIST || errno == EINVAL || errno == ENOENT ? damaged(err)
                                                                     : failed(err, "an entry");
    return set_attributes_of_name(reader, err);
}

/* Its first name; the others are found by the number. */
static int remember(struct reader *reader, struct error *err)
{
    char number[32];

    if (!reader->entry.same)
        return 0;
    if (reader->entry.same != reader->same_count + 1)
        return damaged(err);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)++reader->same_count);
    return linkat(reader->folder, reader->name, reader->links, number, 0) < 0
               ? failed(err, "a hard link")
               : 0;
}

static int put_same(struct reader *reader, struct error *err)
{
    char number[32];

    if (!reader->entry.same || reader->entry.same > reader->same_count)
        return damaged(err);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)reader->entry.same);
    if (linkat(reader->links, number, reader->folder, reader->name, 0) == 0)
        return 0;
    return errno == EEXIST ? damaged(err) : failed(err, "a hard link");
}

static int enter(struct reader *reader, struct error *err)
{
    int inner;

    if (mkdirat(reader->folder, reader->name, 0700) < 0)
        return errno == EEXIST ? damaged(err) : failed(err, "a folder");
    inner = openat(reader->folder, reader->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0)
        return failed(err, "a folder");
    close(reader->folder);
    reader->folder = inner;
    reader->depth++;
    return 0;
}

static int leave(struct reader *reader, struct error *err)
{
    int above;

    if (set_attributes(reader, reader->folder, err) < 0)
        return -1;
    if (reader->depth-- == 0)
        return 0;
    above = openat(reader->folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above < 0)
        return failed(err, "a folder");
    close(reader->folder);
    reader->folder = above;
    return 0;
}

static int put(struct reader *reader, struct error *err)
{
    switch (reader->entry.type) {
    case PACK_ENTER:
        return enter(reader, err);
    case PACK_LEAVE:
        return leave(reader, err);
    case PACK_FILE:
        return put_file(reader, err) < 0 ? -1 : remember(reader, err);
    case PACK_SAME:
        return put_same(reader, err);
    default:
        return put_other(reader, err) < 0 ? -1 : remember(reader, err);
    }
}

static int read_all(struct reader *reader, const char *sha256, struct error *err)
{
    char magic[sizeof(PACK_MAGIC) - 1], found[SHA256_TEXT];

    if (take(reader, magic, sizeof(magic), err) < 0)
        return -1;
    if (memcmp(magic, PACK_MAGIC, sizeof(magic)) != 0)
        return damaged(err);
    while (reader->depth >= 0)
        if (take_entry(reader, err) < 0 || put(reader, err) < 0)
            return -1;
    if (reader->at < reader->end || read(reader->in, reader->chunk, 1) != 0)
        return damaged(err);
    sha256_end(&reader->digest, found);
    return strcmp(found, sha256) == 0 ? 0 : damaged(err);
}

int pack_read(int in, int folder, int aside, const char *sha256, struct error *err)
{
    struct reader reader = {.in = in, .chunk = malloc(PACK_CHUNK)};
    int done;

    if (!reader.chunk)
        abort();
    sha256_begin(&reader.digest);
    if (files_delete_tree(aside, LINKS, err) < 0 || mkdirat(aside, LINKS, 0700) < 0) {
        free(reader.chunk);
        return failed(err, "hard links");
    }
    reader.links = openat(aside, LINKS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    reader.folder = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    done = reader.links < 0 || reader.folder < 0 ? failed(err, "a folder")
                                                 : read_all(&reader, sha256, err);
    scope_close(&reader.folder);
    scope_close(&reader.links);
    buffer_done(&reader.xattrs);
    free(reader.chunk);
    if (done < 0)
        return -1;
    return files_delete_tree(aside, LINKS, err);
}
