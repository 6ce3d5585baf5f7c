/* Packets: what is written is read back, what does not fit its table exactly is refused, and
 * descriptors are never lost. */
#include "common/wire.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "tests/unit/unit.h"

struct parcel {
    const char *text;
    const char *note;
    int64_t number;
    double real;
    bool flag;
    struct texts texts;
};

static const struct field parcel_fields[] = {
    {TEXT(parcel, text), .min = 1, .max = 8, .pattern = "[^/]*"},
    {TEXT(parcel, note), .max = 4, .nullable = true},
    {NUMBER(parcel, number), .min = -10, .max = 10},
    {REAL(parcel, real), .max = 2},
    {FLAG(parcel, flag)},
    {TEXTS(parcel, texts), .max = 3, .choices = "a|bb|"},
};

static const char *parcel_check(const void *value, const char **field)
{
    (void)field;
    return ((const struct parcel *)value)->number == 7 ? "seven is taken" : NULL;
}
SCHEMA_WITH(parcel, .check = parcel_check);

static const struct parcel good = {
    .text = "n\xFFme",
    .number = -10,
    .real = 1.5,
    .flag = true,
    .texts = {(const char *[]){"a", "bb", ""}, 3},
};

static void encode(const struct schema *schema, const void *value, struct buffer *out)
{
    struct error err = {0};

    ck_assert_msg(wire_encode(schema, value, out, &err) == 0, "%s", err.message);
}

/* From memory that ends with the packet, so that a sanitizer sees who reads on. */
static int decode(const struct schema *schema, const void *bytes, size_t length, void *value,
                  struct arena *arena, struct error *err)
{
    auto_free void *exact = malloc(length + !length);

    memcpy(exact, bytes, length);
    return wire_decode(schema, exact, length, value, arena, err);
}

START_TEST(what_is_written_is_read_back)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};
    struct parcel back;
    struct error err;

    encode(&schema_parcel, &good, &out);
    ck_assert_int_eq(decode(&schema_parcel, out.data, out.length, &back, &arena, &err), 0);
    ck_assert_str_eq(back.text, good.text);
    ck_assert_ptr_null(back.note);
    ck_assert_int_eq(back.number, good.number);
    ck_assert(back.real == good.real);
    ck_assert(back.flag);
    ck_assert_uint_eq(back.texts.count, 3);
    ck_assert_str_eq(back.texts.items[1], "bb");
    ck_assert_str_eq(back.texts.items[2], "");
}
END_TEST

START_TEST(the_bytes_are_little_endian)
{
    static const unsigned char expected[] = {
        1, 0, 0, 0, 'x', 0xFF, 0xFF, 0xFF, 0xFF, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0,
        0, 0, 0, 0, 0,   0xF0, 0x3F, 0,    1,    0,    0,    0,    1,    0,    0,    0,    'a'};
    auto_buffer struct buffer out = {0};
    const struct parcel value = {
        .text = "x", .number = -2, .real = 1, .texts = {(const char *[]){"a"}, 1}};

    encode(&schema_parcel, &value, &out);
    ck_assert_uint_eq(out.length, sizeof(expected));
    ck_assert_mem_eq(out.data, expected, sizeof(expected));
}
END_TEST

START_TEST(a_packet_cut_anywhere_is_refused)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};
    struct parcel back, zero = {0};
    struct error err;

    encode(&schema_parcel, &good, &out);
    for (size_t length = 0; length < out.length; length++) {
        ck_assert_int_eq(decode(&schema_parcel, out.data, length, &back, &arena, &err), -1);
        ck_assert_int_eq(err.kind, ERR_BAD_REQUEST);
        ck_assert_mem_eq(&back, &zero, sizeof(back));
    }
}
END_TEST

START_TEST(nothing_may_be_left_over)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};
    struct parcel back;
    struct error err;

    encode(&schema_parcel, &good, &out);
    buffer_char(&out, '\0');
    ck_assert_int_eq(decode(&schema_parcel, out.data, out.length, &back, &arena, &err), -1);
    ck_assert_str_eq(err.message, "parcel: 1 bytes too many");
}
END_TEST

