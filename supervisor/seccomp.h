/* The system calls that a sandbox has: two stacked filters, compiled once. */
#ifndef SUPERVISOR_SECCOMP_H
#define SUPERVISOR_SECCOMP_H

#include <linux/filter.h>

#include "common/error.h"

/* Compile both with libseccomp; takes about 2 ms, so once a process. */
int seccomp_prepare(struct error *err);
/* Give this process what seccomp_prepare made, for ever. Needs no_new_privs. 0, or -1 with errno.
 */
int seccomp_load_filters(void);

#endif
