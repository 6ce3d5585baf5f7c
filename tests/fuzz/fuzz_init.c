/* Any packets as what the supervisor tells a sandbox's init, between commands that end: its table
 * stays in order, and nothing is read beyond a packet. No process is made. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int init_main(int argc, char **argv);
static pid_t fake_fork(void);
static int fake_kill(pid_t pid, int number);

#define main init_main
#define _Fork fake_fork
#define kill fake_kill
#include "supervisor/init.c"
#undef main

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool forks_fail;

/* Never a process that there is: pids end before 2^22. */
static pid_t fake_fork(void)
{
    static pid_t next = 1 << 23;

    return forks_fail ? -1 : next++;
}

static int fake_kill(pid_t pid, int number)
{
    (void)number;
    if (pid <= 1 << 22)
        abort();
    return 0;
}

static void check_table(void)
{
    size_t used[INIT_EXECS_MAX], count = 0;

    for (size_t i = 0; i < INIT_EXECS_MAX; i++) {
        if (execs[i].state == FREE)
            continue;
        if (execs[i].state == ENDED && execs[i].abort_fd >= 0)
            abort();
        for (size_t j = 0; j < count; j++)
            if (execs[used[j]].id == execs[i].id)
                abort();
        used[count++] = i;
    }
}

static void empty_table(void)
{
    for (size_t i = 0; i < INIT_EXECS_MAX; i++) {
        if (execs[i].state == RUNNING && execs[i].abort_fd >= 0)
            close(execs[i].abort_fd);
        execs[i] = (struct exec){0};
    }
}

/* A packet: its length, how many descriptors came along, its bytes. Returns what it took. */
static size_t give_packet(const uint8_t *data, size_t size, bool well_formed)
{
    size_t length = (size_t)data[0] | (size_t)data[1] << 8, fd_count = data[2] & 3;
    int fds[3] = {-1, -1, -1};

    if (length > size - 3)
        length = size - 3;
    memcpy(packet.bytes, data + 3, length);
    if (well_formed && length >= sizeof(packet.request))
        packet.request.length = (uint32_t)(length - sizeof(packet.request));
    ASAN_POISON_MEMORY_REGION(packet.bytes + length, sizeof(packet) - length);
    /* Its header is looked at only when it is whole. */
    handle(length, fds, fd_count);
    ASAN_UNPOISON_MEMORY_REGION(&packet, sizeof(packet));
    return 3 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int sockets[2];
    char event[sizeof(struct init_event) + 1];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) < 0)
        abort();
    control = sockets[0];
    while (size >= 4) {
        uint8_t what = *data;

        data++, size--;
        forks_fail = what & 1;
        if (what & 2) {
            struct exec *exec = &execs[data[0]];

            if (exec->state == RUNNING)
                exec_end(exec, data[1] | data[2] << 8);
            data += 3, size -= 3;
        } else {
            size_t used = give_packet(data, size, what & 4);

            data += used, size -= used;
        }
        check_table();
        for (ssize_t got; (got = recv(sockets[1], event, sizeof(event), 0)) > 0;)
            if (got != sizeof(struct init_event))
                abort();
    }
    empty_table();
    close(sockets[0]);
    close(sockets[1]);
    return 0;
}
