/* Packets with descriptors over a SOCK_SEQPACKET socket, between the supervisor's own processes and
 * to a sandbox's init (unix(7), SCM_RIGHTS). */
#ifndef SUPERVISOR_PACKET_H
#define SUPERVISOR_PACKET_H

#include <stddef.h>
#include <sys/types.h>

enum { PACKET_DESCRIPTORS = 8 };

/* Send all of it, with up to PACKET_DESCRIPTORS descriptors, which stay the caller's. `flags` as of
 * sendmsg(2). 0, or -1 with errno. */
int packet_send(int socket, const void *bytes, size_t length, const int *fds, size_t count,
                int flags);
/* The length of the packet, 0 at the end, -1 with errno. The caller owns what came; descriptors
 * that did not are -1, and those beyond `count` are closed. */
ssize_t packet_receive(int socket, void *bytes, size_t length, int *fds, size_t count);

#endif
