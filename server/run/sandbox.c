/* The client half of messages.def: see sandbox.h. */
#include "run/sandbox.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/scope.h"
#include "common/wire.h"

enum {
    SCRAPE_MS = 2000,
    SHORT_MS = 30 * 1000,      /* most answers come within a millisecond */
    LONG_MS = 330 * 1000,      /* deletions take as long as there is to delete */
    COMMIT_MS = 930 * 1000,    /* as long as there is to read and to copy */
    EXEC_GRACE_MS = 20 * 1000, /* beyond the command's own timeout, which the supervisor enforces */
    LIST_BYTES_MAX = 256 << 20,
    CHUNK = 64 * 1024,
    DRAIN_LAST_BYTES = 64 << 20, /* what is still read at once after a command's end */
    DRAINED_MAX = 4096,
    DRAIN_ROUNDS = 16,
    RETRY_AFTER_S = 1,
    SEND_BUFFER = 1 << 20,
};

/* What messages name that are of no sandbox. */
static const char nobody[] = "00000000-0000-0000-0000-000000000000";

struct sandbox_link {
    char *path;
    int fd; /* -1: not open */
    uint64_t serial;
};

/* --- the connection ------------------------------------------------------------------------------
 */

struct sandbox_link *sandbox_link_new(const char *path)
{
    struct sandbox_link *link = calloc(1, sizeof(*link));

    if (!link || !(link->path = strdup(path)))
        abort();
    link->fd = -1;
    return link;
}

static void hang_up(struct sandbox_link *link)
{
    scope_close(&link->fd);
    link->fd = -1;
}

void sandbox_link_free(struct sandbox_link *link)
{
    if (!link)
        return;
    hang_up(link);
    free(link->path);
    free(link);
}

static int unavailable(struct error *err)
{
    err->retry_after_s = RETRY_AFTER_S;
    return -1;
}

static int link_open(struct sandbox_link *link, struct error *err)
{
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(link->path);
    int room = SEND_BUFFER;

    if (fd < 0) {
        error_set_errno(err, ERR_UNAVAILABLE, "socket");
        return unavailable(err);
    }
    if (length >= sizeof(address.sun_path))
        return error_set(err, ERR_INTERNAL, "the supervisor's socket has too long a path");
    memcpy(address.sun_path, link->path, length);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        error_set_errno(err, ERR_UNAVAILABLE, "the sandbox supervisor can't be reached");
        return unavailable(err);
    }
    link->fd = take_fd(&fd);
    return 0;
}

/* Nothing is due on an idle connection but its end. */
static bool still_open(const struct sandbox_link *link)
{
    struct pollfd event = {.fd = link->fd, .events = POLLIN | POLLRDHUP};

    return link->fd >= 0 && poll(&event, 1, 0) == 0;
}

/* --- asking --------------------------------------------------------------------------------------
 */

/* What is asked, and what is done while the answer is waited for. */
struct call {
    enum message_type type;
    const struct schema *body_schema;
    const void *body;
    const int *descriptors;
    size_t descriptor_count;
    const struct schema *answer_schema;
    void *answer;        /* a struct of it; NULL: nothing is wanted of it */
    struct arena *arena; /* for its texts */
    int *fd;             /* a descriptor that comes with the answer; NULL: none does */
    int64_t deadline_ms;
};

static int call_send(struct sandbox_link *link, const struct call *call, struct error *err)
{
    auto_buffer struct buffer body = {0};
    struct wire_header header = {.type = call->type, .serial = ++link->serial};

    if (!still_open(link)) {
        hang_up(link);
        if (link_open(link, err) < 0)
            return -1;
    }
    if (wire_encode(call->body_schema, call->body, &body, err) < 0)
        return -1;
    if (wire_send(link->fd, &header, body.data, body.length, call->descriptors,
                  call->descriptor_count, err) < 0) {
        hang_up(link);
        return err->kind == ERR_UNAVAILABLE ? unavailable(err) : -1;
    }
    return 0;
}

