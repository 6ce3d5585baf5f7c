/* A turn: the model answers, its calls are done, and again, until it makes none.
 *
 * Every step is one transaction that first makes sure that the run still goes on and that its job
 * is still ours, and writes events and conversation together. So a turn can be taken up by another
 * runner at any point: what the conversation shows is what was done. */
#include "run/turn.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/token.h"
#include "common/utf8.h"
#include "run/cancel.h"
#include "run/conversation.h"
#include "run/environment.h"
#include "run/events.h"
#include "run/model.h"
#include "run/outcome.h"
#include "run/tools.h"
#include "run/turns.h"

enum {
    BORROW_MS = 10 * 1000,
    DATABASE_TRIES = 10,
    DATABASE_PAUSE_MS = 500,
    MODEL_TRIES = 3,
    MODEL_BACKOFF_MS = 500,  /* times 4 with each try */
    DELTA_MS = 20,           /* pieces that come closer together are sent as one */
    DELTA_BYTES = 16 * 1024, /* escaped at most six times as long, which fits the bus */
    PAUSE_CHECK_MS = 250,
    CALL_ID_MAX = 64,
};

/* How a step ends: these, or -1. */
enum { GO_ON = 0, OVER = 1 };

struct turn_context {
    const char *status;
    int64_t turns;
    int64_t max_turns;
    const char *workdir;
    const char *model;
    const char *transport;
    const char *instructions;
    const char *reasoning_effort;
    const char *capabilities;
    const char *agent;
    const char *environment;
    int64_t last_seq;
};

static const struct field turn_context_fields[] = {
    {TEXT(turn_context, status)},
    {NUMBER(turn_context, turns)},
    {NUMBER(turn_context, max_turns)},
    {TEXT(turn_context, workdir)},
    {TEXT(turn_context, model), .nullable = true},
    {TEXT(turn_context, transport)},
    {TEXT(turn_context, instructions)},
    {TEXT(turn_context, reasoning_effort), .nullable = true},
    {JSON(turn_context, capabilities), .nullable = true},
    {TEXT(turn_context, agent)},
    {JSON(turn_context, environment), .shape = SHAPE_MAP},
    {NUMBER(turn_context, last_seq)},
};
SCHEMA(turn_context);

struct turn {
    struct pool *pool;
    struct sandbox_link *link;
    const struct job *job;
    struct arena arena;
    struct cancel cancel;
    struct turn_context context;
    struct conversation conversation;
    struct model_client *client;
    const char *model;
    const char *system;
    const char *tools;
    int64_t last_seq; /* of the run's newest event */
    bool answered;    /* here: no other runner began the calls of that answer */
    /* deltas */
    struct buffer delta;
    int64_t delta_ms; /* when one was sent last */
};

static void turn_done(struct turn *turn)
{
    cancel_close(&turn->cancel);
    model_client_free(turn->client);
    buffer_done(&turn->delta);
    arena_done(&turn->arena);
}

/* Wait; true when the turn was cancelled meanwhile. */
static bool pause_ms(const struct turn *turn, int ms)
{
    struct pollfd cancel = {.fd = turn->cancel.fd, .events = POLLIN};

    return poll(&cancel, 1, ms) > 0;
}

static bool gives_back(const struct turn *turn)
{
    return turn->cancel.reason == CANCEL_PAUSE || turn->cancel.reason == CANCEL_GIVE_BACK;
}

/* --- a step ---------------------------------------------------------------------------------- */

static int borrow(const struct turn *turn, struct database **db, struct error *err)
{
    for (int tries = 1;; tries++) {
        if (database_borrow(turn->pool, BORROW_MS, db, err) == 0)
            return 0;
        if (err->kind != ERR_UNAVAILABLE || tries == DATABASE_TRIES ||
            pause_ms(turn, DATABASE_PAUSE_MS))
            return -1;
    }
}

/* Begin the transaction of a step. OVER when somebody ended the run, or has leased its job. */
static int step_begin(struct turn *turn, struct arena *arena, struct database **db,
                      struct turn_state *state, struct error *err)
{
    const struct job *job = turn->job;
    struct session_lock lock;

