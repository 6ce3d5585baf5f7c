/* The beginning and the end of a turn, as rows and events. */
#include "run/turns.h"

#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "common/token.h"
#include "run/events.h"
#include "run/model.h"
#include "run/tools.h"
#include "run/turn.h"
#include "run/usage.h"
#include "server/settings.h"

enum { TURN_ATTEMPTS = 3 };

static const struct field session_lock_fields[] = {
    {TEXT(session_lock, status)},
    {TEXT(session_lock, stopped_reason), .nullable = true},
    {NUMBER(session_lock, generation)},
    {FLAG(session_lock, prepared)},
};
SCHEMA(session_lock);

static const struct field turn_state_fields[] = {
    {TEXT(turn_state, status)},
    {NUMBER(turn_state, turns)},
    {JSON(turn_state, usage), .shape = SHAPE_OBJECT},
    {JSON(turn_state, session_usage), .shape = SHAPE_OBJECT},
    {TEXT(turn_state, agent)},
    {REAL(turn_state, sandbox_seconds)},
    {REAL(turn_state, active_seconds)},
};
SCHEMA(turn_state);

bool turns_is_own_tool(const char *name)
{
    return tools_has(name);
}

const char *turns_default_model(void)
{
    return settings.model_base_url[0] && settings.model_default[0] ? settings.model_default
                                                                   : MODEL_BUILTIN;
}

int turns_lock(struct database *db, const char *session_id, struct arena *arena,
               struct session_lock *lock, struct error *err)
{
    if (query_row(db, QUERY_turns_lock, PARAMS(session_id), arena, lock, err) == 0)
        return 0;
    return err->kind == ERR_NOT_FOUND ? error_set(err, ERR_NOT_FOUND, "session not found") : -1;
}

int turns_enqueue(struct database *db, const char *session_id, const char *run_id,
                  struct error *err)
{
    return jobs_add(db, "turn", session_id, run_id, "{}", 0, TURN_ATTEMPTS, err);
}

/* --- begin ----------------------------------------------------------------------------------- */

static int check_status(const struct session_lock *lock, bool wait_for_boot, struct error *err)
{
    if (strcmp(lock->status, wait_for_boot ? "provisioning" : "running") == 0)
        return 0;
    if (strcmp(lock->status, "provisioning") == 0)
        return error_set(err, ERR_CONFLICT, "the session's sandbox is still booting");
    if (strcmp(lock->status, "error") == 0)
        return error_set(err, ERR_CONFLICT, "the session's sandbox could not boot: start it again");
    return error_set(err, ERR_CONFLICT, "the session is %s%s", lock->status,
                     strcmp(lock->status, "stopped") == 0 ? ": start it first" : "");
}

static int log_prompt(struct database *db, const char *session_id, const char *run_id,
                      const char *prompt, struct error *err)
{
    auto_buffer struct buffer payload = {0}, message = {0};

    json_format(&payload, "{\"text\":%s}", prompt);
    conversation_user(&message, prompt);
    if (events_append(db, session_id, run_id, "user.message", payload.data, NULL, err) < 0)
        return -1;
    return query_run(db, QUERY_conversation_insert, PARAMS(session_id, run_id, message.data), err) <
                   0
               ? -1
               : 0;
}

int turns_begin(struct database *db, const char *session_id, const char *prompt, int64_t max_turns,
                const char *client_tools, bool wait_for_boot, char run_id[37], struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_rows struct rows *rows = NULL;
    struct session_lock lock;
    char id[UUID_SIZE] = "";

    if (turns_lock(db, session_id, &arena, &lock, err) < 0 ||
        check_status(&lock, wait_for_boot, err) < 0 ||
        query_rows(db, QUERY_turns_insert, PARAMS(session_id, prompt, NUM(max_turns), client_tools),
                   &rows, err) < 0)
        return -1;
    if (rows_count(rows) == 0)
        return error_set(err, ERR_CONFLICT, "the session has a turn in flight already");
    snprintf(id, sizeof(id), "%s", rows_text(rows, 0, 0));
    if (log_prompt(db, session_id, id, prompt, err) < 0)
        return -1;
    if (!wait_for_boot && turns_enqueue(db, session_id, id, err) < 0)
        return -1;
    memcpy(run_id, id, sizeof(id));
    return 0;
}

