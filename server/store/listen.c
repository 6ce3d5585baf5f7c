/* Listening for NOTIFY on a connection of its own, which is opened again whenever it breaks. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/scope.h"
#include "store/backend.h"

enum { BACKOFF_MIN_MS = 100, BACKOFF_MAX_MS = 2000 };

struct listening {
    struct target target;
    char **channels;
    size_t channel_count;
    PGconn *connection; /* NULL: to be opened at retry_ms */
    size_t announced; /* since the connection was opened: channels told that something may have been
                         missed */
    int backoff_ms;
    int64_t retry_ms;
    PGnotify *current;
};

static void disconnect(struct listening *listener)
{
    PQfinish(listener->connection);
    listener->connection = NULL;
    listener->retry_ms = monotonic_ms() + listener->backoff_ms;
    listener->backoff_ms =
        2 * listener->backoff_ms < BACKOFF_MAX_MS ? 2 * listener->backoff_ms : BACKOFF_MAX_MS;
}

static int listen_on(PGconn *connection, const char *channel, struct error *err)
{
    char *quoted = PQescapeIdentifier(connection, channel, strlen(channel));
    auto_buffer struct buffer sql = {0};

    if (!quoted)
        return error_set(err, ERR_INTERNAL, "the channel's name is no text");
    buffer_format(&sql, "LISTEN %s", quoted);
    PQfreemem(quoted);
    return backend_run(connection, "listen", sql.data, NULL, err);
}

static int reconnect(struct listening *listener, struct error *err)
{
    int result = backend_open(&listener->target, &listener->connection, err);

    for (size_t i = 0; i < listener->channel_count && result == 0; i++)
        result = listen_on(listener->connection, listener->channels[i], err);
    if (result < 0) {
        disconnect(listener);
        return -1;
    }
    listener->backoff_ms = BACKOFF_MIN_MS;
    listener->announced = 0;
    return 0;
}

int listen_open(struct listening **listener, const char *url, const char *const *channels,
                struct error *err)
{
    struct target target = {0};
    struct listening *opened;

    if (target_init(&target, url, err) < 0)
        return -1;
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        abort();
    opened->target = target;
    opened->backoff_ms = BACKOFF_MIN_MS;
    while (channels[opened->channel_count])
        opened->channel_count++;
    opened->channels = calloc(opened->channel_count + 1, sizeof(*opened->channels));
    if (!opened->channels)
        abort();
    for (size_t i = 0; i < opened->channel_count; i++)
        if (!(opened->channels[i] = strdup(channels[i])))
            abort();
    if (reconnect(opened, err) < 0) {
        listen_close(opened);
        return -1;
    }
    /* Nothing was missed before. */
    opened->announced = opened->channel_count;
    *listener = opened;
    return 0;
}

void listen_close(struct listening *listener)
{
    if (!listener)
        return;
    PQfreemem(listener->current);
    PQfinish(listener->connection);
    for (size_t i = 0; i < listener->channel_count; i++)
        free(listener->channels[i]);
    free(listener->channels);
    target_done(&listener->target);
    free(listener);
}

/* What is at hand: 1, or 0. */
static int next_notification(struct listening *listener, const char **channel, const char **payload)
{
    if (!listener->connection)
        return 0;
    if (listener->announced < listener->channel_count) {
        *channel = listener->channels[listener->announced++];
        *payload = "";
        return 1;
    }
    PQfreemem(listener->current);
    listener->current = PQnotifies(listener->connection);
    if (!listener->current)
        return 0;
    *channel = listener->current->relname;
    *payload = listener->current->extra;
    return 1;
}

/* Sleep until the connection says something, `wake_fd` does, or `deadline`: 1 when it was wake_fd.
 */
static int wait_for_either(struct listening *listener, int64_t deadline, int wake_fd,
                           struct error *err)
{
    struct pollfd sockets[] = {
        {.fd = wake_fd, .events = POLLIN},
        {.fd = listener->connection ? PQsocket(listener->connection) : -1, .events = POLLIN}};
    int64_t left = deadline - monotonic_ms();

    if (poll(sockets, COUNT(sockets), left > 0 ? (int)left : 0) < 0)
        return errno == EINTR ? 0 : error_set_errno(err, ERR_INTERNAL, "poll");
    if (sockets[1].revents && !PQconsumeInput(listener->connection)) {
        LOG(WARNING, "listen_connection_lost", V("channel", listener->channels[0]));
        disconnect(listener);
    }
    return sockets[0].revents != 0;
}

int listen_wait(struct listening *listener, int timeout_ms, int wake_fd, const char **channel,
                const char **payload, struct error *err)
{
    int64_t deadline = monotonic_ms() + timeout_ms;

    for (;;) {
        int64_t until = deadline;
        struct error refusal; /* logged where it arose; tried again */
        int woken;

        if (!listener->connection && monotonic_ms() >= listener->retry_ms)
            reconnect(listener, &refusal);
        if (next_notification(listener, channel, payload))
            return 1;
        if (!listener->connection && listener->retry_ms < until)
            until = listener->retry_ms;
        woken = wait_for_either(listener, until, wake_fd, err);
        if (woken < 0)
            return -1;
        if (next_notification(listener, channel, payload))
            return 1;
        if (woken || monotonic_ms() >= deadline)
            return 0;
    }
}
