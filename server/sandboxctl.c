/* What an operator does from a shell: keys, migrations, images, sandboxes, and a look at the
 * machine. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/log.h"
#include "common/scope.h"
#include "common/settings.h"
#include "common/token.h"
#include "doctor.h"
#include "images/adopt.h"
#include "images/build.h"
#include "images/import.h"
#include "images/record.h"
#include "images/store.h"
#include "operate.h"
#include "run/sandbox.h"
#include "store/database.h"
#include "store/migrate.h"

enum {
    EXIT_USAGE = 2,
    BORROW_MS = 10000,
    KEY_RANDOM_BYTES = 32,
    KEY_SIZE = 64,
    KEY_PREFIX = 11,
    NAME_MAX_CHARS = 200
};

/* Where things are: from the environment and the file .env, as for the programs that it serves. */
static struct {
    struct secret database_url;
    const char *state_dir;
    const char *supervisor_socket;
    const char *supervisor_state;
    const char *images;
    const char *builder;
    int64_t id_base;
    int64_t sandboxes_max;
    int64_t build_memory_mb;
    int64_t build_step_seconds;
} paths;

#define PATHS_SETTING(kind, member, name, default_value, meaning)                                \
    {                                                                                            \
        .variable = name, .type = SETTING_##kind, .offset = offsetof(__typeof__(paths), member), \
        .fallback = default_value, .about = meaning                                              \
    }
#define PATHS_NUMBER(member, name, default_value, least, most, meaning)                          \
    {                                                                                            \
        .variable = name, .type = SETTING_NUMBER, .offset = offsetof(__typeof__(paths), member), \
        .fallback = default_value, .min = least, .max = most, .about = meaning                   \
    }
static const struct setting table[] = {
    PATHS_SETTING(SECRET, database_url, "DATABASE_URL", NULL,
                  "the server's PostgreSQL; needed by key and migrate, tried by doctor"),
    PATHS_SETTING(TEXT, state_dir, "STATE_DIR", "var", "the server's folder"),
    PATHS_SETTING(
        TEXT, supervisor_socket, "SUPERVISOR_SOCKET", "",
        "the supervisor's socket; empty: STATE_DIR/run/supervisor.sock, or where there is none "
        "that of the systemd units"),
    PATHS_SETTING(TEXT, supervisor_state, "SUPERVISOR_STATE", "/var/lib/agent-sandbox/supervisor",
                  "folder of the sandboxes, whose file system doctor tries"),
    PATHS_SETTING(TEXT, images, "IMAGES_DIR", "/var/lib/agent-sandbox/images",
                  "folder of the images"),
    PATHS_SETTING(
        TEXT, builder, "IMAGE_BUILDER", "",
        "the program that builds images; empty: base-image.sh beside this one, or installed"),
    PATHS_NUMBER(id_base, "ID_BASE", "1048576", 100000, 4000000000,
                 "the supervisor's, for doctor: first user id of the sandboxes"),
    PATHS_NUMBER(sandboxes_max, "SANDBOXES_MAX", "2000", 1, 60000,
                 "the supervisor's, for doctor: sandboxes that may run at once"),
    PATHS_NUMBER(build_memory_mb, "BUILD_MEMORY_MB", "2048", 64, 1048576,
                 "MiB of memory of a sandbox in which an image is built"),
    PATHS_NUMBER(build_step_seconds, "BUILD_STEP_SECONDS", "1800", 1, 3600,
                 "how long each command of a build may take"),
};

/* The options of all commands. */
struct options {
    const char *project;
    const char *name;
    const char *packages;
    bool fresh;
    bool force;
    bool running;
    bool json;
    bool long_form;
    const char *reference;
    const char *recipe;
};

/* --- the database
 * --------------------------------------------------------------------------------------------------
 */

static void scope_pool(struct pool **pool)
{
    if (*pool)
        pool_close(*pool);
}

static int connect_database(struct pool **pool, struct database **db, struct error *err)
{
    if (!paths.database_url.value[0])
        return error_set(err, ERR_INVALID, "DATABASE_URL is not set");
    if (pool_open(pool, paths.database_url.value, 1, err) < 0)
        return -1;
    return database_borrow(*pool, BORROW_MS, db, err);
}

