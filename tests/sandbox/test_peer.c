/* A peer that is up to no good gets an error or a hang-up, and costs nothing that stays. */
#include <sys/socket.h>
#include <sys/un.h>

#include "common/wire.h"
#include "tests/sandbox/fixture.h"

static int connect_raw(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 5};

    snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", fixture_socket);
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* The kind that is answered, or -1 for a hang-up. */
static int answer_of(int fd)
{
    auto_arena struct arena arena = {0};
    struct wire_packet packet;
    struct error error;
    int kind;

    if (wire_receive(fd, 1, &packet, &arena, &error) != 1)
        return -1;
    kind = (int)packet.header.kind;
    wire_packet_close(&packet);
    return kind;
}

static int descriptors_open(void)
{
    char path[64];
    int count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", fixture_supervisor);
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

static int still_serves(void)
{
    const char *id = fixture_id();

    return sandbox_create(fixture_connect(), id, &fixture_error) == 0 &&
           sandbox_destroy(fixture_connect(), id, &fixture_error) == 0;
}

static const char *const bad_ids[] = {
    "",
    ".",
    "..",
    "../../../../etc/sandbox-of-somebody-el",
    "0000000g-0000-4000-8000-000000000000",
    "0000000A-0000-4000-8000-000000000000",
    "00000000-0000-4000-8000-00000000000",
    "00000000-0000-4000-8000-0000000000000",
    "00000000/0000-4000-8000-000000000000",
    "00000000-0000-4000-8000-00000000000\n",
};

START_TEST(an_id_of_another_shape_is_refused)
{
    struct sandbox_link *link = fixture_connect();

    ck_refused(sandbox_create(link, bad_ids[_i], &fixture_error), ERR_BAD_REQUEST);
    ck_refused(sandbox_destroy(link, bad_ids[_i], &fixture_error), ERR_BAD_REQUEST);
}
END_TEST

START_TEST(a_packet_that_means_nothing_is_answered)
{
    auto_close int fd = connect_raw();
    struct error error;

    for (uint32_t type = 0; type < 40; type++) {
        struct wire_header header = {.type = type, .serial = type};
        unsigned char garbage[64];

        memset(garbage, (int)(type * 37), sizeof(garbage));
        ck_assert_int_eq(wire_send(fd, &header, garbage, type % sizeof(garbage), NULL, 0, &error),
                         0);
        ck_assert_int_eq(answer_of(fd), ERR_BAD_REQUEST);
    }
    ck_assert(still_serves());
}
END_TEST

/* The body of a message, cut at every length and with every byte changed. */
START_TEST(a_broken_body_is_answered)
{
    auto_close int fd = connect_raw();
    auto_buffer struct buffer body = {0};
    struct start start = fixture_start("00000000-0000-4000-8000-0000000000ff");
    struct wire_header header = {.type = MESSAGE_start};
    struct error error;

    ck_assert_int_eq(wire_encode(&schema_start, &start, &body, &error), 0);
    for (size_t i = 0; i < body.length; i++) {
        ck_assert_int_eq(wire_send(fd, &header, body.data, i, NULL, 0, &error), 0);
        ck_assert_int_eq(answer_of(fd), ERR_BAD_REQUEST);
        body.data[i] = (char)~body.data[i];
        ck_assert_int_eq(wire_send(fd, &header, body.data, body.length, NULL, 0, &error), 0);
        int kind = answer_of(fd);
        ck_assert(kind == ERR_BAD_REQUEST || kind == ERR_NOT_FOUND);
        body.data[i] = (char)~body.data[i];
    }
}
END_TEST

static void send_many(int fd, int count)
{
    int fds[253];
    char bytes[16] = {0};
    char space[CMSG_SPACE(sizeof(fds))] = {0};
    struct iovec vector = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);

    for (int i = 0; i < count; i++)
        fds[i] = fd;
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(part), fds, (size_t)count * sizeof(int));
    ck_assert_int_eq(sendmsg(fd, &message, MSG_NOSIGNAL), sizeof(bytes));
}

START_TEST(surplus_descriptors_are_not_kept)
{
    int before = descriptors_open();

    for (int round = 0; round < 10000; round++) {
        auto_close int fd = connect_raw();

        send_many(fd, round % 2 ? 253 : 4);
        ck_assert_int_eq(answer_of(fd), -1);
    }
    for (int round = 0; round < 200; round++) {
        auto_close int fd = connect_raw();

        send_many(fd, 1 + round % 3);
        ck_assert_int_eq(answer_of(fd), ERR_BAD_REQUEST);
    }
    ck_soon(descriptors_open() <= before, 2000);
    ck_assert(still_serves());
}
END_TEST

START_TEST(an_oversized_packet_ends_the_connection)
{
    auto_close int fd = connect_raw();
    static char bytes[WIRE_PACKET_MAX + 1000];
    int room = 1 << 20;

    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    if (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == (ssize_t)sizeof(bytes))
        ck_assert_int_eq(answer_of(fd), -1);
    ck_assert(still_serves());
}
END_TEST

