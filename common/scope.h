/* What a block acquires is released by its declaration. */
#ifndef COMMON_SCOPE_H
#define COMMON_SCOPE_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline void scope_close(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void scope_free(void *pointer)
{
    free(*(void **)pointer);
}

static inline void scope_fclose(FILE **file)
{
    if (*file)
        fclose(*file);
}

/* auto_close int fd = -1;   closed at the end of the block, unless take_fd() took it out. */
#define auto_close __attribute__((cleanup(scope_close)))
#define auto_free __attribute__((cleanup(scope_free)))
#define auto_fclose __attribute__((cleanup(scope_fclose)))

/* Take a descriptor out of its scope: the caller owns what is returned. */
static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

#endif
