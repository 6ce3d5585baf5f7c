/* Before it serves, the supervisor tries a sandbox on itself: every fence must hold on this
 * machine, with this kernel. */
#ifndef SUPERVISOR_SELFTEST_H
#define SUPERVISOR_SELFTEST_H

#include "common/error.h"

/* Make a scratch sandbox and try what must not work in it; about 10 ms. Fails with the first thing
 * that worked. */
int selftest_run(struct error *err);
/* The part inside, in the place of init. */
int selftest_inside(struct error *err);

#endif