/* The supervisor's sentence; a kind that this side does not know is a defect. */
static int refused(const struct wire_packet *packet, struct error *err)
{
    enum error_kind kind =
        packet->header.kind < ERR_KINDS ? (enum error_kind)packet->header.kind : ERR_INTERNAL;

    error_set(err, kind, "%.*s", (int)(packet->length < 400 ? packet->length : 400),
              (const char *)packet->body);
    return kind == ERR_UNAVAILABLE ? unavailable(err) : -1;
}

static int read_answer(const struct call *call, struct wire_packet *packet, struct arena *arena,
                       struct error *err)
{
    struct nothing ignored;

    if (packet->header.kind != ERR_NONE)
        return refused(packet, err);
    if (wire_decode(call->answer_schema, packet->body, packet->length,
                    call->answer ? call->answer : &ignored, arena, err) < 0)
        return error_add_context(err, "answer of the supervisor");
    if (call->fd && packet->descriptor_count != 1)
        return error_set(err, ERR_INTERNAL, "the supervisor's answer has no descriptor");
    if (call->fd)
        *call->fd = take_fd(&packet->descriptors[0]);
    return 0;
}

/* Take the answer, which is there. 0, or -1; after a failure that is not the supervisor's answer
 * the connection is closed. */
static int call_receive(struct sandbox_link *link, const struct call *call, struct error *err)
{
    auto_arena struct arena own = {0};
    struct arena *arena = call->arena ? call->arena : &own;
    struct wire_packet packet;
    int got = wire_receive(link->fd, call->fd ? 1 : 0, &packet, arena, err), result;

    if (got <= 0 || packet.header.type != (call->type | WIRE_REPLY) ||
        packet.header.serial != link->serial) {
        if (got > 0)
            wire_packet_close(&packet);
        hang_up(link);
        error_set(err, ERR_UNAVAILABLE, "the sandbox supervisor was restarted");
        return unavailable(err);
    }
    result = read_answer(call, &packet, arena, err);
    wire_packet_close(&packet);
    return result;
}

static int overdue(struct sandbox_link *link, struct error *err)
{
    hang_up(link);
    error_set(err, ERR_UNAVAILABLE, "the sandbox supervisor did not answer in time");
    return unavailable(err);
}

