/* One of the master's processes, as seen from inside it. */
#ifndef SERVER_ROLE_H
#define SERVER_ROLE_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

/* Serve until `stop_fd` is readable, then finish what was begun. The byte on it says why: 'T'
 * everything ends, 'H' this process is being replaced (GATE_REPLACED of http/gate.h). */
typedef int role_function(int stop_fd, struct error *err);

struct role {
    const char *name;
    role_function *run;
    bool tells_ready; /* it calls role_ready; else it counts as ready when it was started */
};

/* The life of a process that was just forked from `master`: never returns. `ready_fd` is where
 * role_ready tells. */
_Noreturn void role_main(const struct role *role, pid_t master, int ready_fd);
/* Tell the master, once, that this process serves. Nothing happens outside role_main. */
void role_ready(void);

#endif
