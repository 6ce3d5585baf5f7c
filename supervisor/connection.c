/* One peer: its socket, and the one request of it that is being done. */
#include "supervisor/connection.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "common/messages.h"
#include "common/scope.h"
#include "supervisor/dispatch.h"
#include "supervisor/exec.h"
#include "supervisor/file_jobs.h"
#include "supervisor/ports.h"
#include "supervisor/sandbox.h"
#include "supervisor/snapshots.h"
#include "supervisor/statistics.h"

enum { DESCRIPTORS_TAKEN = 3, RECEIVE_BUFFER = 1 << 20 };

static struct connection *all;
static int64_t count;

static void connection_close(struct connection *connection)
{
    struct connection **at = &all;

    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    count--;
    if (connection->command)
        exec_abandon(connection->command);
    if (connection->job)
        file_job_abandon(connection->job);
    ports_forget(connection);
    snapshots_forget(connection);
    for (struct sandbox *box = sandbox_first(); box; box = box->next)
        if (box->asker == connection)
            box->asker = NULL;
    upload_forget(&connection->upload);
    wire_packet_close(&connection->packet);
    /* A job's child has a copy of the descriptor. */
    shutdown(connection->watch.fd, SHUT_RDWR);
    loop_close_watch(&connection->watch);
    arena_done(&connection->arena);
    free(connection);
}

static void receive(struct watch *watch, uint32_t events)
{
    struct connection *connection = OWNER(watch, struct connection, watch);
    struct error error;
    int got;

    if (connection->owed) {
        /* It does not wait for its answer any more. */
        if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            connection_close(connection);
        return;
    }
    arena_reset(&connection->arena);
    got =
        wire_receive(watch->fd, DESCRIPTORS_TAKEN, &connection->packet, &connection->arena, &error);
    if (got < 0 && error.kind == ERR_TIMEOUT)
        return;
    if (got <= 0) {
        if (got < 0)
            LOG(WARNING, "peer_dropped", V("reason", (const char *)error.message));
        connection_close(connection);
        return;
    }
    connection->owed = true;
    connection->begun = statistics_now();
    loop_change(watch, EPOLLRDHUP);
    dispatch(connection);
}

void connection_accept(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    struct connection *connection;
    struct error error;
    int room = RECEIVE_BUFFER;
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
                 (peer.uid == 0 || (int64_t)peer.uid == settings.server_uid);

    if (!known || count >= settings.connections_max) {
        LOG(WARNING, "peer_refused", V("uid", known ? (long)peer.uid : -1L),
            V("connections", (long)count));
        close(fd);
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    connection = calloc(1, sizeof(*connection));
    if (!connection)
        abort();
    connection->upload.parent = connection->upload.file = -1;
    if (loop_watch(&connection->watch, fd, EPOLLIN | EPOLLRDHUP, receive, &error) < 0) {
        close(fd);
        free(connection);
        return;
    }
    connection->next = all;
    all = connection;
    count++;
}

static void answered(struct connection *connection)
{
    wire_packet_close(&connection->packet);
    connection->owed = false;
    connection->command = NULL;
    connection->job = NULL;
    loop_change(&connection->watch, EPOLLIN | EPOLLRDHUP);
}

/* A peer that does not read its answers sees its connection end. */
static void send_answer(struct connection *connection, enum error_kind kind, const void *body,
                        size_t length, int fd)
{
    struct wire_header header = {
        .type = connection->packet.header.type | WIRE_REPLY,
        .kind = kind,
        .serial = connection->packet.header.serial,
    };
    struct error error;

    statistics_answered(connection->packet.header.type, kind, connection->begun);
    if (wire_send(connection->watch.fd, &header, body, length, &fd, fd >= 0, &error) < 0)
        shutdown(connection->watch.fd, SHUT_RDWR);
    answered(connection);
}

void connection_refuse(struct connection *connection, const struct error *error)
{
    send_answer(connection, error->kind, error->message, strlen(error->message), -1);
}

void connection_answer(struct connection *connection, const struct schema *schema,
                       const void *value, int fd)
{
    auto_buffer struct buffer body = {0};
    struct error error;

    if (wire_encode(schema, value, &body, &error) < 0)
        connection_refuse(connection, &error);
    else
        send_answer(connection, ERR_NONE, body.data, body.length, fd);
}

void connection_resume(const char *sandbox)
{
    bool more = true;

    while (more) {
        more = false;
        for (struct connection *connection = all; connection && !more;
             connection = connection->next) {
            if (strcmp(connection->waits_for, sandbox) != 0)
                continue;
            connection->waits_for[0] = '\0';
            dispatch(connection); /* it may wait anew, if another's request put the sandbox on its
                                     way again */
            if (connection->waits_for[0])
                return;
            more = true;
        }
    }
}

void connection_close_all(void)
{
    while (all)
        connection_close(all);
}
