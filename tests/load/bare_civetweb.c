/* What CivetWeb alone can do, to compare the server with: one handler that answers a few bytes.
 * bare_civetweb PORT */
#include <civetweb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int answer(struct mg_connection *connection, void *data)
{
    static const char body[] = "{\"status\":\"ok\"}";

    (void)data;
    mg_printf(connection,
              "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
              "%zu\r\nConnection: keep-alive\r\n\r\n%s",
              strlen(body), body);
    return 200;
}

int main(int argc, char **argv)
{
    struct mg_callbacks callbacks = {0};
    struct mg_context *context;
    sigset_t ends;
    int signal_number;

    if (argc != 2) {
        fputs("usage: bare_civetweb PORT\n", stderr);
        return 2;
    }
    const char *options[] = {
        "listening_ports", argv[1], "num_threads", "64", "enable_keep_alive", "yes",
        "tcp_nodelay",     "1",     NULL};
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    context = mg_start(&callbacks, NULL, options);
    if (!context) {
        fputs("bare_civetweb: not started\n", stderr);
        return 1;
    }
    mg_set_request_handler(context, "/", answer, NULL);
    sigwait(&ends, &signal_number);
    mg_stop(context);
    return 0;
}
