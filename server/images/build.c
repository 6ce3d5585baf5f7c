/* Builds of images: see build.h.
 *
 * What a recipe makes is called by what goes into it (recipe_name), and found again by that. While
 * it is made it has a name of its own, `building-*`, which stands in the record of the build with
 * the id of its sandbox, so that neither is left when the build is cut off. The store is locked
 * only for as long as names change: the supervisor needs it when the sandbox becomes an image. */
#include "images/build.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/scope.h"
#include "common/tree.h"
#include "images/adopt.h"
#include "images/context.h"
#include "images/record.h"
#include "run/build.h"

enum { RECIPE_MAX = 256 * 1024, PIDS = 2048, CPU_PERCENT = 1600, TMP_MB = 256 };

#define BUILDING "building-"
#define WORK ".work"

struct making {
    const struct image_build *build;
    struct record_writer record;
    struct recipe recipe;
    struct arena arena;
    int folder;                 /* of the recipe */
    char base[SHA256_HEX_SIZE]; /* digest of the image below */
    char key[RECIPE_NAME_SIZE]; /* what the recipe makes is called */
    char sandbox[UUID_SIZE];
    char temporary[RECIPE_NAME_SIZE];
    char digest[SHA256_HEX_SIZE];
    int cancel;
};

static void making_done(struct making *making)
{
    arena_done(&making->arena);
    record_close(&making->record);
    scope_close(&making->folder);
}

static int open_store(const struct image_build *build, struct store *store, struct error *err)
{
    return store_open(build->images, build->socket, build->state, store, err);
}

/* --- signals --------------------------------------------------------------------------------- */

static int interruption[2] = {-1, -1};

static void interrupt(int number)
{
    ssize_t written = write(interruption[1], "", 1);

    (void)number;
    (void)written;
}

