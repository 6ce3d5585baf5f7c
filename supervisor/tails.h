/* What commands leave in the background goes on writing to their pipes, which whoever asked for the
 * command reads. Should that one end, nobody would: so init keeps an end of each, by which no
 * writer meets a closed pipe, and empties one that nobody has read for a while. For init.c alone,
 * which is one file. */
#ifndef SUPERVISOR_TAILS_H
#define SUPERVISOR_TAILS_H

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "supervisor/trees.h"

enum {
    TAILS_MAX = 256,      /* beyond, one is let go */
    TAILS_LOOK_MS = 5000, /* unread for so long: there is no reader */
    TAILS_STEPS = 16,
};

static struct tail {
    int fd;
    int unread;   /* bytes, when it was last looked at */
    bool ownerless; /* what is in it is nobody's */
} tails[TAILS_MAX];
static size_t tails_count;
static int64_t tails_look_ms;

/* An end to read from, of the pipe that a command is about to get; -1 where it is none, or of one
 * who did not mean it so (its mode). The name leads to what the descriptor is, in init's own /proc,
 * which no tenant can change. */
static int tails_open(int writer)
{
    struct stat status;
    char path[32];

    if (writer < 0 || fstat(writer, &status) < 0 || !S_ISFIFO(status.st_mode))
        return -1;
    snprintf(path, sizeof(path), "self/fd/%d", writer);
    return openat(trees_proc, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

static void tails_close(size_t index)
{
    close(tails[index].fd);
    tails[index] = tails[--tails_count];
}

/* The command has ended. Takes the descriptor. */
static void tails_keep(int fd)
{
    struct pollfd end = {.fd = fd};

    if (fd < 0)
        return;
    if (poll(&end, 1, 0) != 0) { /* nobody writes any more */
        close(fd);
        return;
    }
    if (tails_count == TAILS_MAX)
        tails_close(0);
    if (tails_count == 0)
        tails_look_ms = clock_ms() + TAILS_LOOK_MS;
    tails[tails_count++] = (struct tail){.fd = fd};
}

/* For poll(2); one event for each, in their order. */
static void tails_events(struct pollfd *events)
{
    for (size_t i = 0; i < tails_count; i++)
        events[i] = (struct pollfd){.fd = tails[i].fd, .events = tails[i].ownerless ? POLLIN : 0};
}

static int tails_wait_ms(void)
{
    int64_t left = tails_look_ms - clock_ms();

    return tails_count == 0 ? -1 : left < 0 ? 0 : (int)left;
}

static void tails_look(void)
{
    if (tails_count == 0 || clock_ms() < tails_look_ms)
        return;
    tails_look_ms = clock_ms() + TAILS_LOOK_MS;
    for (size_t i = 0; i < tails_count; i++) {
        int unread = 0;

        if (ioctl(tails[i].fd, FIONREAD, &unread) == 0 && unread > 0 && unread == tails[i].unread)
            tails[i].ownerless = true;
        tails[i].unread = unread;
    }
}

/* After a poll: from the last on, since one that is closed is replaced by the last. */
static void tails_tend(const struct pollfd *events, size_t count)
{
    static char nowhere[64 * 1024];

    tails_look();
    for (size_t i = count; i-- > 0;) {
        ssize_t got = 1;

        if (events[i].revents & (POLLHUP | POLLERR)) {
            tails_close(i);
            continue;
        }
        for (int step = 0; (events[i].revents & POLLIN) && got > 0 && step < TAILS_STEPS; step++)
            got = read(tails[i].fd, nowhere, sizeof(nowhere));
    }
}

#endif
