/* Struct ⇄ packet by field table, and packets over a Unix socket: see wire.h. */
#include "common/wire.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { HEADER_SIZE = 16, BODY_MAX = WIRE_PACKET_MAX - HEADER_SIZE };
static const uint32_t no_text = 0xffffffff;

/* --- encoding -------------------------------------------------------------------------- */

struct writer {
    struct buffer *out;
    size_t left; /* of the packet */
    const struct schema *schema;
    const struct field *field;
};

static int put(struct writer *w, const void *bytes, size_t length, struct error *err)
{
    if (length > w->left)
        return error_set(err, ERR_TOO_LARGE, "%s does not fit a packet", w->schema->name);
    buffer_add(w->out, bytes, length);
    w->left -= length;
    return 0;
}

static int put_32(struct writer *w, uint32_t number, struct error *err)
{
    number = htole32(number);
    return put(w, &number, sizeof(number), err);
}

static int put_64(struct writer *w, uint64_t number, struct error *err)
{
    number = htole64(number);
    return put(w, &number, sizeof(number), err);
}

static int put_real(struct writer *w, double real, struct error *err)
{
    uint64_t bits;

    memcpy(&bits, &real, sizeof(bits));
    return put_64(w, bits, err);
}

static int put_text(struct writer *w, const char *text, bool may_be_null, struct error *err)
{
    size_t length;

    if (!text && !may_be_null)
        return error_set(err, ERR_INTERNAL, "%s.%s is NULL", w->schema->name, w->field->name);
    if (!text)
        return put_32(w, no_text, err);
    length = strnlen(text, WIRE_PACKET_MAX);
    if (put_32(w, (uint32_t)length, err) < 0)
        return -1;
    return put(w, text, length, err);
}

static int put_texts(struct writer *w, const struct texts *texts, struct error *err)
{
    if (texts->count > w->left)
        return error_set(err, ERR_TOO_LARGE, "%s does not fit a packet", w->schema->name);
    if (put_32(w, (uint32_t)texts->count, err) < 0)
        return -1;
    for (size_t i = 0; i < texts->count; i++)
        if (put_text(w, texts->items[i], false, err) < 0)
            return -1;
    return 0;
}

static bool travels(const struct field *field)
{
    return !field->indirect && field->type != FIELD_JSON && field->type != FIELD_NUMBERS;
}

static int refuse_type(const struct schema *schema, const struct field *field, struct error *err)
{
    return error_set(err, ERR_INTERNAL, "%s.%s has a type that is not for packets", schema->name,
                     field->name);
}

static int encode_field(struct writer *w, const void *value, struct error *err)
{
    const void *member = (const char *)value + w->field->offset;
    unsigned char flag;

    if (!travels(w->field))
        return refuse_type(w->schema, w->field, err);
    switch (w->field->type) {
    case FIELD_TEXT:
        return put_text(w, *(const char *const *)member, w->field->optional || w->field->nullable,
                        err);
    case FIELD_NUMBER:
        return put_64(w, (uint64_t) * (const int64_t *)member, err);
    case FIELD_REAL:
        return put_real(w, *(const double *)member, err);
    case FIELD_FLAG:
        flag = *(const bool *)member;
        return put(w, &flag, sizeof(flag), err);
    case FIELD_TEXTS:
        return put_texts(w, member, err);
    default:
        return refuse_type(w->schema, w->field, err);
    }
}

int wire_encode(const struct schema *schema, const void *value, struct buffer *out,
                struct error *err)
{
    struct writer w = {.out = out, .left = BODY_MAX, .schema = schema};
    size_t start = out->length;

    for (size_t i = 0; i < schema->count; i++) {
        w.field = &schema->fields[i];
        if (encode_field(&w, value, err) < 0) {
            out->length = start;
            if (out->data)
                out->data[start] = '\0';
            return -1;
        }
    }
    return 0;
}

/* --- decoding -------------------------------------------------------------------------- */

