/* The spawner: a small process, forked before everything else, that keeps the right to mount and
 * makes every sandbox.
 *
 * For each start it forks a worker, which dies by itself after a few seconds whatever hangs. The
 * main loop hears from it through a socket of its own. */
#ifndef SUPERVISOR_SPAWN_H
#define SUPERVISOR_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "supervisor/supervisor.h"

enum { SPAWN_SECONDS = 5 };

struct spawn_request {
    char sandbox[SANDBOX_ID_LENGTH + 1];
    char image[129];
    char hostname[64];
    bool self_test; /* not init, but selftest.c; the image is in the sandbox's folder */
    int64_t slot;
    int64_t memory_bytes, pids, cpu_percent, tmp_bytes;
};

enum spawn_stage {
    SPAWN_CLONED = 1, /* with the pidfd of what will be init */
    SPAWN_STARTED,    /* init's program runs */
    SPAWN_FAILED,
};

struct spawn_report {
    enum spawn_stage stage;
    pid_t pid;
    struct error error;
};

/* Fork the spawner. `sandboxes` is the folder of the sandboxes (a descriptor). */
int spawn_open(int sandboxes, struct error *err);
/* End it, and every start that is under way. */
void spawn_close(void);
/* Its pid: without it nothing can start. */
pid_t spawn_pid(void);
/* Begin one start. Returns the socket on which its reports come, owned by the caller, non-blocking.
 */
int spawn_begin(const struct spawn_request *request, struct error *err);
/* Read one report: 1, 0 when there is none yet, -1 when the worker is gone without a last word. */
int spawn_hear(int socket, struct spawn_report *report, int *pidfd);

#endif
