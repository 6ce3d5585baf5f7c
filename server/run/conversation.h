/* What was said in a session, as chat messages: the rows of `conversation`, and their copy in
 * memory while a turn runs. */
#ifndef RUN_CONVERSATION_H
#define RUN_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>

#include "common/arena.h"
#include "store/database.h"

enum message_role { MESSAGE_OTHER, MESSAGE_USER, MESSAGE_ASSISTANT, MESSAGE_TOOL };

struct tool_call {
    const char *id;
    const char *name;
    const char *arguments; /* JSON text, if the model made no mistake */
};

struct message {
    enum message_role role;
    const char *json;
    struct tool_call *calls; /* MESSAGE_ASSISTANT */
    size_t call_count;
    const char *call_id; /* MESSAGE_TOOL: whose result it is */
};

struct conversation {
    struct arena *arena; /* holds everything */
    struct message *items;
    size_t count, room;
};

/* Read a session's messages. */
int conversation_load(struct database *db, const char *session_id, struct arena *arena,
                      struct conversation *conversation, struct error *err);
/* Add a message in memory only. `json` is an object with a role. */
void conversation_note(struct conversation *conversation, const char *json);
/* Add it in the current transaction too. */
int conversation_append(struct conversation *conversation, struct database *db,
                        const char *session_id, const char *run_id, const char *json,
                        struct error *err);

/* The messages of each kind, as JSON. */
void conversation_user(struct buffer *out, const char *text);
/* `calls` may be none. */
void conversation_assistant(struct buffer *out, const char *text, size_t length,
                            const struct tool_call *calls, size_t call_count);
void conversation_result(struct buffer *out, const char *call_id, const char *text, size_t length);

/* What a message says, in the conversation's arena; "" when it is no text. */
const char *conversation_text(const struct conversation *conversation, size_t message);
/* Whether a call has this id. */
bool conversation_has_call(const struct conversation *conversation, const char *call_id);
/* The next call of the newest answer that has no result yet. False when there is none. */
bool conversation_pending(const struct conversation *conversation, struct tool_call *call);
/* Append the list of messages for the model: `system` first, and every call answered before anybody
 * speaks again, also those that a cancelled or failed turn left open. */
void conversation_write(const struct conversation *conversation, const char *system,
                        struct buffer *out);

#endif
