/* The guard is a lock on one byte of a file, at a place that the session's id gives: it needs no
 * file for each session, and no database connection while the supervisor is waited for. */
#include "run/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/scope.h"
#include "server/settings.h"

enum { WAIT_MS = 120 * 1000, PAUSE_MIN_MS = 1, PAUSE_MAX_MS = 50 };

/* 60 of the id's bits. */
static off_t place_of(const char *session_id)
{
    char digits[16] = "";
    size_t count = 0;

    for (const char *c = session_id; *c && count < sizeof(digits) - 1; c++)
        if (*c != '-')
            digits[count++] = *c;
    return (off_t)strtoll(digits, NULL, 16);
}

int guard_take(const char *session_id, struct error *err)
{
    struct flock byte = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place_of(session_id), .l_len = 1};
    char path[4096];
    auto_close int fd = -1;
    int pause_ms = PAUSE_MIN_MS;

    snprintf(path, sizeof(path), "%s/run/sandboxes.lock", settings.state_dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "open %s", path);
    /* Of the open file description (fcntl(2)), since the threads of a process must wait for each
     * other, too. */
    for (int waited = 0; fcntl(fd, F_OFD_SETLK, &byte) < 0; waited += pause_ms) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return error_set_errno(err, ERR_INTERNAL, "lock %s", path);
        if (waited >= WAIT_MS) {
            error_set(err, ERR_UNAVAILABLE, "the session's sandbox is busy");
            err->retry_after_s = 1;
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000L}, NULL);
        pause_ms = 2 * pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
    }
    return take_fd(&fd);
}