static int key_create(const struct options *options, char **arguments, struct error *err)
{
    __attribute__((cleanup(scope_pool))) struct pool *pool = NULL;
    auto_database struct database *db = NULL;
    const char *project = options->project ? options->project : "default";
    const char *name = options->name ? options->name : "sandboxctl";
    char key[KEY_SIZE], digest[SHA256_HEX_SIZE], prefix[KEY_PREFIX + 1];
    int made;

    (void)arguments;
    if (!*name || strlen(name) > NAME_MAX_CHARS)
        return error_set(err, ERR_INVALID, "a key's name has 1 to %d characters", NAME_MAX_CHARS);
    if (connect_database(&pool, &db, err) < 0)
        return -1;
    token_make("ak_", KEY_RANDOM_BYTES, key, sizeof(key));
    token_sha256(key, strlen(key), digest);
    snprintf(prefix, sizeof(prefix), "%.*s", KEY_PREFIX, key);
    made = query_run(db, QUERY_ctl_key_insert, PARAMS(project, name, prefix, digest), err);
    if (made == 0)
        return error_set(err, ERR_NOT_FOUND, "there is no project %s", project);
    if (made < 0)
        return -1;
    puts(key);
    return 0;
}

static int key_list(const struct options *options, char **arguments, struct error *err)
{
    __attribute__((cleanup(scope_pool))) struct pool *pool = NULL;
    auto_database struct database *db = NULL;
    auto_rows struct rows *rows = NULL;

    (void)arguments;
    if (connect_database(&pool, &db, err) < 0 ||
        query_rows(db, QUERY_ctl_keys, PARAMS(options->project), &rows, err) < 0)
        return -1;
    printf("%-36s  %-16s  %-11s  %-8s %-27s  %s\n", "ID", "PROJECT", "PREFIX", "STATE", "LAST USED",
           "NAME");
    for (size_t i = 0; i < rows_count(rows); i++)
        printf("%-36s  %-16s  %-11s  %-8s %-27s  %s\n", rows_text(rows, i, 0),
               rows_text(rows, i, 1), rows_text(rows, i, 2), rows_text(rows, i, 3),
               rows_text(rows, i, 4), rows_text(rows, i, 5));
    return 0;
}

static int key_revoke(const struct options *options, char **arguments, struct error *err)
{
    __attribute__((cleanup(scope_pool))) struct pool *pool = NULL;
    auto_database struct database *db = NULL;
    int revoked;

    (void)options;
    if (connect_database(&pool, &db, err) < 0)
        return -1;
    revoked = query_run(db, QUERY_ctl_key_revoke, PARAMS(arguments[0]), err);
    if (revoked == 0)
        return error_set(err, ERR_NOT_FOUND,
                         "there is no key %s (sandboxctl key list shows the ids)", arguments[0]);
    return revoked < 0 ? -1 : 0;
}

static int run_migrate(const struct options *options, char **arguments, struct error *err)
{
    int applied;

    (void)options;
    (void)arguments;
    if (!paths.database_url.value[0])
        return error_set(err, ERR_INVALID, "DATABASE_URL is not set");
    applied = migrate(paths.database_url.value, err);
    if (applied < 0)
        return -1;
    printf("%d applied; the database is at migration %d\n", applied, migrate_current());
    return 0;
}

/* --- sandboxes
 * --------------------------------------------------------------------------------------------------------
 */

static void scope_link(struct sandbox_link **link)
{
    sandbox_link_free(*link);
}

static const char *socket_path(struct buffer *path)
{
    static const char installed[] = "/run/agent-sandbox/supervisor/supervisor.sock";

    if (paths.supervisor_socket[0])
        return paths.supervisor_socket;
    buffer_format(path, "%s/run/supervisor.sock", paths.state_dir);
    return access(path->data, F_OK) < 0 && access(installed, F_OK) == 0 ? installed : path->data;
}

