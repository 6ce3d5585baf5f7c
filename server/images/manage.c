/* Listing, removing and verifying images: see store.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/json.h"
#include "common/scope.h"
#include "common/tree.h"
#include "images/layer.h"
#include "images/record.h"
#include "images/store.h"
#include "images/use.h"

/* --- list ------------------------------------------------------------------------------------ */

struct listing {
    const struct store *store;
    enum store_style style;
    struct use use;
    bool known; /* who uses what */
    FILE *out;
    size_t count;
};

/* One line of it. */
struct row {
    const char *name;
    struct image_entry image;
    struct record record;
    bool there;     /* else it is being built for the first time, or was not built */
    int64_t layers; /* -1: it is damaged */
    int64_t size;
    size_t sandboxes;
    char made[32];
};

static int take_line(const char *word, const char *value, void *context)
{
    struct row *row = context;

    if (strcmp(word, "size") == 0)
        row->size = strtoll(value, NULL, 10);
    row->layers += strcmp(word, "layer") == 0;
    return 0;
}

static int add_size(int directory, const char *path, const char *name, const struct stat *status,
                    void *context, struct error *err)
{
    (void)directory, (void)path, (void)name, (void)err;
    if (S_ISREG(status->st_mode))
        *(int64_t *)context += status->st_size;
    return 0;
}

