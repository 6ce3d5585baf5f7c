/* Handing a client's socket over to the streamer: the message, and the worker's end of it. */
#ifndef HTTP_FOLLOW_H
#define HTTP_FOLLOW_H

#include <stdint.h>

#include "common/error.h"
#include "common/field.h"

/* One follower: whose log, from where, on whose credential. The client's socket goes along as the
 * one descriptor. */
struct follow {
    const char *session;
    const char *key;  /* id of the API key that opened the stream; NULL: the operator */
    int64_t after;    /* seq of the last event that the client has */
    const char *head; /* the response's head, which the streamer sends first */
};

extern const struct schema schema_follow;

enum { FOLLOW_MESSAGE = 1 };

/* Path of the streamer's socket, from STATE_DIR. Valid until the next call on this thread. */
const char *follow_socket_path(void);
/* Give `client` (which stays the caller's) to the streamer and wait until it has it.
 * ERR_UNAVAILABLE with retry_after_s 1 when there is none. */
int follow_hand_over(const struct follow *follow, int client, struct error *err);

#endif