static int wait_ms(int64_t deadline)
{
    int64_t left = deadline - clock_ms();

    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

static int call_wait(struct sandbox_link *link, const struct call *call, struct error *err)
{
    int64_t deadline = clock_ms() + call->deadline_ms;
    struct pollfd event = {.fd = link->fd, .events = POLLIN};

    while (poll(&event, 1, wait_ms(deadline)) <= 0)
        if (clock_ms() >= deadline)
            return overdue(link, err);
    return call_receive(link, call, err);
}

static int ask(struct sandbox_link *link, const struct call *call, struct error *err)
{
    return call_send(link, call, err) < 0 ? -1 : call_wait(link, call, err);
}

/* A call whose answer says nothing but that it was done. */
#define SIMPLE(name, value, patience)                       \
    (&(const struct call){.type = MESSAGE_##name,           \
                          .body_schema = &schema_##name,    \
                          .body = (value),                  \
                          .answer_schema = &schema_nothing, \
                          .deadline_ms = (patience)})

int sandbox_create(struct sandbox_link *link, const char *sandbox, struct error *err)
{
    return sandbox_create_sized(link, &(struct create){.sandbox = sandbox}, err);
}

int sandbox_create_sized(struct sandbox_link *link, const struct create *create, struct error *err)
{
    return ask(link, SIMPLE(create, create, create->snapshot ? LONG_MS : SHORT_MS), err);
}

int sandbox_start(struct sandbox_link *link, const struct start *start, struct error *err)
{
    return ask(link, SIMPLE(start, start, SHORT_MS), err);
}

int sandbox_stop(struct sandbox_link *link, const char *sandbox, struct error *err)
{
    return ask(link, SIMPLE(stop, &(struct stop){.sandbox = sandbox}, LONG_MS), err);
}

int sandbox_destroy(struct sandbox_link *link, const char *sandbox, struct error *err)
{
    return ask(link, SIMPLE(destroy, &(struct destroy){.sandbox = sandbox}, LONG_MS), err);
}

int sandbox_image_commit(struct sandbox_link *link, const char *sandbox, const char *image,
                         struct error *err)
{
    const struct image_commit body = {.sandbox = sandbox, .image = image};

    return ask(link, SIMPLE(image_commit, &body, COMMIT_MS), err);
}

int sandbox_status(struct sandbox_link *link, const char *sandbox, struct arena *arena,
                   struct sandbox_status *status, struct error *err)
{
    struct call call = {
        .type = MESSAGE_status,
        .body_schema = &schema_status,
        .body = &(struct status){.sandbox = sandbox},
        .answer_schema = &schema_sandbox_status,
        .answer = status,
        .arena = arena,
        .deadline_ms = SHORT_MS,
    };

    return ask(link, &call, err);
}

/* --- lists ---------------------------------------------------------------------------------------
 */

/* What is done with the entries of a stream of bodies, each behind its length, as they come. */
struct listing {
    const struct schema *schema;
    struct arena *arena; /* of the entries; NULL: each is forgotten when the next one comes */
    int (*each)(const void *entry, void *data, struct error *err);
    void *data;
    struct buffer pending; /* not whole yet */
    int64_t bytes;
};

static void listing_done(struct listing *listing)
{
    buffer_done(&listing->pending);
}
#define auto_listing __attribute__((cleanup(listing_done)))

/* Decode what is whole. */
static int listing_take(struct listing *listing, struct error *err)
{
    auto_arena struct arena own = {0};
    struct arena *arena = listing->arena ? listing->arena : &own;
    struct buffer *pending = &listing->pending;
    size_t at = 0;

    for (;;) {
        uint32_t length;
        void *entry;

        if (pending->length - at < sizeof(length))
            break;
        memcpy(&length, pending->data + at, sizeof(length));
        length = le32toh(length);
        if (length > WIRE_PACKET_MAX)
            return error_set(err, ERR_INTERNAL, "the supervisor's list is broken");
        if (length > pending->length - at - sizeof(length))
            break;
        at += sizeof(length);
        entry = arena_alloc(arena, listing->schema->size);
        if (wire_decode(listing->schema, pending->data + at, length, entry, arena, err) < 0 ||
            listing->each(entry, listing->data, err) < 0)
            return -1;
        at += length;
    }
    pending->length -= at;
    memmove(pending->data, pending->data + at, pending->length);
    return 0;
}

/* Ask for the list, take its entries, then the answer. */
static int read_list(struct sandbox_link *link, struct call *call, struct listing *listing,
                     struct error *err)
{
    int64_t deadline = clock_ms() + LONG_MS;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set_errno(err, ERR_UNAVAILABLE, "pipe");
        return unavailable(err);
    }
    auto_close int from = ends[0], to = ends[1];
    call->descriptors = &to;
    call->descriptor_count = 1;
    call->answer_schema = &schema_nothing;
    call->deadline_ms = LONG_MS;
    if (call_send(link, call, err) < 0)
        return -1;
    close(take_fd(&to));
    for (;;) {
        struct pollfd event = {.fd = from, .events = POLLIN};
        ssize_t got;

        if (poll(&event, 1, wait_ms(deadline)) <= 0) {
            if (clock_ms() >= deadline)
                return overdue(link, err);
            continue;
        }
        got = read(from, buffer_reserve(&listing->pending, CHUNK), CHUNK);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        listing->pending.length += (size_t)got;
        listing->bytes += got;
        if (listing->bytes > LIST_BYTES_MAX || listing_take(listing, err) < 0) {
            hang_up(link);
            return listing->bytes > LIST_BYTES_MAX
                       ? error_set(err, ERR_TOO_LARGE, "the list is too long")
                       : -1;
        }
    }
    /* Which says why, should it have been cut short. */
    if (call_wait(link, call, err) < 0)
        return -1;
    return listing->pending.length
               ? error_set(err, ERR_INTERNAL, "the supervisor's list is cut short")
               : 0;
}