/* A command whose link to the supervisor is there. */
#define LINKED(name, call)                                                              \
    static int name(const struct options *options, char **arguments, struct error *err) \
    {                                                                                   \
        auto_buffer struct buffer path = {0};                                           \
        __attribute__((cleanup(scope_link))) struct sandbox_link *link =                \
            sandbox_link_new(socket_path(&path));                                       \
                                                                                        \
        (void)options;                                                                  \
        (void)arguments;                                                                \
        return call;                                                                    \
    }

LINKED(sandbox_print, operate_list(link, options->running, stdout, err))
LINKED(sandbox_use, operate_usage(link, arguments[0], options->json, stdout, err))
LINKED(sandbox_end, operate_stop(link, arguments[0], err))
LINKED(sandbox_remove, operate_destroy(link, arguments[0], err))
LINKED(snapshot_take, operate_snapshot_make(link, arguments[0], stdout, err))
LINKED(snapshot_print, operate_snapshot_list(link, arguments[0], options->json, stdout, err))
LINKED(snapshot_drop, operate_snapshot_remove(link, arguments[0], err))
LINKED(snapshot_put_back,
       operate_snapshot_restore(link, arguments[0], arguments[1], options->force, err))

/* --- images
 * ----------------------------------------------------------------------------------------------------------------
 */

/* The script beside this program, or where make install puts it. */
static const char *find_builder(char out[PATH_MAX])
{
    static const char installed[] = "/usr/lib/agent-sandbox/base-image.sh",
                      file[] = "base-image.sh";
    ssize_t length;
    char *slash;

    if (paths.builder[0])
        return paths.builder;
    length = readlink("/proc/self/exe", out, PATH_MAX - sizeof(file));
    if (length > 0) {
        out[length] = '\0';
        slash = strrchr(out, '/');
        strcpy(slash + 1, file);
        if (access(out, X_OK) == 0)
            return out;
    }
    return installed;
}

static int image_build(const struct options *options, char **arguments, struct error *err)
{
    auto_buffer struct buffer socket = {0};
    char place[PATH_MAX];
    const struct image_build build = {
        .images = paths.images,
        .socket = socket_path(&socket),
        .state = paths.supervisor_state,
        .name = arguments[0] ? arguments[0] : "base",
        .fresh = options->fresh,
        .memory_mb = paths.build_memory_mb,
        .step_seconds = paths.build_step_seconds,
    };

    if (options->recipe && options->packages)
        return error_set(err, ERR_INVALID, "a recipe has its own packages");
    if (options->recipe && !arguments[0])
        return error_set(err, ERR_INVALID, "what a recipe makes needs a name");
    if (options->recipe)
        return build_from_recipe(&build, options->recipe, err);
    if (options->packages && setenv("IMAGE_PACKAGES", options->packages, 1) < 0)
        return error_set_errno(err, ERR_INTERNAL, "setenv");
    return build_by_program(&build, find_builder(place), err);
}

static int open_images(struct buffer *socket, struct store *store, struct error *err)
{
    return store_open(paths.images, socket_path(socket), paths.supervisor_state, store, err);
}

static int image_import(const struct options *options, char **arguments, struct error *err)
{
    auto_buffer struct buffer socket = {0};
    auto_store struct store store = {.fd = -1, .lock = -1};
    char digest[SHA256_HEX_SIZE];

    if (open_images(&socket, &store, err) < 0 ||
        import_image(&store, arguments[0], options->reference, arguments[1], digest, err) < 0)
        return -1;
    printf("%s\n", digest);
    return 0;
}

static int image_adopt(const struct options *options, char **arguments, struct error *err)
{
    auto_buffer struct buffer socket = {0};
    auto_store struct store store = {.fd = -1, .lock = -1};
    char digest[SHA256_HEX_SIZE];

    (void)options;
    if (open_images(&socket, &store, err) < 0 || adopt_image(&store, arguments[0], digest, err) < 0)
        return -1;
    printf("%s\n", digest);
    return 0;
}

static int image_list(const struct options *options, char **arguments, struct error *err)
{
    auto_buffer struct buffer socket = {0};
    auto_store struct store store = {.fd = -1, .lock = -1};

    (void)arguments;
    return open_images(&socket, &store, err) < 0 ? -1
                                                 : store_list(&store,
                                                              options->json        ? STORE_JSON
                                                              : options->long_form ? STORE_TABLE
                                                                                   : STORE_NAMES,
                                                              stdout, err);
}

