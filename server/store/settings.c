/* The server's settings: see server/settings.h. */
#include "server/settings.h"

#include <errno.h>
#include <libpq-fe.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"

enum { SECRET_BYTES = 32, PASSED_FIRST = 3 /* sd_listen_fds(3) */ };

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

/* --- what must not start --------------------------------------------------------------------- */

/* Secrets that are short enough to be guessed are worse than none. */
static void check_secret(const char *variable, struct secret secret, struct refusals *refusals)
{
    static const char *const known[] = {"change-me",    "changeme",    "change_me",   "dev-only",
                                        "replace-with", "generate-a-", "placeholder", "insecure"};

    if (!secret.value[0] || server_settings_relaxed())
        return;
    if (strlen(secret.value) < SECRET_BYTES)
        refusal_add(refusals, "%s has fewer than %d bytes", variable, SECRET_BYTES);
    for (size_t i = 0; i < COUNT(known); i++) {
        if (strcasestr(secret.value, known[i])) {
            refusal_add(refusals, "%s is a placeholder, which everybody knows", variable);
            break;
        }
    }
}

static void check_secrets(struct refusals *refusals)
{
    check_secret("OPERATOR_TOKEN", settings.operator_token, refusals);
    check_secret("METRICS_API_KEY", settings.metrics_api_key, refusals);
    if (settings.operator_token.value[0] &&
        !strcmp(settings.operator_token.value, settings.metrics_api_key.value))
        refusal_add(refusals, "METRICS_API_KEY is equal to OPERATOR_TOKEN");
}

static void check_database_url(struct refusals *refusals)
{
    PQconninfoOption *options;
    char *reason = NULL;

    if (!settings.database_url.value[0]) {
        refusal_add(refusals, "DATABASE_URL is not set");
        return;
    }
    options = PQconninfoParse(settings.database_url.value, &reason);
    /* The reason would show the URL, and with it a password. */
    if (!options)
        refusal_add(refusals, "DATABASE_URL is no connection string of PostgreSQL");
    PQconninfoFree(options);
    PQfreemem(reason);
}

static bool is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;

    if (address->sa_family == AF_INET)
        return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return address->sa_family == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) ||
                                              (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) &&
                                               six->sin6_addr.s6_addr[12] == IN_LOOPBACKNET));
}

/* The socket that the service manager passed counts, and else HOST. */
static bool serves_others(void)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    const char *pid = getenv("LISTEN_PID");
    struct sockaddr_storage passed = {0};
    struct addrinfo *found = NULL;
    socklen_t length = sizeof(passed);
    bool others = false;

    if (pid && strtol(pid, NULL, 10) == getpid() &&
        getsockname(PASSED_FIRST, (struct sockaddr *)&passed, &length) == 0)
        return !is_loopback((const struct sockaddr *)&passed);
    if (getaddrinfo(settings.host, NULL, &hints, &found) != 0)
        return false; /* which is refused for itself */
    for (const struct addrinfo *at = found; at; at = at->ai_next)
        others |= !is_loopback(at->ai_addr);
    freeaddrinfo(found);
    return others;
}

static void check_host(struct refusals *refusals)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(settings.host, NULL, &hints, &found);

    if (code != 0)
        refusal_add(refusals, "HOST '%s': %s", settings.host, gai_strerror(code));
    else
        freeaddrinfo(found);
    if (server_settings_relaxed() && serves_others())
        refusal_add(refusals,
                    "ENV is %s, which admits weak secrets and, without any, everybody: it is for "
                    "HOST=127.0.0.1 or ::1",
                    settings.env);
}

static void check_url(const char *variable, const char *url, struct refusals *refusals)
{
    if (url[0] && strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
        refusal_add(refusals, "%s must begin with http:// or https://", variable);
}

/* A folder of ours in which another user could put or read files. One that is not there is made. */
static void check_folder(const char *name, mode_t forbidden, struct refusals *refusals)
{
    char path[4096];
    struct stat status;

    if (snprintf(path, sizeof(path), "%s%s%s", settings.state_dir, name[0] ? "/" : "", name) >=
        (int)sizeof(path)) {
        refusal_add(refusals, "STATE_DIR is too long");
        return;
    }
    if (stat(path, &status) < 0) {
        if (errno != ENOENT)
            refusal_add(refusals, "STATE_DIR: %s: %s", path, strerror(errno));
        return;
    }
    if (!S_ISDIR(status.st_mode))
        refusal_add(refusals, "STATE_DIR: %s is no folder", path);
    else if (status.st_uid != geteuid() && status.st_uid != 0)
        refusal_add(refusals, "STATE_DIR: %s belongs to another user", path);
    else if (status.st_mode & forbidden)
        refusal_add(refusals, "STATE_DIR: %s has mode %04o: others could %s in it; chmod %04o",
                    path, status.st_mode & 07777,
                    status.st_mode & forbidden & 022 ? "write" : "read",
                    status.st_mode & 07777 & ~forbidden);
}

/* Beside its folders, STATE_DIR holds what others may see. */
static void check_folders(struct refusals *refusals)
{
    check_folder("", S_IWGRP | S_IWOTH, refusals);
    check_folder("run", S_IWGRP | S_IRWXO, refusals);
    check_folder("spool", S_IWGRP | S_IRWXO, refusals);
}

void server_settings_check(struct refusals *refusals)
{
    static char beside_state[4096];

    settings_read(table, COUNT(table), ".env", &settings, refusals);
    if (!settings.supervisor_socket[0]) {
        snprintf(beside_state, sizeof(beside_state), "%s/run/supervisor.sock", settings.state_dir);
        settings.supervisor_socket = beside_state;
    }
    if (log_level_of(settings.log_level) < 0)
        refusal_add(refusals, "LOG_LEVEL is none of DEBUG, INFO, WARNING, ERROR, CRITICAL");
    if (strcmp(settings.sandbox_network, "none") != 0 &&
        strcmp(settings.sandbox_network, "egress") != 0)
        refusal_add(refusals, "SANDBOX_NETWORK is neither none nor egress");
    if (settings.project_disk_mb && !settings.sandbox_disk_mb)
        refusal_add(refusals, "PROJECT_DISK_MB needs SANDBOX_DISK_MB, by which it counts");
    check_database_url(refusals);
    check_secrets(refusals);
    check_host(refusals);
    check_url("PUBLIC_BASE_URL", settings.public_base_url, refusals);
    check_url("MODEL_BASE_URL", settings.model_base_url, refusals);
    check_url("OPENAI_BASE_URL", settings.openai_base_url, refusals);
    check_folders(refusals);
}

int server_settings_load(struct error *err)
{
    struct refusals refusals = {0};

    server_settings_check(&refusals);
    return refusals_result(&refusals, err);
}

void server_settings_help(FILE *out)
{
    settings_help(table, COUNT(table), out);
}

void server_settings_manual(FILE *out)
{
    settings_manual(table, COUNT(table), out);
}