/* All entries, in an array in the arena. */
struct collection {
    struct arena *arena;
    size_t size, count, room;
    char *all;
};

static int collect(const void *entry, void *data, struct error *err)
{
    struct collection *collection = data;

    (void)err;
    if (collection->count == collection->room) {
        size_t room = collection->room ? 2 * collection->room : 64;
        char *more = arena_alloc(collection->arena, room * collection->size);

        if (collection->count)
            memcpy(more, collection->all, collection->count * collection->size);
        collection->all = more;
        collection->room = room;
    }
    memcpy(collection->all + collection->count++ * collection->size, entry, collection->size);
    return 0;
}

static int ask_list(struct sandbox_link *link, struct call *call, const struct schema *schema,
                    struct arena *arena, void **values, size_t *count, struct error *err)
{
    struct collection collection = {.arena = arena, .size = schema->size};
    auto_listing struct listing listing = {
        .schema = schema, .arena = arena, .each = collect, .data = &collection};

    if (read_list(link, call, &listing, err) < 0)
        return -1;
    *values = collection.all;
    *count = collection.count;
    return 0;
}

int sandbox_list(struct sandbox_link *link, struct arena *arena, struct sandbox_entry **entries,
                 size_t *count, struct error *err)
{
    const struct list body = {.sandbox = nobody};
    struct call call = {.type = MESSAGE_list, .body_schema = &schema_list, .body = &body};

    return ask_list(link, &call, &schema_sandbox_entry, arena, (void **)entries, count, err);
}

int sandbox_file_list(struct sandbox_link *link, const char *sandbox, const char *path,
                      struct arena *arena, struct file_entry **entries, size_t *count,
                      struct error *err)
{
    const struct file_list body = {.sandbox = sandbox, .path = path};
    struct call call = {.type = MESSAGE_file_list, .body_schema = &schema_file_list, .body = &body};

    return ask_list(link, &call, &schema_file_entry, arena, (void **)entries, count, err);
}

struct file_call {
    int (*each)(const struct file_entry *entry, void *data, struct error *err);
    void *data;
};

static int call_file(const void *entry, void *data, struct error *err)
{
    const struct file_call *call = data;

    return call->each(entry, call->data, err);
}

int sandbox_file_each(struct sandbox_link *link, const char *sandbox, const char *path,
                      int (*each)(const struct file_entry *entry, void *data, struct error *err),
                      void *data, struct error *err)
{
    const struct file_list body = {.sandbox = sandbox, .path = path};
    struct call call = {.type = MESSAGE_file_list, .body_schema = &schema_file_list, .body = &body};
    struct file_call file_call = {each, data};
    auto_listing struct listing listing = {
        .schema = &schema_file_entry, .each = call_file, .data = &file_call};

    return read_list(link, &call, &listing, err);
}

int sandbox_usage(struct sandbox_link *link, const char *sandbox, struct sandbox_usage *usage,
                  struct error *err)
{
    struct call call = {
        .type = MESSAGE_resources,
        .body_schema = &schema_resources,
        .body = &(struct resources){.sandbox = sandbox},
        .answer_schema = &schema_sandbox_usage,
        .answer = usage,
        .deadline_ms = SHORT_MS,
    };

    return ask(link, &call, err);
}

/* --- snapshots -----------------------------------------------------------------------------------
 */

int sandbox_snapshot_make(struct sandbox_link *link, const char *sandbox, const char *snapshot,
                          struct arena *arena, struct snapshot_entry *made, struct error *err)
{
    struct snapshot_entry ignored = {0};
    struct call call = {
        .type = MESSAGE_snapshot_make,
        .body_schema = &schema_snapshot_make,
        .body = &(struct snapshot_make){.sandbox = sandbox, .snapshot = snapshot},
        .answer_schema = &schema_snapshot_entry,
        .answer = made ? made : &ignored,
        .arena = arena,
        .deadline_ms = LONG_MS,
    };

