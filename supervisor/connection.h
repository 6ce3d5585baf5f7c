/* One peer: its socket, and the one request of it that is being done. */
#ifndef SUPERVISOR_CONNECTION_H
#define SUPERVISOR_CONNECTION_H

#include <stdbool.h>

#include "common/arena.h"
#include "common/wire.h"
#include "supervisor/files.h"
#include "supervisor/loop.h"
#include "supervisor/supervisor.h"

struct command;
struct file_job;

struct connection {
    struct watch watch;
    struct arena arena;        /* of the request */
    struct wire_packet packet; /* the request; its descriptors are closed with the answer */
    double begun;              /* when the request came (statistics_now) */
    bool owed;                 /* an answer; until then nothing more is read */
    char waits_for[SANDBOX_ID_LENGTH +
                   1]; /* the sandbox on whose way to another state the request waits; "" */
    struct command *command;
    struct file_job *job;
    struct upload upload;
    struct connection *next;
};

/* Take a new peer, if it may connect and there is room; else the descriptor is closed. */
void connection_accept(int fd);
/* The answer; `fd` goes along unless it is -1, and stays the caller's. */
void connection_answer(struct connection *connection, const struct schema *schema,
                       const void *value, int fd);
void connection_refuse(struct connection *connection, const struct error *error);
/* Do what waited for the sandbox. */
void connection_resume(const char *sandbox);
void connection_close_all(void);

#endif
