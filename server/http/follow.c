/* The worker's end of the hand-over: see follow.h. */
#include "http/follow.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "common/arena.h"
#include "common/scope.h"
#include "common/wire.h"
#include "server/settings.h"

static const struct field follow_fields[] = {
    {TEXT(follow, session), .min = 36, .max = 36},
    {TEXT(follow, key), .min = 36, .max = 36, .nullable = true},
    {NUMBER(follow, after), .max = INT64_MAX},
    {TEXT(follow, head), .min = 1, .max = 16384},
};
SCHEMA(follow);

enum { ANSWER_SECONDS = 5 };

const char *follow_socket_path(void)
{
    static _Thread_local char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];

    snprintf(path, sizeof(path), "%s/run/streamer.sock", settings.state_dir);
    return path;
}

static int unavailable(struct error *err, const char *step)
{
    error_set_errno(err, ERR_UNAVAILABLE, "the streamer does not answer: %s", step);
    err->retry_after_s = 1;
    return -1;
}

int follow_hand_over(const struct follow *follow, int client, struct error *err)
{
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval limit = {.tv_sec = ANSWER_SECONDS};
    const struct wire_header header = {.type = FOLLOW_MESSAGE};
    const char *path = follow_socket_path();
    auto_buffer struct buffer body = {0};
    char taken;

    if (fd < 0)
        return unavailable(err, "socket");
    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, ERR_INTERNAL, "socket path is too long: %s", path);
    memcpy(address.sun_path, path, strlen(path));
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
        return unavailable(err, "setsockopt");
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return unavailable(err, "connect");
    if (wire_encode(&schema_follow, follow, &body, err) < 0 ||
        wire_send(fd, &header, body.data, body.length, &client, 1, err) < 0)
        return -1;
    /* One byte says that the streamer owns the socket now. */
    if (recv(fd, &taken, 1, 0) != 1)
        return unavailable(err, "no acknowledgement");
    return 0;
}
