/* sandbox-server: the command line. */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/log.h"
#include "common/scope.h"
#include "http/openapi.h"
#include "http/router.h"
#include "server/listener.h"
#include "server/master.h"
#include "server/metrics.h"
#include "server/settings.h"
#include "store/bus.h"
#include "store/database.h"
#include "store/migrate.h"

#define VERSION "1.0.0"

/* One line, for whoever started the program. */
static int fail(int status, const struct error *err)
{
    fprintf(stderr, "sandbox-server: %s\n", err->message);
    return status;
}

static int make_folder(const char *path, struct error *err)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "STATE_DIR: %s", path);
    return 0;
}

static int make_folders(struct error *err)
{
    static const char *const names[] = {"run", "spool"};
    char path[4096];

    if (make_folder(settings.state_dir, err) < 0)
        return -1;
    for (size_t i = 0; i < COUNT(names); i++) {
        if (snprintf(path, sizeof(path), "%s/%s", settings.state_dir, names[i]) >=
            (int)sizeof(path))
            return error_set(err, ERR_INVALID, "STATE_DIR is too long");
        if (make_folder(path, err) < 0)
            return -1;
    }
    return 0;
}

/* Outside dev a server that nobody has a credential for is a mistake. */
static int check_credentials(struct pool *pool, struct error *err)
{
    auto_database struct database *db = NULL;
    auto_rows struct rows *rows = NULL;

    if (server_settings_relaxed() || settings.operator_token.value[0])
        return 0;
    if (database_borrow(pool, 0, &db, err) < 0 ||
        query_rows(db, QUERY_identity_any_key, NO_PARAMS, &rows, err) < 0)
        return -1;
    if (strcmp(rows_text(rows, 0, 0), "t") == 0)
        return 0;
    return error_set(err, ERR_INVALID,
                     "OPERATOR_TOKEN is not set and there is no API key: nobody could come in "
                     "(sandboxctl key create "
                     "makes one)");
}

/* Every query against the schema that is there. The connection ends here: none outlives a fork. */
static int check_database(struct error *err)
{
    struct pool *pool;
    int result;

    if (pool_open(&pool, settings.database_url.value, 1, err) < 0)
        return -1;
    result = database_check(pool, err);
    if (result == 0)
        result = check_credentials(pool, err);
    pool_close(pool);
    return result;
}

/* A large answer gives its memory back when it has left, and 64 threads do not each keep a heap of
 * their own (mallopt(3)). */
static void bound_heap(void)
{
    mallopt(M_MMAP_THRESHOLD, 256 * 1024);
    mallopt(M_TRIM_THRESHOLD, 1024 * 1024);
    mallopt(M_ARENA_MAX, 4);
}

static int serve(struct error *err)
{
    static char bus[4096];

    bound_heap();
    if (make_folders(err) < 0)
        return -1;
    snprintf(bus, sizeof(bus), "%s/run/bus.sock", settings.state_dir);
    bus_init(bus);
    if (listener_open(settings.host, (int)settings.port, err) < 0)
        return -1;
    if (migrate(settings.database_url.value, err) < 0)
        return -1;
    if (check_database(err) < 0)
        return -1;
    metrics_open(router_labels());
    return master_run(err);
}

static int migrate_only(struct error *err)
{
    int applied = migrate(settings.database_url.value, err);

    if (applied < 0)
        return -1;
    printf("%d migration%s applied, the schema is at %d\n", applied, applied == 1 ? "" : "s",
           migrate_current());
    return 0;
}

/* --- commands without settings --------------------------------------------------------------- */

static void print_help(void)
{
    fputs(
        "usage: sandbox-server [serve | migrate | openapi | --check-config | --help | --version]\n"
        "\n"
        "  serve           serve the API (the default); migrates the database first\n"
        "  migrate         apply what is missing to the database, and end\n"
        "  openapi         print the API's OpenAPI document\n"
        "  --check-config  print every reason why the settings would be refused, and end\n"
        "\n"
        "Settings come from the environment, or from a file .env in the working folder:\n\n",
        stdout);
    server_settings_help(stdout);
}

static void print_version(void)
{
    puts("sandbox-server " VERSION);
}

static void print_openapi(void)
{
    openapi_print(stdout);
}

static void print_manual(void)
{
    server_settings_manual(stdout);
}

/* Every refusal, not only the first. */
static int check_config(void)
{
    struct refusals refusals = {.out = stderr};

    server_settings_check(&refusals);
    if (refusals.count)
        return EX_CONFIG;
    puts("The settings are fine.");
    return EXIT_SUCCESS;
}

struct command {
    const char *name;
    void (*print)(void); /* one that needs no settings */
    int (*run)(struct error *err);
};

static const struct command commands[] = {
    {"serve", .run = serve},
    {"migrate", .run = migrate_only},
    {"openapi", .print = print_openapi},
    {"--help", .print = print_help},
    {"--version", .print = print_version},
    {"--settings-manual", .print = print_manual}, /* for server.8 */
};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "serve";
    const struct command *command = NULL;
    struct error err;

    for (size_t i = 0; i < COUNT(commands); i++)
        if (!strcmp(name, commands[i].name))
            command = &commands[i];
    if (argc == 2 && !strcmp(name, "--check-config"))
        return check_config();
    if (!command || argc > 2) {
        fputs("sandbox-server: not a command; see --help\n", stderr);
        return EX_USAGE;
    }
    if (command->print) {
        command->print();
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EX_IOERR;
    }
    if (server_settings_load(&err) < 0)
        return fail(EX_CONFIG, &err);
    log_init("master", (enum log_level)log_level_of(settings.log_level));
    if (command->run(&err) < 0)
        return fail(err.kind == ERR_INVALID ? EX_CONFIG : EXIT_FAILURE, &err);
    return EXIT_SUCCESS;
}