    if (borrow(turn, db, err) < 0 || database_begin(*db, err) < 0)
        return -1;
    if (turns_lock(*db, job->session_id, arena, &lock, err) < 0 ||
        query_row(*db, QUERY_turns_state, PARAMS(job->session_id, job->run_id), arena, state, err) <
            0)
        return err->kind == ERR_NOT_FOUND ? OVER : -1;
    if (strcmp(state->status, "running") != 0)
        return OVER;
    if (jobs_hold(*db, job, err) < 0)
        return err->kind == ERR_CONFLICT ? OVER : -1;
    return GO_ON;
}

static int append(struct turn *turn, struct database *db, const char *type,
                  const struct buffer *payload, struct error *err)
{
    return events_append(db, turn->job->session_id, turn->job->run_id, type, payload->data,
                         &turn->last_seq, err);
}

static int end_in(struct turn *turn, struct database *db, const char *status,
                  const char *stop_reason, const char *final_output, const char *error,
                  struct error *err)
{
    if (turns_end(db, turn->job->session_id, turn->job->run_id, status, stop_reason, final_output,
                  error, err) < 0 ||
        jobs_finish(db, turn->job, err) < 0 || database_commit(db, err) < 0)
        return -1;
    return OVER;
}

/* End the run in a step of its own. */
static int fail_turn(struct turn *turn, const char *stop_reason, const char *reason,
                     struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    struct turn_state state;
    int step = step_begin(turn, &arena, &db, &state, err);

    if (step != GO_ON)
        return step;
    LOG(INFO, "turn_failed", V("session", turn->job->session_id), V("run", turn->job->run_id),
        V("reason", reason));
    return end_in(turn, db, "failed", stop_reason, NULL, reason, err);
}

/* --- deltas ---------------------------------------------------------------------------------- */

/* How much of the bytes can be sent: not the first part of a character that goes on in the next
 * piece. */
static size_t whole_characters(const struct buffer *text)
{
    enum { CHARACTER_BYTES_MAX = 4 };

    for (size_t back = 1; back < CHARACTER_BYTES_MAX && back <= text->length; back++) {
        unsigned char byte = (unsigned char)text->data[text->length - back];
        size_t needs = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;

        if (byte >= 0xC0)
            return needs > back ? text->length - back : text->length;
        if (byte < 0x80)
            break;
    }
    return text->length;
}

static void send_delta(struct turn *turn, bool last)
{
    size_t length = last ? turn->delta.length : whole_characters(&turn->delta);

    for (size_t at = 0; at < length;) {
        size_t piece = utf8_cut(turn->delta.data + at, length - at, DELTA_BYTES);

        if (!piece) /* bytes that are no text at all */
            piece = length - at < DELTA_BYTES ? length - at : DELTA_BYTES;
        events_delta(turn->job->session_id, turn->job->run_id, turn->last_seq,
                     turn->delta.data + at, piece);
        at += piece;
    }
    if (length) {
        memmove(turn->delta.data, turn->delta.data + length, turn->delta.length - length);
        turn->delta.length -= length;
        turn->delta_ms = clock_ms();
    }
}

static void on_text(void *context, const char *text, size_t length)
{
    struct turn *turn = context;

    buffer_add(&turn->delta, text, length);
    if (turn->delta.length >= DELTA_BYTES || clock_ms() - turn->delta_ms >= DELTA_MS)
        send_delta(turn, false);
}

static int on_pause(void *context, bool began)
{
    struct turn *turn = context;
    int64_t due;

    if (turn->cancel.reason == CANCEL_PAUSE && !began)
        return -1;
    if (!turn->delta.length)
        return PAUSE_CHECK_MS;
    due = turn->delta_ms + DELTA_MS - clock_ms();
    if (due > 0)
        return (int)due;
    send_delta(turn, false);
    return PAUSE_CHECK_MS;
}

/* --- the model ------------------------------------------------------------------------------- */

