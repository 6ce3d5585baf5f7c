/* The server's settings: see server/settings.h. */
#include "server/settings.h"

#include <string.h>
#include <strings.h>

#include "common/log.h"
#include "common/scope.h"

struct server_settings settings;

static const struct setting table[] = {
#define SETTING(kind, member, name, default_value, low, high, meaning) \
    {.variable = name,                                                 \
     .type = SETTING_##kind,                                           \
     .offset = offsetof(struct server_settings, member),               \
     .fallback = default_value,                                        \
     .min = low,                                                       \
     .max = high,                                                      \
     .about = meaning},
#include "server/settings.def"
#undef SETTING
};

bool server_settings_relaxed(void)
{
    return !strcasecmp(settings.env, "dev") || !strcasecmp(settings.env, "development") ||
           !strcasecmp(settings.env, "test");
}

/* Secrets that are short enough to be guessed are worse than none. */
static int check_secret(const char *variable, struct secret secret, struct error *err)
{
    static const char *const known[] = {"change-me", "dev-only", "replace-with", "generate-a-"};

    if (!secret.value[0] || server_settings_relaxed())
        return 0;
    if (strlen(secret.value) < 32)
        return error_set(err, ERR_INVALID, "%s has fewer than 32 bytes", variable);
    for (size_t i = 0; i < COUNT(known); i++)
        if (strcasestr(secret.value, known[i]))
            return error_set(err, ERR_INVALID, "%s is a placeholder", variable);
    return 0;
}

int server_settings_load(struct error *err)
{
    static char beside_state[4096];

    if (settings_load(table, COUNT(table), ".env", &settings, err) < 0)
        return -1;
    if (!settings.supervisor_socket[0]) {
        snprintf(beside_state, sizeof(beside_state), "%s/run/supervisor.sock", settings.state_dir);
        settings.supervisor_socket = beside_state;
    }
    if (log_level_of(settings.log_level) < 0)
        return error_set(err, ERR_INVALID,
                         "LOG_LEVEL is none of DEBUG, INFO, WARNING, ERROR, CRITICAL");
    if (!settings.database_url.value[0])
        return error_set(err, ERR_INVALID, "DATABASE_URL is not set");
    if (check_secret("OPERATOR_TOKEN", settings.operator_token, err) < 0 ||
        check_secret("METRICS_API_KEY", settings.metrics_api_key, err) < 0)
        return -1;
    if (settings.operator_token.value[0] &&
        !strcmp(settings.operator_token.value, settings.metrics_api_key.value))
        return error_set(err, ERR_INVALID, "OPERATOR_TOKEN and METRICS_API_KEY are equal");
    return 0;
}

void server_settings_help(FILE *out)
{
    settings_help(table, COUNT(table), out);
}

void server_settings_manual(FILE *out)
{
    settings_manual(table, COUNT(table), out);
}