/* What a command may be given: only what can do no harm in its hands. */
START_TEST(a_command_is_given_pipes_only)
{
    const char *id = fixture_running();
    const char *argv[] = {"/bin/sh", "-c", "true"};
    struct exec exec = fixture_exec(id, argv, 3, 5000);
    auto_buffer struct buffer body = {0};
    struct wire_header header = {.type = MESSAGE_exec};
    auto_close int fd = connect_raw();
    auto_close int place = open("/", O_PATH | O_DIRECTORY),
                   folder = open("/", O_RDONLY | O_DIRECTORY);
    auto_close int file = open("/etc/passwd", O_RDONLY), zero = open("/dev/zero", O_RDWR),
                   null = open("/dev/null", O_RDWR);
    auto_close int path_pipe = -1;
    int pipe_ends[2], before = descriptors_open();
    struct error error;
    char name[64];

    ck_assert_int_eq(pipe(pipe_ends), 0);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", pipe_ends[0]);
    path_pipe = open(name, O_PATH);
    ck_assert_int_eq(wire_encode(&schema_exec, &exec, &body, &error), 0);
    const int bad[][3] = {
        {place, null, null},        {folder, null, null},       {file, null, null},
        {null, zero, null},         {null, null, place},        {path_pipe, null, null},
        {pipe_ends[1], null, null}, {null, pipe_ends[0], null}, {null, null, file}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        ck_assert_int_eq(wire_send(fd, &header, body.data, body.length, bad[i], 3, &error), 0);
        ck_assert_int_eq(answer_of(fd), ERR_BAD_REQUEST);
    }
    const int good[3] = {pipe_ends[0], pipe_ends[1], null};
    ck_assert_int_eq(wire_send(fd, &header, body.data, body.length, good, 3, &error), 0);
    ck_assert_int_eq(answer_of(fd), ERR_NONE);
    ck_soon(descriptors_open() <= before + 1 /* this connection */, 2000);
    fixture_destroy(id);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}
END_TEST

START_TEST(requests_sent_ahead_are_done_in_order)
{
    auto_close int fd = connect_raw();
    const char *id = fixture_id();
    struct error error;

    for (uint64_t i = 0; i < 20; i++) {
        auto_buffer struct buffer body = {0};
        struct wire_header header = {.type = i % 2 ? MESSAGE_destroy : MESSAGE_create, .serial = i};

        ck_assert_int_eq(
            i % 2
                ? wire_encode(&schema_destroy, &(struct destroy){.sandbox = id}, &body, &error)
                : wire_encode(&schema_create, &(struct create){.sandbox = id}, &body, &error),
            0);
        ck_assert_int_eq(wire_send(fd, &header, body.data, body.length, NULL, 0, &error), 0);
    }
    for (uint64_t i = 0; i < 20; i++) {
        auto_arena struct arena arena = {0};
        struct wire_packet packet;

        ck_assert_int_eq(wire_receive(fd, 0, &packet, &arena, &error), 1);
        ck_assert_uint_eq(packet.header.serial, i);
        ck_assert_uint_eq(packet.header.kind, ERR_NONE);
    }
}
END_TEST

START_TEST(many_connections_are_bounded_and_forgotten)
{
    int before = descriptors_open(), fds[1200];

    for (size_t i = 0; i < COUNT(fds); i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", fixture_socket);
        if (connect(fds[i], (struct sockaddr *)&address, sizeof(address)) < 0)
            break;
    }
    usleep(200000);
    ck_assert_int_le(descriptors_open(), before + 1024);
    for (size_t i = 0; i < COUNT(fds); i++)
        close(fds[i]);
    ck_soon(descriptors_open() <= before, 3000);
    ck_assert(still_serves());
}
END_TEST

START_TEST(another_user_is_hung_up_on)
{
    int status;
    pid_t pid;

    chmod(fixture_socket, 0666);
    pid = fork();
    if (pid == 0) {
        struct sandbox_link *own = sandbox_link_new(fixture_socket);

        if (setgid(12345) < 0 || setuid(12345) < 0)
            _exit(2);
        _exit(sandbox_create(own, fixture_id(), &fixture_error) != -1 ||
              fixture_error.kind != ERR_UNAVAILABLE);
    }
    waitpid(pid, &status, 0);
    chmod(fixture_socket, 0660);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(a_peer_that_reads_no_list_harms_nobody)
{
    auto_close int fd = connect_raw();
    auto_buffer struct buffer body = {0};
    struct wire_header header = {.type = MESSAGE_file_list};
    const char *id = fixture_running();
    struct error error;
    int ends[2];

    ck_prints(id,
              "mkdir many; cd many; seq 1 5000 | while read n; do : > name-that-fills-the-pipe-$n; "
              "done; echo ok",
              "ok\n");
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(wire_encode(&schema_file_list,
                                 &(struct file_list){.sandbox = id, .path = "many"}, &body, &error),
                     0);
    ck_assert_int_eq(wire_send(fd, &header, body.data, body.length, &ends[1], 1, &error), 0);
    usleep(200000);
    ck_prints(id, "echo served", "served\n");
    fixture_destroy(id);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peer");
    TCase *tests = tcase_create("peer");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, an_id_of_another_shape_is_refused, 0, (int)COUNT(bad_ids));
    tcase_add_test(tests, a_packet_that_means_nothing_is_answered);
    tcase_add_test(tests, a_broken_body_is_answered);
    tcase_add_test(tests, surplus_descriptors_are_not_kept);
    tcase_add_test(tests, an_oversized_packet_ends_the_connection);
    tcase_add_test(tests, a_command_is_given_pipes_only);
    tcase_add_test(tests, requests_sent_ahead_are_done_in_order);
    tcase_add_test(tests, many_connections_are_bounded_and_forgotten);
    tcase_add_test(tests, another_user_is_hung_up_on);
    tcase_add_test(tests, a_peer_that_reads_no_list_harms_nobody);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
