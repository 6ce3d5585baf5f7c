/* The streamer: one process that serves every follower of every log, from one epoll loop. */
#ifndef SERVER_STREAMER_H
#define SERVER_STREAMER_H

#include "common/error.h"

/* Serve until `stop_fd` is readable; then every stream is closed (clients come back by themselves
 * and resume). */
int streamer_run(int stop_fd, struct error *err);

#endif
