/* Sockets into the sandboxes: see ports.h. */
#include "supervisor/ports.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/dispatch.h"
#include "supervisor/packet.h"

/* With the pidfd of the sandbox's init. */
struct port_request {
    int64_t slot;
    int family;
};

/* With the socket, or why there is none. */
struct port_report {
    int error; /* errno; 0 */
};

/* Who waits for an answer; they come in the order of the requests. */
struct waiter {
    struct connection *connection; /* NULL: it went away */
    struct waiter *next;
};

static pid_t helper;
static struct watch reports = {.fd = -1};
static struct waiter *first, **last = &first;

/* --- the process ----------------------------------------------------------------------------- */

/* Safe: only the network namespace changes, and back before anything else is done; one that cannot
 * go back ends. The right to look at init (ptrace(2), access mode checking) and to enter a
 * namespace that the sandbox made itself is that of the user namespace's owner, an id that no
 * process of a sandbox has. */
static int make_socket(const struct port_request *request, int process, int home, int *made)
{
    struct error ignored;
    int result = 0;

    if (request->slot < 0 || request->slot >= settings.sandboxes_max ||
        (request->family != AF_INET && request->family != AF_INET6))
        return EINVAL;
    if (setresuid((uid_t)-1, (uid_t)(settings.id_base + request->slot), (uid_t)-1) < 0 ||
        capabilities_raise(&ignored) < 0)
        _exit(EXIT_FAILURE);
    if (setns(process, CLONE_NEWNET) < 0)
        result = errno;
    else if ((*made = socket(request->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        result = errno;
    if (setresuid((uid_t)-1, 0, (uid_t)-1) < 0 || capabilities_raise(&ignored) < 0 ||
        setns(home, CLONE_NEWNET) < 0)
        _exit(EXIT_FAILURE);
    return result;
}

static _Noreturn void serve(int socket)
{
    static const int kept[] = {CAP_SYS_ADMIN, CAP_SETUID};
    auto_close int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    struct error error;

    prctl(PR_SET_NAME, "ports");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The terminal's signals are for the main loop. */
    for (size_t i = 0; i < 3; i++)
        signal((const int[]){SIGINT, SIGTERM, SIGHUP}[i], SIG_IGN);
    if (home < 0 || capabilities_keep(kept, COUNT(kept), &error) < 0)
        _exit(EXIT_FAILURE);
    for (;;) {
        struct port_request request;
        struct port_report report = {0};
        int received;
        ssize_t length = packet_receive(socket, &request, sizeof(request), &received, 1);
        auto_close int process = received, made = -1;

        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0)
            _exit(EXIT_SUCCESS); /* the main loop is gone */
        report.error = length == sizeof(request) && process >= 0
                           ? make_socket(&request, process, home, &made)
                           : EINVAL;
        packet_send(socket, &report, sizeof(report), &made, made >= 0, 0);
    }
}

int ports_open(struct error *err)
{
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    helper = fork();
    if (helper < 0)
        return error_set_errno(err, ERR_INTERNAL, "fork");
    if (helper == 0) {
        close(sockets[0]);
        serve(sockets[1]);
    }
    close(sockets[1]);
    reports.fd = sockets[0];
    return 0;
}

/* --- the main loop's side -------------------------------------------------------------------- */

static void answer(struct connection *connection, const struct port_report *report, int fd)
{
    static const struct nothing no_body;
    struct error error;

    if (fd >= 0 && report->error == 0) {
        connection_answer(connection, &schema_nothing, &no_body, fd);
        return;
    }
    if (report->error == ESRCH)
        error_set(&error, ERR_CONFLICT, "port_open: the sandbox is stopped");
    else if (report->error == EAFNOSUPPORT)
        error_set(&error, ERR_UPSTREAM, "the sandbox has no such address");
    else
        error_set(&error, ERR_INTERNAL, "port_open: %s", strerror(report->error));
    connection_refuse(connection, &error);
}

static void hear(struct watch *watch, uint32_t events)
{
    struct port_report report;
    int received;
    ssize_t length = packet_receive(watch->fd, &report, sizeof(report), &received, 1);
    auto_close int fd = received;
    struct waiter *waiter = first;

    (void)events;
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length != sizeof(report) || !waiter) {
        loop_silence(watch); /* it has ended: main.c hears of that */
        return;
    }
    first = waiter->next;
    if (!first)
        last = &first;
    if (waiter->connection)
        answer(waiter->connection, &report, fd);
    free(waiter);
}

int ports_watch(struct error *err)
{
    return loop_watch(&reports, reports.fd, EPOLLIN, hear, err);
}

pid_t ports_pid(void)
{
    return helper;
}

void ports_close(void)
{
    loop_close_watch(&reports);
    if (helper > 0) {
        kill(helper, SIGKILL);
        waitpid(helper, NULL, 0);
    }
    helper = 0;
}

void ports_forget(const struct connection *connection)
{
    for (struct waiter *waiter = first; waiter; waiter = waiter->next)
        if (waiter->connection == connection)
            waiter->connection = NULL;
}

int operation_port_open(struct request *request, struct error *err)
{
    const struct port_open *body = request->body;
    const struct sandbox *box = request->box;
    struct port_request ask = {.slot = box->slot, .family = body->family == 6 ? AF_INET6 : AF_INET};
    struct waiter *waiter;

    if (body->family != 4 && body->family != 6)
        return error_set(err, ERR_BAD_REQUEST, "port_open: family is 4 or 6");
    if (box->process.fd < 0)
        return error_set(err, ERR_CONFLICT, "port_open: the sandbox is stopped");
    /* A connection has one request at a time, so this many fit; should they not, it is busy. */
    if (packet_send(reports.fd, &ask, sizeof(ask), &box->process.fd, 1, MSG_DONTWAIT) < 0) {
        error_set_errno(err, ERR_UNAVAILABLE, "port_open");
        err->retry_after_s = 1;
        return -1;
    }
    waiter = calloc(1, sizeof(*waiter));
    if (!waiter)
        abort();
    waiter->connection = request->connection;
    *last = waiter;
    last = &waiter->next;
    return 0;
}
