/* Process trees as init and its monitors see them: what descends from a process, stopped and killed
 * whatever it forks meanwhile. For init.c alone, which is one file. */
#ifndef SUPERVISOR_TREES_H
#define SUPERVISOR_TREES_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"

enum { TREES_CROWD = 128, TREES_ROUNDS = 3, TREES_PATIENCE_MS = 100, TREES_PAUSE_MS = 2 };

struct process {
    pid_t pid, parent;
    bool dead; /* but not reaped: it may have a tracer who does not let go */
    bool stopped;
    bool doomed;
    bool judged; /* `doomed` says what it is */
};

static int trees_proc;            /* /proc */
static struct process *processes; /* of the last scan, in the order of their pids */
static size_t process_count, process_room;

static bool read_process(const char *pid, struct process *process)
{
    char path[64], text[512], *after;
    ssize_t length;
    int fd, threads;
    char state;

    snprintf(path, sizeof(path), "%.20s/stat", pid);
    fd = openat(trees_proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return false;
    text[length] = '\0';
    after = strrchr(text, ')'); /* the name before it is the tenant's choice */
    if (!after ||
        sscanf(after + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d",
               &state, &process->parent, &threads) != 3)
        return false;
    process->dead = (state == 'Z' || state == 'X') && threads <= 1;
    process->stopped = state == 'T' || state == 't';
    return true;
}

/* False when it took longer than until `until_ms`; then it is not whole. */
static bool scan_processes(int64_t until_ms)
{
    int fd = openat(trees_proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool in_time = true;

    process_count = 0;
    while (directory && in_time && (entry = readdir(directory))) {
        struct process found = {0};

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
            !read_process(entry->d_name, &found))
            continue;
        found.pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (process_count == process_room) {
            size_t room = process_room ? process_room * 2 : 256;
            struct process *more = realloc(processes, room * sizeof(*more));

            if (!more)
                break;
            processes = more;
            process_room = room;
        }
        processes[process_count++] = found;
        in_time = clock_ms() < until_ms;
    }
    if (directory)
        closedir(directory);
    else if (fd >= 0)
        close(fd);
    return in_time;
}

static struct process *trees_find(pid_t pid)
{
    size_t low = 0, high = process_count; /* /proc is in the order of the pids */

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (processes[middle].pid == pid)
            return &processes[middle];
        if (processes[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Whether it descends from `root`: found on the way up, which is walked once for all that meet on
 * it. A scan is no single moment, so that it may even show a circle. */
static void judge(struct process *process, pid_t root)
{
    struct process *at = process;
    size_t steps = 0;
    bool doomed;

    while (at && !at->judged && at->parent != root && steps++ < process_count)
        at = trees_find(at->parent);
    doomed = at && (at->judged ? at->doomed : at->parent == root);
    for (at = process; at && !at->judged; at = trees_find(at->parent)) {
        at->judged = true;
        at->doomed = doomed;
    }
}

/* Send a signal to what the last scan shows to descend from `root`. Returns how many have still to
 * follow it. */
static size_t signal_descendants(pid_t root, int number)
{
    size_t going = 0;

    for (size_t i = 0; i < process_count; i++) {
        judge(&processes[i], root);
        if (!processes[i].doomed || processes[i].dead ||
            (number == SIGSTOP && processes[i].stopped))
            continue;
        kill(processes[i].pid, number);
        going++;
    }
    return going;
}

/* For a crowd, whose thousands leave init less than a hundredth of a processor: all of the sandbox
 * stops at once, since no process forks with a signal pending, and what does not belong to the tree
 * goes on after one look. What was stopped before, as far as the last scan saw, stays so. */
static size_t kill_in_stillness(pid_t root)
{
    pid_t *still;
    size_t count = 0, going;

    kill(-1, SIGSTOP); /* but init and who calls */
    still = calloc(process_count + 1, sizeof(*still));
    for (size_t i = 0; still && i < process_count; i++)
        if (processes[i].stopped)
            still[count++] = processes[i].pid;
    scan_processes(INT64_MAX);
    going = signal_descendants(root, SIGKILL);
    for (size_t i = 0, at = 0; i < process_count; i++) {
        while (at < count && still[at] < processes[i].pid)
            at++;
        if (!processes[i].doomed && (at == count || still[at] != processes[i].pid))
            kill(processes[i].pid, SIGCONT);
    }
    free(still);
    return going;
}

/* Looked at by their names alone, which is all that there may be time for. */
static bool is_crowded(void)
{
    int fd = openat(trees_proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int count = 0;

    while (directory && count < TREES_CROWD && (entry = readdir(directory)))
        count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
    if (directory)
        closedir(directory);
    else if (fd >= 0)
        close(fd);
    return count == TREES_CROWD;
}

/* Kill what descends from `root`, and see that nothing of it has forked meanwhile: it is stopped
 * first. Returns how many lived. */
static size_t trees_kill(pid_t root)
{
    int64_t until_ms = clock_ms() + TREES_PATIENCE_MS;

    process_count = 0;
    for (int round = is_crowded() ? TREES_ROUNDS : 0; round < TREES_ROUNDS; round++) {
        if (!scan_processes(until_ms))
            break;
        if (signal_descendants(root, SIGSTOP) == 0)
            return signal_descendants(root, SIGKILL);
    }
    return kill_in_stillness(root);
}

static bool is_gone(pid_t pid, pid_t spared)
{
    siginfo_t info = {0};

    if (pid == spared)
        return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid;
    waitpid(pid, NULL, WNOHANG); /* once it is ours */
    return kill(pid, 0) < 0 && errno == ESRCH;
}

/* Wait for those who were killed to be gone, without another scan, and reap them but for
 * `spared`. True when they are. */
static bool trees_settle(pid_t spared, int64_t until_ms)
{
    for (;;) {
        bool all = true;

        for (size_t i = 0; i < process_count; i++) {
            if (processes[i].doomed && !processes[i].dead)
                processes[i].dead = is_gone(processes[i].pid, spared);
            all = all && (!processes[i].doomed || processes[i].dead);
        }
        if (all || clock_ms() >= until_ms)
            return all;
        poll(NULL, 0, TREES_PAUSE_MS);
    }
}

#endif