static int image_remove(const struct options *options, char **arguments, struct error *err)
{
    auto_buffer struct buffer socket = {0};
    auto_store struct store store = {.fd = -1, .lock = -1};

    return open_images(&socket, &store, err) < 0
               ? -1
               : store_remove(&store, arguments[0], options->force, err);
}

static int image_prune(const struct options *options, char **arguments, struct error *err)
{
    auto_buffer struct buffer socket = {0};
    auto_store struct store store = {.fd = -1, .lock = -1};

    (void)arguments;
    return open_images(&socket, &store, err) < 0 ? -1 : store_prune(&store, options->force, err);
}

static int image_log(const struct options *options, char **arguments, struct error *err)
{
    auto_buffer struct buffer socket = {0};
    auto_store struct store store = {.fd = -1, .lock = -1};

    (void)options;
    return open_images(&socket, &store, err) < 0 ? -1
                                                 : record_print(&store, arguments[0], stdout, err);
}

static int image_verify(const struct options *options, char **arguments, struct error *err)
{
    auto_buffer struct buffer socket = {0};
    auto_store struct store store = {.fd = -1, .lock = -1};

    (void)options;
    return open_images(&socket, &store, err) < 0 ? -1
                                                 : store_verify(&store, arguments[0], stdout, err);
}

/* --- the machine
 * --------------------------------------------------------------------------------------------------------------
 */

static int doctor(const struct options *options, char **arguments, struct error *err)
{
    auto_buffer struct buffer path = {0};
    const struct doctor patient = {.root = "",
                                   .state = paths.supervisor_state,
                                   .socket = socket_path(&path),
                                   .database = paths.database_url.value,
                                   .id_base = paths.id_base,
                                   .sandboxes_max = paths.sandboxes_max};
    int missing = doctor_examine(&patient, options->json, stdout);

    (void)arguments;
    if (missing)
        return error_set(err, ERR_UNAVAILABLE, "%d of these are needed", missing);
    return 0;
}

/* --- commands
 * ------------------------------------------------------------------------------------------------------------------
 */

typedef int command(const struct options *options, char **arguments, struct error *err);

static const struct {
    const char *group, *verb;
    command *run;
    int least, most; /* arguments */
    const char *usage;
    const char *about;
} commands[] = {
    {"key", "create", key_create, 0, 0, "[--project P] [--name N]",
     "make an API key and print it; it is shown this once"},
    {"key", "list", key_list, 0, 0, "[--project P]", "the keys of one project, or of all"},
    {"key", "revoke", key_revoke, 1, 1, "ID", "a key is refused from now on"},
    {"migrate", NULL, run_migrate, 0, 0, "", "bring the database to this version"},
    {"image", "build", image_build, 0, 1, "[--fresh] [--packages FILE] [--recipe FILE] [NAME]",
     "build an image from Debian packages (default: base), or by a recipe on another"},
    {"image", "log", image_log, 1, 1, "NAME", "what the latest build said, and how it went"},
    {"image", "import", image_import, 2, 2, "[--reference R] SOURCE NAME",
     "make an image of an OCI layout, an archive of docker save, or a root file system's"},
    {"image", "adopt", image_adopt, 1, 1, "NAME",
     "give an image that is a mere folder a digest, so that others can be built on it"},
    {"image", "list", image_list, 0, 0, "[--long] [--json]", "the images of this machine"},
    {"image", "verify", image_verify, 0, 1, "[NAME]", "read an image, or all, for damage"},
    {"image", "remove", image_remove, 1, 1, "[--force] NAME", "remove an image"},
    {"image", "prune", image_prune, 0, 0, "[--force]",
     "remove what newer builds of images replaced"},
    {"sandbox", "list", sandbox_print, 0, 0, "[--running]", "the sandboxes of this machine"},
    {"sandbox", "usage", sandbox_use, 1, 1, "[--json] ID",
     "what it uses of its disk, of memory, processes and processors"},
    {"sandbox", "stop", sandbox_end, 1, 1, "ID", "end all that runs in it; its files stay"},
    {"sandbox", "destroy", sandbox_remove, 1, 1, "ID", "remove it, with its files"},
    {"snapshot", "make", snapshot_take, 1, 1, "SANDBOX",
     "copy a sandbox's files as they are now, and print the copy's id"},
    {"snapshot", "list", snapshot_print, 0, 1, "[--json] [SANDBOX]",
     "the snapshots of a sandbox, or all; the newest first"},
    {"snapshot", "restore", snapshot_put_back, 2, 2, "[--force] SNAPSHOT SANDBOX",
     "make a sandbox with the files of a snapshot; --force: in the place of what has the name"},
    {"snapshot", "remove", snapshot_drop, 1, 1, "ID", "remove a snapshot"},
    {"doctor", NULL, doctor, 0, 0, "[--json]",
     "what this machine lacks for sandboxes, with the cure"},
};

