/* Who is asking, told to whoever asks. */
#include <stdbool.h>

#include "api/handlers.h"

struct me {
    bool authenticated;
    bool auth_required;
    const char *kind;
    const char *subject;
    const char *label;
    const char *login_url;
    const char *logout_url;
    const char *recovery_url;
    const char *settings_url;
};

#define NO_SIGN_IN_PAGE .nullable = true, .about = "null: there is no sign-in page"

static const struct field me_fields[] = {
    {FLAG(me, authenticated)},
    {FLAG(me, auth_required),
     .about = "false: the deployment is open, everybody may do everything"},
    {TEXT(me, kind), .choices = "api_key|token", .nullable = true},
    {TEXT(me, subject), .nullable = true, .about = "the key's id, or `operator`"},
    {TEXT(me, label), .nullable = true, .about = "its name"},
    {TEXT(me, login_url), NO_SIGN_IN_PAGE},
    {TEXT(me, logout_url), NO_SIGN_IN_PAGE},
    {TEXT(me, recovery_url), NO_SIGN_IN_PAGE},
    {TEXT(me, settings_url), NO_SIGN_IN_PAGE},
};
SCHEMA(me);

/* The router has let nobody in without a credential. */
int auth_check(struct request *req, struct response *res, struct error *err)
{
    (void)req, (void)err;
    return respond_json(res, 200, "{\"status\":\"ok\"}");
}

/* Always answers: a credential that is not accepted is told, not refused (DECISION 13). In an open
 * deployment nobody is anybody. */
int me_show(struct request *req, struct response *res, struct error *err)
{
    const struct caller *caller = &req->caller;
    struct me me = {.auth_required = true};

    if (request_begin(req, err) < 0 || caller_identify(req, err) < 0)
        return -1;
    me.auth_required = !caller->open;
    if (!caller->open && caller->kind != CALLER_NOBODY) {
        me.authenticated = true;
        me.kind = caller->kind == CALLER_KEY ? "api_key" : "token";
        me.subject = caller->subject;
        me.label = caller->label;
    }
    return respond(res, 200, &schema_me, &me);
}

static int no_person(struct error *err)
{
    return error_set(err, ERR_CONFLICT, "the credential is no person's: there is no profile");
}

int me_profile(struct request *req, struct response *res, struct error *err)
{
    (void)req, (void)res;
    return no_person(err);
}

int me_profile_update(struct request *req, struct response *res, struct error *err)
{
    (void)req, (void)res;
    return no_person(err);
}
