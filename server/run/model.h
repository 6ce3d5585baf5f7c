/* Asking a model for its next answer: any OpenAI-compatible chat-completions endpoint, or the
 * built-in builtin/shell. */
#ifndef RUN_MODEL_H
#define RUN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "run/conversation.h"
#include "run/usage.h"

#define MODEL_BUILTIN "builtin/shell"

struct model_request {
    const char *transport; /* proxy, litellm or openai: which endpoint */
    const char *model;
    const char *reasoning_effort; /* NULL: not sent */
    const char *system;
    const struct conversation *conversation;
    const char *tools; /* JSON list of what is offered; "[]" */
    int cancel_fd;     /* readable: stop asking */
    /* The answer's text as it comes; bytes, not characters. */
    void (*on_text)(void *context, const char *text, size_t length);
    /* Called between pieces. Returns in how many milliseconds it wants to be called again at the
     * latest, or -1: stop asking. */
    int (*on_pause)(void *context, bool began);
    void *context;
};

struct model_answer {
    struct arena arena;
    struct buffer text;
    struct buffer thinking;
    struct tool_call *calls; /* in the arena */
    size_t call_count, call_room;
    struct usage usage; /* requests and tokens */
    bool began;         /* something was said: asking again would say it twice */
};

void model_answer_done(struct model_answer *answer);
#define auto_answer __attribute__((cleanup(model_answer_done)))

/* What is kept from one request to the next: open connections. For one thread. */
struct model_client;
struct model_client *model_client_new(void);
void model_client_free(struct model_client *client);

/* Ask. `answer` is zeroed first by the caller, and holds what came also when this fails. Returns 0;
 * 1 when it was stopped by `cancel_fd` or `on_pause`; -1 with a sentence for the user,
 * ERR_UNAVAILABLE (and retry_after_s) when asking again may help. */
int model_ask(struct model_client *client, const struct model_request *request,
              struct model_answer *answer, struct error *err);

/* builtin/shell: what it answers. Never waits. */
void model_shell_ask(const struct model_request *request, struct model_answer *answer);

/* The models there are, as a JSON array of {id, owned_by, max_input_tokens, max_output_tokens}, the
 * built-in one last; asked for anew at each call. ERR_UPSTREAM when the endpoint does not say. */
int model_list(struct buffer *json_array, struct error *err);

#endif