/* The build ends in order: its sandbox and its half-made image are removed. */
static int catch_signals(struct error *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

    if (interruption[0] < 0 && pipe2(interruption, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_set_errno(err, ERR_INTERNAL, "pipe");
    for (size_t i = 0; i < COUNT(numbers); i++)
        sigaction(numbers[i], &(struct sigaction){.sa_handler = interrupt, .sa_flags = SA_RESTART},
                  NULL);
    return interruption[0];
}

/* --- what was cut off ------------------------------------------------------------------------ */

struct sweep {
    const struct image_build *build;
    const struct store *store;
};

static int sweep_one(const char *name, void *context, struct error *err)
{
    const struct sweep *sweep = context;
    struct sandbox_link *link;
    struct record_writer writer = {.folder = -1, .log = -1};
    struct record record;
    char *temporary;

    if (record_read(sweep->store, name, &record) < 0 || !record.cut_off)
        return 0;
    temporary = strchr(record.text, ' ');
    if (temporary)
        *temporary++ = '\0';
    if (build_is_sandbox(record.text)) {
        link = sandbox_link_new(sweep->build->socket);
        /* With the supervisor away it is tried again by the next one. */
        if (sandbox_destroy(link, record.text, err) < 0 && err->kind != ERR_NOT_FOUND) {
            sandbox_link_free(link);
            return err->kind == ERR_UNAVAILABLE ? 0 : -1;
        }
        sandbox_link_free(link);
    }
    if (temporary && strncmp(temporary, BUILDING, strlen(BUILDING)) == 0 &&
        store_is_name(temporary))
        unlinkat(sweep->store->fd, temporary, 0);
    if (record_open(sweep->store->fd, name, &writer, err) < 0)
        return err->kind == ERR_CONFLICT ? 0 : -1;
    int result = record_set(&writer, RECORD_FAILED, "it was cut off", err);
    record_close(&writer);
    return result;
}

int build_sweep(const struct image_build *build, struct error *err)
{
    auto_store struct store store = {.fd = -1, .lock = -1};
    struct sweep sweep = {build, &store};

    return open_store(build, &store, err) < 0 ? -1 : record_each(&store, sweep_one, &sweep, err);
}

/* --- the recipe ------------------------------------------------------------------------------ */

static int read_recipe(struct making *making, const char *path, struct error *err)
{
    char *text = arena_alloc(&making->arena, RECIPE_MAX + 1), folder[PATH_MAX] = ".", *slash;
    bool standard = strcmp(path, "-") == 0;
    auto_close int fd = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                 : open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got = 0;

    if (fd < 0)
        return error_set_errno(err, ERR_NOT_FOUND, "%s", path);
    while (length < RECIPE_MAX && (got = read(fd, text + length, RECIPE_MAX - length)) > 0)
        length += (size_t)got;
    if (got < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", path);
    if (length == RECIPE_MAX || memchr(text, '\0', length))
        return error_set(err, ERR_INVALID, "the recipe is no text, or longer than %d KiB",
                         RECIPE_MAX >> 10);
    text[length] = '\0';
    if (!standard && (slash = strrchr(path, '/')))
        snprintf(folder, sizeof(folder), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    making->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (making->folder < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", folder);
    return recipe_parse(text, &making->arena, &making->recipe, err);
}

/* The image below gets a digest where it has none. */
static int find_base(struct making *making, struct error *err)
{
    auto_store struct store store = {.fd = -1, .lock = -1};
    char files[SHA256_HEX_SIZE];

    if (context_digest(making->folder, &making->recipe.files, files, err) < 0 ||
        open_store(making->build, &store, err) < 0 ||
        adopt_image(&store, making->recipe.base, making->base, err) < 0)
        return -1;
    recipe_name(&making->recipe, making->base, files, making->key);
    return 0;
}

/* --- names ----------------------------------------------------------------------------------- */

static int note_layer(const char *word, const char *value, void *context)
{
    struct buffer *text = context;

    if (strcmp(word, "layer") == 0)
        buffer_format(text, "%s\n", value);
    return 0;
}

/* Whether `upper` is `lower` and more: the name of the image below may have been given to another
 * after its digest was read. */
static int check_base(const struct store *store, const char *lower, const char *upper,
                      struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer below = {0}, all = {0};

    if (store_read_manifest(store, lower, &arena, note_layer, &below, err) < 0 ||
        store_read_manifest(store, upper, &arena, note_layer, &all, err) < 0)
        return -1;
    return below.length <= all.length && memcmp(below.data, all.data, below.length) == 0
               ? 0
               : error_set(err, ERR_CONFLICT,
                           "the image below was changed meanwhile; build once more");
}

/* 1: from the cache. */
static int name_cached(struct making *making, struct error *err)
{
    auto_store struct store store = {.fd = -1, .lock = -1};
    struct image_entry cached;

    if (open_store(making->build, &store, err) < 0)
        return -1;
    if (making->build->fresh || store_find(&store, making->key, &cached, err) < 0 ||
        !*cached.digest)
        return 0;
    memcpy(making->digest, cached.digest, sizeof(making->digest));
    return store_name(&store, cached.digest, making->build->name, err) < 0 ? -1 : 1;
}

static int name_made(struct making *making, struct error *err)
{
    auto_store struct store store = {.fd = -1, .lock = -1};
    struct image_entry made;
    int result;

    if (open_store(making->build, &store, err) < 0 ||
        store_find(&store, making->temporary, &made, err) < 0)
        return -1;
    memcpy(making->digest, made.digest, sizeof(making->digest));
    result = check_base(&store, making->base, made.digest, err);
    if (result == 0 && (store_name(&store, made.digest, making->key, err) < 0 ||
                        store_name(&store, made.digest, making->build->name, err) < 0))
        result = -1;
    unlinkat(store.fd, making->temporary, 0);
    return result;
}

/* --- building -------------------------------------------------------------------------------- */

static int give_files(const struct build *build, struct error *err)
{
    const struct making *making = build->context;

    return context_give(making->folder, &making->recipe.files, build->link, build->sandbox, err);
}

static void add_to_log(const char *bytes, size_t length, void *context)
{
    struct making *making = context;

    record_add(bytes, length, &making->record);
}

static int make(struct making *making, struct error *err)
{
    struct sandbox_link *link = sandbox_link_new(making->build->socket);
    auto_buffer struct buffer where = {0};
    const struct build build = {
        .link = link,
        .recipe = &making->recipe,
        .sandbox = making->sandbox,
        .image = making->temporary,
        .memory_bytes = making->build->memory_mb << 20,
        .pids = PIDS,
        .cpu_percent = CPU_PERCENT,
        .tmp_bytes = (int64_t)TMP_MB << 20,
        .step_ms = making->build->step_seconds * 1000,
        .give_files = making->recipe.files.count ? give_files : NULL,
        .log = add_to_log,
        .context = making,
        .cancel_fd = making->cancel,
    };
    int result;

    build_sandbox(making->sandbox);
    snprintf(making->temporary, sizeof(making->temporary), BUILDING "%s", making->sandbox + 24);
    buffer_format(&where, "%s %s", making->sandbox, making->temporary);
    result = record_set(&making->record, RECORD_BUILDING, where.data, err);
    if (result == 0)
        result = build_run(&build, err);
    sandbox_link_free(link);
    return result < 0 ? -1 : name_made(making, err);
}

/* The same recipe is built once, under whatever names: whoever waits finds it in the cache. */
static int lock_key(const struct making *making, struct error *err)
{
    char path[RECIPE_NAME_SIZE + 8];

    snprintf(path, sizeof(path), ".%s", making->key);
    auto_close int lock =
        openat(making->record.folder, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    while (lock >= 0 && flock(lock, LOCK_EX) < 0)
        if (errno != EINTR)
            return error_set_errno(err, ERR_INTERNAL, "lock the recipe");
    if (lock < 0)
        return error_set_errno(err, ERR_INTERNAL, "lock the recipe");
    return take_fd(&lock);
}

static int find_or_make(struct making *making, struct error *err)
{
    auto_close int lock = -1;
    int cached;

    if (find_base(making, err) < 0)
        return -1;
    lock = lock_key(making, err);
    cached = lock < 0 ? -1 : name_cached(making, err);
    if (cached != 0) {
        static const char hit[] = "built before from the same recipe\n";

        if (cached > 0)
            record_add(hit, strlen(hit), &making->record);
        return cached < 0 ? -1 : 0;
    }
    return make(making, err);
}

static int check(const struct image_build *build, struct error *err)
{
    if (geteuid() != 0)
        return error_set(err, ERR_FORBIDDEN, "only root can build an image");
    if (!store_is_name(build->name))
        return error_set(
            err, ERR_INVALID,
            "an image's name has a-z, 0-9, . _ and -, and starts with a letter or digit");
    if (strncmp(build->name, "built-", 6) == 0 || strncmp(build->name, BUILDING, 9) == 0)
        return error_set(err, ERR_INVALID, "names that begin so are for the cache of builds");
    return 0;
}

static int open_record(const struct image_build *build, struct record_writer *writer,
                       struct error *err)
{
    auto_close int images = open(build->images, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return images < 0 ? error_set_errno(err, ERR_NOT_FOUND, "%s", build->images)
                      : record_open(images, build->name, writer, err);
}

/* What the record says is not worth an error of its own. */
static int finish(struct record_writer *record, int result, const char *digest, struct error *err)
{
    struct error ignored;

    record_set(record, result == 0 ? RECORD_READY : RECORD_FAILED,
               result == 0 ? digest : err->message, &ignored);
    if (result == 0)
        printf("%s\n", digest);
    return result;
}

int build_from_recipe(const struct image_build *build, const char *path, struct error *err)
{
    __attribute__((cleanup(making_done))) struct making making = {
        .build = build, .record = {.folder = -1, .log = -1}, .folder = -1};

    if (check(build, err) < 0 || read_recipe(&making, path, err) < 0 ||
        build_sweep(build, err) < 0 || open_record(build, &making.record, err) < 0)
        return -1;
    making.cancel = catch_signals(err);
    if (making.cancel < 0 || record_set(&making.record, RECORD_BUILDING, "-", err) < 0)
        return -1;
    return finish(&making.record, find_or_make(&making, err), making.digest, err);
}

/* --- by a program ---------------------------------------------------------------------------- */

static pid_t start_program(const char *program, bool fresh, const char *folder, int *output,
                           struct error *err)
{
    char *const words[] = {(char *)program, (char *)(fresh ? "--fresh" : folder),
                           (char *)(fresh ? folder : "root"), (char *)(fresh ? "root" : NULL),
                           NULL};
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERR_INTERNAL, "pipe");
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execv(program, words);
        dprintf(STDERR_FILENO, "%s: %s\n", program, strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return error_set_errno(err, ERR_INTERNAL, "fork");
    }
    *output = ends[0];
    return pid;
}

static int run_program(const struct image_build *build, const char *program, const char *folder,
                       struct record_writer *record, struct error *err)
{
    auto_close int output = -1;
    char block[4096];
    ssize_t got;
    int status = 0;
    pid_t pid = start_program(program, build->fresh, folder, &output, err);

    if (pid < 0)
        return -1;
    while ((got = read(output, block, sizeof(block))) > 0 || (got < 0 && errno == EINTR))
        if (got > 0)
            record_add(block, (size_t)got, record);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0
               : error_set(err, ERR_UNAVAILABLE, "%s did not make the image", program);
}

static int take_root(const struct image_build *build, int work, char digest[SHA256_HEX_SIZE],
                     struct error *err)
{
    auto_store struct store store = {.fd = -1, .lock = -1};
    auto_close int root = openat(work, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (root < 0)
        return error_set_errno(err, ERR_INTERNAL, "what was built");
    return open_store(build, &store, err) < 0
               ? -1
               : adopt_folder(&store, root, build->name, digest, err);
}

int build_by_program(const struct image_build *build, const char *program, struct error *err)
{
    auto_record struct record_writer record = {.folder = -1, .log = -1};
    char work[IMAGE_NAME_MAX + 8], folder[PATH_MAX], digest[SHA256_HEX_SIZE];
    struct error cleanup;
    int result;

    if (check(build, err) < 0 || open_record(build, &record, err) < 0 ||
        record_set(&record, RECORD_BUILDING, "-", err) < 0)
        return -1;
    snprintf(work, sizeof(work), "%s" WORK, build->name);
    snprintf(folder, sizeof(folder), "%.3900s/.builds/%s", build->images, work);
    /* What an earlier one left, that was cut off. */
    if (tree_remove(record.folder, work, err) < 0)
        return finish(&record, -1, NULL, err);
    auto_close int fd =
        mkdirat(record.folder, work, 0755) < 0
            ? -1
            : openat(record.folder, work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    result = fd < 0 ? error_set_errno(err, ERR_INTERNAL, "mkdir")
                    : run_program(build, program, folder, &record, err);
    if (result == 0)
        result = take_root(build, fd, digest, err);
    if (tree_remove(record.folder, work, &cleanup) < 0 && result == 0)
        *err = cleanup, result = -1;
    return finish(&record, result, digest, err);
}