    return ask(link, &call, err);
}

int sandbox_snapshot_remove(struct sandbox_link *link, const char *snapshot, struct error *err)
{
    const struct snapshot_remove body = {.sandbox = nobody, .snapshot = snapshot};

    return ask(link, SIMPLE(snapshot_remove, &body, LONG_MS), err);
}

int sandbox_snapshot_list(struct sandbox_link *link, const char *sandbox, struct arena *arena,
                          struct snapshot_entry **entries, size_t *count, struct error *err)
{
    const struct snapshot_list body = {.sandbox = sandbox ? sandbox : nobody};
    struct call call = {
        .type = MESSAGE_snapshot_list, .body_schema = &schema_snapshot_list, .body = &body};

    return ask_list(link, &call, &schema_snapshot_entry, arena, (void **)entries, count, err);
}

/* --- files ---------------------------------------------------------------------------------------
 */

int sandbox_file_open(struct sandbox_link *link, const char *sandbox, const char *path,
                      struct file_info *info, int *fd, struct error *err)
{
    struct call call = {
        .type = MESSAGE_file_open,
        .body_schema = &schema_file_open,
        .body = &(struct file_open){.sandbox = sandbox, .path = path},
        .answer_schema = &schema_file_info,
        .answer = info,
        .fd = fd,
        .deadline_ms = SHORT_MS,
    };

    return ask(link, &call, err);
}

int sandbox_file_create(struct sandbox_link *link, const char *sandbox, const char *path,
                        int64_t mode, int *fd, struct error *err)
{
    struct call call = {
        .type = MESSAGE_file_create,
        .body_schema = &schema_file_create,
        .body = &(struct file_create){.sandbox = sandbox, .path = path, .mode = mode},
        .answer_schema = &schema_nothing,
        .fd = fd,
        .deadline_ms = SHORT_MS,
    };

    return ask(link, &call, err);
}

int sandbox_file_commit(struct sandbox_link *link, const char *sandbox, struct error *err)
{
    return ask(link, SIMPLE(file_commit, &(struct file_commit){.sandbox = sandbox}, SHORT_MS), err);
}

int sandbox_file_remove(struct sandbox_link *link, const char *sandbox, const char *path,
                        bool recursive, struct error *err)
{
    const struct file_remove body = {.sandbox = sandbox, .path = path, .recursive = recursive};

    return ask(link, SIMPLE(file_remove, &body, LONG_MS), err);
}

int sandbox_file_stat(struct sandbox_link *link, const char *sandbox, const char *path,
                      struct arena *arena, struct file_entry *entry, struct error *err)
{
    struct call call = {
        .type = MESSAGE_file_stat,
        .body_schema = &schema_file_stat,
        .body = &(struct file_stat){.sandbox = sandbox, .path = path},
        .answer_schema = &schema_file_entry,
        .answer = entry,
        .arena = arena,
        .deadline_ms = SHORT_MS,
    };

    return ask(link, &call, err);
}

int sandbox_file_move(struct sandbox_link *link, const char *sandbox, const char *path,
                      const char *to, struct error *err)
{
    const struct file_move body = {.sandbox = sandbox, .path = path, .to = to};

    return ask(link, SIMPLE(file_move, &body, SHORT_MS), err);
}

int sandbox_file_mode(struct sandbox_link *link, const char *sandbox, const char *path,
                      int64_t mode, struct error *err)
{
    const struct file_mode body = {.sandbox = sandbox, .path = path, .mode = mode};

    return ask(link, SIMPLE(file_mode, &body, SHORT_MS), err);
}

int sandbox_directory_make(struct sandbox_link *link, const char *sandbox, const char *path,
                           struct error *err)
{
    const struct directory_make body = {.sandbox = sandbox, .path = path};

    return ask(link, SIMPLE(directory_make, &body, SHORT_MS), err);
}

/* --- ports ---------------------------------------------------------------------------------------
 */

