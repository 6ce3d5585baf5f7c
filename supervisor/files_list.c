/* The entries of a directory, in order: see files.h. What it takes is what the names take. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/scope.h"
#include "supervisor/files.h"

enum { NAMES_BYTES_MAX = 64 << 20 };

struct names {
    struct buffer bytes; /* one behind the other, each with its NUL */
    uint32_t *at;        /* where each begins */
    size_t count, room;
};

static void names_done(struct names *names)
{
    buffer_done(&names->bytes);
    free(names->at);
}
#define auto_names __attribute__((cleanup(names_done)))

static int names_add(struct names *names, const char *name, struct error *err)
{
    size_t length = strlen(name) + 1;

    if (names->bytes.length + length > NAMES_BYTES_MAX)
        return error_set(err, ERR_TOO_LARGE, "the directory has too many entries for a list");
    if (names->count == names->room) {
        names->room = names->room ? 2 * names->room : 64;
        names->at = realloc(names->at, names->room * sizeof(*names->at));
        if (!names->at)
            abort();
    }
    names->at[names->count++] = (uint32_t)names->bytes.length;
    buffer_add(&names->bytes, name, length);
    return 0;
}

static int compare(const void *a, const void *b, void *bytes)
{
    return strcmp((const char *)bytes + *(const uint32_t *)a,
                  (const char *)bytes + *(const uint32_t *)b);
}

/* All names, in order. */
static int names_read(DIR *directory, struct names *names, struct error *err)
{
    struct dirent *entry;

    while ((entry = readdir(directory)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            names_add(names, entry->d_name, err) < 0)
            return -1;
    if (names->count)
        qsort_r(names->at, names->count, sizeof(*names->at), compare, names->bytes.data);
    return 0;
}

int files_each(int workspace, const char *path,
               int (*call)(const char *, const struct stat *, void *, struct error *), void *data,
               struct error *err)
{
    auto_names struct names names = {0};
    char normal[PATH_MAX];
    struct stat status;
    int result;

    if (files_normalise(path, normal, err) < 0)
        return -1;
    auto_close int place = files_open_beneath(workspace, normal, O_PATH | O_NOFOLLOW, 0);
    if (place < 0 || fstat(place, &status) < 0)
        return files_error(err, path);
    if (!S_ISDIR(status.st_mode))
        return call(".", &status, data, err);
    int fd = files_open_beneath(place, ".", FILES_FOLDER, 0);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory)
        return files_error(err, path);
    result = names_read(directory, &names, err);
    for (size_t i = 0; result == 0 && i < names.count; i++) {
        const char *name = names.bytes.data + names.at[i];

        /* Gone meanwhile: not there. */
        if (fstatat(dirfd(directory), name, &status, AT_SYMLINK_NOFOLLOW) == 0)
            result = call(name, &status, data, err);
    }
    closedir(directory);
    return result;
}
