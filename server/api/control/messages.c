/* Messages: each begins a turn of its session. */
#include "api/control/definition.h"
#include "api/control/sessions.h"
#include "api/handlers.h"
#include "common/token.h"
#include "run/capacity.h"
#include "run/turns.h"

#include <stdlib.h>
#include <string.h>

struct run {
    const char *id;
    const char *session_id;
    const char *prompt;
    const char *status;
    const char *stop_reason;
    const char *final_output;
    const char *error;
    int64_t turns;
    const char *usage;
    const char *created_at;
    const char *finished_at;
};

static const struct field run_fields[] = {
    {TEXT(run, id)},
    {TEXT(run, session_id)},
    {TEXT(run, prompt)},
    {TEXT(run, status), .about = "running, completed, failed or cancelled"},
    {TEXT(run, stop_reason), .nullable = true,
     .about = "end_turn, cancelled, requires_action, max_turns or error"},
    {TEXT(run, final_output), .nullable = true},
    {TEXT(run, error), .nullable = true},
    {NUMBER(run, turns)},
    {JSON(run, usage), .shape = SHAPE_OBJECT},
    {TEXT(run, created_at)},
    {TEXT(run, finished_at), .nullable = true},
};
SCHEMA(run);

struct message_create {
    const char *prompt;
    const int64_t *max_turns;
    const char *client_tools;
};

static const struct field message_create_fields[] = {
    {TEXT(message_create, prompt), NOT_EMPTY},
    {MAYBE_NUMBER(message_create, max_turns), .min = 1, .max = TURNS_MAX, .optional = true,
     .nullable = true, .about = "answers of the model at most; null: 50"},
    {JSON(message_create, client_tools), .shape = SHAPE_LIST, .element = &schema_client_tool,
     .fallback = "[]", .null_is_fallback = true, .about = "for this turn, beside the agent's"},
};

static const char *check_message_create(const void *value, const char **field)
{
    const struct message_create *body = value;

    *field = "client_tools";
    return definition_tools_fault(body->client_tools);
}
SCHEMA_WITH(message_create, .check = check_message_create);

/* A session that sleeps takes the message at once, and its turn waits for the boot. 1 when it was
 * woken. */
static int wake(struct request *req, const char *id, struct error *err)
{
    auto_rows struct rows *woken = NULL;

    if (query_rows(req->db, QUERY_messages_wake, PARAMS(id), &woken, err) < 0)
        return -1;
    if (!rows_count(woken))
        return 0;
    if (capacity_claim(req->db, NULL, id, err) < 0)
        return -1;
    return session_boot(req, id, strtoll(rows_text(woken, 0, 0), NULL, 10), err) < 0 ? -1 : 1;
}

int messages_create(struct request *req, struct response *res, struct error *err)
{
    const struct message_create *body = req->body;
    struct session_found session;
    char run_id[UUID_SIZE];
    int woken;

    if (session_find(req, &session, err) < 0)
        return -1;
    woken = session.stopped_reason && strcmp(session.stopped_reason, "idle") == 0
                ? wake(req, session.id, err)
                : 0;
    if (woken < 0)
        return -1;
    if (turns_begin(req->db, session.id, body->prompt,
                    body->max_turns ? *body->max_turns : TURNS_DEFAULT, body->client_tools,
                    woken > 0, run_id, err) < 0)
        return -1;
    return respond_row(req, res, 202, QUERY_messages_run, PARAMS(run_id), "run", err);
}
