/* Any bytes as an archive, into a folder with a canary beside it: whatever comes of it, nothing
 * outside is touched, and no bound is passed. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/archive.h"
#include "common/scope.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct archive_rules rules = {
    .flags = ARCHIVE_SKIP_SPECIAL, .entries_max = 64, .bytes_max = 1 << 20, .ratio_max = 100};
static char top[64];
static int beside;
static int64_t bytes;
static bool names_temporary; /* the archive itself may: then nothing can be told by it */

static void must(bool holds)
{
    if (!holds)
        abort();
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)type;
    if (S_ISREG(status->st_mode))
        bytes += status->st_size / (int64_t)status->st_nlink;
    must(S_ISREG(status->st_mode) || S_ISDIR(status->st_mode) || S_ISLNK(status->st_mode));
    must((status->st_mode & 07000) == 0);
    must(names_temporary || !strstr(path, ".unpack-"));
    return walk->level == 0 ? 0 : remove(path);
}

static void close_top(void)
{
    unlinkat(beside, "in", AT_REMOVEDIR);
    unlinkat(beside, "canary", 0);
    rmdir(top);
}

static void open_top(void)
{
    snprintf(top, sizeof(top), "/dev/shm/fuzz-archive-XXXXXX");
    must(mkdtemp(top) != NULL);
    beside = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int canary = openat(beside, "canary", O_WRONLY | O_CREAT | O_EXCL, 0600);
    must(canary >= 0 && write(canary, "untouched", 9) == 9);
    must(mkdirat(beside, "in", 0755) == 0);
    atexit(close_top);
}

static void check_beside(void)
{
    int fd = openat(beside, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
    DIR *directory = fdopendir(fd);
    struct stat status;

    must(directory != NULL);
    while (readdir(directory))
        count++;
    closedir(directory);
    must(count == 4); /* with . and .. */
    must(fstatat(beside, "canary", &status, AT_SYMLINK_NOFOLLOW) == 0);
    must(status.st_size == 9 && status.st_nlink == 1 && status.st_mode == (S_IFREG | 0600));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct archive_result result;
    struct error err = {0};
    char path[80];

    if (!*top)
        open_top();
    auto_close int fd = memfd_create("archive", MFD_CLOEXEC);
    auto_close int folder = openat(beside, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(fd >= 0 && folder >= 0 && write(fd, data, size) == (ssize_t)size);
    lseek(fd, 0, SEEK_SET);
    if (archive_unpack(fd, folder, &rules, &result, &err) < 0)
        must(err.kind == ERR_INVALID || err.kind == ERR_TOO_LARGE);
    must(result.bytes <= rules.bytes_max);
    for (const char *at = err.message; *at; at++)
        must(*at >= ' ' && *at <= '~');
    check_beside();
    bytes = 0;
    names_temporary = !size || data[0] == 0x1f || data[0] == 0x28 || data[0] == 'P' ||
                      memmem(data, size, ".unpack-", 8);
    snprintf(path, sizeof(path), "%s/in", top);
    must(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
    must(bytes <= rules.bytes_max);
    must(fchmod(folder, 0755) == 0);
    return 0;
}
