/* Commands in running sandboxes: see exec.h. What init says is hostile until it was checked: fixed
 * size, known ids, and nothing of it is used but numbers. */
#include "supervisor/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/cgroup.h"
#include "supervisor/connection.h"
#include "supervisor/dispatch.h"
#include "supervisor/environment.h"
#include "supervisor/init.h"
#include "supervisor/packet.h"
#include "supervisor/statistics.h"

enum {
    STREAMS = 3,
    BACKSTOP_MS = 12000, /* beyond a timeout, which is init's to enforce */
    SEND_BUFFER = 4 << 20,
    EXIT_TIMED_OUT = 124,
};

struct command {
    uint64_t id;
    struct sandbox *box;
    struct connection *connection; /* NULL: nobody waits */
    int64_t oom_before;
    int64_t started_ms;
    bool timed_out;
    struct timer backstop;
    /* Until init could take it: */
    struct buffer packet;
    int streams[STREAMS];
    struct command *next;
};

static int64_t running;
static void (*on_ready)(struct sandbox *box);
static void (*on_named)(struct sandbox *box, int status);

static uint64_t next_id(void)
{
    static uint64_t last;

    /* Unlike any of an earlier supervisor, whose commands init may still remember. */
    if (!last) {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        last = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    }
    return ++last;
}

static void free_packet(struct command *command)
{
    buffer_done(&command->packet);
    for (int i = 0; i < STREAMS; i++) {
        scope_close(&command->streams[i]);
        command->streams[i] = -1;
    }
}

static void command_free(struct command *command)
{
    struct command **at = &command->box->commands;

    while (*at != command)
        at = &(*at)->next;
    *at = command->next;
    running--;
    if (command->connection)
        command->connection->command = NULL;
    loop_clear(&command->backstop);
    free_packet(command);
    free(command);
}

/* --- talking to init ------------------------------------------------------------------------- */

static int send_request(struct sandbox *box, const void *bytes, size_t length, const int *fds,
                        size_t count)
{
    return packet_send(box->control.fd, bytes, length, fds, count, MSG_DONTWAIT);
}

/* A sandbox whose init can't be talked to is ended; its pidfd tells the rest. */
static void give_up(struct sandbox *box, const char *reason)
{
    LOG(ERROR, "init_lost", V("sandbox", (const char *)box->id), V("reason", reason));
    loop_close_watch(&box->control);
    cgroup_kill(box->cgroup);
}

/* Small ones are not queued: init has thousands of bytes of room for them, or it hangs. */
static void tell(struct sandbox *box, enum init_request_type type, uint64_t id)
{
    struct init_request request = {.type = type, .id = id};

    if (box->control.fd >= 0 && send_request(box, &request, sizeof(request), NULL, 0) < 0)
        give_up(box, "does not take messages");
}

