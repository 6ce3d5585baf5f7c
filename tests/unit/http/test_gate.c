/* The gate with CivetWeb behind it, in a process of its own, against raw clients. */
#include "http/gate.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "common/log.h"
#include "http/router.h"
#include "server/metrics.h"
#include "server/settings.h"
#include "tests/unit/unit.h"

enum { BODY_LIMIT = 1 << 20, ANSWER_MAX = 256 * 1024, WAIT_MS = 5000 };

static int port, stop_fd;
static pid_t server;

/* --- what is served: the body's length, or what the path asks for ---------------------------- */

static void answer(struct exchange *exchange, int status, const char *text)
{
    auto_buffer struct buffer out = {0};

    exchange->keep_alive &= exchange_complete(exchange);
    buffer_format(&out, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: %s\r\n\r\n%s", status,
                  strlen(text), exchange->keep_alive ? "keep-alive" : "close", text);
    exchange_write(exchange, out.data, out.length);
}

static void serve_stream(struct exchange *exchange)
{
    static const char text[] = "taken";
    int fd = exchange_take(exchange);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(exchange_write(exchange, "no", 2), -1);
    ck_assert_int_eq(send(fd, text, sizeof(text) - 1, 0), sizeof(text) - 1);
    close(fd);
}

void router_serve(struct mg_connection *connection, struct exchange *exchange)
{
    const struct mg_request_info *info = mg_get_request_info(connection);
    const char *path = info->local_uri_raw, *query = info->query_string;
    static _Thread_local char bytes[100000];
    char text[256];
    struct error err;
    int got;

    if (!strcmp(path, "/take")) {
        serve_stream(exchange);
        return;
    }
    if (!strcmp(path, "/ignore")) {
        answer(exchange, 200, "ignored");
        return;
    }
    if (!strcmp(path, "/hold")) {
        bool holds = exchange_hold(exchange);

        if (holds)
            usleep(500 * 1000);
        answer(exchange, holds ? 200 : 503, holds ? "held" : "too many");
        return;
    }
    if (!strcmp(path, "/slow"))
        usleep(300 * 1000);
    if (!strcmp(path, "/large")) {
        memset(bytes, 'x', sizeof(bytes) - 1);
        answer(exchange, 200, bytes);
        return;
    }
    do
        got = exchange_read(exchange, bytes, 1000, BODY_LIMIT, &err);
    while (got > 0);
    if (got < 0) {
        answer(exchange, error_status(err.kind), err.message);
        return;
    }
    snprintf(text, sizeof(text), "%s %s?%s %lld %s", info->request_method, path, query ? query : "",
             (long long)exchange->body_read, exchange->peer);
    answer(exchange, 200, text);
}

/* --- the server and its clients -------------------------------------------------------------- */

static void start_with(int64_t threads, int64_t address_connections)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), stop[2];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);

    settings.worker_threads = threads;
    settings.worker_connections = 64;
    settings.address_connections = address_connections;
    settings.drain_seconds = 3;
    log_init("test", LOG_WARNING);
    metrics_open("none");
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(listener, 64), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    port = ntohs(address.sin_port);
    ck_assert_int_eq(pipe(stop), 0);
    stop_fd = stop[1];
    server = fork();
    if (server == 0) {
        struct error err;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(stop[1]);
        if (gate_run(listener, stop[0], NULL, &err) < 0) {
            fprintf(stderr, "gate: %s\n", err.message);
            _exit(1);
        }
        exit(0);
    }
    close(listener);
    close(stop[0]);
}

static void start(void)
{
    start_with(8, 64);
}

/* The gate ends by itself, and cleanly. */
static void finish(char byte)
{
    int status;

    ck_assert_int_eq(write(stop_fd, &byte, 1), 1);
    ck_assert_int_eq(waitpid(server, &status, 0), server);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

static int client(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (int)strlen(text));
}

