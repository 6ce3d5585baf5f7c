/* What a sandbox may use of memory, processors and processes, and the way to kill all of it at once
 * (cgroups(7)).
 *
 * One interface over v2, v1 and the mixture of both: each controller is used where the kernel has
 * it. Nobody ever writes a pid into cgroup.procs: that waits for an RCU grace period, 10 ms. A
 * process enters v2 when it is cloned, and v1 by writing "0" into `tasks`. */
#ifndef SUPERVISOR_CGROUP_H
#define SUPERVISOR_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "supervisor/limits.h"

enum { CGROUP_HIERARCHIES = 5 };

/* How a new process gets into a sandbox's cgroups. */
struct cgroup_entry {
    int unified; /* for CLONE_INTO_CGROUP; -1 where v2 is not mounted */
    int tasks[CGROUP_HIERARCHIES];
    size_t count;
};

void cgroup_entry_close(struct cgroup_entry *entry);
#define auto_cgroup_entry __attribute__((cleanup(cgroup_entry_close)))

/* Whether a controller could be used; nothing is made. */
bool cgroup_can_use(const char *controller);
/* Find the hierarchies and make the folder that holds this supervisor's cgroups in each. `state` is
 * the folder that remembers them for the next start. `required`: a missing controller is an error.
 */
int cgroup_open(const char *state, bool required, struct error *err);
/* Remove those folders if they are empty. */
void cgroup_close(const char *state);
/* Whether memory is bounded by version 2. */
bool cgroup_memory_is_unified(void);
/* One line for the log: which controller is where. */
const char *cgroup_describe(void);

/* Make cgroups for a sandbox that is to come, with the limits that it may have, since that is the
 * dearest part of a start after its namespaces. Limits are zeroed before they are filled. */
void cgroup_make_spare(const struct limits *limits);
/* Their name, if these are their limits, else `name` stays. True: they are whole. */
bool cgroup_take_spare(char *name, size_t size, const struct limits *limits);
void cgroup_remove_spare(void);
int cgroup_make(const char *sandbox, const struct limits *limits, struct error *err);
int cgroup_enter(const char *sandbox, struct cgroup_entry *entry, struct error *err);
/* SIGKILL to every process, and no limit any more that could keep them from dying. Missing cgroups
 * are fine. */
void cgroup_kill(const char *sandbox);
/* SIGKILL alone, which is enough for nearly all. */
void cgroup_signal(const char *sandbox);
/* Let nothing of the sandbox run, and wait until nothing does; or let all run again. */
int cgroup_freeze(const char *sandbox, bool frozen, struct error *err);
/* True when they are gone. */
bool cgroup_remove(const char *sandbox);
/* How many processes the kernel has killed for want of memory; 0 when it can't be told. */
int64_t cgroup_oom_kills(const char *sandbox);
/* Read a file of the sandbox's cgroup that has the controller (0: of the one of version 2), by the
 * name that it has there; false when there is none. */
bool cgroup_read(const char *sandbox, unsigned controller, const char *unified, const char *old,
                 char *text, size_t size);
/* Call with the name of every sandbox that has a cgroup. */
void cgroup_each(void (*call)(const char *sandbox, void *data), void *data);

#endif
