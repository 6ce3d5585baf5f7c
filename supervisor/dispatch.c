/* The one gate: no operation runs for a message that is not known, not whole, or not due. */
#include "supervisor/dispatch.h"

#include <stdio.h>
#include <string.h>

#include "common/scope.h"
#include "supervisor/create.h"

struct row {
    const char *name;
    unsigned states;
    size_t descriptors;
    const struct schema *body;
    operation *run;
};

enum {
    ABSENT = SANDBOX_ABSENT,
    CREATED = SANDBOX_CREATED,
    RUNNING = SANDBOX_RUNNING,
    STOPPED = SANDBOX_STOPPED,
};

static const struct row rows[] = {
#define MESSAGE(number, name, states, descriptors, answer) \
    [number] = {#name, states, descriptors, &schema_##name, operation_##name},
#include "common/messages.def"
#undef MESSAGE
};

static const char *state_word(unsigned state)
{
    return state == CREATED ? "was never started" : state == RUNNING ? "is running" : "is stopped";
}

/* Those that need a settled state wait while the sandbox is on its way to another one. */
static bool must_wait(uint32_t type)
{
    switch (type) {
    case MESSAGE_create:
    case MESSAGE_start:
    case MESSAGE_exec:
    case MESSAGE_stop:
    case MESSAGE_destroy:
    case MESSAGE_port_open:
    case MESSAGE_snapshot_make:
        return true;
    default:
        return false;
    }
}

/* Those that would change what is being copied, or take it away. */
static bool must_wait_for_copy(uint32_t type)
{
    switch (type) {
    case MESSAGE_start:
    case MESSAGE_stop:
    case MESSAGE_destroy:
    case MESSAGE_snapshot_make:
    case MESSAGE_image_commit:
    case MESSAGE_file_commit:
    case MESSAGE_file_remove:
    case MESSAGE_directory_make:
    case MESSAGE_file_move:
    case MESSAGE_file_mode:
        return true;
    default:
        return false;
    }
}

/* Those that look at the workspace. */
static bool needs_disk(uint32_t type)
{
    return type == MESSAGE_start || type == MESSAGE_snapshot_make || type == MESSAGE_resources ||
           (type >= MESSAGE_file_list && type <= MESSAGE_directory_make) ||
           (type >= MESSAGE_file_stat && type <= MESSAGE_file_mode);
}

static int check_and_run(struct connection *connection, struct error *err)
{
    const struct wire_packet *packet = &connection->packet;
    struct request request = {.connection = connection, .descriptors = packet->descriptors};
    const struct row *row;
    struct sandbox *box;
    unsigned state;
    void *body;

    if (packet->header.type >= COUNT(rows) || !rows[packet->header.type].run)
        return error_set(err, ERR_BAD_REQUEST, "unknown message %u", packet->header.type);
    row = &rows[packet->header.type];
    if (row->descriptors != packet->descriptor_count)
        return error_set(err, ERR_BAD_REQUEST, "%s: %zu descriptors expected", row->name,
                         row->descriptors);
    request.body = body = arena_alloc(&connection->arena, row->body->size);
    if (wire_decode(row->body, packet->body, packet->length, body, &connection->arena, err) < 0)
        return -1;
    request.sandbox = *(const char *const *)request.body; /* the first member of every message */
    box = sandbox_find(request.sandbox);
    if (box && needs_disk(packet->header.type) && packet->header.type != MESSAGE_resources)
        box->used_ms = loop_now();
    if (box && !box->attached && !box->busy && !box->destroyed && needs_disk(packet->header.type) &&
        create_attach(box, err) < 0)
        return -1;
    if (box && ((box->copying && must_wait_for_copy(packet->header.type)) ||
                (box->busy && (must_wait(packet->header.type) ||
                               (!box->attached && needs_disk(packet->header.type)))))) {
        snprintf(connection->waits_for, sizeof(connection->waits_for), "%s", request.sandbox);
        return 0;
    }
    request.box = box && !box->destroyed ? box : NULL;
    state = request.box ? (unsigned)box->state : ABSENT;
    if (!(row->states & state)) {
        if (state == ABSENT)
            return error_set(err, ERR_NOT_FOUND, "there is no such sandbox");
        return error_set(err, ERR_CONFLICT, "%s: the sandbox %s", row->name,
                         row->states == ABSENT ? "exists" : state_word(state));
    }
    return row->run(&request, err);
}

void dispatch(struct connection *connection)
{
    struct error error;

    if (check_and_run(connection, &error) < 0)
        connection_refuse(connection, &error);
}