static void measure(const struct store *store, struct row *row)
{
    auto_arena struct arena arena = {0};
    struct error ignored;
    int result;

    if (*row->image.digest) {
        result = store_read_manifest(store, row->image.digest, &arena, take_line, row, &ignored);
    } else {
        auto_close int folder = openat(store->fd, row->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        row->layers = 1;
        result = folder < 0 ? -1 : tree_each(folder, add_size, &row->size, &ignored);
    }
    if (result < 0)
        row->layers = row->size = -1;
}

static const char *state_of(const struct row *row)
{
    if (row->layers < 0)
        return "damaged";
    return row->record.kind != RECORD_NONE ? record_name(row->record.kind) : "ready";
}

static void print_line(const struct listing *listing, const struct row *row)
{
    fprintf(listing->out, "%-24s  %-12.12s  %8" PRId64 "  %6" PRId64 "  %-20s  %-8s  %s\n",
            row->name, *row->image.digest ? row->image.digest : "-",
            row->size < 0 ? -1 : row->size >> 20, row->layers, row->made, state_of(row),
            !listing->known  ? "unknown"
            : row->sandboxes ? "used"
                             : "unused");
}

static void print_json(struct listing *listing, const struct row *row)
{
    auto_buffer struct buffer out = {0};
    bool failed = row->record.kind == RECORD_FAILED;

    json_format(&out,
                "%j{\"name\":%s,\"digest\":%s,\"size\":%d,\"layers\":%d,\"created\":%s,"
                "\"state\":%s,\"error\":%s,",
                listing->count++ ? "," : "", row->name,
                *row->image.digest ? row->image.digest : NULL, row->size, row->layers,
                row->there ? row->made : NULL, state_of(row),
                !failed               ? NULL
                : row->record.cut_off ? "it was cut off"
                                      : row->record.text);
    if (listing->known)
        json_format(&out, "\"used\":%j,\"sandboxes\":%d}", row->sandboxes ? "true" : "false",
                    (int64_t)row->sandboxes);
    else
        buffer_text(&out, "\"used\":null,\"sandboxes\":null}");
    fputs(out.data, listing->out);
}

static void print_row(struct listing *listing, struct row *row)
{
    struct tm when;

    if (row->there) {
        measure(listing->store, row);
        row->sandboxes = use_count(&listing->use, (int64_t)row->image.status.st_ino);
        strftime(row->made, sizeof(row->made), "%Y-%m-%dT%H:%M:%SZ",
                 gmtime_r(&row->image.status.st_ctim.tv_sec, &when));
    }
    if (listing->style == STORE_TABLE)
        print_line(listing, row);
    else
        print_json(listing, row);
}

static int list_image(const char *name, void *context, struct error *err)
{
    struct listing *listing = context;
    struct row row = {.name = name, .there = true};

    if (!store_is_name(name) || store_find(listing->store, name, &row.image, err) < 0)
        return 0;
    if (listing->style == STORE_NAMES)
        return fprintf(listing->out, "%s\n", name) < 0 ? -1 : 0;
    record_read(listing->store, name, &row.record);
    print_row(listing, &row);
    return 0;
}

static int list_build(const char *name, void *context, struct error *err)
{
    struct listing *listing = context;
    struct row row = {.name = name, .made = "-"};

    if (store_find(listing->store, name, &row.image, err) == 0 ||
        record_read(listing->store, name, &row.record) < 0 || row.record.kind == RECORD_READY)
        return 0;
    print_row(listing, &row);
    return 0;
}

int store_list(const struct store *store, enum store_style style, FILE *out, struct error *err)
{
    struct listing listing = {.store = store, .style = style, .out = out};
    struct error ignored;
    int result;

    if (style != STORE_NAMES)
        listing.known = use_read(store, &listing.use, &ignored) == 0;
    if (style == STORE_TABLE)
        fprintf(out, "%-24s  %-12s  %8s  %6s  %-20s  %-8s  %s\n", "NAME", "DIGEST", "MIB", "LAYERS",
                "CREATED", "STATE", "USE");
    if (style == STORE_JSON)
        fputc('[', out);
    result = store_each(store->fd, ".", list_image, &listing, err);
    if (result == 0 && style != STORE_NAMES)
        result = record_each(store, list_build, &listing, err);
    if (style == STORE_JSON)
        fputs("]\n", out);
    use_done(&listing.use);
    return result;
}

/* --- what no name leads to ------------------------------------------------------------------- */

struct collection {
    const struct store *store;
    const struct use *use; /* NULL: whoever uses it loses it */
    struct arena arena;
    const char **kept; /* digests: of versions, then of layers */
    size_t count;
};

static void keep(struct collection *collection, const char *digest)
{
    const char **more = arena_alloc(&collection->arena, (collection->count + 1) * sizeof(*more));

    if (collection->count)
        memcpy(more, collection->kept, collection->count * sizeof(*more));
    more[collection->count++] = arena_copy(&collection->arena, digest, strlen(digest));
    collection->kept = more;
}

static bool is_kept(const struct collection *collection, const char *digest)
{
    for (size_t i = 0; i < collection->count; i++)
        if (strcmp(collection->kept[i], digest) == 0)
            return true;
    return false;
}

static int keep_named(const char *name, void *context, struct error *err)
{
    struct collection *collection = context;
    struct image_entry image;

    if (store_is_name(name) && store_find(collection->store, name, &image, err) == 0 &&
        *image.digest)
        keep(collection, image.digest);
    return 0;
}

static bool is_used(const struct collection *collection, const char *path)
{
    struct stat status;

    return collection->use &&
           fstatat(collection->store->fd, path, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           use_count(collection->use, (int64_t)status.st_ino) > 0;
}

static int remove_at(const struct collection *collection, const char *place, const char *name,
                     struct error *err)
{
    auto_close int folder =
        openat(collection->store->fd, place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return folder < 0 ? error_set_errno(err, ERR_INTERNAL, "%s", place)
                      : tree_remove(folder, name, err);
}

static int keep_layer(const char *word, const char *value, void *context)
{
    if (strcmp(word, "layer") == 0)
        keep(context, value);
    return 0;
}

/* A version that goes takes none of its layers along yet; one that stays keeps its own. */
static int collect_version(const char *name, void *context, struct error *err)
{
    struct collection *collection = context;
    char path[sizeof(IMAGES_STORE) + NAME_MAX + 1];

    snprintf(path, sizeof(path), IMAGES_STORE "/%s", name);
    if (!is_kept(collection, name) && !is_used(collection, path))
        return remove_at(collection, IMAGES_STORE, name, err);
    /* Without its manifest nobody knows which layers are needed: then none goes. */
    return store_read_manifest(collection->store, name, &collection->arena, keep_layer, collection,
                               err);
}

static int collect_layer(const char *name, void *context, struct error *err)
{
    const struct collection *collection = context;

    return is_kept(collection, name) ? 0 : remove_at(collection, IMAGES_LAYERS, name, err);
}

static int collect_replaced(const char *name, void *context, struct error *err)
{
    const struct collection *collection = context;

    return strncmp(name, IMAGES_REPLACED, strlen(IMAGES_REPLACED)) != 0 || is_used(collection, name)
               ? 0
               : tree_remove(collection->store->fd, name, err);
}

static int collect(const struct store *store, const struct use *use, struct error *err)
{
    struct collection collection = {.store = store, .use = use};
    int result = store_each(store->fd, ".", collect_replaced, &collection, err);

    if (result == 0)
        result = store_each(store->fd, ".", keep_named, &collection, err);
    if (result == 0)
        result = store_each(store->fd, IMAGES_STORE, collect_version, &collection, err);
    if (result == 0)
        result = store_each(store->fd, IMAGES_LAYERS, collect_layer, &collection, err);
    arena_done(&collection.arena);
    return result;
}

int store_prune(const struct store *store, bool force, struct error *err)
{
    auto_use struct use use = {0};

    if (!force && use_read(store, &use, err) < 0)
        return -1;
    return collect(store, force ? NULL : &use, err);
}

/* --- remove ---------------------------------------------------------------------------------- */

static int refuse_used(const struct store *store, const struct image_entry *image, struct use *use,
                       struct error *err)
{
    size_t count;

    if (use_read(store, use, err) < 0)
        return -1;
    count = use_count(use, (int64_t)image->status.st_ino);
    if (count)
        return error_set(err, ERR_CONFLICT, "%zu sandboxes run on it; stop them, or say --force",
                         count);
    return 0;
}

/* The name goes first, so that nothing starts on it any more; then who uses it is known for good.
 */
int store_remove(const struct store *store, const char *name, bool force, struct error *err)
{
    auto_use struct use use = {0};
    struct image_entry image;
    char hidden[32];

    if (store_find(store, name, &image, err) < 0)
        return -1;
    token_make(IMAGES_REPLACED, 12, hidden, sizeof(hidden));
    if (renameat(store->fd, name, store->fd, hidden) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", name);
    if (!force && refuse_used(store, &image, &use, err) < 0) {
        if (renameat2(store->fd, hidden, store->fd, name, RENAME_NOREPLACE) < 0)
            return error_add_context(err, "%s is now %s", name, hidden);
        return -1;
    }
    record_remove(store, name);
    return collect(store, force ? NULL : &use, err);
}

/* --- verify ---------------------------------------------------------------------------------- */

struct verification {
    const struct store *store;
    struct arena arena;
    char layer[SHA256_HEX_SIZE];
    const char *name;
    FILE *out;
    size_t layers, faults;
    struct error error; /* of the last fault */
};

static int verify_line(const char *word, const char *value, void *context)
{
    struct verification *verification = context;
    char path[sizeof(IMAGES_LAYERS) + SHA256_HEX_SIZE];
    struct layer layer = {0};

    if (strcmp(word, "layer") == 0 && store_is_digest(value)) {
        memcpy(verification->layer, value, SHA256_HEX_SIZE);
        verification->layers++;
    }
    if (strcmp(word, "tree") != 0)
        return 0;
    snprintf(path, sizeof(path), IMAGES_LAYERS "/%s", verification->layer);
    auto_close int folder =
        openat(verification->store->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return error_set_errno(&verification->error, ERR_INVALID, "layer %.12s",
                               verification->layer);
    if (layer_measure(folder, &layer, &verification->error) < 0)
        return -1;
    if (strcmp(layer.tree_sha256, value) != 0)
        return error_set(&verification->error, ERR_INVALID, "layer %.12s was changed",
                         verification->layer);
    return 0;
}

/* A folder has no digest to compare with. */
static int verify_image(const char *name, void *context, struct error *err)
{
    struct verification *verification = context;
    struct image_entry image;

    if (!store_is_name(name))
        return 0;
    if (store_find(verification->store, name, &image, err) < 0)
        return -1;
    verification->error.kind = ERR_NONE;
    verification->layers = 0;
    if (*image.digest &&
        store_read_manifest(verification->store, image.digest, &verification->arena, verify_line,
                            verification, &verification->error) == 0 &&
        verification->error.kind == ERR_NONE && !verification->layers)
        error_set(&verification->error, ERR_INVALID, "it has no layers");
    if (verification->error.kind != ERR_NONE)
        verification->faults++;
    fprintf(verification->out, "%s  %s\n", name,
            verification->error.kind != ERR_NONE ? verification->error.message
            : *image.digest                      ? "whole"
                                                 : "a folder, with no digest");
    return 0;
}

int store_verify(const struct store *store, const char *name, FILE *out, struct error *err)
{
    struct verification verification = {.store = store, .out = out};
    int result = name ? verify_image(name, &verification, err)
                      : store_each(store->fd, ".", verify_image, &verification, err);

    arena_done(&verification.arena);
    if (result == 0 && verification.faults)
        return error_set(err, ERR_INVALID, "%zu damaged", verification.faults);
    return result;
}
