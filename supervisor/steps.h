/* What a new process gives up, in the order of steps.def, before it becomes a sandbox's init. */
#ifndef SUPERVISOR_STEPS_H
#define SUPERVISOR_STEPS_H

#include <stdbool.h>

#include "common/error.h"
#include "supervisor/cgroup.h"
#include "supervisor/limits.h"

/* Mounts that the process is given: root, workspace, /dev. */
enum { GRANTS = 3 };

/* All that the process has of the outside while it walks through the steps. */
struct containment {
    const char *hostname;
    const struct limits *limits; /* some are told to who asks inside; the cgroups enforce them */
    int64_t tmp_inodes;
    const struct cgroup_entry *cgroups;
    /* Descriptors; mounts are detached until a step attaches them. */
    int listener;       /* init's control socket */
    int program;        /* sandbox-init, in a sealed memfd */
    int report;         /* the spawner: see spawn.h */
    bool network_ready; /* the network namespace is one that was made ahead */
    const char *names;  /* content of /etc/resolv.conf; NULL: there is no network */
    int root;           /* the overlay */
    int workspace;
    int devices;                                           /* /dev, of this sandbox alone */
    int proc, terminals, shared_memory, temporary, system; /* made by mounts_make */
};

/* 0, or -1 with `err`; then the process ends. */
typedef int step(struct containment *containment, struct error *err);

#define STEP(name) step name;
#include "supervisor/steps.def"
#undef STEP

/* Walk through all of them; the error names the step. */
int steps_run(struct containment *containment, struct error *err);

#endif
