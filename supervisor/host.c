/* Tables of the kernel that all of the machine share: see host.h. */
#include "supervisor/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"

/* What is in them is charged to the memory of the sandbox that has it, or counted for it. */
static const struct {
    const char *path;
    long long least;
} tables[] = {
    {"/proc/sys/fs/file-max", 1LL << 40},    /* open files; memory */
    {"/proc/sys/fs/aio-max-nr", 1LL << 30},  /* io_setup(2); memory */
    {"/proc/sys/kernel/pid_max", 1LL << 22}, /* the pids controller */
    {"/proc/sys/kernel/pty/max", 1LL << 20}, /* 64 in each devpts */
};

void host_raise_tables(void)
{
    for (size_t i = 0; i < COUNT(tables); i++) {
        char text[32] = "";
        auto_close int fd = open(tables[i].path, O_RDWR | O_CLOEXEC);
        int length;

        if (fd < 0)
            fd = open(tables[i].path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
            strtoull(text, NULL, 10) >= (unsigned long long)tables[i].least)
            continue;
        length = snprintf(text, sizeof(text), "%lld", tables[i].least);
        if (pwrite(fd, text, (size_t)length, 0) == length)
            LOG(INFO, "host_table_raised", V("path", tables[i].path),
                V("to", (long)tables[i].least));
        else
            LOG(WARNING, "host_table", V("path", tables[i].path),
                V("reason", "can't be raised: one sandbox may fill it for the whole machine"));
    }
}

bool host_has_crash_handler(void)
{
    auto_close int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);
    char pattern = '|';

    /* One that can't be read may be one. */
    return fd < 0 || read(fd, &pattern, 1) < 0 || pattern == '|';
}
