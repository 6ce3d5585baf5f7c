/* What a handler costs without us: CivetWeb's own accept, parser and keep-alive, in as many
 * processes and threads as the server has.
 *
 * bare_civetweb PORT PROCESSES THREADS answers every request on loopback with {"status":"ok"} until
 * SIGTERM. */
#include <civetweb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES_MAX = 256 };

/* CivetWeb binds for itself, and several processes shall share the port (socket(7), SO_REUSEPORT).
 */
int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    int one = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    return (int)syscall(SYS_bind, fd, address, length);
}

static int answer(struct mg_connection *connection, void *unused)
{
    static const char text[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n"
        "Connection: keep-alive\r\n\r\n{\"status\":\"ok\"}";

    (void)unused;
    mg_write(connection, text, sizeof(text) - 1);
    return 200;
}

static _Noreturn void serve(const char *address, const char *threads, pid_t parent)
{
    const char *options[] = {"listening_ports",
                             address,
                             "num_threads",
                             threads,
                             "enable_keep_alive",
                             "yes",
                             "keep_alive_timeout_ms",
                             "60000",
                             "request_timeout_ms",
                             "60000",
                             "tcp_nodelay",
                             "1",
                             NULL};
    struct mg_callbacks callbacks = {0};
    struct mg_context *context;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    signal(SIGTERM, SIG_DFL);
    mg_init_library(0);
    context = mg_start(&callbacks, NULL, options);
    if (!context) {
        fprintf(stderr, "bare_civetweb: CivetWeb does not start on %s\n", address);
        _exit(1);
    }
    mg_set_request_handler(context, "**", answer, NULL);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    char address[32];
    pid_t children[PROCESSES_MAX], parent = getpid();
    int processes = argc == 4 ? atoi(argv[2]) : 0;
    sigset_t stops;
    int got;

    if (argc != 4 || processes < 1 || processes > PROCESSES_MAX || atoi(argv[3]) < 1) {
        fputs("usage: bare_civetweb PORT PROCESSES THREADS\n", stderr);
        return 2;
    }
    snprintf(address, sizeof(address), "127.0.0.1:%d", atoi(argv[1]));
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGCHLD);
    sigprocmask(SIG_BLOCK, &stops, NULL);
    for (int i = 0; i < processes; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            sigprocmask(SIG_UNBLOCK, &stops, NULL);
            serve(address, argv[3], parent);
        }
    }
    sigwait(&stops, &got);
    for (int i = 0; i < processes; i++)
        if (children[i] > 0)
            kill(children[i], SIGKILL);
    while (wait(NULL) > 0)
        continue;
    return got == SIGCHLD;
}
