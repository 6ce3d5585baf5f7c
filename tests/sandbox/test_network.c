/* Networks of sandboxes. All of it happens in network namespaces that the test makes: it is itself
 * in one, where the supervisor takes for the host what is there. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/wire.h"
#include "tests/sandbox/network.h"

enum { CALLS = 1000, PATIENCE_MS = 2000 };

static const char *box; /* runs, for all tests that only look */

static void box_make(void)
{
    install_netprobe();
    box = fixture_running();
}

static void box_remove(void)
{
    fixture_destroy(box);
}

static int entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

/* --- ports ------------------------------------------------------------------------------------ */

static bool says_hello(int fd)
{
    struct pollfd event = {.fd = fd, .events = POLLIN};
    char line[64] = "";

    return poll(&event, 1, PATIENCE_MS) == 1 && read(fd, line, sizeof(line) - 1) > 0 &&
           strncmp(line, "hello ", 6) == 0;
}

static bool port_answers(const char *id, int64_t port)
{
    auto_close int fd = -1;

    return sandbox_port_open(fixture_connect(), id, port, PATIENCE_MS, &fd, &fixture_error) == 0 &&
           says_hello(fd);
}

START_TEST(test_a_server_inside_answers_through_its_port)
{
    background(box, "/netprobe serve-tcp 127.0.0.1 8000");
    ck_soon(port_answers(box, 8000), 5000);
}
END_TEST

START_TEST(test_a_server_on_ipv6_alone_answers)
{
    background(box, "/netprobe serve-tcp ::1 8006");
    ck_soon(port_answers(box, 8006), 5000);
}
END_TEST

START_TEST(test_a_port_without_listener_is_told)
{
    int fd = -1;

    ck_refused(sandbox_port_open(fixture_connect(), box, 8001, PATIENCE_MS, &fd, &fixture_error),
               ERR_UPSTREAM);
    ck_assert_int_eq(fd, -1);
}
END_TEST

START_TEST(test_a_port_must_be_one)
{
    static const int64_t wrong[] = {0, -1, 65536, INT64_MAX};
    int fd;

    for (size_t i = 0; i < COUNT(wrong); i++)
        ck_refused(
            sandbox_port_open(fixture_connect(), box, wrong[i], PATIENCE_MS, &fd, &fixture_error),
            ERR_BAD_REQUEST);
}
END_TEST

START_TEST(test_a_stopped_sandbox_has_no_ports)
{
    const char *id = fixture_running();
    int fd;

    ck_done(sandbox_stop(fixture_connect(), id, &fixture_error));
    ck_refused(sandbox_port_open(fixture_connect(), id, 8000, PATIENCE_MS, &fd, &fixture_error),
               ERR_CONFLICT);
    fixture_destroy(id);
    ck_refused(sandbox_port_open(fixture_connect(), id, 8000, PATIENCE_MS, &fd, &fixture_error),
               ERR_NOT_FOUND);
}
END_TEST

/* One listens on the loopback of the host: a connection through the sandbox must not find it. */
START_TEST(test_a_port_is_never_the_hosts)
{
    auto_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = -1;

    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(listener, 4), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    ck_refused(sandbox_port_open(fixture_connect(), box, ntohs(address.sin_port), PATIENCE_MS, &fd,
                                 &fixture_error),
               ERR_UPSTREAM);
    ck_assert_int_eq(accept(listener, NULL, NULL), -1);
}
END_TEST

START_TEST(test_ports_leave_nothing_behind)
{
    char folder[64];
    int before, mine;

    background(box, "/netprobe serve-tcp 127.0.0.1 8002");
    ck_soon(port_answers(box, 8002), 5000);
    snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)fixture_supervisor);
    before = entries(folder);
    mine = entries("/proc/self/fd");
    for (int i = 0; i < CALLS; i++)
        ck_assert(port_answers(box, 8002));
    ck_soon(entries(folder) == before, 5000);
    ck_assert_int_eq(entries("/proc/self/fd"), mine);
}
END_TEST

/* Many who ask and go away at once leave it able to answer the next. */
START_TEST(test_who_goes_away_is_not_answered)
{
    for (int i = 0; i < 200; i++) {
        const struct port_open body = {.sandbox = box, .port = 8003, .family = 4};
        auto_buffer struct buffer bytes = {0};
        struct wire_header header = {.type = MESSAGE_port_open, .serial = 1};
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", fixture_socket);
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        ck_done(wire_encode(&schema_port_open, &body, &bytes, &fixture_error));
        ck_done(wire_send(fd, &header, bytes.data, bytes.length, NULL, 0, &fixture_error));
    }
    background(box, "/netprobe serve-tcp 127.0.0.1 8003");
    ck_soon(port_answers(box, 8003), 5000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network");
    TCase *ports = tcase_create("ports");

    enter_own_network();
    tcase_set_timeout(ports, 60);
    tcase_add_unchecked_fixture(ports, box_make, box_remove);
    tcase_add_test(ports, test_a_server_inside_answers_through_its_port);
    tcase_add_test(ports, test_a_server_on_ipv6_alone_answers);
    tcase_add_test(ports, test_a_port_without_listener_is_told);
    tcase_add_test(ports, test_a_port_must_be_one);
    tcase_add_test(ports, test_a_stopped_sandbox_has_no_ports);
    tcase_add_test(ports, test_a_port_is_never_the_hosts);
    tcase_add_test(ports, test_ports_leave_nothing_behind);
    tcase_add_test(ports, test_who_goes_away_is_not_answered);
    suite_add_tcase(suite, ports);
    return fixture_main(suite);
}
