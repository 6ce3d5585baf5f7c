/* A runner: one process that leases jobs and does them. */
#ifndef RUN_RUNNER_H
#define RUN_RUNNER_H

#include "common/error.h"

/* Do jobs until `stop_fd` is readable, then finish or give back what was begun. */
int runner_run(int stop_fd, struct error *err);

#endif
