/* Give a fuzz target what is in the named folders, each file once; and cut in pieces, since what is
 * cut off is what code forgets. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/scope.h"

enum { INPUT_MAX = 1 << 20, CUTS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void give(const uint8_t *data, size_t size)
{
    /* Of its own size, so that a sanitizer sees what is read beyond it. */
    auto_free uint8_t *copy = malloc(size + !size);

    if (!copy)
        abort();
    for (size_t i = 0; i < size; i++)
        copy[i] = data[i];
    LLVMFuzzerTestOneInput(copy, size);
}

static int replay(const char *folder)
{
    static uint8_t bytes[INPUT_MAX];
    DIR *directory = opendir(folder);
    struct dirent *entry;
    int count = 0;

    while (directory && (entry = readdir(directory))) {
        if (entry->d_name[0] == '.')
            continue;
        auto_close int fd = openat(dirfd(directory), entry->d_name, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));
        if (size < 0) {
            fprintf(stderr, "%s/%s can't be read\n", folder, entry->d_name);
            exit(EXIT_FAILURE);
        }
        printf("%s/%s\n", folder, entry->d_name);
        fflush(stdout); /* the last one told is the one that failed */
        for (int cut = 0; cut <= CUTS; cut++)
            give(bytes, (size_t)size * (size_t)(CUTS - cut) / CUTS);
        count++;
    }
    if (directory)
        closedir(directory);
    return count;
}

int main(int argc, char **argv)
{
    int count = 0;

    for (int i = 1; i < argc; i++)
        count += replay(argv[i]);
    if (!count)
        fprintf(stderr, "there is nothing to replay\n");
    return count ? EXIT_SUCCESS : EXIT_FAILURE;
}