static const struct {
    struct parcel value;
    const char *message;
} outside[] = {
    {{.text = ""}, "parcel.text: too short"},
    {{.text = "123456789"}, "parcel.text: too long"},
    {{.text = "a/b"}, "parcel.text: does not match its pattern"},
    {{.text = "x", .note = "12345"}, "parcel.note: too long"},
    {{.text = "x", .number = -11}, "parcel.number: too small"},
    {{.text = "x", .number = 11}, "parcel.number: too large"},
    {{.text = "x", .real = 2.5}, "parcel.real: too large"},
    {{.text = "x", .real = -0.5}, "parcel.real: too small"},
    {{.text = "x", .real = NAN}, "parcel.real: not a finite number"},
    {{.text = "x", .real = INFINITY}, "parcel.real: not a finite number"},
    {{.text = "x", .texts = {(const char *[]){"a", "c"}, 2}},
     "parcel.texts: not one of the choices"},
    {{.text = "x", .texts = {(const char *[]){"a", "a", "a", "a"}, 4}}, "parcel.texts: too long"},
    {{.text = "x", .number = 7}, "parcel: seven is taken"},
};

START_TEST(a_value_outside_its_bounds_is_refused)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};
    struct parcel back;
    struct error err;

    encode(&schema_parcel, &outside[_i].value, &out);
    ck_assert_int_eq(decode(&schema_parcel, out.data, out.length, &back, &arena, &err), -1);
    ck_assert_int_eq(err.kind, ERR_BAD_REQUEST);
    ck_assert_str_eq(err.message, outside[_i].message);
}
END_TEST

/* What no encoder of ours writes. */
static const struct {
    size_t at;
    const char *bytes;
    size_t length;
    const char *message;
} forged[] = {
    {0, "\xFF\xFF\xFF\xFF", 4, "parcel.text: missing"},
    {0, "\xFE\xFF\xFF\xFF", 4, "parcel.text: cut short"},
    {0, "\x00\x00\x00\x80", 4, "parcel.text: cut short"},
    {5, "\0", 1, "parcel.text: holds a NUL"},
    {28, "\x02", 1, "parcel.flag: neither 0 nor 1"},
    {28, "\xFF", 1, "parcel.flag: neither 0 nor 1"},
    {29, "\xFF\xFF\xFF\xFF", 4, "parcel.texts: too long"},
    {33, "\xFF\xFF\xFF\xFF", 4, "parcel.texts: holds a NULL"},
    {33, "\xFF\xFF\xFF\x7F", 4, "parcel.texts: cut short"},
};

START_TEST(forged_bytes_are_refused)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};
    struct parcel back;
    struct error err;

    encode(&schema_parcel, &good, &out);
    ck_assert_uint_lt(forged[_i].at + forged[_i].length, out.length);
    memcpy(out.data + forged[_i].at, forged[_i].bytes, forged[_i].length);
    ck_assert_int_eq(decode(&schema_parcel, out.data, out.length, &back, &arena, &err), -1);
    ck_assert_str_eq(err.message, forged[_i].message);
}
END_TEST

struct loose {
    struct texts texts;
};

static const struct field loose_fields[] = {{TEXTS(loose, texts)}};
SCHEMA(loose);

START_TEST(a_count_that_the_packet_can_not_hold_is_refused)
{
    auto_arena struct arena arena = {0};
    struct loose back;
    struct error err;

    ck_assert_int_eq(decode(&schema_loose, "\xFF\xFF\xFF\xFF\0\0\0\0", 8, &back, &arena, &err), -1);
    ck_assert_str_eq(err.message, "loose.texts: cut short");
    ck_assert_int_eq(decode(&schema_loose, "\2\0\0\0\0\0\0\0", 8, &back, &arena, &err), -1);
    ck_assert_int_eq(decode(&schema_loose, "\1\0\0\0\0\0\0\0", 8, &back, &arena, &err), 0);
}
END_TEST

START_TEST(what_is_too_large_for_a_packet_leaves_nothing_behind)
{
    auto_buffer struct buffer out = {0};
    auto_free char *large = malloc(WIRE_PACKET_MAX + 1);
    const char *items[] = {"fits", large};
    struct error err;

    memset(large, 'x', WIRE_PACKET_MAX);
    large[WIRE_PACKET_MAX] = '\0';
    buffer_text(&out, "before");
    ck_assert_int_eq(wire_encode(&schema_loose, &(struct loose){{items, 2}}, &out, &err), -1);
    ck_assert_int_eq(err.kind, ERR_TOO_LARGE);
    ck_assert_str_eq(out.data, "before");
}
END_TEST

