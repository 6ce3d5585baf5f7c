/* Any bytes as a packet to the supervisor, with a sandbox in any state: an operation runs only for
 * what its row allows, with a body that is within its bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/create.h"
#include "supervisor/dispatch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ABSENT SANDBOX_ABSENT
#define CREATED SANDBOX_CREATED
#define RUNNING SANDBOX_RUNNING
#define STOPPED SANDBOX_STOPPED

static struct sandbox box;
static bool has_box;
static int outcomes; /* of one packet */

static void must(bool holds)
{
    if (!holds)
        abort();
}

struct sandbox *sandbox_find(const char *id)
{
    must(strlen(id) == SANDBOX_ID_LENGTH && strspn(id, "0123456789abcdef-") == SANDBOX_ID_LENGTH);
    return has_box ? &box : NULL;
}

void connection_refuse(struct connection *connection, const struct error *error)
{
    (void)connection;
    must(error->kind != ERR_NONE && error->kind < ERR_KINDS);
    must(strnlen(error->message, sizeof(error->message)) < sizeof(error->message));
    outcomes++;
}

/* Its disk is there. */
int create_attach(struct sandbox *unattached, struct error *err)
{
    (void)unattached;
    (void)err;
    abort();
}

/* What arrived is what was sent, and nothing beyond it. */
static int check(struct request *request, const struct schema *schema, unsigned states,
                 size_t descriptors)
{
    const struct wire_packet *packet = &request->connection->packet;
    auto_buffer struct buffer bytes = {0};
    struct error err;

    must(packet->descriptor_count == descriptors);
    must((states & (request->box ? (unsigned)box.state : SANDBOX_ABSENT)) != 0);
    must(!request->box || !box.destroyed);
    must(wire_encode(schema, request->body, &bytes, &err) == 0);
    must(bytes.length == packet->length &&
         (!bytes.length || memcmp(bytes.data, packet->body, bytes.length) == 0));
    outcomes++;
    return 0;
}

#define MESSAGE(number, name, states, descriptors, answer)                        \
    int operation_##name(struct request *request, struct error *err)              \
    {                                                                             \
        (void)err;                                                                \
        return check(request, &schema_##name, (unsigned)(states), (descriptors)); \
    }
#include "common/messages.def"
#undef MESSAGE

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum sandbox_state states[] = {SANDBOX_CREATED, SANDBOX_RUNNING, SANDBOX_STOPPED};
    struct connection connection = {0};
    unsigned char *body;

    static const unsigned char name[] = "\x24\0\0\0"
                                        "01234567-89ab-4def-8123-456789abcdef";
    size_t named;

    if (size < 4)
        return 0;
    named = data[1] & 32 ? sizeof(name) - 1 : 0; /* what every body begins with */
    has_box = data[0] & 1;
    box = (struct sandbox){.attached = true,
                           .state = states[data[0] / 8 % COUNT(states)],
                           .busy = (data[0] & 2) != 0,
                           .destroyed = (data[0] & 4) != 0};
    connection.packet.descriptor_count = data[1] % (WIRE_DESCRIPTORS_MAX + 1);
    connection.packet.header.type = data[2] | (uint32_t)data[3] << 8 << (data[1] & 16);
    connection.packet.length = named + size - 4;
    body = malloc(named + size - 4 + 1);
    must(body != NULL);
    memcpy(body, name, named);
    memcpy(body + named, data + 4, size - 4);
    if (named + size > 4) /* of its own size, so that what is read beyond it shows */
        must((body = realloc(body, named + size - 4)) != NULL);
    connection.packet.body = body;
    outcomes = 0;
    dispatch(&connection);
    must(outcomes + (connection.waits_for[0] != '\0') == 1);
    arena_done(&connection.arena);
    free(body);
    return 0;
}
