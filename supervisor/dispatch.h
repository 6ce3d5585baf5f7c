/* The one gate between what a peer asks for and what is done. */
#ifndef SUPERVISOR_DISPATCH_H
#define SUPERVISOR_DISPATCH_H

#include "common/messages.h"
#include "supervisor/connection.h"
#include "supervisor/sandbox.h"

struct request {
    struct connection *connection;
    struct sandbox *box;    /* NULL: absent */
    const char *sandbox;    /* its name, which has the form of one */
    const void *body;       /* as the message says, within its bounds */
    const int *descriptors; /* as many as the message says; closed with the answer */
};

/* 0: answered, or the answer comes later; -1: `err` is the answer. */
typedef int operation(struct request *request, struct error *err);

#define MESSAGE(number, name, states, descriptors, answer) operation operation_##name;
#include "common/messages.def"
#undef MESSAGE

/* Check connection->packet and do it. */
void dispatch(struct connection *connection);

#endif
