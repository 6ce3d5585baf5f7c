/* The supervisor's settings, and what it does not start with: see config.h. */
#include "supervisor/config.h"

#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <pwd.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/ids.h"
#include "common/kernel.h"
#include "common/log.h"
#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/cgroup.h"
#include "supervisor/host.h"
#include "supervisor/network_check.h"
#include "supervisor/storage.h"
#include "supervisor/supervisor.h"

enum { FIRST_RESERVED_ID = 65534 };
_Static_assert((int)ID_RANGE == (int)IDS_OF_A_SANDBOX, "one width of a range");

static const struct setting table[] = {
#define SETTING(type, member, variable, fallback, min, max, about)                          \
    {variable, SETTING_##type, offsetof(struct supervisor_settings, member), fallback, min, \
     max,      about},
#include "supervisor/settings.def"
#undef SETTING
};

/* --- ids ------------------------------------------------------------------------------------- */

static void find_server_user(struct refusals *refusals)
{
    auto_fclose FILE *file = fopen("/etc/passwd", "re");
    const struct passwd *entry;

    if (!settings.server_user[0])
        return;
    while (file && (entry = fgetpwent(file))) {
        if (strcmp(entry->pw_name, settings.server_user) != 0)
            continue;
        settings.server_uid = entry->pw_uid;
        settings.server_gid = entry->pw_gid;
        return;
    }
    refusal_add(refusals, "SERVER_USER: /etc/passwd has no '%s'", settings.server_user);
}

static void check_ids(struct refusals *refusals)
{
    struct ids ours = ids_of_sandboxes(settings.id_base, settings.sandboxes_max);

    ids_check("", ours, refusals);
    if (settings.id_base <= FIRST_RESERVED_ID)
        refusal_add(refusals, "ID_BASE: the ids of the sandboxes overlap with the system's");
    if (settings.server_uid >= ours.first && settings.server_uid < ours.end)
        refusal_add(refusals, "SERVER_UID is an id of the sandboxes");
    if (settings.server_gid >= ours.first && settings.server_gid < ours.end)
        refusal_add(refusals, "SERVER_GID is an id of the sandboxes");
}

/* --- paths ----------------------------------------------------------------------------------- */

/* One that is not there yet is made, with the right mode. */
static void check_state(struct refusals *refusals)
{
    struct stat status;

    if (settings.state[0] != '/')
        refusal_add(refusals, "SUPERVISOR_STATE must be a path that starts with /");
    if (stat(settings.state, &status) < 0)
        return;
    if (!S_ISDIR(status.st_mode))
        refusal_add(refusals, "SUPERVISOR_STATE: %s is no folder", settings.state);
    /* Files in it may be set-uid root on disk, since ids are mapped. */
    else if (status.st_uid != geteuid() || (status.st_mode & 077))
        refusal_add(refusals,
                    "SUPERVISOR_STATE: %s must be owned by the supervisor's user with mode 0700",
                    settings.state);
}

static void check_images(struct refusals *refusals)
{
    struct stat status;

    if (settings.images[0] != '/')
        refusal_add(refusals, "IMAGES_DIR must be a path that starts with /");
    if (stat(settings.images, &status) < 0)
        return;
    if (!S_ISDIR(status.st_mode))
        refusal_add(refusals, "IMAGES_DIR: %s is no folder", settings.images);
    else if (status.st_uid != geteuid() || (status.st_mode & S_IWOTH))
        refusal_add(refusals, "IMAGES_DIR: others can change what is in %s", settings.images);
}

static void check_init(struct refusals *refusals)
{
    struct stat status;

    if (stat(settings.init_path, &status) < 0)
        refusal_add(refusals, "INIT_PATH: %s: %s", settings.init_path, strerror(errno));
    else if (!S_ISREG(status.st_mode) || !(status.st_mode & S_IXUSR))
        refusal_add(refusals, "INIT_PATH: %s is no program", settings.init_path);
    else if (status.st_mode & S_IWOTH)
        refusal_add(refusals, "INIT_PATH: others can change %s", settings.init_path);
}

