/* Packing a folder into an archive: see archive.h. */
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/archive.h"
#include "common/archive_source.h"
#include "common/arena.h"
#include "common/scope.h"

enum { SEGMENTS_MAX = 1024, COPY_BLOCK = 128 * 1024 };

/* A folder whose entries are still to be written. */
struct pending {
    const char *path;
    struct pending *next;
};

struct pack {
    int folder;
    bool zip;
    const struct archive_rules *rules;
    struct archive_result *result;
    struct archive *archive;
    struct archive_entry_linkresolver *links; /* which file was seen under another name */
    struct pending *pending;                  /* a stack: depth first */
    struct arena arena;
};

static int failed(const struct pack *pack, struct error *err)
{
    char reason[128];

    return error_set(err, ERR_INTERNAL, "the archive can't be written: %s",
                     archive_source_show(archive_error_string(pack->archive), reason));
}

static int open_beneath(int folder, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };

    return (int)syscall(SYS_openat2, folder, path, &how, sizeof(how));
}

/* Tell where data is; what is between is not stored. A file in too many pieces is stored whole. */
static void find_segments(int fd, const struct stat *status, struct archive_entry *entry)
{
    off_t at = 0;
    int count = 0;

    if (status->st_blocks * 512 >= status->st_size)
        return;
    while (at < status->st_size) {
        off_t data = lseek(fd, at, SEEK_DATA);
        off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);

        if (data < 0 && errno == ENXIO)
            break; /* a hole up to the end */
        if (hole <= data || ++count > SEGMENTS_MAX) {
            archive_entry_sparse_clear(entry);
            return;
        }
        if (hole > status->st_size)
            hole = status->st_size;
        archive_entry_sparse_add_entry(entry, data, hole - data);
        at = hole;
    }
    if (count == 0)
        archive_entry_sparse_add_entry(entry, status->st_size, 0);
}

/* As many bytes as the header says: a file that grew is cut, and one that shrank ends in zeros. */
static int write_content(struct pack *pack, int fd, int64_t size, struct error *err)
{
    static _Thread_local char block[COPY_BLOCK];

    for (int64_t at = 0; at < size;) {
        size_t wanted = size - at < COPY_BLOCK ? (size_t)(size - at) : COPY_BLOCK;
        ssize_t got = pread(fd, block, wanted, at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, ERR_INTERNAL, "read a file");
        if (got == 0) {
            memset(block, 0, wanted);
            got = (ssize_t)wanted;
        }
        if (archive_write_data(pack->archive, block, (size_t)got) < 0)
            return failed(pack, err);
        at += got;
    }
    return 0;
}

static int write_entry(struct pack *pack, struct archive_entry *entry, int fd, struct error *err)
{
    if (archive_write_header(pack->archive, entry) != ARCHIVE_OK)
        return failed(pack, err);
    if (fd >= 0 && archive_entry_size(entry) > 0 &&
        write_content(pack, fd, archive_entry_size(entry), err) < 0)
        return -1;
    if (archive_write_finish_entry(pack->archive) != ARCHIVE_OK)
        return failed(pack, err);
    return 0;
}

static int pack_known(struct pack *pack, int directory, const char *path, const char *name, int fd,
                      const struct stat *status, struct archive_entry *entry, struct error *err)
{
    struct archive_entry *spare = NULL, *first = entry;
    char target[PATH_MAX];
    ssize_t length;

    archive_entry_copy_pathname(entry, path);
    archive_entry_copy_stat(entry, status);
    archive_entry_unset_atime(entry);
    archive_entry_unset_ctime(entry);
    if (S_ISLNK(status->st_mode)) {
        length = readlinkat(directory, name, target, sizeof(target) - 1);
        if (length < 0)
            return errno == ENOENT || errno == EINVAL
                       ? 0
                       : error_set_errno(err, ERR_INTERNAL, "read a link");
        target[length] = '\0';
        archive_entry_copy_symlink(entry, target);
    }
    if (S_ISREG(status->st_mode)) {
        if (status->st_size > pack->rules->bytes_max - pack->result->bytes)
            return error_set(err, ERR_TOO_LARGE, "the folder holds more than %lld bytes",
                             (long long)pack->rules->bytes_max);
        pack->result->bytes += status->st_size;
        if (!pack->zip) {
            find_segments(fd, status, entry);
            archive_entry_linkify(pack->links, &first, &spare);
        }
    }
    return write_entry(pack, entry, fd, err);
}

