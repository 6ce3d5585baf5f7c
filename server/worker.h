/* A worker: one process that serves HTTP. */
#ifndef SERVER_WORKER_H
#define SERVER_WORKER_H

#include "common/error.h"

/* As role_function of role.h says. */
int worker_run(int stop_fd, struct error *err);

#endif