static void print_help(FILE *out)
{
    fputs("usage: sandboxctl COMMAND [OPTIONS]\n\n", out);
    for (size_t i = 0; i < COUNT(commands); i++)
        fprintf(out, "  %s%s%s %s\n      %s\n", commands[i].group, commands[i].verb ? " " : "",
                commands[i].verb ? commands[i].verb : "", commands[i].usage, commands[i].about);
    fputs("\nIt reads its settings from the environment and the file .env:\n\n", out);
    settings_help(table, COUNT(table), out);
}

static int parse_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"project", required_argument, NULL, 'p'},
        {"name", required_argument, NULL, 'n'},
        {"packages", required_argument, NULL, 'l'},
        {"fresh", no_argument, NULL, 'f'},
        {"force", no_argument, NULL, 'F'},
        {"running", no_argument, NULL, 'r'},
        {"json", no_argument, NULL, 'j'},
        {"long", no_argument, NULL, 'g'},
        {"reference", required_argument, NULL, 'R'},
        {"recipe", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {"settings-manual", no_argument, NULL, 'm'},
        {NULL, 0, NULL, 0},
    };
    int found;

    while ((found = getopt_long(argc, argv, "h", known, NULL)) >= 0) {
        switch (found) {
        case 'p':
            options->project = optarg;
            break;
        case 'n':
            options->name = optarg;
            break;
        case 'l':
            options->packages = optarg;
            break;
        case 'f':
            options->fresh = true;
            break;
        case 'F':
            options->force = true;
            break;
        case 'r':
            options->running = true;
            break;
        case 'j':
            options->json = true;
            break;
        case 'g':
            options->long_form = true;
            break;
        case 'R':
            options->reference = optarg;
            break;
        case 'c':
            options->recipe = optarg;
            break;
        case 'h':
            print_help(stdout);
            exit(EXIT_SUCCESS);
        case 'm': /* for sandboxctl.8 */
            settings_manual(table, COUNT(table), stdout);
            exit(EXIT_SUCCESS);
        default:
            return -1;
        }
    }
    return 0;
}

/* The row of the command that the words name, and how many words that were. */
static int find_command(int count, char **words, int *used)
{
    for (size_t i = 0; i < COUNT(commands); i++) {
        if (!count || strcmp(words[0], commands[i].group) != 0)
            continue;
        *used = commands[i].verb ? 2 : 1;
        if (!commands[i].verb || (count > 1 && !strcmp(words[1], commands[i].verb)))
            return (int)i;
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct error err = {0};
    int which, used = 0, given;

    log_init("sandboxctl", LOG_WARNING);
    if (parse_options(argc, argv, &options) < 0)
        return EXIT_USAGE;
    which = find_command(argc - optind, argv + optind, &used);
    given = argc - optind - used;
    if (which < 0 || given < commands[which].least || given > commands[which].most) {
        fprintf(stderr, "sandboxctl: %s; see sandboxctl --help\n",
                optind == argc ? "it needs a command" : "no such command, or not with these words");
        return EXIT_USAGE;
    }
    if (settings_load(table, COUNT(table), ".env", &paths, &err) < 0 ||
        commands[which].run(&options, argv + optind + used, &err) < 0) {
        fprintf(stderr, "sandboxctl: %s\n", err.message);
        return EXIT_FAILURE;
    }
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
