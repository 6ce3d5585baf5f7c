/* The storekeeper: see storekeeper.h. */
#include "supervisor/storekeeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/disks.h"
#include "supervisor/files.h"
#include "supervisor/image_commit.h"
#include "supervisor/loop.h"
#include "supervisor/packet.h"
#include "supervisor/snapshots.h"

enum { PATIENCE_MS = 2000 }; /* for the storekeeper itself */

struct answer {
    uint64_t serial;
    struct error error;
};

/* What the loop waits for. */
struct call {
    uint64_t serial;
    store_done *done;
    void *data;
    struct timer deadline;
    struct call *next;
};

static int store = -1; /* the main loop's end, which its jobs inherit */
static pid_t store_pid;
static struct call *calls;
/* One socket for all answers to the loop, so that what is under way takes no descriptor. */
static struct watch answers;
static int answering = -1; /* its other end, of which each request carries a copy */

static int seconds_for(const struct store_request *request)
{
    return request->work == STORE_COMMIT ? STORE_COMMIT_SECONDS
           : request->snapshot[0]        ? STORE_RESTORE_SECONDS
                                         : STORE_SECONDS;
}

/* --- waiting --------------------------------------------------------------------------------- */

static int result_of(struct answer *answer, struct error *err)
{
    if (answer->error.kind == ERR_NONE)
        return 0;
    answer->error.message[sizeof(answer->error.message) - 1] = '\0';
    answer->error.fields = NULL;
    *err = answer->error;
    return -1;
}

int storekeeper_ask(const struct store_request *request, struct error *err)
{
    struct answer answer;
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "socketpair");
    auto_close int ours = sockets[0], theirs = sockets[1];
    if (packet_send(store, request, sizeof(*request), &theirs, 1, 0) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "storekeeper");
    close(take_fd(&theirs));
    struct pollfd event = {.fd = ours, .events = POLLIN};
    if (poll(&event, 1, seconds_for(request) * 1000 + PATIENCE_MS) == 0)
        return error_set(err, ERR_TIMEOUT, "the storekeeper did not answer in time");
    if (recv(ours, &answer, sizeof(answer), 0) != sizeof(answer))
        return error_set(err, ERR_INTERNAL, "the storekeeper ended without an answer");
    return result_of(&answer, err);
}

/* --- not waiting ----------------------------------------------------------------------------- */

static void finish(struct call *call, const struct error *result)
{
    struct call **at = &calls;

    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    loop_clear(&call->deadline);
    call->done(call->data, result);
    free(call);
}

static void overdue(struct timer *timer)
{
    struct error error;

    error_set(&error, ERR_TIMEOUT, "the storekeeper did not answer in time");
    finish(OWNER(timer, struct call, deadline), &error);
}

static void hear(struct watch *watch, uint32_t events)
{
    struct error result = {0};
    struct answer answer;
    struct call *call = calls;

    (void)events;
    if (recv(watch->fd, &answer, sizeof(answer), MSG_DONTWAIT) != sizeof(answer))
        return;
    while (call && call->serial != answer.serial)
        call = call->next;
    if (!call)
        return;
    result_of(&answer, &result);
    finish(call, &result);
}

void storekeeper_settle(int patience_ms)
{
    int64_t end = loop_now() + patience_ms;

    while (calls && loop_now() < end) {
        struct pollfd event = {.fd = answers.fd, .events = POLLIN};

        if (poll(&event, 1, (int)(end - loop_now())) > 0)
            hear(&answers, EPOLLIN);
    }
}

int storekeeper_watch(struct error *err)
{
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    answering = sockets[1];
    return loop_watch(&answers, sockets[0], EPOLLIN, hear, err);
}

int storekeeper_begin(const struct store_request *request, store_done *done, void *data,
                      struct error *err)
{
    static uint64_t serial;
    struct store_request numbered = *request;
    struct call *call;

    numbered.serial = ++serial;
    /* Its queue holds some hundreds; who finds it full may ask again. */
    if (packet_send(store, &numbered, sizeof(numbered), &answering, 1, MSG_DONTWAIT) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "storekeeper");
    call = calloc(1, sizeof(*call));
    if (!call)
        abort();
    *call = (struct call){.serial = serial, .done = done, .data = data, .next = calls};
    calls = call;
    loop_set(&call->deadline, seconds_for(request) * 1000 + PATIENCE_MS, overdue);
    return 0;
}

/* --- the storekeeper ------------------------------------------------------------------------- */

