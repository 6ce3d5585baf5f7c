/* A request as the gate would hand it over, on a socket pair whose other end is the client's. */
#ifndef TESTS_UNIT_HTTP_SERVED_H
#define TESTS_UNIT_HTTP_SERVED_H

#include <civetweb.h>
#include <string.h>
#include <sys/socket.h>

#include "http/connection.h"
#include "http/serve.h"
#include "server/settings.h"
#include "tests/unit/unit.h"

struct served {
    struct connection connection;
    struct mg_request_info info;
    struct arena arena;
    struct request req;
    struct response res;
    int client;
};

/* `headers` are names and values in turn, ended by NULL. */
static inline void serve_begin(struct served *served, const char *method, const char *path,
                               const char *query, const char *const *headers)
{
    int ends[2];

    memset(served, 0, sizeof(*served));
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    served->client = ends[1];
    served->connection.exchange = (struct exchange){
        .fd = ends[0], .peer = "192.0.2.1", .content_length = -1, .keep_alive = true};
    served->connection.body_done = true;
    buffer_char(&served->connection.received, '\n');
    served->connection.body_at = served->connection.head_length = 1;
    served->info.request_method = method;
    served->info.request_uri = path;
    served->info.query_string = query;
    served->info.http_version = "1.1";
    for (int i = 0; headers && headers[2 * i]; i++) {
        served->info.http_headers[i].name = headers[2 * i];
        served->info.http_headers[i].value = headers[2 * i + 1];
        served->info.num_headers = i + 1;
    }
    served->req = (struct request){.info = &served->info,
                                   .method = method,
                                   .id = "the-id",
                                   .peer = served->connection.exchange.peer,
                                   .arena = &served->arena,
                                   .exchange = &served->connection.exchange,
                                   .upload = {.fd = -1, .file_name = ""}};
    served->res = (struct response){.file = -1};
    settings.cors_origins = "*";
    settings.allowed_hosts = "*";
    settings.max_request_bytes = 65536;
    settings.state_dir = "/tmp";
}

/* Give the request a body. */
static inline void serve_body(struct served *served, const void *bytes, size_t length)
{
    served->connection.exchange.content_length = (int64_t)length;
    served->connection.body_done = length == 0;
    buffer_add(&served->connection.received, bytes, length);
}

/* Send the answer, and give what the client got. */
static inline const char *serve_answer(struct served *served)
{
    static char got[64 * 1024];
    ssize_t length;

    response_send(&served->req, &served->res);
    length = recv(served->client, got, sizeof(got) - 1, MSG_DONTWAIT);
    got[length > 0 ? length : 0] = '\0';
    return got;
}

static inline void serve_end(struct served *served)
{
    response_done(&served->res);
    buffer_done(&served->connection.received);
    arena_done(&served->arena);
    close(served->connection.exchange.fd);
    close(served->client);
}

#endif
