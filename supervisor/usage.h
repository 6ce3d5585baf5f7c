/* What a sandbox uses: the message `resources`. */
#ifndef SUPERVISOR_USAGE_H
#define SUPERVISOR_USAGE_H

#include "common/messages.h"

/* What its cgroups say, whichever version they are; 0 for what they don't. */
void usage_read_cgroups(const char *cgroup, struct sandbox_usage *usage);

#endif