/* Send what has not gone yet. */
static void flush(struct sandbox *box)
{
    bool waiting = false;

    for (struct command *command = box->commands; command && box->control.fd >= 0;
         command = command->next) {
        if (!command->packet.length)
            continue;
        if (send_request(box, command->packet.data, command->packet.length, command->streams,
                         STREAMS) == 0)
            free_packet(command);
        else if (errno == EAGAIN || errno == ETOOMANYREFS)
            waiting = true;
        else
            give_up(box, "does not take commands");
    }
    if (box->control.fd >= 0)
        loop_change(&box->control, waiting ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* --- what init says -------------------------------------------------------------------------- */

static void answer(struct command *command, int status, int64_t duration_ms)
{
    struct exec_result result = {.duration_ms = duration_ms < 0 ? 0 : duration_ms,
                                 .timed_out = command->timed_out};
    struct connection *connection = command->connection;

    if (WIFSIGNALED(status)) {
        result.signal = WTERMSIG(status) < NSIG ? WTERMSIG(status) : SIGKILL;
        result.exit_code = 128 + result.signal;
    } else {
        result.exit_code = WEXITSTATUS(status);
    }
    /* A shell that outlives its child says 137 for it. */
    result.oom_killed = result.exit_code == 128 + SIGKILL && !command->timed_out &&
                        statistics_oom_kills(command->box) > command->oom_before;
    if (command->timed_out) {
        result.exit_code = EXIT_TIMED_OUT;
        result.signal = 0;
    }
    command_free(command);
    if (connection)
        connection_answer(connection, &schema_exec_result, &result, -1);
}

static void refused(struct command *command, int reason)
{
    struct connection *connection = command->connection;
    struct error error;

    if (reason == EAGAIN || reason == ENOMEM)
        error_set(&error, ERR_CONFLICT, "the sandbox has no room for another process");
    else if (reason == EUSERS)
        error_set(&error, ERR_CONFLICT, "too many commands run in the sandbox");
    else
        error_set(&error, ERR_INTERNAL, "init refused the command (%d)", reason);
    command_free(command);
    if (connection)
        connection_refuse(connection, &error);
}

static void hear(struct sandbox *box, const struct init_event *event)
{
    struct command *command = box->commands;

    while (command && command->id != event->id)
        command = command->next;
    switch (event->type) {
    case INIT_READY:
        if (on_ready)
            on_ready(box);
        return;
    case INIT_RUNNING:
        /* Of an earlier supervisor: its asker's connection ended with that. */
        if (!command)
            tell(box, INIT_ABORT, event->id);
        return;
    case INIT_ENDED:
        tell(box, INIT_ACK, event->id);
        if (command) {
            command->timed_out |= (event->flags & INIT_TIMED_OUT) != 0;
            answer(command, event->status, event->duration_ms);
        } else {
            LOG(INFO, "exec_ended_unasked", V("sandbox", (const char *)box->id),
                V("status", (long)event->status), V("duration_ms", (long)event->duration_ms));
        }
        return;
    case INIT_NAMED:
        if (box->naming && on_named)
            on_named(box, event->status);
        return;
    case INIT_REFUSED:
        if (command)
            refused(command, event->status);
        return;
    default:
        give_up(box, "speaks nonsense");
    }
}

static void control_ready(struct watch *watch, uint32_t events)
{
    struct sandbox *box = OWNER(watch, struct sandbox, control);
    struct init_event event;
    ssize_t length;

    if (events & EPOLLOUT)
        flush(box);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || box->control.fd < 0)
        return;
    length = recv(watch->fd, &event, sizeof(event), MSG_DONTWAIT | MSG_TRUNC);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length == sizeof(event))
        hear(box, &event);
    else if (length <= 0)
        loop_close_watch(&box->control); /* init is dying: the pidfd says when */
    else
        give_up(box, "speaks nonsense");
}

void exec_name(struct sandbox *box, const char *hostname,
               void (*named)(struct sandbox *box, int status))
{
    struct {
        struct init_request head;
        char hostname[64];
    } request = {.head = {.type = INIT_NAME, .length = (uint32_t)strlen(hostname) + 1}};

    on_named = named;
    snprintf(request.hostname, sizeof(request.hostname), "%s", hostname);
    if (box->control.fd < 0 ||
        send_request(box, &request, sizeof(request.head) + request.head.length, NULL, 0) < 0)
        give_up(box, "does not take its name");
}

int exec_connect(struct sandbox *box, void (*ready)(struct sandbox *box), struct error *err)
{
    auto_close int folder = sandbox_open_folder(box->id, err);
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int room = SEND_BUFFER;

    on_ready = ready;
    if (folder < 0)
        return -1;
    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "socket");
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/ctl.sock", folder);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "connect to init");
    if (loop_watch(&box->control, fd, EPOLLIN, control_ready, err) < 0)
        return -1;
    take_fd(&fd);
    tell(box, INIT_HELLO, 0);
    return 0;
}

int64_t exec_running(void)
{
    return running;
}

/* --- what peers ask -------------------------------------------------------------------------- */

static void overdue(struct timer *timer)
{
    struct command *command = OWNER(timer, struct command, backstop);
    struct sandbox *box = command->box;

    command->timed_out = true;
    answer(command, SIGKILL, 0);
    give_up(box, "did not end a command in time");
}

void exec_abandon(struct command *command)
{
    command->connection = NULL;
    if (command->packet.length) {
        command_free(command); /* init never saw it */
        return;
    }
    tell(command->box, INIT_ABORT, command->id);
    loop_set(&command->backstop, BACKSTOP_MS, overdue);
}