struct reader {
    const unsigned char *at;
    size_t left;
    struct arena *arena;
    const struct schema *schema;
    const struct field *field;
};

static int refuse(const struct reader *r, struct error *err, const char *reason)
{
    return error_set(err, ERR_BAD_REQUEST, "%s.%s: %s", r->schema->name, r->field->name, reason);
}

static int take(struct reader *r, void *into, size_t length, struct error *err)
{
    if (length > r->left)
        return refuse(r, err, "cut short");
    memcpy(into, r->at, length);
    r->at += length;
    r->left -= length;
    return 0;
}

static int take_32(struct reader *r, uint32_t *number, struct error *err)
{
    if (take(r, number, sizeof(*number), err) < 0)
        return -1;
    *number = le32toh(*number);
    return 0;
}

static int take_64(struct reader *r, uint64_t *number, struct error *err)
{
    if (take(r, number, sizeof(*number), err) < 0)
        return -1;
    *number = le64toh(*number);
    return 0;
}

static int check_count(const struct reader *r, size_t count, struct error *err)
{
    int64_t signed_count = (int64_t)count;

    if (field_has_min(r->field) && signed_count < r->field->min)
        return refuse(r, err, "too short");
    if (field_has_max(r->field) && signed_count > r->field->max)
        return refuse(r, err, "too long");
    return 0;
}

static int check_text(const struct reader *r, const char *text, struct error *err)
{
    const char *wrong;

    if (r->field->choices && !field_chooses(r->field->choices, text))
        return refuse(r, err, "not one of the choices");
    if (r->field->pattern && !field_matches(r->field->pattern, text))
        return refuse(r, err, "does not match its pattern");
    if (r->field->check && (wrong = r->field->check(text)))
        return refuse(r, err, wrong);
    return 0;
}

/* The bytes of one text, still in the packet; *bytes is NULL for NULL. */
static int take_bytes(struct reader *r, const unsigned char **bytes, uint32_t *length,
                      struct error *err)
{
    if (take_32(r, length, err) < 0)
        return -1;
    *bytes = NULL;
    if (*length == no_text)
        return 0;
    if (*length > r->left)
        return refuse(r, err, "cut short");
    if (memchr(r->at, '\0', *length))
        return refuse(r, err, "holds a NUL");
    *bytes = r->at;
    r->at += *length;
    r->left -= *length;
    return 0;
}

static int take_text(struct reader *r, const char **text, struct error *err)
{
    const unsigned char *bytes;
    uint32_t length;

    if (take_bytes(r, &bytes, &length, err) < 0)
        return -1;
    if (!bytes)
        return r->field->optional || r->field->nullable ? 0 : refuse(r, err, "missing");
    if (check_count(r, length, err) < 0)
        return -1;
    *text = arena_copy(r->arena, (const char *)bytes, length);
    return check_text(r, *text, err);
}

static int take_texts(struct reader *r, struct texts *texts, struct error *err)
{
    uint32_t count;

    if (take_32(r, &count, err) < 0 || check_count(r, count, err) < 0)
        return -1;
    /* Each takes four bytes at least, which bounds the array by the packet. */
    if (count > r->left / sizeof(uint32_t))
        return refuse(r, err, "cut short");
    texts->items = arena_alloc(r->arena, (count + 1) * sizeof(*texts->items));
    for (; texts->count < count; texts->count++) {
        const unsigned char *bytes;
        uint32_t length;

        if (take_bytes(r, &bytes, &length, err) < 0)
            return -1;
        if (!bytes)
            return refuse(r, err, "holds a NULL");
        texts->items[texts->count] = arena_copy(r->arena, (const char *)bytes, length);
        if (check_text(r, texts->items[texts->count], err) < 0)
            return -1;
    }
    return 0;
}

static int take_number(struct reader *r, int64_t *number, struct error *err)
{
    uint64_t bits;

    if (take_64(r, &bits, err) < 0)
        return -1;
    *number = (int64_t)bits;
    if (field_has_min(r->field) && *number < r->field->min)
        return refuse(r, err, "too small");
    if (field_has_max(r->field) && *number > r->field->max)
        return refuse(r, err, "too large");
    return 0;
}

