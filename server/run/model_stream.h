/* A streamed chat completion (server-sent events), or a whole one, → struct model_answer. */
#ifndef RUN_MODEL_STREAM_H
#define RUN_MODEL_STREAM_H

#include "run/model.h"

enum { MODEL_ANSWER_BYTES_MAX = 16 << 20, MODEL_CALLS_MAX = 128 };

struct model_stream {
    struct model_answer *answer;
    void (*on_text)(void *context, const char *text, size_t length);
    void *context;
    struct buffer line;   /* begun */
    struct buffer *calls; /* per call of the answer, its arguments so far; call_room of them */
    size_t bytes;
    bool whole;    /* no events: the body is one JSON object, or nonsense */
    bool finished; /* the model said that it is done */
};

/* `on_text` may be NULL. */
void model_stream_init(struct model_stream *stream, struct model_answer *answer,
                       void (*on_text)(void *context, const char *text, size_t length),
                       void *context);
void model_stream_done(struct model_stream *stream);
#define auto_stream __attribute__((cleanup(model_stream_done)))
/* The next bytes of the body, cut anywhere. ERR_UPSTREAM when they are no answer. */
int model_stream_feed(struct model_stream *stream, const char *bytes, size_t length,
                      struct error *err);
/* The body has ended, or broke off (`broken`: why; NULL). Completes the answer. ERR_UPSTREAM when
 * it is not whole. */
int model_stream_end(struct model_stream *stream, const char *broken, struct error *err);

#endif