/* An unconnected socket of that family, made inside. */
static int port_socket(struct sandbox_link *link, const char *sandbox, int64_t port, int64_t family,
                       int *fd, struct error *err)
{
    struct call call = {
        .type = MESSAGE_port_open,
        .body_schema = &schema_port_open,
        .body = &(struct port_open){.sandbox = sandbox, .port = port, .family = family},
        .answer_schema = &schema_nothing,
        .fd = fd,
        .deadline_ms = SHORT_MS,
    };

    return ask(link, &call, err);
}

/* 0, or an errno. */
static int connect_until(int fd, const struct sockaddr *address, socklen_t length, int64_t deadline)
{
    struct pollfd event = {.fd = fd, .events = POLLOUT};
    int result = 0;
    socklen_t size = sizeof(result);

    if (connect(fd, address, length) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    while (poll(&event, 1, wait_ms(deadline)) <= 0)
        if (clock_ms() >= deadline)
            return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &size) < 0 ? errno : result;
}

int sandbox_port_open(struct sandbox_link *link, const char *sandbox, int64_t port,
                      int64_t timeout_ms, int *fd, struct error *err)
{
    const struct sockaddr_in four = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                                     .sin6_port = htons((uint16_t)port),
                                     .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const struct {
        int64_t family;
        const struct sockaddr *address;
        socklen_t length;
    } ways[] = {{4, (const struct sockaddr *)&four, sizeof(four)},
                {6, (const struct sockaddr *)&six, sizeof(six)}};
    int64_t deadline = clock_ms() + timeout_ms;
    int failure = ECONNREFUSED;

    for (size_t i = 0; i < COUNT(ways) && failure == ECONNREFUSED; i++) {
        auto_close int own = -1;

        if (port_socket(link, sandbox, port, ways[i].family, &own, err) < 0) {
            /* Kernels without IPv6: then nothing listens there. */
            if (i > 0 && err->kind == ERR_UPSTREAM)
                break;
            return -1;
        }
        failure = connect_until(own, ways[i].address, ways[i].length, deadline);
        if (failure == 0) {
            *fd = take_fd(&own);
            return 0;
        }
    }
    if (failure == ETIMEDOUT)
        return error_set(err, ERR_UPSTREAM, "what listens at port %lld does not accept in time",
                         (long long)port);
    /* Loopback without an IPv6 address is as if nobody listened there. */
    return error_set(err, ERR_UPSTREAM, "nothing listens at port %lld of the sandbox",
                     (long long)port);
}

/* --- statistics ----------------------------------------------------------------------------------
 */

int sandbox_statistics(struct sandbox_link *link, struct buffer *text, struct error *err)
{
    auto_close int file = -1;
    struct call call = {
        .type = MESSAGE_statistics,
        .body_schema = &schema_statistics,
        .body = &(struct statistics){.sandbox = nobody},
        .answer_schema = &schema_nothing,
        .fd = &file,
        .deadline_ms = SCRAPE_MS,
    };
    char chunk[CHUNK];
    ssize_t got;

    if (ask(link, &call, err) < 0)
        return -1;
    for (off_t at = 0; (got = pread(file, chunk, sizeof(chunk), at)) > 0; at += got)
        buffer_add(text, chunk, (size_t)got);
    return got < 0 ? error_set_errno(err, ERR_INTERNAL, "statistics") : 0;
}

/* --- draining ------------------------------------------------------------------------------------
 */

/* A place in the ring; `turn` tells an event of its descriptor from one of an earlier descriptor.
 */
struct drained {
    int fd; /* -1: free */
    uint32_t turn;
};

static struct {
    pthread_mutex_t
        mutex; /* held by whoever reads or closes one, so that no number is used again meanwhile */
    pid_t owner; /* the process whose thread reads; a child has no such thread */
    int queue;
    struct drained ring[DRAINED_MAX];
    size_t next;
} drain = {.mutex = PTHREAD_MUTEX_INITIALIZER, .queue = -1};