/* What vanished meanwhile was not there. */
static int pack_entry(struct pack *pack, int directory, const char *path, const char *name,
                      struct error *err)
{
    struct archive_entry *entry;
    auto_close int fd = -1;
    struct stat status;
    int result;

    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : error_set_errno(err, ERR_INTERNAL, "look at a file");
    if (++pack->result->entries > pack->rules->entries_max)
        return error_set(err, ERR_TOO_LARGE, "the folder has more than %lld entries",
                         (long long)pack->rules->entries_max);
    if (S_ISREG(status.st_mode)) {
        fd = open_beneath(directory, name, O_RDONLY);
        if (fd < 0 && (errno == ENOENT || errno == ELOOP || errno == ENXIO))
            return 0;
        if (fd < 0 || fstat(fd, &status) < 0)
            return error_set_errno(err, ERR_INTERNAL, "open a file");
    }
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode) && !S_ISLNK(status.st_mode) &&
        (!S_ISFIFO(status.st_mode) || pack->zip)) {
        pack->result->skipped++;
        return 0;
    }
    if (S_ISDIR(status.st_mode)) {
        struct pending *pending = arena_alloc(&pack->arena, sizeof(*pending));

        *pending = (struct pending){arena_copy(&pack->arena, path, strlen(path)), pack->pending};
        pack->pending = pending;
    }
    entry = archive_entry_new();
    if (!entry)
        abort();
    result = pack_known(pack, directory, path, name, fd, &status, entry, err);
    archive_entry_free(entry);
    return result;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)b, *(char *const *)a);
}

/* The names within, the last one first, in an arena. */
static int read_names(int directory, int64_t most, struct arena *arena, char ***names,
                      size_t *count, struct error *err)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    auto_buffer struct buffer pointers = {0};
    struct dirent *entry;

    if (!stream)
        return error_set_errno(err, ERR_INTERNAL, "read a folder");
    *count = 0;
    while ((entry = readdir(stream)) && (int64_t)*count <= most) {
        char *name;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        name = arena_copy(arena, entry->d_name, strlen(entry->d_name));
        buffer_add(&pointers, &name, sizeof(name));
        ++*count;
    }
    closedir(stream);
    *names = arena_alloc(arena, *count * sizeof(**names) + 1);
    if (*count)
        memcpy(*names, pointers.data, *count * sizeof(**names));
    qsort(*names, *count, sizeof(**names), compare);
    return 0;
}

static int pack_folder(struct pack *pack, const char *path, struct error *err)
{
    auto_close int directory =
        open_beneath(pack->folder, *path ? path : ".", O_RDONLY | O_DIRECTORY);
    auto_arena struct arena arena = {0};
    char **names;
    size_t count;

    if (directory < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? 0
                   : error_set_errno(err, ERR_INTERNAL, "open a folder");
    if (read_names(directory, pack->rules->entries_max, &arena, &names, &count, err) < 0)
        return -1;
    while (count--) {
        const char *whole = *path ? arena_text(&arena, "%s/%s", path, names[count]) : names[count];

        if (strlen(whole) >= PATH_MAX)
            return error_set(err, ERR_INVALID, "a path in the folder is too long for an archive");
        if (pack_entry(pack, directory, whole, names[count], err) < 0)
            return -1;
    }
    return 0;
}

static int configure(struct pack *pack, enum archive_kind kind)
{
    if (kind == ARCHIVE_ZIP)
        return archive_write_set_format_zip(pack->archive);
    /* Times to the nanosecond; names are bytes, in no alphabet. */
    if (archive_write_set_format_pax(pack->archive) != ARCHIVE_OK ||
        archive_write_set_options(pack->archive, "hdrcharset=BINARY") != ARCHIVE_OK)
        return ARCHIVE_FATAL;
    archive_entry_linkresolver_set_strategy(pack->links, archive_format(pack->archive));
    if (kind == ARCHIVE_TAR_GZIP)
        return archive_write_add_filter_gzip(pack->archive) == ARCHIVE_OK
                   ? archive_write_set_options(pack->archive, "gzip:!timestamp")
                   : ARCHIVE_FATAL;
    return kind == ARCHIVE_TAR_ZSTD ? archive_write_add_filter_zstd(pack->archive) : ARCHIVE_OK;
}

static int pack_all(struct pack *pack, int out, enum archive_kind kind, struct error *err)
{
    if (configure(pack, kind) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(pack->archive, 1) != ARCHIVE_OK ||
        archive_write_open_fd(pack->archive, out) != ARCHIVE_OK)
        return failed(pack, err);
    pack->pending = &(struct pending){.path = ""};
    while (pack->pending) {
        const struct pending *next = pack->pending;

        pack->pending = next->next;
        if (pack_folder(pack, next->path, err) < 0)
            return -1;
    }
    return archive_write_close(pack->archive) == ARCHIVE_OK ? 0 : failed(pack, err);
}

int archive_pack(int folder, int out, enum archive_kind kind, const struct archive_rules *rules,
                 struct archive_result *result, struct error *err)
{
    struct pack pack = {.folder = folder,
                        .zip = kind == ARCHIVE_ZIP,
                        .rules = rules,
                        .result = result,
                        .archive = archive_write_new(),
                        .links = archive_entry_linkresolver_new()};
    int status;

    if (!pack.archive || !pack.links)
        abort();
    *result = (struct archive_result){0};
    status = pack_all(&pack, out, kind, err);
    archive_entry_linkresolver_free(pack.links);
    archive_write_free(pack.archive);
    arena_done(&pack.arena);
    return status;
}
