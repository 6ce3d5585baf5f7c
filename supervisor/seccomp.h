/* The system calls that a sandbox has: two stacked filters, compiled once. */
#ifndef SUPERVISOR_SECCOMP_H
#define SUPERVISOR_SECCOMP_H

#include <linux/filter.h>

#include "common/error.h"

/* Compile both with libseccomp; takes about 2 ms, so once a process. */
int seccomp_prepare(struct error *err);
/* Give this process the deny-list, for ever: the workers of the spawner, so that each sandbox
 * inherits it, since to load a filter costs as much as a namespace. It forbids nothing that they
 * do. Needs CAP_SYS_ADMIN or no_new_privs, as the other does. 0, or -1 with errno. */
int seccomp_refuse(void);
/* And the allow-list. */
int seccomp_allow(void);

#endif
