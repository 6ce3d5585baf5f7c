/* The spawner: a small process, forked before everything else, that keeps the right to mount, with
 * the workers that make every sandbox.
 *
 * Workers stay, since to fork one for each start would cost more than most of its steps; one that
 * dies or hangs for some seconds is replaced. The main loop hears of a start through a socket of
 * its own. Between a worker and the process that becomes init there is another: that one sends its
 * user namespace and is told that its ids are mapped (userns_enter), is given its mounts
 * (mounts_receive), and sends a struct error when it fails; the exec closes its end. */
#ifndef SUPERVISOR_SPAWN_H
#define SUPERVISOR_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "supervisor/limits.h"
#include "supervisor/loop.h"
#include "supervisor/supervisor.h"

enum { SPAWN_SECONDS = 5 };

enum spawn_task {
    SPAWN_START,
    SPAWN_NAME, /* give one that runs another host name: its init's pidfd goes along */
};

struct spawn_request {
    enum spawn_task task;
    char sandbox[SANDBOX_ID_LENGTH + 1]; /* its folder */
    char cgroup[SANDBOX_ID_LENGTH + 1];
    char image[129];
    char hostname[64];
    bool self_test; /* not init, but selftest.c; the image is in the sandbox's folder */
    int64_t slot;
    struct limits limits;
    bool cgroup_is_ready; /* it has its limits already */
    bool egress;          /* a network that leads out, from network_pool.c */
};

enum spawn_stage {
    SPAWN_CLONED = 1, /* with the pidfd of what will be init */
    SPAWN_STARTED,    /* init's program runs */
    SPAWN_FAILED,
};

struct spawn_report {
    enum spawn_stage stage;
    pid_t pid;
    uint64_t image; /* inode of the folder that it stands on */
    struct error error;
};

/* Fork the spawner. `sandboxes` is the folder of the sandboxes (a descriptor). */
int spawn_open(int sandboxes, struct error *err);
/* End it, and every start that is under way. */
void spawn_close(void);
/* Its pid: without it nothing can start. */
pid_t spawn_pid(void);
/* Begin one task, or let it wait for its turn. `process`: -1, or a pidfd, which stays the caller's.
 * Returns the socket on which its reports come, non-blocking; it is closed by spawn_forget, or by
 * spawn_end when a watch has it. */
int spawn_begin(const struct spawn_request *request, int process, struct error *err);
/* Read one report: 1, 0 when there is none yet, -1 when the worker is gone without a last word. */
int spawn_hear(int socket, struct spawn_report *report, int *pidfd);
/* Nothing more of this start is to be heard. */
void spawn_forget(int socket);
void spawn_end(struct watch *watch);

#endif