/* Wait before asking again. OVER when cancelled. */
static int back_off(struct turn *turn, int tries, int retry_after_s)
{
    int ms = MODEL_BACKOFF_MS;

    while (--tries > 0)
        ms *= 4;
    if (ms < retry_after_s * 1000)
        ms = retry_after_s * 1000;
    for (int left = ms; left > 0; left -= PAUSE_CHECK_MS)
        if (pause_ms(turn, left < PAUSE_CHECK_MS ? left : PAUSE_CHECK_MS) ||
            turn->cancel.reason == CANCEL_PAUSE)
            return OVER;
    return GO_ON;
}

/* What was said before the turn was cut off stays in the conversation. */
static void keep_partial(struct turn *turn, const struct model_answer *answer)
{
    auto_buffer struct buffer message = {0};
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    const struct job *job = turn->job;
    struct session_lock lock;
    struct error err;

    if (!answer->text.length)
        return;
    conversation_assistant(&message, answer->text.data, answer->text.length, NULL, 0);
    if (database_borrow(turn->pool, BORROW_MS, &db, &err) < 0 || database_begin(db, &err) < 0 ||
        turns_lock(db, job->session_id, &arena, &lock, &err) < 0 ||
        query_run(db, QUERY_conversation_insert_last,
                  PARAMS(job->session_id, job->run_id, message.data), &err) < 0 ||
        database_commit(db, &err) < 0)
        LOG(DEBUG, "partial_answer_lost", V("run", job->run_id), V("reason", err.message));
}

/* Ask until there is an answer. OVER when cancelled, or when the run has failed. */
static int ask(struct turn *turn, struct model_answer *answer, struct error *err)
{
    const struct model_request request = {
        .transport = turn->context.transport,
        .model = turn->model,
        .reasoning_effort = turn->context.reasoning_effort,
        .system = turn->system,
        .conversation = &turn->conversation,
        .tools = turn->tools,
        .cancel_fd = turn->cancel.fd,
        .on_text = on_text,
        .on_pause = on_pause,
        .context = turn,
    };
    struct error failure = {0};

    for (int tries = 1;; tries++) {
        int outcome = model_ask(turn->client, &request, answer, &failure);

        if (outcome == 0) {
            send_delta(turn, true);
            return GO_ON;
        }
        turn->delta.length = 0;
        if (outcome == 1) {
            if (turn->cancel.reason == CANCEL_ENDED)
                keep_partial(turn, answer);
            return OVER;
        }
        LOG(WARNING, "model_failed", V("run", turn->job->run_id), V("model", turn->model),
            V("try", tries), V("reason", failure.message));
        if (failure.kind != ERR_UNAVAILABLE || answer->began || tries == MODEL_TRIES)
            return fail_turn(turn, "error", failure.message, err);
        if (back_off(turn, tries, failure.retry_after_s) == OVER)
            return OVER;
    }
}

/* DECISION 9: the model's own ids are kept where they are of use. */
static void name_calls(struct turn *turn, struct model_answer *answer)
{
    for (size_t i = 0; i < answer->call_count; i++) {
        struct tool_call *call = &answer->calls[i];
        size_t length = strlen(call->id);
        bool used = conversation_has_call(&turn->conversation, call->id);
        char id[40];

        for (size_t before = 0; before < i; before++)
            used = used || strcmp(answer->calls[before].id, call->id) == 0;
        if (!*call->name)
            call->name = "unknown";
        if (!used && length > 0 && length <= CALL_ID_MAX)
            continue;
        token_make("call_", 18, id, sizeof(id));
        call->id = arena_copy(&answer->arena, id, strlen(id));
    }
}

static int log_said(struct turn *turn, struct database *db, const char *type,
                    const struct buffer *text, struct error *err)
{
    auto_buffer struct buffer payload = {0};

    if (!text->length)
        return 0;
    buffer_text(&payload, "{\"text\":");
    json_string_n(&payload, text->data, text->length);
    buffer_char(&payload, '}');
    return append(turn, db, type, &payload, err);
}

static int keep_message(struct turn *turn, struct database *db, const struct model_answer *answer,
                        struct error *err)
{
    auto_buffer struct buffer message = {0};