static int take_real(struct reader *r, double *real, struct error *err)
{
    uint64_t bits;

    if (take_64(r, &bits, err) < 0)
        return -1;
    memcpy(real, &bits, sizeof(bits));
    if (!isfinite(*real))
        return refuse(r, err, "not a finite number");
    if ((field_has_min(r->field) && *real < (double)r->field->min) ||
        (r->field->exclusive && !(*real > r->field->above)))
        return refuse(r, err, "too small");
    if (field_has_max(r->field) && *real > (double)r->field->max)
        return refuse(r, err, "too large");
    return 0;
}

static int take_flag(struct reader *r, bool *flag, struct error *err)
{
    unsigned char byte;

    if (take(r, &byte, sizeof(byte), err) < 0)
        return -1;
    if (byte > 1)
        return refuse(r, err, "neither 0 nor 1");
    *flag = byte == 1;
    return 0;
}

static int decode_field(struct reader *r, void *value, struct error *err)
{
    void *member = (char *)value + r->field->offset;

    if (!travels(r->field))
        return refuse_type(r->schema, r->field, err);
    switch (r->field->type) {
    case FIELD_TEXT:
        return take_text(r, member, err);
    case FIELD_NUMBER:
        return take_number(r, member, err);
    case FIELD_REAL:
        return take_real(r, member, err);
    case FIELD_FLAG:
        return take_flag(r, member, err);
    case FIELD_TEXTS:
        return take_texts(r, member, err);
    default:
        return refuse_type(r->schema, r->field, err);
    }
}

static int decode_all(struct reader *r, void *value, struct error *err)
{
    const char *culprit = NULL, *wrong;

    for (size_t i = 0; i < r->schema->count; i++) {
        r->field = &r->schema->fields[i];
        if (decode_field(r, value, err) < 0)
            return -1;
    }
    if (r->left)
        return error_set(err, ERR_BAD_REQUEST, "%s: %zu bytes too many", r->schema->name, r->left);
    if (r->schema->check && (wrong = r->schema->check(value, &culprit)))
        return error_set(err, ERR_BAD_REQUEST, "%s: %s", r->schema->name, wrong);
    return 0;
}

int wire_decode(const struct schema *schema, const void *bytes, size_t length, void *value,
                struct arena *arena, struct error *err)
{
    struct reader r = {.at = bytes, .left = length, .arena = arena, .schema = schema};

    memset(value, 0, schema->size);
    if (decode_all(&r, value, err) == 0)
        return 0;
    memset(value, 0, schema->size);
    return -1;
}

/* --- packets --------------------------------------------------------------------------- */

