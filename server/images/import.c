/* Images from archives: see import.h. What an archive says of itself is compared with what is in
 * it; names in it are resolved beneath it. */
#include "images/import.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/json.h"
#include "common/scope.h"
#include "common/tree.h"
#include "images/layer.h"
#include "images/merge.h"

enum { DOCUMENT_MAX = 4 << 20, NESTED_MAX = 4, BLOBS_MAX = 512, ENV_MAX = 64 * 1024 };

#define REFERENCE "org.opencontainers.image.ref.name"
#define REFERENCE_OF_CONTAINERD "io.containerd.image.name"

struct import {
    const struct store *store;
    int work;
    int layout; /* the folder that the image is read from */
    const char *reference;
    struct arena arena;
    const char *config;            /* its JSON */
    const char *blobs[BLOBS_MAX];  /* paths of the layers' archives, the lowest first */
    const char *stored[BLOBS_MAX]; /* their digests, where these are told */
    size_t blob_count;
    const char *diffs[BLOBS_MAX]; /* digests of their tars */
    size_t diff_count;
    struct layer layers[BLOBS_MAX];
    bool fresh[BLOBS_MAX]; /* it lies in `work`, under its number */
    size_t layer_count;
};

static int bad(const char *what, struct error *err)
{
    return error_set(err, ERR_INVALID, "this is no whole image: %s", what);
}

/* --- documents ------------------------------------------------------------------------------- */