void exec_end_short_of_memory(struct sandbox *box)
{
    int64_t kills = statistics_oom_kills(box);

    for (struct command *command = box->commands, *next; command; command = next) {
        next = command->next;
        if (kills > command->oom_before)
            answer(command, SIGKILL, loop_now() - command->started_ms);
    }
}

void exec_end_all(struct sandbox *box, const struct error *reason)
{
    loop_close_watch(&box->control);
    environment_forget(box);
    while (box->commands) {
        struct connection *connection = box->commands->connection;

        command_free(box->commands);
        if (connection)
            connection_refuse(connection, reason);
    }
}

/* A tenant may hold a copy of what it is given, so only what can do no harm is passed: pipes,
 * sockets, the null device; and never a descriptor that is a mere place (O_PATH). */
static int check_stream(int fd, int needed, struct error *err)
{
    struct stat status;
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fstat(fd, &status) < 0)
        return error_set_errno(err, ERR_BAD_REQUEST, "exec: descriptor");
    if ((flags & O_PATH) || ((flags & O_ACCMODE) != needed && (flags & O_ACCMODE) != O_RDWR))
        return error_set(err, ERR_BAD_REQUEST, "exec: a descriptor is not open for its use");
    if (!S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode) &&
        !(S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3)))
        return error_set(err, ERR_BAD_REQUEST,
                         "exec: descriptors must be pipes, sockets or /dev/null");
    return 0;
}

/* The request as init takes it: the texts, each with its NUL. */
static int build_packet(const struct exec *body, struct command *command, struct error *err)
{
    struct init_request head = {
        .type = INIT_EXEC,
        .argc = (uint32_t)body->argv.count,
        .id = command->id,
        .timeout_ms = body->timeout_ms,
        .uid = (uint32_t)body->uid,
    };
    struct buffer *packet = &command->packet;

    buffer_add(packet, &head, sizeof(head));
    buffer_add(packet, body->directory, strlen(body->directory) + 1);
    for (size_t i = 0; i < body->argv.count; i++)
        buffer_add(packet, body->argv.items[i], strlen(body->argv.items[i]) + 1);
    head.envc = environment_add(command->box, body, packet);
    head.length = (uint32_t)(packet->length - sizeof(head));
    memcpy(packet->data, &head, sizeof(head));
    if (head.length > INIT_DATA_MAX || head.envc > INIT_TEXTS_MAX - head.argc)
        return error_set(err, ERR_TOO_LARGE, "exec: the command and its environment are too long");
    return 0;
}

static int copy_streams(const int *descriptors, struct command *command, struct error *err)
{
    for (int i = 0; i < STREAMS; i++) {
        if (check_stream(descriptors[i], i == 0 ? O_RDONLY : O_WRONLY, err) < 0)
            return -1;
        command->streams[i] = fcntl(descriptors[i], F_DUPFD_CLOEXEC, 3);
        if (command->streams[i] < 0)
            return error_set_errno(err, ERR_UNAVAILABLE, "exec: descriptor");
    }
    return 0;
}

int operation_exec(struct request *request, struct error *err)
{
    const struct exec *body = request->body;
    struct sandbox *box = request->box;
    struct command *command;

    if (body->directory[0] != '/')
        return error_set(err, ERR_BAD_REQUEST, "exec: the directory must be absolute");
    if (box->control.fd < 0)
        return error_set(err, ERR_CONFLICT, "exec: the sandbox is ending");
    command = calloc(1, sizeof(*command));
    if (!command)
        abort();
    *command = (struct command){
        .id = next_id(), .box = box, .streams = {-1, -1, -1}, .next = box->commands};
    box->commands = command;
    running++;
    if (build_packet(body, command, err) < 0 ||
        copy_streams(request->descriptors, command, err) < 0) {
        command_free(command);
        return -1;
    }
    command->connection = request->connection;
    command->connection->command = command;
    command->oom_before = statistics_oom_kills(box);
    command->started_ms = loop_now();
    loop_set(&command->backstop, body->timeout_ms + BACKSTOP_MS, overdue);
    wire_packet_close(&request->connection->packet);
    flush(box);
    return 0;
}
