/* An init that a tenant has taken over: what it does is the name of its host; any other name, and
 * it is as good as the real one, of which it is made. */
#define main real_main
#include "supervisor/init.c"
#undef main

static int accept_supervisor(void)
{
    struct pollfd event = {.fd = INIT_SOCKET, .events = POLLIN};

    poll(&event, 1, -1);
    return accept4(INIT_SOCKET, NULL, NULL, SOCK_CLOEXEC);
}

static void say(int fd, uint32_t type, uint64_t id, int32_t status)
{
    struct init_event event = {
        .type = type, .flags = ~0U, .id = id, .duration_ms = -1, .status = status};

    send(fd, &event, sizeof(event), MSG_NOSIGNAL);
}

/* The id of the next command, after all else that came before it. */
static uint64_t next_command(int fd)
{
    for (;;) {
        ssize_t length = recv(fd, packet.bytes, sizeof(packet), 0);

        if (length <= 0)
            for (;;)
                pause();
        if (packet.request.type == INIT_HELLO)
            say(fd, INIT_READY, 0, 0);
        if (packet.request.type == INIT_EXEC)
            return packet.request.id;
    }
}

static void flood(int fd)
{
    next_command(fd);
    for (uint64_t id = 0;; id++) {
        say(fd, INIT_ENDED, id * 7919, (int)id);
        say(fd, INIT_RUNNING, id, 0);
        say(fd, INIT_REFUSED, ~id, -1);
        say(fd, INIT_NAMED, id, -1);
        say(fd, INIT_READY, id, 0);
    }
}

static void flood_without_reading(int fd)
{
    next_command(fd);
    for (;;)
        say(fd, INIT_RUNNING, (uint64_t)rand(), 0);
}

static void nonsense(int fd)
{
    say(fd, 77, next_command(fd), 0);
}

static void shorter(int fd)
{
    next_command(fd);
    send(fd, "x", 1, MSG_NOSIGNAL);
}

static void longer(int fd)
{
    int size = 1 << 20;

    next_command(fd);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    send(fd, packet.bytes, 150000, MSG_NOSIGNAL);
}

static void empty(int fd)
{
    next_command(fd);
    send(fd, "", 0, MSG_NOSIGNAL);
}

static void descriptors(int fd)
{
    union {
        char space[CMSG_SPACE(253 * sizeof(int))];
        struct cmsghdr align;
    } ancillary;
    struct init_event event = {.type = INIT_READY};
    struct iovec vector = {.iov_base = &event, .iov_len = sizeof(event)};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof(ancillary)};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);

    next_command(fd);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(253 * sizeof(int));
    for (int i = 0; i < 253; i++)
        memcpy(CMSG_DATA(part) + i * (int)sizeof(int), &fd, sizeof(int));
    for (int i = 0; i < 100; i++)
        sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void twice(int fd)
{
    uint64_t id = next_command(fd);

    for (int i = 0; i < 3; i++)
        say(fd, INIT_ENDED, id, 0);
    for (int i = 0; i < 3; i++)
        say(fd, INIT_REFUSED, id, 0);
}

static void odd_status(int fd)
{
    for (;;)
        say(fd, INIT_ENDED, next_command(fd), -1);
}

static void odd_refusal(int fd)
{
    for (;;)
        say(fd, INIT_REFUSED, next_command(fd), -2147483647);
}

static void deaf(int fd)
{
    say(fd, INIT_READY, 0, 0);
}

static void gone(int fd)
{
    next_command(fd);
    _exit(0);
}

static void hung_up(int fd)
{
    next_command(fd);
    close(fd);
    close(INIT_SOCKET);
}

static void silent(int fd)
{
    (void)fd;
}

static void never_ready(int fd)
{
    for (;;)
        say(fd, INIT_RUNNING, 1, 0);
}

static const struct {
    const char *name;
    void (*run)(int fd);
} roles[] = {
    {"flood", flood},
    {"flood-without-reading", flood_without_reading},
    {"nonsense", nonsense},
    {"shorter", shorter},
    {"longer", longer},
    {"empty", empty},
    {"descriptors", descriptors},
    {"twice", twice},
    {"odd-status", odd_status},
    {"odd-refusal", odd_refusal},
    {"deaf", deaf},
    {"gone", gone},
    {"hung-up", hung_up},
    {"silent", silent},
    {"never-ready", never_ready},
};

int main(int argc, char **argv)
{
    char name[64] = "";

    gethostname(name, sizeof(name) - 1);
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
        if (strcmp(name, roles[i].name) == 0) {
            roles[i].run(accept_supervisor());
            for (;;)
                pause();
        }
    return real_main(argc, argv);
}