/* All that comes until the end, or until `until` is there; NULL: until the end. */
static const char *hear(int fd, const char *until)
{
    static char text[ANSWER_MAX];
    size_t length = 0;

    text[0] = '\0';
    for (;;) {
        struct pollfd event = {.fd = fd, .events = POLLIN};
        ssize_t got;

        if (until && strstr(text, until))
            return text;
        ck_assert_msg(poll(&event, 1, WAIT_MS) == 1, "nothing came behind: %s", text);
        got = recv(fd, text + length, sizeof(text) - 1 - length, 0);
        ck_assert_msg(got >= 0, "%s behind: %s", strerror(errno), text);
        if (got == 0) {
            ck_assert_msg(!until, "ended without %s: %s", until ? until : "", text);
            return text;
        }
        length += (size_t)got;
        text[length] = '\0';
    }
}

static size_t answers_in(const char *text)
{
    size_t count = 0;

    for (; (text = strstr(text, "HTTP/1.1 ")); text++)
        count++;
    return count;
}

#define HOST "Host: a\r\n"

START_TEST(a_connection_is_used_again)
{
    int fd;

    start();
    fd = client();
    for (int i = 0; i < 5; i++) {
        say(fd, "GET /a%20b?c=d HTTP/1.1\r\n" HOST "\r\n");
        hear(fd, "GET /a%20b?c=d 0 127.0.0.1");
        /* Longer than the thread stays, so that the loop has it in between. */
        usleep(i % 2 ? 20 * 1000 : 0);
    }
    say(fd, "POST / HTTP/1.1\r\nContent-Length: 3\r\n" HOST "\r\nabc");
    hear(fd, "POST /? 3 127.0.0.1");
    say(fd, "GET / HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(hear(fd, NULL), "Connection: close"));
    close(fd);
    finish('T');
}
END_TEST

START_TEST(http_1_0_closes_unless_asked)
{
    int fd;

    start();
    fd = client();
    say(fd, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    hear(fd, "GET /? 0");
    say(fd, "GET / HTTP/1.0\r\n\r\n");
    ck_assert_uint_eq(answers_in(hear(fd, NULL)), 1);
    close(fd);
    finish('T');
}
END_TEST

struct exchange_case {
    const char *request;
    const char *answer;
};

static const struct exchange_case exchanges[] = {
    {"GET http://a/x HTTP/1.1\r\n" HOST "\r\n", "GET /x? 0"},
    {"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS /*? 0"},
    {"\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "GET /? 0"},
    {"GET / HTTP/1.1\r\n" HOST "X:\ta\tb\r\n\r\n", "GET /? 0"},
    {"PUT / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
     "PUT /? 5"},
    {"PUT / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n", "PUT /? 0"},
    {"PUT / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "PUT /? 0"},
    {"PUT / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab", "PUT /? 2"},
    {"GET / HTTP/1.1\r\n" HOST "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "GET /? 0"},
    {"PUT /ignore HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", "ignored"},
};

START_TEST(an_ordinary_request_is_answered)
{
    int fd;

    start();
    fd = client();
    /* Twice: the connection is in order afterwards. */
    for (int i = 0; i < 2; i++) {
        say(fd, exchanges[_i].request);
        hear(fd, exchanges[_i].answer);
    }
    close(fd);
    finish('T');
}
END_TEST

START_TEST(an_ordinary_request_may_come_byte_by_byte)
{
    int fd;

    start();
    fd = client();
    for (const char *at = exchanges[_i].request; *at; at++) {
        say(fd, (const char[]){*at, '\0'});
        usleep(200);
    }
    hear(fd, exchanges[_i].answer);
    close(fd);
    finish('T');
}
END_TEST

/* One answer, one close, and nothing of what follows is served. */
static const struct exchange_case refusals[] = {
    {"GET / HTTP/1.1\n" HOST "\r\n", "HTTP/1.1 400 "},
    {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
    {"POST / HTTP/1.1\r\n" HOST
     "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n" HOST
     "\r\n",
     "HTTP/1.1 400 "},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
     "HTTP/1.1 400 "},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "HTTP/1.1 400 "},
    {"POST / HTTP/1.1\r\n" HOST "Expect: something\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 417 "},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999\r\n\r\n", "HTTP/1.1 413 "},
    {"POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n",
     "HTTP/1.1 413 "},
    {"TRACE / HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 405 "},
};

START_TEST(what_is_refused_gets_one_answer_and_a_close)
{
    const char *heard;
    int fd;

    start();
    fd = client();
    say(fd, refusals[_i].request);
    heard = hear(fd, NULL);
    ck_assert_msg(!strncmp(heard, refusals[_i].answer, strlen(refusals[_i].answer)), "%s", heard);
    ck_assert_uint_eq(answers_in(heard), 1);
    ck_assert_ptr_nonnull(strstr(heard, "Connection: close"));
    close(fd);
    finish('T');
}
END_TEST

START_TEST(the_refusal_is_json_and_hardened)
{
    const char *heard;
    int fd;

    start();
    fd = client();
    say(fd, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    heard = hear(fd, NULL);
    ck_assert_ptr_nonnull(strstr(heard, "Content-Type: application/json\r\n"));
    ck_assert_ptr_nonnull(strstr(heard, "X-Content-Type-Options: nosniff\r\n"));
    ck_assert_ptr_nonnull(strstr(heard, "\r\n\r\n{\"detail\":\""));
    close(fd);
    fd = client();
    say(fd, "HEAD / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    ck_assert_ptr_null(strstr(hear(fd, NULL), "{"));
    close(fd);
    finish('T');
}
END_TEST

START_TEST(what_is_pipelined_is_not_answered)
{
    const char *heard;
    int fd;

    start();
    fd = client();
    say(fd, "GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n");
    heard = hear(fd, NULL);
    ck_assert_uint_eq(answers_in(heard), 1);
    ck_assert_ptr_nonnull(strstr(heard, "Connection: close"));
    ck_assert_ptr_nonnull(strstr(heard, "GET /1"));
    close(fd);
    finish('T');
}
END_TEST

START_TEST(a_client_that_has_said_all_is_answered)
{
    int fd;

    start();
    fd = client();
    say(fd, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab");
    shutdown(fd, SHUT_WR);
    ck_assert_ptr_nonnull(strstr(hear(fd, NULL), "PUT /? 2"));
    close(fd);
    finish('T');
}
END_TEST

START_TEST(a_large_body_is_read_by_the_thread)
{
    auto_buffer struct buffer chunk = {0};
    int fd;

    start();
    for (int i = 0; i < 50000; i++)
        buffer_text(&chunk, "0123456789");
    fd = client();
    say(fd, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n");
    say(fd, chunk.data);
    say(fd, chunk.data);
    hear(fd, "PUT /? 1000000 ");
    say(fd, "PUT / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 2; i++) {
        say(fd, "7a120\r\n");
        say(fd, chunk.data);
        say(fd, "\r\n");
    }
    say(fd, "0\r\n\r\n");
    hear(fd, "PUT /? 1000000 ");
    close(fd);
    /* One that ends early, and one that is larger than it may be. */
    fd = client();
    say(fd, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n");
    say(fd, chunk.data);
    shutdown(fd, SHUT_WR);
    hear(fd, "HTTP/1.1 400 ");
    close(fd);
    fd = client();
    say(fd, "PUT / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        say(fd, "7a120\r\n");
        say(fd, chunk.data);
        say(fd, "\r\n");
    }
    ck_assert_ptr_nonnull(strstr(hear(fd, NULL), "HTTP/1.1 413 "));
    close(fd);
    finish('T');
}
END_TEST

START_TEST(some_threads_are_kept_for_those_who_ask_little)
{
    enum { CLIENTS = 12, HELD = 6 /* of 8 */ };
    int fds[CLIENTS], held = 0, large, little;

    start();
    for (int round = 0; round < 2; round++, held = 0) {
        for (int i = 0; i < CLIENTS; i++) {
            fds[i] = client();
            say(fds[i], "GET /hold HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
        }
        usleep(100 * 1000);
        /* A large body is one more that may wait. */
        large = client();
        say(large, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n");
        little = client();
        for (int i = 0; i < 100; i++) {
            say(little, "GET / HTTP/1.1\r\n" HOST "\r\n");
            hear(little, "GET /? 0 ");
        }
        close(little);
        for (int i = 0; i < CLIENTS; i++) {
            held += strstr(hear(fds[i], NULL), "HTTP/1.1 200 ") != NULL;
            close(fds[i]);
        }
        ck_assert_int_eq(held, HELD);
        close(large);
        usleep(100 * 1000);
    }
    finish('T');
}
END_TEST

START_TEST(the_expectation_is_answered_when_the_body_is_wanted)
{
    static const char *const sizes[] = {"4", "100000"};

    start();
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int fd = client();
        char head[256];

        snprintf(head, sizeof(head),
                 "PUT / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: %s\r\n\r\n",
                 sizes[i]);
        say(fd, head);
        hear(fd, "HTTP/1.1 100 Continue\r\n\r\n");
        for (long left = strtol(sizes[i], NULL, 10); left > 0; left -= 4)
            say(fd, "abcd");
        hear(fd, "HTTP/1.1 200 ");
        close(fd);
    }
    finish('T');
}
END_TEST

START_TEST(a_socket_can_be_taken_away)
{
    int fd;

    start();
    fd = client();
    say(fd, "GET /take HTTP/1.1\r\n" HOST "\r\n");
    ck_assert_str_eq(hear(fd, NULL), "taken");
    close(fd);
    fd = client();
    say(fd, "GET / HTTP/1.1\r\n" HOST "\r\n");
    hear(fd, "GET /? 0");
    close(fd);
    finish('T');
}
END_TEST

START_TEST(a_slow_reader_gets_all_of_a_large_answer)
{
    const char *heard;
    int fd;

    start();
    fd = client();
    say(fd, "GET /large HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    usleep(100 * 1000);
    heard = hear(fd, NULL);
    ck_assert_uint_eq(strlen(strstr(heard, "\r\n\r\n") + 4), 99999);
    close(fd);
    finish('T');
}
END_TEST

START_TEST(more_requests_than_threads_wait_for_their_turn)
{
    int fds[12];

    start_with(4, 64);
    for (size_t i = 0; i < COUNT(fds); i++) {
        fds[i] = client();
        say(fds[i], "GET /slow HTTP/1.1\r\n" HOST "\r\n");
    }
    for (size_t i = 0; i < COUNT(fds); i++) {
        hear(fds[i], "GET /slow");
        close(fds[i]);
    }
    finish('T');
}
END_TEST

START_TEST(an_address_has_so_many_connections)
{
    int fds[8], fd;

    start_with(8, COUNT(fds));
    for (size_t i = 0; i < COUNT(fds); i++)
        fds[i] = client();
    fd = client();
    ck_assert_ptr_nonnull(strstr(hear(fd, NULL), "HTTP/1.1 503 "));
    close(fd);
    close(fds[0]);
    usleep(50 * 1000);
    fd = client();
    say(fd, "GET / HTTP/1.1\r\n" HOST "\r\n");
    hear(fd, "GET /? 0");
    close(fd);
    finish('T');
}
END_TEST

START_TEST(draining_finishes_what_was_begun)
{
    int idle, slow;

    start();
    idle = client();
    slow = client();
    say(idle, "GET / HTTP/1.1\r\n" HOST "\r\n");
    hear(idle, "GET /? 0");
    say(slow, "GET /slow HTTP/1.1\r\n" HOST "\r\n");
    usleep(50 * 1000);
    ck_assert_int_eq(write(stop_fd, "T", 1), 1);
    ck_assert_str_eq(hear(idle, NULL), "");
    ck_assert_ptr_nonnull(strstr(hear(slow, NULL), "GET /slow"));
    close(idle);
    close(slow);
    finish('T');
}
END_TEST

START_TEST(a_replaced_gate_answers_once_more)
{
    const char *heard;
    int idle;

    start();
    idle = client();
    say(idle, "GET / HTTP/1.1\r\n" HOST "\r\n");
    hear(idle, "GET /? 0");
    ck_assert_int_eq(write(stop_fd, (const char[]){GATE_REPLACED}, 1), 1);
    usleep(100 * 1000);
    say(idle, "GET / HTTP/1.1\r\n" HOST "\r\n");
    heard = hear(idle, NULL);
    ck_assert_ptr_nonnull(strstr(heard, "GET /? 0"));
    ck_assert_ptr_nonnull(strstr(heard, "Connection: close"));
    close(idle);
    finish('T');
}
END_TEST

START_TEST(clients_that_vanish_leave_nothing_behind)
{
    static const char *const beginnings[] = {
        "",
        "GET / HT",
        "PUT / HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc",
        "PUT / HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\nabc",
        "GET /slow HTTP/1.1\r\n" HOST "\r\n",
        "GET /large HTTP/1.1\r\n" HOST "\r\n"};

    start();
    for (int round = 0; round < 5; round++)
        for (size_t i = 0; i < COUNT(beginnings); i++) {
            const struct linger reset = {.l_onoff = 1};
            int fd = client();

            say(fd, beginnings[i]);
            if (round % 2)
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
            close(fd);
        }
    /* It ends only when it knows of no connection. */
    finish('T');
}
END_TEST

START_TEST(other_sockets_of_the_process_are_not_concerned)
{
    int pair[2];
    char byte;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert_int_eq(send(pair[0], "x", 1, 0), 1);
    ck_assert_int_eq(recv(pair[1], &byte, 1, 0), 1);
    ck_assert_int_eq(recv(-1, &byte, 1, 0), -1);
    ck_assert_int_eq(errno, EBADF);
    close(pair[0]);
    close(pair[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gate");
    TCase *tests = unit_case(suite, "gate");

    tcase_set_timeout(tests, 20);
    tcase_add_test(tests, a_connection_is_used_again);
    tcase_add_test(tests, http_1_0_closes_unless_asked);
    unit_table(tests, an_ordinary_request_is_answered, exchanges);
    unit_table(tests, an_ordinary_request_may_come_byte_by_byte, exchanges);
    unit_table(tests, what_is_refused_gets_one_answer_and_a_close, refusals);
    tcase_add_test(tests, the_refusal_is_json_and_hardened);
    tcase_add_test(tests, what_is_pipelined_is_not_answered);
    tcase_add_test(tests, a_client_that_has_said_all_is_answered);
    tcase_add_test(tests, a_large_body_is_read_by_the_thread);
    tcase_add_test(tests, some_threads_are_kept_for_those_who_ask_little);
    tcase_add_test(tests, the_expectation_is_answered_when_the_body_is_wanted);
    tcase_add_test(tests, a_socket_can_be_taken_away);
    tcase_add_test(tests, a_slow_reader_gets_all_of_a_large_answer);
    tcase_add_test(tests, more_requests_than_threads_wait_for_their_turn);
    tcase_add_test(tests, an_address_has_so_many_connections);
    tcase_add_test(tests, draining_finishes_what_was_begun);
    tcase_add_test(tests, a_replaced_gate_answers_once_more);
    tcase_add_test(tests, clients_that_vanish_leave_nothing_behind);
    tcase_add_test(tests, other_sockets_of_the_process_are_not_concerned);
    return unit_run(suite);
}
