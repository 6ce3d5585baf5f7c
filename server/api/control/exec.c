/* Run one shell command in a session's sandbox, and wait for it. */
#include <math.h>
#include <openssl/evp.h>
#include <string.h>

#include "api/control/sessions.h"
#include "api/handlers.h"
#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "run/environment.h"
#include "run/outcome.h"

enum {
    COMMAND_BYTES_MAX = 128 * 1024 - 64, /* one argument of execve(2) has less than 128 KiB */
    TIMEOUT_DEFAULT_S = 60,
    TIMEOUT_MAX_S = 3600,
    OUTPUT_BYTES_MAX = 16 << 20, /* of each stream */
};

/* --- schemas ---------------------------------------------------------------------------------- */

struct exec_request {
    const char *command;
    const double *timeout;
    const char *output_encoding;
};

static const char *check_command(const char *text)
{
    return strlen(text) > COMMAND_BYTES_MAX ? "a command has at most 131008 bytes: upload a script"
                                            : NULL;
}

static const struct field exec_request_fields[] = {
    {TEXT(exec_request, command), .min = 1, .check = check_command,
     .about = "given to /bin/sh -c in the workspace"},
    {MAYBE_REAL(exec_request, timeout), .exclusive = true, .above = 0, .max = TIMEOUT_MAX_S,
     .optional = true, .nullable = true, .about = "seconds; null: 60"},
    {TEXT(exec_request, output_encoding), .choices = "utf-8|base64", .fallback = "\"utf-8\"",
     .null_is_fallback = true, .about = "base64 gives both streams byte for byte"},
};
SCHEMA(exec_request);

struct exec_answer {
    const char *stdout_text;
    const char *stderr_text;
#define OUTCOME(kind, type, member, meaning) type member;
#include "run/outcome.def"
#undef OUTCOME
};

static const struct field exec_answer_fields[] = {
    {.name = "stdout", .type = FIELD_TEXT, .offset = offsetof(struct exec_answer, stdout_text)},
    {.name = "stderr", .type = FIELD_TEXT, .offset = offsetof(struct exec_answer, stderr_text)},
#define OUTCOME(kind, type, member, meaning) OUTCOME_FIELD(exec_answer, kind, member, meaning)
#include "run/outcome.def"
#undef OUTCOME
};
SCHEMA(exec_answer);

/* Where a command runs, and with which variables. */
struct exec_target {
    const char *id;
    const char *status;
    const char *workdir;
    const char *environment;
};

static const struct field exec_target_fields[] = {
    {TEXT(exec_target, id)},
    {TEXT(exec_target, status)},
    {TEXT(exec_target, workdir)},
    {JSON(exec_target, environment), .shape = SHAPE_MAP},
};
SCHEMA(exec_target);

/* --- the answer ------------------------------------------------------------------------------- */

static void output_done(struct sandbox_output *output)
{
    buffer_done(&output->bytes);
}
#define auto_output __attribute__((cleanup(output_done)))

/* How many bytes to show: a cut goes in front of the character that it would halve. */
static size_t shown_length(const struct sandbox_output *output)
{
    enum { CHARACTER_BYTES_MAX = 4 };
    size_t length = output->bytes.length;
    bool is_cut = output->total > (int64_t)length;

    for (size_t back = 1; is_cut && back < CHARACTER_BYTES_MAX && back <= length; back++) {
        unsigned char byte = (unsigned char)output->bytes.data[length - back];

        if (byte >= 0xC0)
            return utf8_length(output->bytes.data + length - back, back) ? length : length - back;
        if (byte < 0x80)
            break;
    }
    return length;
}

/* A string; unlike in what is stored, NUL stays what it is. */
static void add_text(struct buffer *out, const struct sandbox_output *output)
{
    const char *at = output->bytes.data, *end;

    if (!at) {
        buffer_text(out, "\"\"");
        return;
    }
    end = at + shown_length(output);
    for (bool first = true;; first = false) {
        const char *nul = memchr(at, '\0', (size_t)(end - at));
        size_t quote = out->length;

        json_string_n(out, at, (size_t)((nul ? nul : end) - at));
        if (!first)
            out->data[quote] =
                '0'; /* in place of the opening quote: the last digit of the escape before it */
        if (!nul)
            return;
        out->length--; /* the closing quote */
        buffer_text(out, "\\u000");
        at = nul + 1;
    }
}

static void add_base64(struct buffer *out, const struct sandbox_output *output)
{
    size_t length = output->bytes.length;

    buffer_char(out, '"');
    if (length)
        out->length +=
            (size_t)EVP_EncodeBlock((unsigned char *)buffer_reserve(out, 4 * (length / 3 + 1)),
                                    (const unsigned char *)output->bytes.data, (int)length);
    buffer_char(out, '"');
}

/* The object of exec_answer, written directly: its texts may hold NUL. */
static int answer(struct response *res, const struct exec_request *body,
                  const struct exec_outcome *outcome, const struct sandbox_output *out,
                  const struct sandbox_output *errors)
{
    bool base64 = strcmp(body->output_encoding, "base64") == 0;
    void (*add)(struct buffer *, const struct sandbox_output *) = base64 ? add_base64 : add_text;
    struct buffer *json = &res->body;

    buffer_text(json, "{\"stdout\":");
    add(json, out);
    buffer_text(json, ",\"stderr\":");
    add(json, errors);
    buffer_char(json, '}');
    outcome_add(json, outcome);
    res->status = 200;
    res->content_type = "application/json";
    return 0;
}

/* The session is in use until the command ends, or at the latest until its timeout, should nobody
 * live to write the end. */
static int use(struct request *req, const char *id, int64_t seconds, struct error *err)
{
    return query_run(req->db, QUERY_exec_use, PARAMS(id, NUM(seconds)), err) < 0 ? -1 : 0;
}

int exec_run(struct request *req, struct response *res, struct error *err)
{
    const struct exec_request *body = req->body;
    double timeout_s = body->timeout ? *body->timeout : TIMEOUT_DEFAULT_S;
    const char *argv[] = {"/bin/sh", "-c", body->command};
    auto_output struct sandbox_output out = {0}, errors = {0};
    struct exec_target target;
    struct exec_outcome outcome;
    struct exec exec;

    if (query_row(req->db, QUERY_exec_target, PARAMS(req->project, session_parameter(req)),
                  req->arena, &target, err) < 0)
        return err->kind == ERR_NOT_FOUND ? error_set(err, ERR_NOT_FOUND, "session not found") : -1;
    exec = (struct exec){
        .sandbox = target.id,
        .argv = {argv, COUNT(argv)},
        .environment = environment_make(req->arena, target.environment),
        .defaults = environment_defaults(),
        .directory = target.workdir,
        .timeout_ms = (int64_t)ceil(timeout_s * 1000),
    };
    if (session_need_workspace(target.status, false, err) < 0 || request_hold(req, err) < 0 ||
        use(req, target.id, (int64_t)ceil(timeout_s), err) < 0 || request_commit(req, err) < 0 ||
        outcome_run(req->supervisor, &exec, OUTPUT_BYTES_MAX, request_client_fd(req), req->arena,
                    &out, &errors, &outcome, err) < 0)
        return -1;
    /* What the command has done and said is worth more than a note of when it ended. */
    if (request_begin(req, err) < 0 || use(req, target.id, 0, err) < 0 ||
        request_commit(req, err) < 0) {
        LOG(WARNING, "exec_end_not_noted", V("session", target.id), V("reason", err->message));
        database_return(req->db);
        req->db = NULL;
    }
    return answer(res, body, &outcome, &out, &errors);
}