/* Who can put another socket in its place is asked by the server in our stead. */
static void check_socket(struct refusals *refusals)
{
    char folder[PATH_MAX];
    struct stat status;
    char *slash;

    if (!settings.socket_path[0] ||
        strlen(settings.socket_path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        refusal_add(refusals, "SUPERVISOR_SOCKET must be a path of less than %zu bytes",
                    sizeof(((struct sockaddr_un *)0)->sun_path));
        return;
    }
    snprintf(folder, sizeof(folder), "%s", settings.socket_path);
    slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return;
    *slash = '\0';
    if (stat(folder, &status) == 0 && (status.st_mode & S_IWOTH) && !(status.st_mode & S_ISVTX))
        refusal_add(refusals, "SUPERVISOR_SOCKET: everybody can write to %s", folder);
}

/* --- the machine ----------------------------------------------------------------------------- */

static void check_cgroups(struct refusals *refusals)
{
    static const char *const names[] = {"memory", "pids", "cpu"};

    if (settings.cgroup_parent[0] &&
        (settings.cgroup_parent[0] != '/' || strstr(settings.cgroup_parent, "/.."))) {
        refusal_add(refusals, "CGROUP_PARENT must be a path that starts with / and has no ..");
        return;
    }
    for (size_t i = 0; settings.cgroups_required && i < COUNT(names); i++)
        if (!cgroup_can_use(names[i]))
            refusal_add(refusals,
                        "CGROUPS_REQUIRED: no cgroup controller '%s'%s%s; 0 would run without "
                        "its limit",
                        names[i], settings.cgroup_parent[0] ? " in CGROUP_PARENT " : "",
                        settings.cgroup_parent);
}

/* What sudo starts may write no core at all. A sandbox wants a limit of one byte (limits.c), and
 * where that cannot be had, a host without a crash handler. */
static void check_cores(struct refusals *refusals)
{
    struct rlimit core;

    if (getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0 &&
        !capabilities_have(CAP_SYS_RESOURCE) && host_has_crash_handler())
        refusal_add(refusals,
                    "kernel.core_pattern: crashes in sandboxes would reach the crash handler of "
                    "this host: the hard limit of core files is 0 (sudo sets it) and cannot be "
                    "raised; start with LimitCORE=1, or as root");
}

static bool is_folder(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The nearest folder that exists, on whose file system the sandboxes will be. */
static void find_folder(char folder[PATH_MAX])
{
    char *slash;

    snprintf(folder, PATH_MAX, "%s", settings.state);
    while (!is_folder(folder) && (slash = strrchr(folder, '/')) && slash != folder)
        *slash = '\0';
    if (!is_folder(folder))
        snprintf(folder, PATH_MAX, "/");
}

/* The self-test at the start tries a whole sandbox; this says what it would fail for want of. */
static void check_kernel(struct refusals *refusals)
{
    char folder[PATH_MAX];

    find_folder(folder);
    storage_check(folder, refusals);
    for (size_t i = 0; i < kernel_feature_count; i++)
        if (!kernel_features[i].works(folder))
            refusal_add(refusals, "kernel: %s: %s; needed: %s", kernel_features[i].name,
                        strerror(errno), kernel_features[i].cure);
}

void config_check(struct refusals *refusals)
{
    size_t before;

    settings_read(table, COUNT(table), NULL, &settings, refusals);
    before = refusals->count;
    if (log_level_of(settings.log_level) < 0)
        refusal_add(refusals, "LOG_LEVEL must be debug, info, warning or error");
    if (geteuid() == 0) {
        capabilities_check(refusals);
        if (refusals->count == before)
            check_kernel(refusals);
    } else {
        refusal_add(refusals, "the supervisor must be started as root");
    }
    find_server_user(refusals);
    check_ids(refusals);
    check_state(refusals);
    check_images(refusals);
    check_init(refusals);
    check_socket(refusals);
    check_cgroups(refusals);
    check_cores(refusals);
    network_check(refusals);
}

void config_help(FILE *out)
{
    settings_help(table, COUNT(table), out);
}

void config_manual(FILE *out)
{
    settings_manual(table, COUNT(table), out);
}
