/* The bus: one datagram a message, to the streamer's socket. */
#include "store/bus.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "store/backend.h"

enum {
    SEND_WAIT_MS = 100,
    STUCK_MS = 1000, /* after a wait in vain, so long nobody waits */
    BUFFER_BYTES = 4 * 1024 * 1024,
};

/* Both ends are this program, on one machine. */
struct header {
    int32_t kind;
    char session[37];
    int64_t after;
};

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int sender = -1;
static _Atomic int64_t stuck_until_ms;

static int set_path(struct sockaddr_un *to, const char *path)
{
    if (strlen(path) >= sizeof(to->sun_path))
        return -1;
    memset(to->sun_path, 0, sizeof(to->sun_path));
    memcpy(to->sun_path, path, strlen(path));
    return 0;
}

void bus_init(const char *socket_path)
{
    if (set_path(&address, socket_path) < 0)
        LOG(ERROR, "bus_path_too_long", V("path", socket_path));
}

/* --- receiving ------------------------------------------------------------------------------- */

int bus_receive_open(struct error *err)
{
    auto_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int room = BUFFER_BYTES;

    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "socket");
    if (!address.sun_path[0])
        return error_set(err, ERR_INTERNAL, "the bus has no path");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    /* Before bind, so that the socket file never has wider bits (unix(7)). */
    if (fchmod(fd, S_IRUSR | S_IWUSR) < 0)
        return error_set_errno(err, ERR_INTERNAL, "fchmod");
    if (unlink(address.sun_path) < 0 && errno != ENOENT)
        return error_set_errno(err, ERR_INTERNAL, "remove %s", address.sun_path);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "bind %s", address.sun_path);
    return take_fd(&fd);
}

static bool is_valid(const struct header *header)
{
    return (header->kind == BUS_WAKE || header->kind == BUS_DELTA) &&
           memchr(header->session, '\0', sizeof(header->session));
}

int bus_receive(int socket, struct bus_message *message)
{
    static _Thread_local char *frame; /* of the thread that receives, as long as the process */
    struct header header;

    if (!frame && !(frame = malloc(BUS_MESSAGE_MAX)))
        abort();
    for (;;) {
        struct iovec parts[] = {{&header, sizeof(header)}, {frame, BUS_MESSAGE_MAX}};
        struct msghdr packet = {.msg_iov = parts, .msg_iovlen = COUNT(parts)};
        ssize_t length = recvmsg(socket, &packet, MSG_DONTWAIT);

        if (length < 0 && errno == EINTR)
            continue;
        if (length < 0)
            return 0;
        if ((size_t)length < sizeof(header) || packet.msg_flags & MSG_TRUNC || !is_valid(&header))
            continue;
        *message = (struct bus_message){.kind = (enum bus_kind)header.kind,
                                        .after = header.after,
                                        .frame = frame,
                                        .length = (size_t)length - sizeof(header)};
        memcpy(message->session, header.session, sizeof(message->session));
        return 1;
    }
}

/* --- sending --------------------------------------------------------------------------------- */

/* The socket, connected: only then does poll(2) see the receiver's queue. `again` after the
 * receiver was found gone. -1 when there is none now. */
static int connected(bool again)
{
    const int room = BUFFER_BYTES;
    int fd;

    pthread_mutex_lock(&lock);
    if (sender < 0) {
        sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (sender >= 0)
            setsockopt(sender, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        again = true;
    }
    fd = sender;
    /* A datagram socket may be connected anew. */
    if (fd >= 0 && again && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        fd = -1;
    pthread_mutex_unlock(&lock);
    return fd;
}

static bool wait_for_room(int fd, int64_t deadline)
{
    int64_t now = monotonic_ms();
    struct pollfd room = {.fd = fd, .events = POLLOUT};

    if (now < stuck_until_ms)
        return false;
    if (now < deadline && poll(&room, 1, (int)(deadline - now)) > 0)
        return true;
    stuck_until_ms = now + STUCK_MS;
    return false;
}

void bus_send(enum bus_kind kind, const char *session, int64_t after, const char *frame,
              size_t length)
{
    struct header header = {.kind = (int32_t)kind, .after = after};
    struct iovec parts[] = {{&header, sizeof(header)}, {(char *)frame, length}};
    struct msghdr packet = {.msg_iov = parts, .msg_iovlen = COUNT(parts)};
    int64_t deadline = monotonic_ms() + SEND_WAIT_MS;
    bool fresh = false;
    int fd;

    if (!address.sun_path[0] || length > BUS_MESSAGE_MAX ||
        strlen(session) >= sizeof(header.session))
        return;
    memcpy(header.session, session, strlen(session));
    fd = connected(false);
    while (fd >= 0) {
        if (sendmsg(fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
            if (stuck_until_ms)
                stuck_until_ms = 0;
            return;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN) {
            if (!wait_for_room(fd, deadline))
                return;
        } else if (fresh) {
            return;
        } else {
            /* The receiver went away; perhaps another one is there. */
            fresh = true;
            fd = connected(true);
        }
    }
}
