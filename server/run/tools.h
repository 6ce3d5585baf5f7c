/* The tools that a model may call: tools.def. */
#ifndef RUN_TOOLS_H
#define RUN_TOOLS_H

#include <stdbool.h>

#include "common/arena.h"
#include "common/error.h"
#include "run/sandbox.h"

enum {
    TOOL_OUTPUT_MAX = 64 * 1024, /* bytes of a result in the log, and of most for the model */
    TOOL_FILE_MAX = 1 << 20,     /* bytes that read_file and edit_file take */
};

/* Where calls run. */
struct tool_place {
    struct sandbox_link *link;
    const char *session_id;
    const char *workdir;
    struct texts environment; /* of commands */
    const char *capabilities; /* JSON list, or NULL: shell and filesystem */
    int cancel_fd;            /* as sandbox_exec has it */
    struct arena *arena;
};

struct tool_result {
    struct buffer text; /* UTF-8 without NUL */
    bool is_error;
    const struct exec_outcome *outcome; /* of a command, in the arena; NULL: none ran */
};

/* The tools that these capabilities give, as the chat API lists them. */
void tools_offer(struct arena *arena, const char *capabilities, struct buffer *out);
/* Do a call. Whatever is wrong with it is a result, too. Returns 1 when it was cancelled: there is
 * no result then. */
int tools_call(const struct tool_place *place, const char *name, const char *arguments,
               struct tool_result *result);
/* Whether there is a tool of that name. */
bool tools_has(const char *name);

/* Append bytes as text: what is no UTF-8, and NUL, becomes U+FFFD. */
void tools_text(struct buffer *out, const char *bytes, size_t length);
/* Append a text, cut to about `limit` bytes with a note about the rest. */
void tools_cut(struct buffer *out, const char *text, size_t length, size_t limit);

#endif