/* Space for the descriptors of one message, aligned as cmsg(3) wants it. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * WIRE_DESCRIPTORS_MAX)];
};

static void header_write(const struct wire_header *header, unsigned char out[HEADER_SIZE])
{
    uint32_t type = htole32(header->type), kind = htole32(header->kind);
    uint64_t serial = htole64(header->serial);

    memcpy(out, &type, sizeof(type));
    memcpy(out + 4, &kind, sizeof(kind));
    memcpy(out + 8, &serial, sizeof(serial));
}

static void header_read(const unsigned char in[HEADER_SIZE], struct wire_header *header)
{
    memcpy(&header->type, in, sizeof(header->type));
    memcpy(&header->kind, in + 4, sizeof(header->kind));
    memcpy(&header->serial, in + 8, sizeof(header->serial));
    header->type = le32toh(header->type);
    header->kind = le32toh(header->kind);
    header->serial = le64toh(header->serial);
}

static void attach(struct msghdr *message, union control *control, const int *descriptors,
                   size_t count)
{
    struct cmsghdr *part;

    memset(control, 0, sizeof(*control));
    message->msg_control = control->bytes;
    message->msg_controllen = CMSG_SPACE(sizeof(int) * count);
    part = CMSG_FIRSTHDR(message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(part), descriptors, sizeof(int) * count);
}

int wire_send(int socket, const struct wire_header *header, const void *body, size_t length,
              const int *descriptors, size_t descriptor_count, struct error *err)
{
    unsigned char start[HEADER_SIZE];
    struct iovec parts[] = {{start, sizeof(start)}, {(void *)body, length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = length ? 2 : 1};
    union control control;
    ssize_t sent;

    if (length > BODY_MAX)
        return error_set(err, ERR_TOO_LARGE, "a packet of %zu bytes is too large", length);
    if (descriptor_count > WIRE_DESCRIPTORS_MAX)
        return error_set(err, ERR_INTERNAL, "%zu descriptors are too many", descriptor_count);
    header_write(header, start);
    if (descriptor_count)
        attach(&message, &control, descriptors, descriptor_count);
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return error_set_errno(err, errno == EMSGSIZE ? ERR_TOO_LARGE : ERR_UNAVAILABLE,
                               "send a packet");
    return 0;
}

/* Keep what descriptors came; false when they are more than the packet holds. */
static bool collect(struct msghdr *message, struct wire_packet *packet)
{
    bool fits = true;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        size_t count;

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor;

            memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
            if (packet->descriptor_count < WIRE_DESCRIPTORS_MAX) {
                packet->descriptors[packet->descriptor_count++] = descriptor;
            } else {
                close(descriptor);
                fits = false;
            }
        }
    }
    return fits;
}

static int refuse_receive(struct error *err)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return error_set(err, ERR_TIMEOUT, "no packet is there");
    return error_set_errno(err, ERR_UNAVAILABLE, "receive a packet");
}

/* The length of the next packet, which stays; 0 at the end of the connection. */
static ssize_t next_length(int socket)
{
    ssize_t length;

    do
        length = recv(socket, NULL, 0, MSG_PEEK | MSG_TRUNC);
    while (length < 0 && errno == EINTR);
    return length;
}

static int check_packet(const struct msghdr *message, size_t length, bool fits,
                        size_t descriptors_max, const struct wire_packet *packet, struct error *err)
{
    if (message->msg_flags & MSG_TRUNC)
        return error_set(err, ERR_BAD_REQUEST, "a packet of more than %d bytes", WIRE_PACKET_MAX);
    if ((message->msg_flags & MSG_CTRUNC) || !fits || packet->descriptor_count > descriptors_max)
        return error_set(err, ERR_BAD_REQUEST, "more descriptors than the %zu that are taken",
                         descriptors_max);
    if (length < HEADER_SIZE)
        return error_set(err, ERR_BAD_REQUEST, "a packet without a header");
    return 0;
}

int wire_receive(int socket, size_t descriptors_max, struct wire_packet *packet,
                 struct arena *arena, struct error *err)
{
    struct wire_packet received = {.descriptors = {-1, -1, -1, -1}};
    union control control;
    struct iovec part;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t length = next_length(socket);
    bool fits;

    if (length < 0)
        return refuse_receive(err);
    part.iov_len = length < WIRE_PACKET_MAX ? (size_t)length : WIRE_PACKET_MAX;
    part.iov_base = arena_alloc(arena, part.iov_len + 1);
    /* An empty packet looks like the end: no peer of ours sends one. */
    if (length == 0)
        return 0;
    do
        length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return refuse_receive(err);
    if (length == 0)
        return 0;
    fits = collect(&message, &received);
    if (check_packet(&message, (size_t)length, fits, descriptors_max, &received, err) < 0) {
        wire_packet_close(&received);
        return -1;
    }
    header_read(part.iov_base, &received.header);
    received.body = (const unsigned char *)part.iov_base + HEADER_SIZE;
    received.length = (size_t)length - HEADER_SIZE;
    *packet = received;
    return 1;
}

void wire_packet_close(struct wire_packet *packet)
{
    for (size_t i = 0; i < packet->descriptor_count; i++)
        scope_close(&packet->descriptors[i]);
    packet->descriptor_count = 0;
}