/* Links within the folder are fine: docker save makes some. */
static int open_file(const struct import *import, const char *path, struct stat *status)
{
    struct open_how how = {
        .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    auto_close int fd = (int)syscall(SYS_openat2, import->layout, path, &how, sizeof(how));

    if (fd < 0 || fstat(fd, status) < 0)
        return -1;
    if (!S_ISREG(status->st_mode)) {
        errno = EINVAL;
        return -1;
    }
    return take_fd(&fd);
}

static bool is_there(const struct import *import, const char *path)
{
    struct stat status;
    auto_close int fd = open_file(import, path, &status);

    return fd >= 0;
}

/* A JSON object or array. With a digest, only if it has that. */
static const char *read_document(struct import *import, const char *path, const char *sha256,
                                 struct error *err)
{
    char digest[SHA256_HEX_SIZE];
    struct stat status;
    auto_close int fd = open_file(import, path, &status);
    char *text;

    if (fd < 0 || status.st_size > DOCUMENT_MAX) {
        error_set(err, ERR_INVALID, "this is no whole image: %.200s is missing or too large", path);
        return NULL;
    }
    text = arena_alloc(&import->arena, (size_t)status.st_size + 1);
    if (pread(fd, text, (size_t)status.st_size, 0) != status.st_size ||
        json_check(text, (size_t)status.st_size, err) < 0 ||
        (text[strspn(text, " \t\r\n")] != '{' && text[strspn(text, " \t\r\n")] != '[')) {
        error_set(err, ERR_INVALID, "this is no whole image: %.200s is no JSON", path);
        return NULL;
    }
    token_sha256(text, (size_t)status.st_size, digest);
    if (sha256 && strcmp(digest, sha256) != 0) {
        error_set(err, ERR_INVALID, "%.200s does not have its digest: it was changed or damaged",
                  path);
        return NULL;
    }
    return text + strspn(text, " \t\r\n");
}

static const char *member(struct import *import, const char *object, const char *name)
{
    return json_member(&import->arena, object, name);
}

static const char *member_text(struct import *import, const char *object, const char *name)
{
    return json_member_text(&import->arena, object, name);
}

/* The text of a JSON string; NULL when it is none. */
static const char *text_of(struct import *import, const char *value)
{
    return json_member_text(&import->arena, arena_text(&import->arena, "{\"v\":%s}", value), "v");
}

static int each_of(struct import *import, const char *array,
                   int (*each)(const char *key, const char *value, void *context), void *context)
{
    return array && *array == '[' ? json_each(&import->arena, array, each, context) : -1;
}

/* The hexadecimal part of "sha256:…"; NULL when it is no such digest. */
static const char *hex_of(const char *digest)
{
    static const char kind[] = "sha256:";

    return digest && strncmp(digest, kind, strlen(kind)) == 0 &&
                   store_is_digest(digest + strlen(kind))
               ? digest + strlen(kind)
               : NULL;
}

static const char *blob_path(struct import *import, const char *hex)
{
    return arena_text(&import->arena, "blobs/sha256/%s", hex);
}

/* What Go calls this machine. */
static const char *architecture(void)
{
    static struct utsname name;

    uname(&name);
    return strcmp(name.machine, "x86_64") == 0    ? "amd64"
           : strcmp(name.machine, "aarch64") == 0 ? "arm64"
                                                  : name.machine;
}

static bool is_ours(struct import *import, const char *platform)
{
    const char *system = member_text(import, platform, "os"),
               *machine = member_text(import, platform, "architecture");

    return (!system || strcmp(system, "linux") == 0) &&
           (!machine || strcmp(machine, architecture()) == 0);
}

/* --- an OCI layout --------------------------------------------------------------------------- */

struct choice {
    struct import *import;
    const char *digest;
    size_t found;
};

static int consider(const char *key, const char *value, void *context)
{
    struct choice *choice = context;
    struct import *import = choice->import;
    const char *notes = member(import, value, "annotations");
    const char *names[] = {member_text(import, notes, REFERENCE),
                           member_text(import, notes, REFERENCE_OF_CONTAINERD)};
    bool named = !import->reference;

    (void)key;
    for (size_t i = 0; i < COUNT(names); i++)
        named = named || (names[i] && strcmp(names[i], import->reference) == 0);
    if (!named || !is_ours(import, member(import, value, "platform")))
        return 0;
    choice->digest = hex_of(member_text(import, value, "digest"));
    choice->found++;
    return 0;
}

/* From an index, which may be of indexes, to the manifest for this machine. */
static const char *find_manifest(struct import *import, struct error *err)
{
    const char *document = read_document(import, "index.json", NULL, err), *list;

    for (int depth = 0; document && (list = member(import, document, "manifests")); depth++) {
        struct choice choice = {.import = import};

        if (depth == NESTED_MAX || each_of(import, list, consider, &choice) < 0) {
            bad("its index leads nowhere", err);
            return NULL;
        }
        if (choice.found != 1 || !choice.digest) {
            error_set(err, ERR_INVALID,
                      choice.found > 1 ? "it holds %zu images: choose one with --reference"
                                       : "it holds %zu images for this machine and reference",
                      choice.found);
            return NULL;
        }
        import->reference = NULL; /* of the outermost */
        document = read_document(import, blob_path(import, choice.digest), choice.digest, err);
    }
    return document;
}

static int take_blob(const char *key, const char *value, void *context)
{
    struct import *import = context;
    const char *hex = hex_of(member_text(import, value, "digest"));

    (void)key;
    if (!hex || import->blob_count == BLOBS_MAX)
        return -1;
    import->blobs[import->blob_count] = blob_path(import, hex);
    import->stored[import->blob_count++] = hex;
    return 0;
}

static int read_layout(struct import *import, struct error *err)
{
    const char *manifest = find_manifest(import, err), *hex;

    if (!manifest)
        return -1;
    hex = hex_of(member_text(import, member(import, manifest, "config"), "digest"));
    if (!hex || each_of(import, member(import, manifest, "layers"), take_blob, import) < 0)
        return bad("its manifest names no config or layers", err);
    import->config = read_document(import, blob_path(import, hex), hex, err);
    return import->config ? 0 : -1;
}

/* --- what docker save writes ----------------------------------------------------------------- */

static int take_path(const char *key, const char *value, void *context)
{
    struct import *import = context;
    const char *path = text_of(import, value);

    (void)key;
    if (!path || !*path || import->blob_count == BLOBS_MAX)
        return -1;
    import->blobs[import->blob_count++] = path;
    return 0;
}

static int match_tag(const char *key, const char *value, void *context)
{
    struct import *import = context;
    const char *tag = text_of(import, value);

    (void)key;
    return tag && strcmp(tag, import->reference) == 0;
}

struct saved {
    struct import *import;
    const char *entry;
    size_t found;
};

static int consider_saved(const char *key, const char *value, void *context)
{
    struct saved *saved = context;
    struct import *import = saved->import;

    (void)key;
    if (import->reference &&
        each_of(import, member(import, value, "RepoTags"), match_tag, import) != 1)
        return 0;
    saved->entry = value;
    saved->found++;
    return 0;
}

/* Its config is called by its digest: HEX.json, or blobs/sha256/HEX. */
static int read_saved(struct import *import, struct error *err)
{
    const char *document = read_document(import, "manifest.json", NULL, err), *path, *name;
    struct saved saved = {.import = import};
    char hex[SHA256_HEX_SIZE] = "";

    if (!document)
        return -1;
    if (each_of(import, document, consider_saved, &saved) < 0)
        return bad("its manifest is no list", err);
    if (saved.found != 1)
        return error_set(err, ERR_INVALID,
                         saved.found ? "it holds %zu images: choose one with --reference"
                                     : "it holds %zu images of that name",
                         saved.found);
    path = member_text(import, saved.entry, "Config");
    if (!path || each_of(import, member(import, saved.entry, "Layers"), take_path, import) < 0)
        return bad("its manifest names no config or layers", err);
    name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (strlen(name) >= SHA256_HEX_SIZE - 1)
        memcpy(hex, name, SHA256_HEX_SIZE - 1);
    import->config = read_document(import, path, store_is_digest(hex) ? hex : NULL, err);
    return import->config ? 0 : -1;
}

/* --- layers ---------------------------------------------------------------------------------- */

static int take_diff(const char *key, const char *value, void *context)
{
    struct import *import = context;
    const char *hex = hex_of(text_of(import, value));

    (void)key;
    if (!hex || import->diff_count == BLOBS_MAX)
        return -1;
    import->diffs[import->diff_count++] = hex;
    return 0;
}

static int read_config(struct import *import, struct error *err)
{
    if (!is_ours(import, import->config))
        return error_set(err, ERR_INVALID, "the image is for another kind of machine, not linux/%s",
                         architecture());
    if (each_of(import, member(import, member(import, import->config, "rootfs"), "diff_ids"),
                take_diff, import) < 0)
        return bad("its config names no layers", err);
    if (import->diff_count != import->blob_count)
        return bad("its manifest and its config have different layers", err);
    return 0;
}

static int add_layer(struct import *import, int folder, const struct layer *layer, bool fresh,
                     struct error *err)
{
    struct layer *place = &import->layers[import->layer_count];

    *place = *layer;
    if (layer_measure(folder, place, err) < 0)
        return -1;
    if (place->entries == 0)
        return 0; /* it changes nothing */
    for (size_t i = 0; i < import->layer_count; i++)
        if (strcmp(import->layers[i].plain_sha256, place->plain_sha256) == 0)
            return error_set(err, ERR_INVALID, "the image has the same layer twice");
    import->fresh[import->layer_count++] = fresh;
    return 0;
}

/* Into `work`, under the digest it has. Returns its folder. */
static int unpack_layer(struct import *import, int archive, const char *stored, const char *plain,
                        struct layer *layer, struct error *err)
{
    auto_close int folder = -1;
    static const char name[] = "unpacking";
    int hides_all;

    if (mkdirat(import->work, name, 0755) < 0 ||
        (folder = openat(import->work, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir");
    if (layer_unpack(archive, folder, layer, err) < 0)
        return -1;
    if ((stored && strcmp(layer->stored_sha256, stored) != 0) ||
        (plain && strcmp(layer->plain_sha256, plain) != 0))
        return error_set(err, ERR_INVALID,
                         "it does not have its digest: it was changed or damaged");
    hides_all = layer_convert(folder, err);
    if (hides_all < 0)
        return -1;
    if (hides_all)
        import->layer_count = 0;
    if (renameat2(import->work, name, import->work, layer->plain_sha256, RENAME_NOREPLACE) == 0)
        return take_fd(&folder);
    if (errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "layer");
    /* It came before. */
    if (tree_remove(import->work, name, err) < 0)
        return -1;
    return openat(import->work, layer->plain_sha256,
                  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int open_kept(const struct import *import, const char *plain)
{
    char path[sizeof(IMAGES_LAYERS) + SHA256_HEX_SIZE];

    snprintf(path, sizeof(path), IMAGES_LAYERS "/%s", plain);
    return openat(import->store->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int take_layers(struct import *import, struct error *err)
{
    for (size_t i = 0; i < import->blob_count; i++) {
        struct layer layer = {0};
        struct stat status;
        auto_close int kept = open_kept(import, import->diffs[i]);

        snprintf(layer.plain_sha256, sizeof(layer.plain_sha256), "%s", import->diffs[i]);
        if (kept >= 0) {
            if (add_layer(import, kept, &layer, false, err) < 0)
                return -1;
            continue;
        }
        auto_close int blob = open_file(import, import->blobs[i], &status);
        if (blob < 0)
            return error_set(err, ERR_INVALID, "this is no whole image: layer %zu is missing",
                             i + 1);
        auto_close int folder =
            unpack_layer(import, blob, import->stored[i], import->diffs[i], &layer, err);
        if (folder < 0)
            return error_add_context(err, "layer %zu", i + 1);
        if (add_layer(import, folder, &layer, true, err) < 0)
            return -1;
    }
    return import->layer_count ? 0 : bad("it has no files", err);
}

static int open_layer(const struct import *import, size_t which)
{
    const char *digest = import->layers[which].plain_sha256;

    return import->fresh[which]
               ? openat(import->work, digest, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
               : open_kept(import, digest);
}

/* The lowest `count` layers become one, when there are more than a sandbox is given. */
static int merge_layers(struct import *import, size_t count, struct error *err)
{
    int *opened = arena_alloc(&import->arena, count * sizeof(*opened));
    size_t open = 0, rest = import->layer_count - count;
    struct layer merged = {0};
    auto_close int folder = -1;
    int result = -1;

    if (mkdirat(import->work, "merged", 0755) < 0 ||
        (folder = openat(import->work, "merged", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) <
            0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir");
    while (open < count && (opened[open] = open_layer(import, open)) >= 0)
        open++;
    result = open < count ? error_set_errno(err, ERR_INTERNAL, "layer %zu", open + 1)
                          : layer_merge(opened, count, folder, &merged, err);
    while (open)
        close(opened[--open]);
    if (result < 0)
        return -1;
    if (renameat2(import->work, "merged", import->work, merged.plain_sha256, RENAME_NOREPLACE) < 0)
        return error_set_errno(err, ERR_INTERNAL, "merged layer");
    if (layer_measure(folder, &merged, err) < 0)
        return -1;
    memmove(import->layers + 1, import->layers + count, rest * sizeof(*import->layers));
    memmove(import->fresh + 1, import->fresh + count, rest * sizeof(*import->fresh));
    import->layers[0] = merged;
    import->fresh[0] = true;
    import->layer_count = rest + 1;
    return 0;
}

/* --- the manifest ---------------------------------------------------------------------------- */

struct lines {
    struct import *import;
    struct buffer *out;
    const char *word;
};

/* What does not fit a line is told and left out: a command would not find it in a file either. */
static int add_line(const char *key, const char *value, void *context)
{
    struct lines *lines = context;
    const char *text = text_of(lines->import, value);

    (void)key;
    if (!text || !*text)
        return 0;
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f || at - text > 4095) {
            fprintf(stderr, "sandboxctl: a value of %s is left out: it is no line\n", lines->word);
            return 0;
        }
    if (lines->out->length < ENV_MAX)
        buffer_format(lines->out, "%s %s\n", lines->word, text);
    return 0;
}

static void write_manifest(struct import *import, struct buffer *out)
{
    const char *config = member(import, import->config, "config"), *value;
    struct lines lines = {import, out, "env"};
    int64_t bytes = 0;

    buffer_text(out, "image 1\n");
    for (size_t i = 0; i < import->layer_count; i++) {
        buffer_format(out, "layer %s\ntree %s\n", import->layers[i].plain_sha256,
                      import->layers[i].tree_sha256);
        bytes += import->layers[i].bytes;
    }
    buffer_format(out, "size %lld\n", (long long)bytes);
    each_of(import, member(import, config, "Env"), add_line, &lines);
    lines.word = "user";
    if ((value = member(import, config, "User")))
        add_line(NULL, value, &lines);
    lines.word = "workdir";
    if ((value = member(import, config, "WorkingDir")))
        add_line(NULL, value, &lines);
    buffer_text(out, "end\n");
}

/* Into their places, all on the disk before anything names them. */
static int keep_layers(struct import *import, struct error *err)
{
    if (syncfs(import->work) < 0)
        return error_set_errno(err, ERR_INTERNAL, "layers");
    for (size_t i = 0; i < import->layer_count; i++) {
        const char *digest = import->layers[i].plain_sha256;

        if (import->fresh[i] &&
            store_keep_layer(import->store, import->work, digest, digest, err) < 0)
            return -1;
    }
    return 0;
}

/* --- sources --------------------------------------------------------------------------------- */

/* An archive is unpacked as a layer is. If an image is in it, that is read then; else it is the
 * layer. */
static int import_source(struct import *import, int source, struct error *err)
{
    struct layer layer = {0};
    struct stat status;
    int result;

    if (fstat(source, &status) < 0)
        return error_set_errno(err, ERR_INVALID, "the source");
    import->layout = S_ISDIR(status.st_mode)
                         ? fcntl(source, F_DUPFD_CLOEXEC, 3)
                         : unpack_layer(import, source, NULL, NULL, &layer, err);
    if (import->layout < 0)
        return -1;
    if (is_there(import, "oci-layout"))
        result = read_layout(import, err);
    else if (is_there(import, "manifest.json"))
        result = read_saved(import, err);
    else if (S_ISDIR(status.st_mode))
        return bad("the folder has neither oci-layout nor manifest.json", err);
    else
        return add_layer(import, import->layout, &layer, true, err) < 0 ? -1
               : import->layer_count                                    ? 0
                                     : bad("it has no files", err);
    return result < 0 || read_config(import, err) < 0 ? -1 : take_layers(import, err);
}

static int make(struct import *import, const char *source, const char *name,
                char digest[SHA256_HEX_SIZE], struct error *err)
{
    auto_buffer struct buffer manifest = {0};
    auto_close int fd = open(source, O_RDONLY | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return error_set_errno(err, ERR_NOT_FOUND, "%s", source);
    if (import_source(import, fd, err) < 0)
        return -1;
    if (import->layer_count > IMAGE_LAYERS_MAX &&
        merge_layers(import, import->layer_count - IMAGE_LAYERS_MAX + 1, err) < 0)
        return -1;
    if (keep_layers(import, err) < 0)
        return -1;
    write_manifest(import, &manifest);
    return store_commit(import->store, import->work, manifest.data, name, digest, err);
}

int import_image(const struct store *store, const char *source, const char *reference,
                 const char *name, char digest[SHA256_HEX_SIZE], struct error *err)
{
    auto_arena struct arena own = {0};
    struct import *import = arena_alloc(&own, sizeof(*import));
    char work[32];
    struct error cleanup;
    int result;

    if (geteuid() != 0)
        return error_set(err, ERR_FORBIDDEN,
                         "only root can import an image: its files belong to several users");
    if (!store_is_name(name))
        return error_set(
            err, ERR_INVALID,
            "an image's name has a-z, 0-9, . _ and -, and starts with a letter or digit");
    *import = (struct import){
        .store = store,
        .work = store_work_open(store, work, err),
        .layout = -1,
        .reference = reference,
    };
    if (import->work < 0)
        return -1;
    result = make(import, source, name, digest, err);
    scope_close(&import->work);
    scope_close(&import->layout);
    arena_done(&import->arena);
    if (store_work_close(store, work, &cleanup) < 0 && result == 0)
        *err = cleanup, result = -1;
    return result;
}
