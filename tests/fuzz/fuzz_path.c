/* Any bytes as paths that are asked for beneath a workspace full of traps, which its tenant changes
 * meanwhile: nothing outside is reached, and nothing blocks. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct supervisor_settings settings;
static char top[64], inside[80];
static int place; /* has the workspace `ws`, `trash`, and the canary */

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void close_place(void)
{
    struct error err;

    unlinkat(place, "canary", 0);
    files_delete_tree(place, "ws", &err);
    files_delete_tree(place, "trash", &err);
    rmdir(top);
}

static void open_place(void)
{
    snprintf(top, sizeof(top), "/dev/shm/fuzz-path-XXXXXX");
    must(mkdtemp(top) != NULL);
    snprintf(inside, sizeof(inside), "%s/ws", top);
    place = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int canary = openat(place, "canary", O_WRONLY | O_CREAT | O_EXCL, 0600);
    must(canary >= 0 && write(canary, "untouched", 9) == 9);
    must(mkdirat(place, "trash", 0700) == 0);
    atexit(close_place);
}

static void make_traps(int workspace)
{
    static const struct {
        const char *name, *target;
    } links[] = {{"up", ".."},
                 {"canary", "../canary"},
                 {"loop", "loop"},
                 {"root", "/"},
                 {"self", "."},
                 {"d/back", "../f"},
                 {"magic", "/proc/self/cwd"},
                 {"dangling", "none"}};

    must(mkdirat(workspace, "d", 0755) == 0 && mkdirat(workspace, "d/e", 0755) == 0);
    must(mkfifoat(workspace, "p", 0644) == 0);
    for (size_t i = 0; i < COUNT(links); i++)
        must(symlinkat(links[i].target, workspace, links[i].name) == 0);
    for (int i = 0; i < 2; i++) {
        auto_close int fd =
            openat(workspace, i ? "d/e/g" : "f", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        must(fd >= 0);
    }
}

static void check_descriptor(int fd)
{
    char link[64], path[8192];
    struct stat status, canary;
    ssize_t length;

    must(fstat(fd, &status) == 0 && fstatat(place, "canary", &canary, 0) == 0);
    must(S_ISREG(status.st_mode) && status.st_ino != canary.st_ino);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    must(length > 0);
    path[length] = '\0';
    must(strncmp(path, inside, strlen(inside)) == 0 || strstr(path, " (deleted)"));
}

static int count_entry(const char *name, const struct stat *status, void *data, struct error *err)
{
    (void)status, (void)err;
    must(*name && !strchr(name, '/') && strcmp(name, "..") != 0);
    must(strcmp(name, "trash") != 0 || *(int *)data > 0);
    ++*(int *)data;
    return 0;
}

static void check_error(const struct error *err)
{
    must(err->kind != ERR_NONE && err->kind < ERR_KINDS);
}

static void ask(int workspace, int trash, uint8_t what, const char *path, const char *other)
{
    struct upload upload = {.parent = -1, .file = -1};
    struct error err = {0};
    struct stat status;
    int fd = -1, count = 0, result = 0;

    switch (what % 7) {
    case 0:
        if (what & 128)
            result = files_stat(workspace, path, &status, &err);
        else
            result = fd = files_open(workspace, path, &status, &err);
        break;
    case 1:
        if (what & 128)
            result = files_set_mode(workspace, path, 0755, &err);
        else
            result = files_each(workspace, path, count_entry, &count, &err);
        break;
    case 2:
        result = fd = files_create(workspace, path, what & 0777, &upload, &err);
        if (fd >= 0) {
            must(write(fd, "x", 1) == 1 && !strchr(upload.name, '/'));
            if (what & 128)
                result = upload_commit(&upload, &err);
        }
        break;
    case 3:
        result = what & 128 ? files_move(workspace, path, other, &err)
                            : files_make_directory(workspace, path, &err);
        break;
    case 4:
        result = files_remove(workspace, trash, path, what & 128, &err);
        break;
    case 5: /* what the tenant does */
        if (*path && *path != '/' && !strstr(path, ".."))
            (void)!renameat2(workspace, path, workspace, *other ? other : "f",
                             what & 128 && *other != '/' && !strstr(other, "..") ? RENAME_EXCHANGE
                                                                                 : 0);
        return;
    default:
        if (*other && *path && !strchr(path, '/'))
            (void)!symlinkat(other, workspace, path);
        return;
    }
    if (fd >= 0) {
        check_descriptor(fd);
        close(fd);
    }
    if (result < 0)
        check_error(&err);
    upload_forget(&upload);
}

static size_t take_text(const uint8_t *data, size_t size, char *out, size_t room)
{
    size_t length = strnlen((const char *)data, size);

    snprintf(out, room, "%.*s", (int)length, (const char *)data);
    return length < size ? length + 1 : length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[8192], other[8192];
    struct stat status;
    struct error err;

    if (!*top)
        open_place();
    must(mkdirat(place, "ws", 0755) == 0);
    auto_close int workspace = openat(place, "ws", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int trash = openat(place, "trash", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(workspace >= 0 && trash >= 0);
    make_traps(workspace);
    for (int left = 32; size > 1 && left; left--) {
        uint8_t what = *data;
        size_t used;

        data++, size--;
        used = take_text(data, size, path, sizeof(path));
        data += used, size -= used;
        other[0] = '\0';
        if (what % 7 >= 5 || (what % 7 == 3 && what & 128)) {
            used = take_text(data, size, other, sizeof(other));
            data += used, size -= used;
        }
        ask(workspace, trash, what, path, other);
    }
    must(fstatat(place, "canary", &status, AT_SYMLINK_NOFOLLOW) == 0);
    must(status.st_size == 9 && status.st_nlink == 1 && status.st_mode == (S_IFREG | 0600));
    must(fstatat(place, "ws", &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode));
    must(files_delete_tree(place, "ws", &err) == 0);
    must(fstat(place, &status) == 0 && status.st_nlink == 3); /* . and .. of it, and trash */
    return 0;
}