    if (!answer->text.length && !answer->call_count)
        return 0; /* many endpoints refuse to be sent an empty answer */
    conversation_assistant(&message, answer->text.data, answer->text.length, answer->calls,
                           answer->call_count);
    return conversation_append(&turn->conversation, db, turn->job->session_id, turn->job->run_id,
                               message.data, err);
}

/* Store an answer; without calls it is the last one. */
static int store_answer(struct turn *turn, const struct model_answer *answer, double seconds,
                        struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    struct usage usage = answer->usage;
    struct turn_state state;
    int step = step_begin(turn, &arena, &db, &state, err);

    if (step != GO_ON)
        return step;
    usage.active_seconds = seconds;
    state.turns++;
    if (log_said(turn, db, "agent.thinking", &answer->thinking, err) < 0 ||
        log_said(turn, db, "agent.message", &answer->text, err) < 0 ||
        keep_message(turn, db, answer, err) < 0 ||
        turns_charge(db, turn->job->run_id, &arena, &state, &usage, turn->model, err) < 0)
        return -1;
    turn->context.turns = state.turns;
    turn->answered = true;
    if (!answer->call_count)
        return end_in(turn, db, "completed", "end_turn", NULL, NULL, err);
    return database_commit(db, err) < 0 ? -1 : GO_ON;
}

static int answer_next(struct turn *turn, struct error *err)
{
    auto_answer struct model_answer answer = {0};
    int64_t began_ms = clock_ms();
    int step = ask(turn, &answer, err);

    if (step != GO_ON)
        return step;
    name_calls(turn, &answer);
    return store_answer(turn, &answer, (double)(clock_ms() - began_ms) / 1000, err);
}

/* --- calls ----------------------------------------------------------------------------------- */

static int log_use(struct turn *turn, struct database *db, const struct tool_call *call,
                   struct error *err)
{
    auto_buffer struct buffer payload = {0};

    json_format(&payload, "{\"tool\":%s,\"call_id\":%s,\"arguments\":%s}", call->name, call->id,
                call->arguments);
    return append(turn, db, "agent.tool_use", &payload, err);
}

/* The call is in the log before it runs. `*begun`: it was already, so another runner began it. */
static int begin_call(struct turn *turn, const struct tool_call *call, bool *begun,
                      struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    struct turn_state state;
    int step = step_begin(turn, &arena, &db, &state, err), found = 0;

    if (step != GO_ON)
        return step;
    if (!turn->answered)
        found = query_run(db, QUERY_turns_called,
                          PARAMS(turn->job->session_id, turn->job->run_id, call->id), err);
    if (found < 0)
        return -1;
    *begun = found > 0;
    if (!*begun && log_use(turn, db, call, err) < 0)
        return -1;
    return database_commit(db, err) < 0 ? -1 : GO_ON;
}

static int end_call(struct turn *turn, const struct tool_call *call,
                    const struct tool_result *result, struct error *err)
{
    auto_buffer struct buffer payload = {0}, shown = {0}, message = {0};
    auto_arena struct arena arena = {0};
    auto_database struct database *db = NULL;
    const char *text = result->text.data ? result->text.data : "";
    struct turn_state state;
    int step = step_begin(turn, &arena, &db, &state, err);

    if (step != GO_ON)
        return step;
    tools_cut(&shown, text, result->text.length, TOOL_OUTPUT_MAX);
    json_format(&payload, "{\"tool\":%s,\"call_id\":%s,\"output\":", call->name, call->id);
    json_string_n(&payload, shown.data ? shown.data : "", shown.length);
    json_format(&payload, ",\"is_error\":%b}", result->is_error);
    if (result->outcome)
        outcome_add(&payload, result->outcome);
    conversation_result(&message, call->id, text, result->text.length);
    if (append(turn, db, "agent.tool_result", &payload, err) < 0 ||
        conversation_append(&turn->conversation, db, turn->job->session_id, turn->job->run_id,
                            message.data, err) < 0 ||
        database_commit(db, err) < 0)
        return -1;
    return GO_ON;
}

static void result_done(struct tool_result *result)
{
    buffer_done(&result->text);
}