static void drain_read(uint64_t which, char *bytes)
{
    struct drained *place = &drain.ring[which % DRAINED_MAX];
    ssize_t got = 1;

    if (place->fd < 0 || place->turn != which / DRAINED_MAX)
        return;
    /* A few at a time, so that one flood does not starve the others. */
    for (int round = 0; round < DRAIN_ROUNDS && got > 0; round++)
        got = read(place->fd, bytes, CHUNK);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        close(place->fd);
        place->fd = -1;
    }
}

static void *drain_run(void *queue)
{
    char *bytes = malloc(CHUNK);
    struct epoll_event event;

    if (!bytes)
        abort();
    for (;;) {
        if (epoll_wait((int)(intptr_t)queue, &event, 1, -1) != 1)
            continue;
        pthread_mutex_lock(&drain.mutex);
        drain_read(event.data.u64, bytes);
        pthread_mutex_unlock(&drain.mutex);
    }
    return NULL;
}

/* The thread takes no signals: they are the program's. */
static bool drain_start(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    bool started;

    if (drain.owner == getpid())
        return true;
    drain.queue = epoll_create1(EPOLL_CLOEXEC);
    if (drain.queue < 0)
        return false;
    for (size_t i = 0; i < DRAINED_MAX; i++)
        drain.ring[i].fd = -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    started = pthread_create(&thread, &attributes, drain_run, (void *)(intptr_t)drain.queue) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        drain.owner = getpid();
    else
        close(drain.queue);
    return started;
}

void sandbox_drain(int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct drained *place;
    size_t index;

    fcntl(fd, F_SETFL, O_NONBLOCK);
    pthread_mutex_lock(&drain.mutex);
    index = drain.next % DRAINED_MAX;
    place = &drain.ring[index];
    if (drain_start()) {
        drain.next++;
        scope_close(&place->fd);
        *place = (struct drained){.fd = fd, .turn = place->turn + 1};
        event.data.u64 = (uint64_t)place->turn * DRAINED_MAX + index;
        if (epoll_ctl(drain.queue, EPOLL_CTL_ADD, fd, &event) == 0)
            fd = -1;
        else
            place->fd = -1;
    }
    pthread_mutex_unlock(&drain.mutex);
    scope_close(&fd);
}

/* --- commands ------------------------------------------------------------------------------------
 */

/* A stream of a command: our end, and what came out of it. */
struct stream {
    int fd; /* -1: ended */
    size_t keep;
    struct sandbox_output *output;
    sandbox_hear *hear; /* of what is not kept; NULL: nobody */
    void *context;
};

/* Read what is there, once. False when nothing more is there now. */
static bool stream_read(struct stream *stream)
{
    struct buffer *bytes = &stream->output->bytes;
    size_t room = stream->keep > bytes->length ? stream->keep - bytes->length : 0;
    static _Thread_local char dropped[CHUNK];
    ssize_t got;

    if (stream->fd < 0)
        return false;
    if (room > CHUNK)
        room = CHUNK;
    do
        got = read(stream->fd, room ? buffer_reserve(bytes, room) : dropped,
                   room ? room : sizeof(dropped));
    while (got < 0 && errno == EINTR);
    if (room) {
        bytes->length += got > 0 ? (size_t)got : 0;
        bytes->data[bytes->length] = '\0';
    }
    if (got < 0 && errno == EAGAIN)
        return false;
    if (got <= 0) {
        close(stream->fd);
        stream->fd = -1;
        return false;
    }
    stream->output->total += got;
    if (stream->hear)
        stream->hear(dropped, (size_t)got, stream->context);
    return true;
}

/* After the command's end: what it wrote is in the pipe; what its children go on writing is
 * nobody's. */
static void stream_finish(struct stream *stream)
{
    int64_t limit = stream->output->total + DRAIN_LAST_BYTES;

    while (stream->output->total < limit && stream_read(stream))
        ;
    if (stream->fd >= 0)
        sandbox_drain(stream->fd);
    stream->fd = -1;
}

static short cancel_events(int fd)
{
    struct stat status;

    /* Bytes on a client's socket may be its next request. */
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode))
        return POLLRDHUP;
    return POLLIN | POLLRDHUP;
}

