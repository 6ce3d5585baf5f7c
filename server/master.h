/* The master: starts the server's processes, restarts what dies, replaces them on SIGHUP, ends them
 * on SIGTERM. It has no thread, no database and no request. */
#ifndef SERVER_MASTER_H
#define SERVER_MASTER_H

#include "common/error.h"

/* Serve until SIGTERM or SIGINT, and until every process has ended. The listening socket is open,
 * the counters are mapped. */
int master_run(struct error *err);

#endif
