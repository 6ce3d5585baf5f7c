/* The one listening socket, which every worker inherits. */
#ifndef SERVER_LISTENER_H
#define SERVER_LISTENER_H

#include "common/error.h"

/* Open it at `host` and `port`, or take the one that the service manager passed (sd_listen_fds(3)).
 * It is non-blocking and close-on-exec. An address that is taken is waited for, up to 2 s. */
int listener_open(const char *host, int port, struct error *err);
/* What listener_open opened. */
int listener_fd(void);
/* Close it, if it is open. */
void listener_close(void);
/* Its address as text, "127.0.0.1:8000" or "[::]:8000"; valid until the next call. */
const char *listener_name(void);

#endif