static int do_call(struct turn *turn, const struct tool_call *call, struct error *err)
{
    __attribute__((cleanup(result_done))) struct tool_result result = {0};
    auto_arena struct arena arena = {0};
    const struct tool_place place = {
        .link = turn->link,
        .session_id = turn->job->session_id,
        .workdir = turn->context.workdir,
        .environment = environment_make(&arena, turn->context.environment),
        .capabilities = turn->context.capabilities,
        .cancel_fd = turn->cancel.fd,
        .arena = &arena,
    };
    bool begun = false;
    int step = begin_call(turn, call, &begun, err);

    if (step != GO_ON)
        return step;
    if (begun) {
        result.is_error = true;
        buffer_text(&result.text,
                    "Error: the call was interrupted, since the server was restarted. What "
                    "it did up to then may have stayed.");
    } else if (tools_call(&place, call->name, call->arguments, &result) == 1) {
        return OVER;
    }
    return end_call(turn, call, &result, err);
}

/* --- the turn -------------------------------------------------------------------------------- */

static const char *write_system(struct turn *turn)
{
    const struct turn_context *context = &turn->context;
    bool has_tools = strcmp(turn->tools, "[]") != 0;

    return arena_text(
        &turn->arena, "%s%s%s%s%s",
        has_tools ? "You work in a Linux sandbox of your own. Your files are in its workspace, "
                  : "",
        has_tools ? context->workdir : "",
        has_tools ? "; tools take paths relative to it. The workspace is kept when the sandbox "
                    "stops, everything else in the sandbox is not."
                  : "",
        has_tools && *context->instructions ? "\n\n" : "", context->instructions);
}

/* Read what the turn needs. OVER when there is nothing to do. */
static int prepare(struct turn *turn, struct error *err)
{
    auto_database struct database *db = NULL;
    auto_buffer struct buffer tools = {0};
    struct turn_context *context = &turn->context;

    if (borrow(turn, &db, err) < 0)
        return -1;
    if (query_row(db, QUERY_turns_context, PARAMS(turn->job->session_id, turn->job->run_id),
                  &turn->arena, context, err) < 0)
        return err->kind == ERR_NOT_FOUND ? OVER : -1;
    if (strcmp(context->status, "running") != 0)
        return OVER;
    if (conversation_load(db, turn->job->session_id, &turn->arena, &turn->conversation, err) < 0)
        return -1;
    tools_offer(&turn->arena, context->capabilities, &tools);
    turn->tools = arena_copy(&turn->arena, tools.data, tools.length);
    turn->model = context->model ? context->model : turns_default_model();
    turn->system = write_system(turn);
    turn->last_seq = context->last_seq;
    return GO_ON;
}

static int go_on(struct turn *turn, struct error *err)
{
    struct tool_call call;
    int step = GO_ON;

    while (step == GO_ON && turn->cancel.reason == CANCEL_NONE) {
        if (conversation_pending(&turn->conversation, &call)) {
            step = do_call(turn, &call, err);
        } else if (turn->context.turns >= turn->context.max_turns) {
            auto_buffer struct buffer reason = {0};

            buffer_format(&reason, "the turn used up its %lld model answers (max_turns)",
                          (long long)turn->context.max_turns);
            step = fail_turn(turn, "max_turns", reason.data, err);
        } else {
            step = answer_next(turn, err);
        }
    }
    return step;
}

static int run(struct turn *turn, struct error *err)
{
    int step = prepare(turn, err);

    if (step != GO_ON)
        return step;
    if (turn->job->attempts > turn->job->max_attempts)
        return fail_turn(
            turn, "error",
            "the turn was given up: three times the server lost the process that worked on it",
            err);
    return go_on(turn, err);
}

int turns_run(struct pool *pool, struct sandbox_link *link, const struct job *job,
              struct error *err)
{
    __attribute__((cleanup(turn_done))) struct turn turn = {
        .pool = pool, .link = link, .job = job, .cancel.fd = -1};
    int step;

    if (cancel_open(&turn.cancel, job->run_id, err) < 0)
        return -1;
    turn.client = model_client_new();
    step = run(&turn, err);
    if (step < 0)
        return turn.cancel.reason == CANCEL_ENDED ? 0 : -1;
    return gives_back(&turn) ? 1 : 0;
}