START_TEST(a_required_text_that_is_null_is_our_defect)
{
    auto_buffer struct buffer out = {0};
    struct error err;

    ck_assert_int_eq(wire_encode(&schema_parcel, &(struct parcel){0}, &out, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INTERNAL);
    ck_assert_str_eq(err.message, "parcel.text is NULL");
}
END_TEST

struct earthbound {
    const char *json;
};

static const struct field earthbound_fields[] = {{JSON(earthbound, json)}};
SCHEMA(earthbound);

START_TEST(json_does_not_travel)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};
    struct earthbound value = {.json = "{}"};
    struct error err;

    ck_assert_int_eq(wire_encode(&schema_earthbound, &value, &out, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INTERNAL);
    ck_assert_int_eq(wire_decode(&schema_earthbound, "", 0, &value, &arena, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INTERNAL);
}
END_TEST

/* --- sockets --------------------------------------------------------------------------- */

struct line {
    int a, b;
};

static void line_close(struct line *line)
{
    scope_close(&line->a);
    scope_close(&line->b);
}
#define auto_line __attribute__((cleanup(line_close)))

static struct line line_open(int flags)
{
    int ends[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0, ends), 0);
    return (struct line){ends[0], ends[1]};
}

static int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static const struct wire_header header = {
    .type = 3 | WIRE_REPLY, .kind = 5, .serial = UINT64_MAX - 1};

START_TEST(a_packet_arrives_with_its_descriptors)
{
    auto_line struct line line = line_open(0);
    auto_arena struct arena arena = {0};
    auto_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int sent[] = {null, line.a, null, null};
    struct wire_packet packet;
    struct stat left, right;
    struct error err;

    ck_assert_int_eq(wire_send(line.a, &header, "body", 4, sent, 4, &err), 0);
    ck_assert_int_eq(wire_receive(line.b, 4, &packet, &arena, &err), 1);
    ck_assert_uint_eq(packet.header.type, header.type);
    ck_assert_uint_eq(packet.header.kind, header.kind);
    ck_assert_uint_eq(packet.header.serial, header.serial);
    ck_assert_uint_eq(packet.length, 4);
    ck_assert_mem_eq(packet.body, "body", 4);
    ck_assert_uint_eq(packet.descriptor_count, 4);
    ck_assert_int_eq(fstat(line.a, &left), 0);
    ck_assert_int_eq(fstat(packet.descriptors[1], &right), 0);
    ck_assert_uint_eq(left.st_ino, right.st_ino);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(fcntl(packet.descriptors[i], F_GETFD), FD_CLOEXEC);
    wire_packet_close(&packet);
    ck_assert_int_eq(fcntl(packet.descriptors[1], F_GETFD), -1);
    wire_packet_close(&packet);
}
END_TEST

START_TEST(packets_keep_their_edges)
{
    auto_line struct line line = line_open(0);
    auto_arena struct arena arena = {0};
    struct wire_packet packet;
    struct error err;

    ck_assert_int_eq(wire_send(line.a, &header, NULL, 0, NULL, 0, &err), 0);
    ck_assert_int_eq(wire_send(line.a, &header, "b", 1, NULL, 0, &err), 0);
    ck_assert_int_eq(wire_receive(line.b, 0, &packet, &arena, &err), 1);
    ck_assert_uint_eq(packet.length, 0);
    ck_assert_int_eq(wire_receive(line.b, 0, &packet, &arena, &err), 1);
    ck_assert_uint_eq(packet.length, 1);
}
END_TEST

START_TEST(the_largest_packet_passes_and_no_larger)
{
    auto_line struct line line = line_open(SOCK_NONBLOCK);
    auto_arena struct arena arena = {0};
    auto_free char *body = calloc(1, WIRE_PACKET_MAX);
    const size_t largest = WIRE_PACKET_MAX - 16;
    struct wire_packet packet;
    struct error err = {0};

    body[largest - 1] = 'z';
    ck_assert_msg(wire_send(line.a, &header, body, largest, NULL, 0, &err) == 0, "%s", err.message);
    ck_assert_int_eq(wire_receive(line.b, 0, &packet, &arena, &err), 1);
    ck_assert_uint_eq(packet.length, largest);
    ck_assert_uint_eq(packet.body[largest - 1], 'z');
    ck_assert_int_eq(wire_send(line.a, &header, body, largest + 1, NULL, 0, &err), -1);
    ck_assert_int_eq(err.kind, ERR_TOO_LARGE);
}
END_TEST

/* As a peer that has its own idea of the protocol sends it. */
static void send_raw(int socket, size_t length, int descriptors)
{
    auto_free char *bytes = calloc(1, length + 1);
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(64 * sizeof(int))] = {0};
    struct iovec part = {bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (descriptors) {
        struct cmsghdr *rights;

        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE((size_t)descriptors * sizeof(int));
        rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)descriptors * sizeof(int));
        for (int i = 0; i < descriptors; i++)
            memcpy(CMSG_DATA(rights) + (size_t)i * sizeof(int), &socket, sizeof(int));
    }
    ck_assert_int_eq(sendmsg(socket, &message, MSG_NOSIGNAL), (ssize_t)length);
}