static int exec_wait(struct sandbox_link *link, const struct call *call, int cancel_fd,
                     struct stream *streams, struct error *err)
{
    int64_t deadline = clock_ms() + call->deadline_ms;
    short cancelling = cancel_events(cancel_fd);

    for (;;) {
        struct pollfd events[] = {
            {.fd = link->fd, .events = POLLIN},
            {.fd = streams[0].fd, .events = POLLIN},
            {.fd = streams[1].fd, .events = POLLIN},
            {.fd = cancel_fd, .events = cancelling},
        };

        if (poll(events, COUNT(events), wait_ms(deadline)) < 0 && errno != EINTR)
            return error_set_errno(err, ERR_INTERNAL, "poll");
        for (size_t i = 0; i < 2; i++)
            if (events[1 + i].revents)
                stream_read(&streams[i]);
        if (events[0].revents)
            return call_receive(link, call, err);
        if (events[3].revents) {
            hang_up(link); /* which ends the command */
            return error_set(err, ERR_TIMEOUT, "the command was cancelled");
        }
        if (clock_ms() >= deadline)
            return overdue(link, err);
    }
}

/* A pipe whose reading end never blocks us, and whose writing end is an ordinary one. Init may open
 * it for reading, too, by which it outlives this process (supervisor/tails.h); so may the command,
 * whose own words these are. */
static int make_pipe(int *from, int *to, struct error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set_errno(err, ERR_UNAVAILABLE, "pipe");
        return unavailable(err);
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fchmod(ends[0], 0666);
    *from = ends[0];
    *to = ends[1];
    return 0;
}

static int exec_run(struct sandbox_link *link, struct call *call, int cancel_fd,
                    struct stream *streams, struct error *err)
{
    auto_close int input = -1, no_input = -1, output = -1, errors = -1;

    if (make_pipe(&input, &no_input, err) < 0 || make_pipe(&streams[0].fd, &output, err) < 0 ||
        make_pipe(&streams[1].fd, &errors, err) < 0)
        return -1;
    fcntl(input, F_SETFL, 0);
    close(take_fd(&no_input)); /* empty */
    call->descriptors = (const int[]){input, output, errors};
    call->descriptor_count = 3;
    if (call_send(link, call, err) < 0)
        return -1;
    for (size_t i = 0; i < 3; i++)
        close(take_fd((int *[]){&input, &output, &errors}[i]));
    return exec_wait(link, call, cancel_fd, streams, err);
}

static int exec_streams(struct sandbox_link *link, const struct exec *exec, int cancel_fd,
                        struct stream *streams, struct exec_result *result, struct error *err)
{
    struct call call = {
        .type = MESSAGE_exec,
        .body_schema = &schema_exec,
        .body = exec,
        .answer_schema = &schema_exec_result,
        .answer = result,
        .deadline_ms = exec->timeout_ms + EXEC_GRACE_MS,
    };
    int answer = exec_run(link, &call, cancel_fd, streams, err);

    for (size_t i = 0; i < 2; i++)
        stream_finish(&streams[i]);
    return answer;
}

int sandbox_exec(struct sandbox_link *link, const struct exec *exec, size_t keep, int cancel_fd,
                 struct sandbox_output *out, struct sandbox_output *errors,
                 struct exec_result *result, struct error *err)
{
    struct stream streams[2] = {{.fd = -1, .keep = keep, .output = out},
                                {.fd = -1, .keep = keep, .output = errors}};

    return exec_streams(link, exec, cancel_fd, streams, result, err);
}

int sandbox_exec_heard(struct sandbox_link *link, const struct exec *exec, int cancel_fd,
                       sandbox_hear *hear, void *context, struct exec_result *result,
                       struct error *err)
{
    struct sandbox_output outputs[2] = {0};
    struct stream streams[2] = {
        {.fd = -1, .output = &outputs[0], .hear = hear, .context = context},
        {.fd = -1, .output = &outputs[1], .hear = hear, .context = context}};

    return exec_streams(link, exec, cancel_fd, streams, result, err);
}