/* Only names that the supervisor makes: one or two, without a way up. */
static bool is_ours(const char path[STORE_PATH_LENGTH])
{
    const char *slash;

    if (strnlen(path, STORE_PATH_LENGTH) == STORE_PATH_LENGTH || !path[0] || path[0] == '.')
        return false;
    slash = strchr(path, '/');
    return !slash || (slash != path && slash[1] && !strchr(slash + 1, '/') &&
                      strcmp(slash + 1, ".") != 0 && strcmp(slash + 1, "..") != 0);
}

static bool is_id(const char snapshot[SANDBOX_ID_LENGTH + 1])
{
    return strnlen(snapshot, SANDBOX_ID_LENGTH + 1) == SANDBOX_ID_LENGTH &&
           strspn(snapshot, "0123456789abcdef-") == SANDBOX_ID_LENGTH;
}

static int work(const struct store_request *request, struct error *err)
{
    char path[PATH_MAX];

    if (!is_ours(request->path) || (request->snapshot[0] && !is_id(request->snapshot)))
        return error_set(err, ERR_INTERNAL, "storekeeper: no folder of a disk");
    snprintf(path, sizeof(path), "%s/%s", settings.state, request->path);
    switch (request->work) {
    case STORE_MAKE:
        if (request->snapshot[0])
            return snapshot_restore(request->snapshot, path, &request->disk, true, err);
        return disk_make(path, &request->disk, err);
    case STORE_RESTORE:
        return snapshot_restore(request->snapshot, path, &request->disk, false, err);
    case STORE_ATTACH:
        return disk_attach(path, request->disk.kind, err);
    case STORE_DETACH:
        return disk_detach(path, err);
    case STORE_REMOVE:
        return disk_remove(path, err);
    case STORE_SPARES:
        return spares_make(path, request, err);
    case STORE_COMMIT:
        return image_commit_make(path, request, err);
    }
    return error_set(err, ERR_INTERNAL, "storekeeper: unknown work");
}

static void answer_request(const struct store_request *request, int answer)
{
    struct answer result = {.serial = request->serial};

    if (work(request, &result.error) == 0)
        result.error.kind = ERR_NONE;
    send(answer, &result, sizeof(result), MSG_NOSIGNAL);
}

/* What takes no time is done at once: a fork costs more. */
static bool is_quick(const struct store_request *request)
{
    return request->work != STORE_SPARES && request->work != STORE_COMMIT &&
           !request->snapshot[0] && request->disk.kind == STORAGE_TMPFS;
}

static void serve(int socket)
{
    struct store_request request;
    int answer;

    prctl(PR_SET_NAME, "storekeeper");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < 4; i++)
        signal((const int[]){SIGINT, SIGTERM, SIGHUP, SIGCHLD}[i], SIG_IGN);
    for (;;) {
        ssize_t length = packet_receive(socket, &request, sizeof(request), &answer, 1);

        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0)
            _exit(0); /* the main loop is gone */
        if (length == sizeof(request) && answer >= 0) {
            pid_t pid = is_quick(&request) ? -1 : fork();

            if (pid <= 0) {
                if (pid == 0) {
                    close(socket);
                    /* What was begun is brought to its end, unless nobody waits for it. */
                    if (request.work == STORE_SPARES || request.work == STORE_COMMIT)
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                    signal(SIGCHLD, SIG_DFL); /* it waits for what it runs */
                    signal(SIGALRM, SIG_DFL);
                    alarm((unsigned)seconds_for(&request));
                }
                answer_request(&request, answer);
                if (pid == 0)
                    _exit(0);
            }
        }
        if (answer >= 0)
            close(answer);
    }
}

int storekeeper_open(int disks, struct error *err)
{
    int sockets[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return error_set_errno(err, ERR_INTERNAL, "socketpair");
    pid = fork();
    if (pid == 0) {
        close(sockets[0]);
        if (setns(disks, CLONE_NEWNS) < 0)
            _exit(1);
        serve(sockets[1]);
    }
    close(sockets[1]);
    if (pid < 0) {
        close(sockets[0]);
        return error_set_errno(err, ERR_INTERNAL, "fork");
    }
    store = sockets[0];
    store_pid = pid;
    return 0;
}

void storekeeper_close(void)
{
    if (store < 0)
        return;
    close(store);
    store = -1;
    while (calls) {
        struct call *call = calls;

        calls = call->next;
        free(call);
    }
    kill(store_pid, SIGKILL);
    waitpid(store_pid, NULL, 0);
}

pid_t storekeeper_pid(void)
{
    return store_pid;
}
