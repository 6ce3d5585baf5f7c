/* Any packets as what a sandbox's init, which its tenant may have taken over, tells the supervisor:
 * each asker gets at most one answer, and one that can be told. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "supervisor/exec.c"

enum { COMMANDS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct supervisor_settings settings;
static struct connection connections[COMMANDS];
static int answers[COMMANDS];
static bool killed, ready;

static void must(bool holds)
{
    if (!holds)
        abort();
}

void connection_answer(struct connection *connection, const struct schema *schema,
                       const void *value, int fd)
{
    auto_buffer struct buffer bytes = {0};
    auto_arena struct arena arena = {0};
    struct exec_result told;
    struct error err;

    must(schema == &schema_exec_result && fd == -1 && connection->command == NULL);
    must(wire_encode(schema, value, &bytes, &err) == 0);
    must(wire_decode(schema, bytes.data, bytes.length, &told, &arena, &err) == 0);
    must(told.duration_ms >= 0);
    must(++answers[connection - connections] == 1);
}

void connection_refuse(struct connection *connection, const struct error *error)
{
    must(error->kind != ERR_NONE && connection->command == NULL);
    must(++answers[connection - connections] == 1);
}

void cgroup_kill(const char *id)
{
    (void)id;
    killed = true;
}

int64_t statistics_oom_kills(struct sandbox *box)
{
    (void)box;
    return 1;
}

int sandbox_open_folder(const char *id, struct error *err)
{
    return error_set(err, ERR_NOT_FOUND, "%s", id);
}

static void be_ready(struct sandbox *box)
{
    (void)box;
    ready = true;
}

/* The last waits for nobody; the first was not sent yet. */
static void add_commands(struct sandbox *box)
{
    for (int i = 0; i < COMMANDS; i++) {
        struct command *command = calloc(1, sizeof(*command));

        must(command != NULL);
        *command = (struct command){.id = (uint64_t)i + 1,
                                    .box = box,
                                    .connection = i == COMMANDS - 1 ? NULL : &connections[i],
                                    .streams = {-1, -1, -1},
                                    .next = box->commands};
        if (command->connection)
            command->connection->command = command;
        if (i == 0)
            buffer_text(&command->packet, "not sent");
        box->commands = command;
        answers[i] = 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool open;
    struct sandbox box = {.id = "00000000-0000-4000-8000-000000000000",
                          .spawning.fd = -1,
                          .process.fd = -1,
                          .control.fd = -1};
    struct error err, end;
    int sockets[2];
    char sink[64];

    if (!open) {
        log_init("fuzz", LOG_ERROR + 1);
        must(loop_open(&err) == 0);
        on_ready = be_ready;
        open = true;
    }
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    must(loop_watch(&box.control, sockets[0], EPOLLIN, control_ready, &err) == 0);
    add_commands(&box);
    killed = ready = false;
    while (size && box.control.fd >= 0) {
        size_t length = data[0] & 0x80 ? sizeof(struct init_event) : data[0];

        data++, size--;
        length = length < size ? length : size;
        if (send(sockets[1], data, length, 0) < 0)
            break;
        data += length, size -= length;
        control_ready(&box.control, EPOLLIN | (length & 1 ? EPOLLOUT : 0u));
        while (recv(sockets[1], sink, sizeof(sink), 0) > 0)
            ;
    }
    error_set(&end, ERR_CONFLICT, "the end");
    exec_end_all(&box, &end);
    must(!box.commands && box.control.fd < 0);
    for (int i = 0; i < COMMANDS - 1; i++)
        must(answers[i] == 1);
    close(sockets[1]);
    return 0;
}
