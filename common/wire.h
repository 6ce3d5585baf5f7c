/* Struct ⇄ packet by field table, and packets with descriptors over a Unix SOCK_SEQPACKET socket
 * (unix(7)).
 *
 * A packet is a fixed header and a body. The body holds the fields in the order of their table,
 * little-endian: NUMBER and REAL 8 bytes, FLAG 1 byte (0 or 1), TEXT a 32-bit length and the bytes
 * (length 0xffffffff: NULL), TEXTS a 32-bit count and so many texts. Nothing may be left over. The
 * bounds of the table (min, max, choices) hold when decoding, so nobody sees a value outside them.
 * TEXT is any bytes but NUL: file names need not be UTF-8. */
#ifndef COMMON_WIRE_H
#define COMMON_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/field.h"

enum {
    WIRE_PACKET_MAX = 192 * 1024, /* header and body; below the default socket buffer of Linux */
    WIRE_DESCRIPTORS_MAX = 4,
    WIRE_REPLY = 0x8000, /* set in the type of an answer */
};

struct wire_header {
    uint32_t type;   /* a message's number; | WIRE_REPLY in answers */
    uint32_t kind;   /* answers: ERR_NONE, or the kind of error whose sentence is the body */
    uint64_t serial; /* chosen by the asker, repeated in the answer */
};

struct wire_packet {
    struct wire_header header;
    const unsigned char *body; /* into the arena */
    size_t length;
    int descriptors[WIRE_DESCRIPTORS_MAX]; /* owned by the receiver, close-on-exec */
    size_t descriptor_count;
};

/* Append `value` (a struct of `schema`) to `out`. Fails with ERR_TOO_LARGE beyond the packet. */
int wire_encode(const struct schema *schema, const void *value, struct buffer *out,
                struct error *err);
/* Fill `value` (schema->size bytes, zeroed first); texts point into the arena and end in NUL.
 * ERR_BAD_REQUEST when the bytes do not fit the table exactly. */
int wire_decode(const struct schema *schema, const void *bytes, size_t length, void *value,
                struct arena *arena, struct error *err);

/* Send one packet; descriptors stay the caller's. ERR_UNAVAILABLE when the peer is gone or full
 * (MSG_NOSIGNAL). */
int wire_send(int socket, const struct wire_header *header, const void *body, size_t length,
              const int *descriptors, size_t descriptor_count, struct error *err);
/* Receive one packet. Descriptors beyond `descriptors_max`, or a packet cut short (MSG_CTRUNC,
 * MSG_TRUNC), close every descriptor that came and fail with ERR_BAD_REQUEST. Returns 1 with a
 * packet, 0 at the end of the connection or, on a non-blocking socket with nothing there, -1 with
 * ERR_TIMEOUT. */
int wire_receive(int socket, size_t descriptors_max, struct wire_packet *packet,
                 struct arena *arena, struct error *err);
void wire_packet_close(struct wire_packet *packet); /* what descriptors are left in it */

#endif
