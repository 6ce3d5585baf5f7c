/* The listening socket: opened, or taken from a service manager. */
#include "server/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

static int option_of(int fd, int level, int option)
{
    int value = -1;
    socklen_t length = sizeof(value);

    return getsockopt(fd, level, option, &value, &length) < 0 ? -1 : value;
}

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    auto_close int fd = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

static void check_ready(void)
{
    int fd = listener_fd();

    ck_assert_int_eq(option_of(fd, SOL_SOCKET, SO_ACCEPTCONN), 1);
    ck_assert_int_eq(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    ck_assert_int_eq(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
    ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

START_TEST(it_listens_where_it_is_told)
{
    char name[64];
    struct error err;
    int port = free_port();

    ck_assert_int_eq(listener_open("127.0.0.1", port, &err), 0);
    check_ready();
    snprintf(name, sizeof(name), "127.0.0.1:%d", port);
    ck_assert_str_eq(listener_name(), name);
}
END_TEST

START_TEST(two_colons_take_both_families)
{
    struct error err;
    int port = free_port();
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    auto_close int client = socket(AF_INET, SOCK_STREAM, 0);

    if (listener_open("::", port, &err) < 0)
        return; /* a machine without IPv6 */
    check_ready();
    ck_assert_int_eq(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
}
END_TEST

START_TEST(what_is_taken_is_told)
{
    char expected[64];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    auto_close int other = socket(AF_INET, SOCK_STREAM, 0);
    struct error err;

    ck_assert_int_eq(bind(other, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(other, 1), 0);
    ck_assert_int_eq(getsockname(other, (struct sockaddr *)&address, &length), 0);
    ck_assert_int_eq(listener_open("127.0.0.1", ntohs(address.sin_port), &err), -1);
    snprintf(expected, sizeof(expected), "HOST 127.0.0.1, PORT %d: bind", ntohs(address.sin_port));
    ck_assert_msg(!strncmp(err.message, expected, strlen(expected)), "%s", err.message);
}
END_TEST

START_TEST(what_is_let_go_meanwhile_is_taken)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    auto_close int other = socket(AF_INET, SOCK_STREAM, 0);
    struct error err;
    pid_t holder;

    ck_assert_int_eq(bind(other, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(other, 1), 0);
    ck_assert_int_eq(getsockname(other, (struct sockaddr *)&address, &length), 0);
    holder = fork();
    if (holder == 0) {
        usleep(300 * 1000);
        _exit(0);
    }
    close(take_fd(&other));
    ck_assert_msg(listener_open("127.0.0.1", ntohs(address.sin_port), &err) == 0, "%s",
                  err.message);
    check_ready();
    listener_close();
    listener_close();
    ck_assert_int_eq(listener_fd(), -1);
    ck_assert_int_eq(waitpid(holder, NULL, 0), holder);
}
END_TEST

START_TEST(an_address_that_is_none_is_told)
{
    struct error err;

    ck_assert_int_eq(listener_open("not an address", 1, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "HOST"));
}
END_TEST

/* In a process of its own, since Check has descriptor 3 too: open with `fd` passed as a service
 * manager would, and say whether it was taken. */
static bool takes(int fd, const char *count)
{
    pid_t pid = fork();
    struct error err;
    char text[24];
    int status;

    if (pid == 0) {
        if (fd != 3)
            dup2(fd, 3);
        snprintf(text, sizeof(text), "%d", getpid());
        setenv("LISTEN_PID", text, 1);
        setenv("LISTEN_FDS", count, 1);
        if (listener_open("not an address", 1, &err) < 0)
            _exit(err.kind == ERR_INVALID ? 1 : 2);
        _exit(listener_fd() == 3 && fcntl(3, F_GETFL) & O_NONBLOCK &&
                      fcntl(3, F_GETFD) & FD_CLOEXEC &&
                      option_of(3, IPPROTO_TCP, TCP_NODELAY) == 1 && !getenv("LISTEN_FDS") &&
                      !getenv("LISTEN_PID")
                  ? 0
                  : 3);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}

START_TEST(one_listening_socket_is_taken_from_a_service_manager)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    auto_close int fd = socket(AF_INET, SOCK_STREAM, 0);
    auto_close int datagrams = socket(AF_INET, SOCK_DGRAM, 0);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert(!takes(fd, "1"));
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert(takes(fd, "1"));
    ck_assert(!takes(fd, "2"));
    ck_assert(!takes(datagrams, "1"));
}
END_TEST

START_TEST(what_was_passed_to_another_is_left_alone)
{
    struct error err;

    setenv("LISTEN_PID", "1", 1);
    setenv("LISTEN_FDS", "1", 1);
    ck_assert_int_eq(listener_open("127.0.0.1", free_port(), &err), 0);
    ck_assert(strncmp(listener_name(), "127.0.0.1:", 10) == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("listener");
    TCase *tests = unit_case(suite, "listener");

    tcase_add_test(tests, it_listens_where_it_is_told);
    tcase_add_test(tests, two_colons_take_both_families);
    tcase_add_test(tests, what_is_taken_is_told);
    tcase_add_test(tests, what_is_let_go_meanwhile_is_taken);
    tcase_add_test(tests, an_address_that_is_none_is_told);
    tcase_add_test(tests, one_listening_socket_is_taken_from_a_service_manager);
    tcase_add_test(tests, what_was_passed_to_another_is_left_alone);
    return unit_run(suite);
}
