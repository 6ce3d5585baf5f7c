/* What the supervisor and a sandbox's init say to each other, over a SOCK_SEQPACKET socket on which
 * init listens.
 *
 * The supervisor connects, says hello and gets `ready`, then one event for each exec that init
 * still knows: `running`, or `ended`, which is kept and told again to every new connection until it
 * was acknowledged. So a supervisor that was killed loses no exit status. Everything is of fixed
 * size; what comes from init is hostile until checked. */
#ifndef SUPERVISOR_INIT_H
#define SUPERVISOR_INIT_H

#include <stdint.h>

enum {
    INIT_SOCKET = 3,      /* where init finds its listening socket */
    INIT_EXECS_MAX = 256, /* running and not yet acknowledged ones together */
    INIT_TEXTS_MAX = 1024 + 256 /* argv and environment */,
    INIT_DATA_MAX = 196 * 1024, /* bytes behind a request */
    INIT_TIMEOUT_MAX_MS = 24 * 3600 * 1000,
};

enum init_request_type {
    INIT_HELLO = 1,
    INIT_EXEC,  /* with three descriptors: standard input, output, error */
    INIT_ABORT, /* end this exec and its whole tree; it is reported as any other */
    INIT_ACK,   /* forget this exec */
    INIT_NAME,  /* write another host name into /etc; its text follows, with its NUL */
};

/* Behind INIT_EXEC come `length` bytes: the directory, argc and envc texts, each with its NUL. */
struct init_request {
    uint32_t type;
    uint32_t argc;
    uint32_t envc;
    uint32_t length;
    uint64_t id;
    int64_t timeout_ms;
    uint32_t uid; /* and gid, of the command */
    uint32_t unused;
};

enum init_event_type {
    INIT_READY = 1,
    INIT_RUNNING,
    INIT_ENDED,
    INIT_REFUSED, /* the exec did not begin; `status` is an errno; nothing to acknowledge */
    INIT_NAMED,   /* `status` is an errno, or 0 */
};

enum { INIT_TIMED_OUT = 1, INIT_ABORTED = 2 };

struct init_event {
    uint32_t type;
    uint32_t flags;
    uint64_t id;
    int64_t duration_ms;
    int32_t status; /* as of waitpid(2) */
    int32_t unused;
};

#endif