/* --- charge ---------------------------------------------------------------------------------- */

int turns_charge(struct database *db, const char *run_id, struct arena *arena,
                 struct turn_state *state, const struct usage *more, const char *model,
                 struct error *err)
{
    auto_buffer struct buffer run = {0}, session = {0};

    usage_add(arena, state->usage, more, model, state->agent, &run);
    usage_add(arena, state->session_usage, more, model, state->agent, &session);
    if (query_run(db, QUERY_turns_charge, PARAMS(run_id, run.data, NUM(state->turns), session.data),
                  err) < 0)
        return -1;
    state->usage = arena_copy(arena, run.data, run.length);
    state->session_usage = arena_copy(arena, session.data, session.length);
    return 0;
}

/* --- end ------------------------------------------------------------------------------------- */

void turns_end_payload(struct buffer *out, const struct turn_state *state, const char *status,
                       const char *stop_reason, const char *final_output, const char *error)
{
    buffer_char(out, '{');
    if (error)
        json_format(out, "\"error\":%s,", error);
    json_format(out,
                "\"run_status\":%s,\"stop_reason\":%s,\"final_output\":%s,\"turns\":%d,"
                "\"usage\":%j,\"session_usage\":%j,\"sandbox_seconds\":%f,\"call_ids\":[]}",
                status, stop_reason, final_output, state->turns, state->usage, state->session_usage,
                state->sandbox_seconds);
}

static int write_end(struct database *db, const char *session_id, const char *run_id,
                     struct arena *arena, const char *status, const char *stop_reason,
                     const char *final_output, const char *error, struct error *err)
{
    bool failed = strcmp(status, "failed") == 0;
    auto_buffer struct buffer payload = {0};
    auto_rows struct rows *ended = NULL;
    struct turn_state state;

    if (failed && !(error && *error))
        error = "the turn failed";
    if (query_row(db, QUERY_turns_state, PARAMS(session_id, run_id), arena, &state, err) < 0)
        return -1;
    if (query_rows(db, QUERY_turns_finish,
                   PARAMS(session_id, run_id, status, stop_reason, final_output, error), &ended,
                   err) < 0)
        return -1;
    if (rows_count(ended) == 0)
        return 0;
    if (turns_charge(db, run_id, arena, &state,
                     &(struct usage){.active_seconds = state.active_seconds}, NULL, err) < 0)
        return -1;
    turns_end_payload(&payload, &state, status, stop_reason, rows_text(ended, 0, 0),
                      failed ? error : NULL);
    if (events_append(db, session_id, run_id,
                      failed ? "session.status_error" : "session.status_idle", payload.data, NULL,
                      err) < 0)
        return -1;
    return 1;
}

int turns_end(struct database *db, const char *session_id, const char *run_id, const char *status,
              const char *stop_reason, const char *final_output, const char *error,
              struct error *err)
{
    auto_arena struct arena arena = {0};
    struct session_lock lock;

    if (turns_lock(db, session_id, &arena, &lock, err) < 0)
        return -1;
    return write_end(db, session_id, run_id, &arena, status, stop_reason, final_output, error, err);
}

int turns_end_any(struct database *db, const char *session_id, const char *status,
                  const char *stop_reason, const char *error, struct error *err)
{
    auto_rows struct rows *running = NULL;

    if (query_rows(db, QUERY_turns_running, PARAMS(session_id), &running, err) < 0)
        return -1;
    if (rows_count(running) == 0)
        return 0;
    return turns_end(db, session_id, rows_text(running, 0, 0), status, stop_reason, NULL, error,
                     err);
}
