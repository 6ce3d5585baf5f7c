/* A private PostgreSQL in a temporary folder, on a Unix socket: made once per test program, gone
 * with it. */
#ifndef TESTS_UNIT_STORE_POSTGRES_H
#define TESTS_UNIT_STORE_POSTGRES_H

#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "store/database.h"
#include "store/migrate.h"

static char postgres_folder[64];
static char postgres_url[160];

static inline void postgres_die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

/* Where Debian has it; elsewhere it is in PATH. */
static inline const char *postgres_binary(const char *name, char out[128])
{
    for (int version = 20; version >= 14; version--) {
        snprintf(out, 128, "/usr/lib/postgresql/%d/bin/%s", version, name);
        if (access(out, X_OK) == 0)
            return out;
    }
    snprintf(out, 128, "%s", name);
    return out;
}

/* Run a program of PostgreSQL, which refuses to be root. */
static inline pid_t postgres_spawn(const char *const *argv)
{
    char path[128];
    pid_t pid;

    postgres_binary(argv[0], path);
    pid = fork();
    if (pid < 0)
        postgres_die("fork");
    if (pid > 0)
        return pid;
    /* Check ends what a test leaves behind, by its group; the server outlives the test that starts
     * it again. */
    setsid();
    if (geteuid() == 0) {
        const struct passwd *user = getpwnam("postgres");

        if (!user || setgroups(0, NULL) < 0 || setgid(user->pw_gid) < 0 || setuid(user->pw_uid) < 0)
            postgres_die("become postgres");
    }
    if (chdir("/") < 0 || !freopen("/dev/null", "r", stdin))
        postgres_die("detach");
    if (!getenv("POSTGRES_VERBOSE") &&
        (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)))
        _exit(EXIT_FAILURE);
    execvp(path, (char *const *)argv);
    _exit(EXIT_FAILURE);
}

static inline void postgres_sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static inline int64_t postgres_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* The server's process, from its own file; 0 when there is none. */
static inline pid_t postgres_pid(void)
{
    char path[128], line[32] = "";
    FILE *file;

    snprintf(path, sizeof(path), "%s/data/postmaster.pid", postgres_folder);
    file = fopen(path, "re");
    if (!file)
        return 0;
    if (!fgets(line, sizeof(line), file))
        line[0] = '\0';
    fclose(file);
    return (pid_t)strtol(line, NULL, 10);
}

/* Start the server and wait until it answers. */
static inline void postgres_start(void)
{
    char data[96];
    struct pool *pool = NULL;
    struct error err;

    snprintf(data, sizeof(data), "%s/data", postgres_folder);
    postgres_spawn((const char *const[]){"postgres", "-D", data, "-k", postgres_folder, "-c",
                                         "listen_addresses=", "-F", "-c", "shared_buffers=16MB",
                                         "-c", "max_connections=40", NULL});
    if (pool_open(&pool, postgres_url, 1, &err) < 0)
        postgres_die(err.message);
    for (int tries = 0; tries < 200; tries++) {
        struct database *db = NULL;

        if (database_borrow(pool, 0, &db, &err) == 0) {
            database_return(db);
            pool_close(pool);
            return;
        }
        postgres_sleep_ms(50);
    }
    postgres_die("PostgreSQL does not start");
}

/* Stop it at once, connections or not, and wait until it has gone. */
static inline void postgres_stop(void)
{
    pid_t pid = postgres_pid();

    if (pid <= 0)
        return;
    for (int tries = 0; tries < 400 && postgres_pid() == pid && kill(pid, tries ? 0 : SIGINT) == 0;
         tries++) {
        waitpid(pid, NULL, WNOHANG);
        postgres_sleep_ms(25);
    }
    waitpid(pid, NULL, WNOHANG);
}

static inline int postgres_remove(const char *path, const struct stat *status, int type,
                                  struct FTW *ftw)
{
    (void)status;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* Unchecked fixtures: postgres_setup makes the cluster, with our schema; postgres_teardown removes
 * it. */
static inline void postgres_setup(void)
{
    char data[96];
    struct error err;
    int status;

    strcpy(postgres_folder, "/tmp/store-test-XXXXXX");
    if (!mkdtemp(postgres_folder))
        postgres_die("mkdtemp");
    if (geteuid() == 0) {
        const struct passwd *user = getpwnam("postgres");

        if (!user || chown(postgres_folder, user->pw_uid, user->pw_gid) < 0)
            postgres_die("chown");
    }
    snprintf(data, sizeof(data), "%s/data", postgres_folder);
    snprintf(postgres_url, sizeof(postgres_url), "postgresql:///postgres?host=%s&user=postgres",
             postgres_folder);
    if (waitpid(
            postgres_spawn((const char *const[]){"initdb", "-D", data, "-U", "postgres", "-A",
                                                 "trust", "-E", "UTF8", "--no-locale", "-N", NULL}),
            &status, 0) < 0 ||
        status != 0)
        postgres_die("initdb");
    postgres_start();
    if (migrate(postgres_url, &err) < 0)
        postgres_die(err.message);
}

static inline void postgres_teardown(void)
{
    postgres_stop();
    nftw(postgres_folder, postgres_remove, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