static const struct {
    size_t length;
    int descriptors;
    size_t taken;
    const char *message;
} strange[] = {
    {1, 0, 4, "a packet without a header"},
    {15, 2, 4, "a packet without a header"},
    {16, 1, 0, "more descriptors than the 0 that are taken"},
    {16, 4, 3, "more descriptors than the 3 that are taken"},
    {16, 5, 4, "more descriptors than the 4 that are taken"},
    {16, 64, 4, "more descriptors than the 4 that are taken"},
    {WIRE_PACKET_MAX + 1, 4, 4, "a packet of more than 196608 bytes"},
};

START_TEST(a_strange_packet_is_refused_and_leaks_no_descriptor)
{
    auto_line struct line line = line_open(0);
    auto_arena struct arena arena = {0};
    struct wire_packet packet;
    struct error err;
    int before = count_descriptors();

    send_raw(line.a, strange[_i].length, strange[_i].descriptors);
    ck_assert_int_eq(wire_receive(line.b, strange[_i].taken, &packet, &arena, &err), -1);
    ck_assert_int_eq(err.kind, ERR_BAD_REQUEST);
    ck_assert_str_eq(err.message, strange[_i].message);
    ck_assert_int_eq(count_descriptors(), before);
    /* The connection goes on with the next packet. */
    ck_assert_int_eq(wire_send(line.a, &header, "x", 1, NULL, 0, &err), 0);
    ck_assert_int_eq(wire_receive(line.b, 0, &packet, &arena, &err), 1);
}
END_TEST

START_TEST(the_end_of_a_connection_is_told)
{
    auto_line struct line line = line_open(0);
    auto_arena struct arena arena = {0};
    struct wire_packet packet;
    struct error err;

    close(take_fd(&line.a));
    ck_assert_int_eq(wire_receive(line.b, 0, &packet, &arena, &err), 0);
    ck_assert_int_eq(wire_send(line.b, &header, NULL, 0, NULL, 0, &err), -1);
    ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
}
END_TEST

START_TEST(an_empty_socket_does_not_block)
{
    auto_line struct line line = line_open(SOCK_NONBLOCK);
    auto_arena struct arena arena = {0};
    struct wire_packet packet;
    struct error err;

    ck_assert_int_eq(wire_receive(line.b, 0, &packet, &arena, &err), -1);
    ck_assert_int_eq(err.kind, ERR_TIMEOUT);
}
END_TEST

START_TEST(a_full_socket_is_unavailable)
{
    auto_line struct line line = line_open(SOCK_NONBLOCK);
    struct error err;
    int sent = 0;

    while (sent < 100000 && wire_send(line.a, &header, "x", 1, NULL, 0, &err) == 0)
        sent++;
    ck_assert_int_lt(sent, 100000);
    ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
}
END_TEST

START_TEST(too_many_descriptors_are_not_sent)
{
    auto_line struct line line = line_open(0);
    int five[5] = {line.a, line.a, line.a, line.a, line.a};
    struct error err;

    ck_assert_int_eq(wire_send(line.a, &header, NULL, 0, five, 5, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INTERNAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire");
    TCase *bodies = unit_case(suite, "bodies");
    TCase *packets = unit_case(suite, "packets");

    tcase_add_test(bodies, what_is_written_is_read_back);
    tcase_add_test(bodies, the_bytes_are_little_endian);
    tcase_add_test(bodies, a_packet_cut_anywhere_is_refused);
    tcase_add_test(bodies, nothing_may_be_left_over);
    unit_table(bodies, a_value_outside_its_bounds_is_refused, outside);
    unit_table(bodies, forged_bytes_are_refused, forged);
    tcase_add_test(bodies, a_count_that_the_packet_can_not_hold_is_refused);
    tcase_add_test(bodies, what_is_too_large_for_a_packet_leaves_nothing_behind);
    tcase_add_test(bodies, a_required_text_that_is_null_is_our_defect);
    tcase_add_test(bodies, json_does_not_travel);

    tcase_add_test(packets, a_packet_arrives_with_its_descriptors);
    tcase_add_test(packets, packets_keep_their_edges);
    tcase_add_test(packets, the_largest_packet_passes_and_no_larger);
    unit_table(packets, a_strange_packet_is_refused_and_leaks_no_descriptor, strange);
    tcase_add_test(packets, the_end_of_a_connection_is_told);
    tcase_add_test(packets, an_empty_socket_does_not_block);
    tcase_add_test(packets, a_full_socket_is_unavailable);
    tcase_add_test(packets, too_many_descriptors_are_not_sent);
    return unit_run(suite);
}
