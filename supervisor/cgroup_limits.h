/* What a start asks for, as the files of its cgroups have it. */
#ifndef SUPERVISOR_CGROUP_LIMITS_H
#define SUPERVISOR_CGROUP_LIMITS_H

#include <stdbool.h>

#include "common/error.h"
#include "supervisor/limits.h"

enum { CONTROLLER_MEMORY = 1, CONTROLLER_PIDS = 2, CONTROLLER_CPU = 4, CONTROLLER_HUGETLB = 8 };

/* Write the limits of those controllers that `folder` (a cgroup) has. */
int cgroup_limits_write(const char *folder, unsigned controllers, bool unified,
                        const struct limits *limits, struct error *err);
/* Let nobody beneath `folder` have huge pages, which the memory controller does not count. */
int cgroup_limits_forbid_huge_pages(const char *folder, bool unified, struct error *err);

#endif
