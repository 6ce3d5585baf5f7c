/* How builds of images went: see record.h. */
#include "images/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/scope.h"

enum { LOG_MAX = 8 << 20, PATH_SIZE = IMAGE_NAME_MAX + 16 };

#define RECORDS ".builds"
#define LOG ".log"
#define STATE ".state"

static const char *const names[] = {"", "building", "ready", "failed"};

const char *record_name(enum record_kind kind)
{
    return names[kind];
}

static int open_folder(int images)
{
    return openat(images, RECORDS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int open_in(int folder, const char *name, const char *suffix, int flags)
{
    char path[PATH_SIZE];

    snprintf(path, sizeof(path), "%s%s", name, suffix);
    return openat(folder, path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* --- reading --------------------------------------------------------------------------------- */

static bool goes_on(int folder, const char *name)
{
    auto_close int log = open_in(folder, name, LOG, O_RDONLY);

    return log >= 0 && flock(log, LOCK_SH | LOCK_NB) < 0;
}

int record_read(const struct store *store, const char *name, struct record *record)
{
    auto_close int folder = open_folder(store->fd);
    auto_close int fd = folder < 0 ? -1 : open_in(folder, name, STATE, O_RDONLY);
    char text[sizeof(record->text) + 16], *rest;
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    *record = (struct record){0};
    if (length <= 0)
        return -1;
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    rest = strchr(text, ' ');
    if (rest)
        *rest++ = '\0';
    for (size_t i = 1; i < COUNT(names); i++)
        if (strcmp(text, names[i]) == 0)
            record->kind = (enum record_kind)i;
    snprintf(record->text, sizeof(record->text), "%.511s", rest ? rest : "");
    if (record->kind == RECORD_BUILDING && !goes_on(folder, name)) {
        record->kind = RECORD_FAILED;
        record->cut_off = true;
    }
    return record->kind == RECORD_NONE ? -1 : 0;
}

struct records {
    int (*call)(const char *name, void *context, struct error *err);
    void *context;
};

static int call_state(const char *file, void *context, struct error *err)
{
    const struct records *records = context;
    size_t length = strlen(file);
    char name[IMAGE_NAME_MAX + 1];

    if (length <= strlen(STATE) || length - strlen(STATE) > IMAGE_NAME_MAX ||
        strcmp(file + length - strlen(STATE), STATE) != 0)
        return 0;
    snprintf(name, sizeof(name), "%.*s", (int)(length - strlen(STATE)), file);
    return store_is_name(name) ? records->call(name, records->context, err) : 0;
}

int record_each(const struct store *store,
                int (*call)(const char *name, void *context, struct error *err), void *context,
                struct error *err)
{
    struct records records = {call, context};

    return store_each(store->fd, RECORDS, call_state, &records, err);
}

int record_print(const struct store *store, const char *name, FILE *out, struct error *err)
{
    auto_close int folder = open_folder(store->fd);
    auto_close int log =
        folder < 0 || !store_is_name(name) ? -1 : open_in(folder, name, LOG, O_RDONLY);
    char block[4096];
    struct record record;
    ssize_t got;

    if (log < 0)
        return error_set(err, ERR_NOT_FOUND, "no build of an image %.64s is known", name);
    while ((got = read(log, block, sizeof(block))) > 0)
        if (fwrite(block, 1, (size_t)got, out) != (size_t)got)
            return error_set_errno(err, ERR_INTERNAL, "write");
    if (record_read(store, name, &record) == 0)
        fprintf(out, "%s: %s%s%s\n", name, record_name(record.kind), *record.text ? ": " : "",
                record.cut_off ? "it was cut off" : record.text);
    return 0;
}

void record_remove(const struct store *store, const char *name)
{
    auto_close int folder = open_folder(store->fd);
    char path[PATH_SIZE];

    if (folder < 0 || goes_on(folder, name))
        return;
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s%s", name, i ? LOG : STATE);
        unlinkat(folder, path, 0);
    }
}

/* --- writing --------------------------------------------------------------------------------- */

int record_open(int images, const char *name, struct record_writer *writer, struct error *err)
{
    if (mkdirat(images, RECORDS, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "mkdir");
    auto_close int folder = open_folder(images);
    auto_close int log = folder < 0 ? -1 : open_in(folder, name, LOG, O_RDWR | O_CREAT | O_APPEND);
    if (log < 0)
        return error_set_errno(err, ERR_INTERNAL, "log of the build");
    if (flock(log, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? error_set(err, ERR_CONFLICT, "the image %s is being built", name)
                   : error_set_errno(err, ERR_INTERNAL, "lock the log");
    if (ftruncate(log, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "log of the build");
    *writer = (struct record_writer){0};
    snprintf(writer->name, sizeof(writer->name), "%s", name);
    writer->folder = take_fd(&folder);
    writer->log = take_fd(&log);
    return 0;
}

void record_add(const char *bytes, size_t length, void *context)
{
    static const char cut[] = "\n[the rest of the log is left out]\n";
    struct record_writer *writer = context;
    int64_t before = writer->bytes;
    ssize_t written;

    fwrite(bytes, 1, length, stderr);
    writer->bytes += (int64_t)length;
    if (before > LOG_MAX)
        return;
    if (writer->bytes > LOG_MAX) {
        bytes = cut;
        length = strlen(cut);
    }
    /* A full disk must not end the build: what matters of it is its image. */
    written = write(writer->log, bytes, length);
    (void)written;
}

int record_set(const struct record_writer *writer, enum record_kind kind, const char *text,
               struct error *err)
{
    auto_buffer struct buffer line = {0};
    char path[PATH_SIZE], fresh[PATH_SIZE];

    snprintf(path, sizeof(path), "%s" STATE, writer->name);
    snprintf(fresh, sizeof(fresh), ".%s" STATE, writer->name);
    buffer_format(&line, "%s %.500s\n", record_name(kind), text);
    auto_close int fd =
        openat(writer->folder, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line.data, line.length) != (ssize_t)line.length ||
        renameat(writer->folder, fresh, writer->folder, path) < 0)
        return error_set_errno(err, ERR_INTERNAL, "state of the build");
    return 0;
}

void record_close(struct record_writer *writer)
{
    scope_close(&writer->folder);
    scope_close(&writer->log);
    writer->folder = writer->log = -1;
}
