/* The folder of images: see store.h. */
#include "images/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/scope.h"
#include "common/tree.h"

#define LOCK ".lock"
#define MANIFEST "manifest"

bool store_is_name(const char *name)
{
    return *name && strlen(name) <= IMAGE_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(name) &&
           !strchr("._-", *name);
}

bool store_is_digest(const char *text)
{
    return strlen(text) == SHA256_HEX_SIZE - 1 &&
           strspn(text, "0123456789abcdef") == SHA256_HEX_SIZE - 1;
}

static int remove_if_half_made(const char *name, void *context, struct error *err)
{
    const struct store *store = context;

    return strncmp(name, IMAGES_WORK, strlen(IMAGES_WORK)) == 0 ? tree_remove(store->fd, name, err)
                                                                : 0;
}

int store_open(const char *folder, const char *socket, const char *state, struct store *store,
               struct error *err)
{
    auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int lock = -1;

    if (fd < 0)
        return error_set_errno(err, ERR_NOT_FOUND, "%s", folder);
    /* Who may not write there may still list. */
    lock = openat(fd, LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock >= 0 && flock(lock, LOCK_EX) < 0)
        return error_set_errno(err, ERR_INTERNAL, "lock");
    *store = (struct store){.fd = fd, .lock = lock, .socket = socket, .state = state};
    if (lock >= 0 && store_each(fd, ".", remove_if_half_made, store, err) < 0)
        return -1;
    take_fd(&fd);
    take_fd(&lock);
    return 0;
}

void store_close(struct store *store)
{
    scope_close(&store->fd);
    scope_close(&store->lock);
    store->fd = store->lock = -1;
}

/* --- what is there --------------------------------------------------------------------------- */

static int compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int store_each(int folder, const char *path,
               int (*call)(const char *name, void *context, struct error *err), void *context,
               struct error *err)
{
    struct dirent **entries;
    int count = scandirat(folder, path, &entries, NULL, compare), result = 0;

    if (count < 0)
        return errno == ENOENT ? 0 : error_set_errno(err, ERR_INTERNAL, "read the images");
    for (int i = 0; i < count; i++) {
        if (result == 0 && strcmp(entries[i]->d_name, ".") != 0 &&
            strcmp(entries[i]->d_name, "..") != 0)
            result = call(entries[i]->d_name, context, err);
        free(entries[i]);
    }
    free(entries);
    return result;
}

int store_find(const struct store *store, const char *name, struct image_entry *image,
               struct error *err)
{
    char target[sizeof(IMAGES_STORE) + SHA256_HEX_SIZE];
    ssize_t length;

    *image = (struct image_entry){0};
    if (!store_is_name(name) || fstatat(store->fd, name, &image->status, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set(err, ERR_NOT_FOUND, "there is no image %s", name);
    length = readlinkat(store->fd, name, target, sizeof(target) - 1);
    if (length < 0)
        return 0;
    target[length] = '\0';
    if (strncmp(target, IMAGES_STORE "/", sizeof(IMAGES_STORE)) == 0 &&
        store_is_digest(target + sizeof(IMAGES_STORE)))
        memcpy(image->digest, target + sizeof(IMAGES_STORE), SHA256_HEX_SIZE);
    /* Of what it leads to, if that is there. */
    fstatat(store->fd, name, &image->status, 0);
    return 0;
}

int store_read_manifest(const struct store *store, const char *digest, struct arena *arena,
                        int (*each)(const char *word, const char *value, void *context),
                        void *context, struct error *err)
{
    char path[sizeof(IMAGES_STORE) + SHA256_HEX_SIZE + sizeof(MANIFEST)], seen[SHA256_HEX_SIZE];
    char *text = arena_alloc(arena, MANIFEST_MAX), *line, *rest = text;
    ssize_t length;
    int stopped = 0;

    snprintf(path, sizeof(path), IMAGES_STORE "/%s/" MANIFEST, digest);
    auto_close int fd = openat(store->fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    length = fd < 0 ? -1 : read(fd, text, MANIFEST_MAX - 1);
    if (length < 0)
        return error_set_errno(err, ERR_INVALID, "its manifest");
    token_sha256(text, (size_t)length, seen);
    if (strcmp(seen, digest) != 0)
        return error_set(err, ERR_INVALID, "its manifest does not have its digest");
    while (!stopped && (line = strsep(&rest, "\n"))) {
        char *value = strchr(line, ' ');

        if (!value)
            continue;
        *value++ = '\0';
        stopped = each(line, value, context);
    }
    return 0;
}

/* --- a new version --------------------------------------------------------------------------- */

int store_work_open(const struct store *store, char name[32], struct error *err)
{
    token_make(IMAGES_WORK, 12, name, 32);
    if (mkdirat(store->fd, name, 0700) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir among the images");
    int work = openat(store->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return work < 0 ? error_set_errno(err, ERR_INTERNAL, "%s", name) : work;
}

int store_work_close(const struct store *store, const char *name, struct error *err)
{
    return tree_remove(store->fd, name, err);
}

int store_keep_layer(const struct store *store, int work, const char *from, const char *digest,
                     struct error *err)
{
    if (mkdirat(store->fd, IMAGES_LAYERS, 0755) < 0 && errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "mkdir");
    auto_close int layers =
        openat(store->fd, IMAGES_LAYERS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (layers < 0 ||
        (renameat2(work, from, layers, digest, RENAME_NOREPLACE) < 0 && errno != EEXIST) ||
        fsync(layers) < 0)
        return error_set_errno(err, ERR_INTERNAL, "layer");
    return 0;
}

static int write_manifest(int folder, const char *manifest, struct error *err)
{
    size_t length = strlen(manifest);
    auto_close int fd =
        openat(folder, MANIFEST, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (length >= MANIFEST_MAX)
        return error_set(err, ERR_TOO_LARGE, "the image's variables are too long");
    if (fd < 0 || write(fd, manifest, length) != (ssize_t)length || fsync(fd) < 0 ||
        fsync(folder) < 0)
        return error_set_errno(err, ERR_INTERNAL, "manifest");
    return 0;
}

/* In one step, whatever the name was before: sandboxes may start meanwhile. */
static int give_name(const struct store *store, const char *target, const char *name,
                     struct error *err)
{
    char hidden[32];

    token_make(IMAGES_REPLACED, 12, hidden, sizeof(hidden));
    if (symlinkat(target, store->fd, hidden) < 0)
        return error_set_errno(err, ERR_INTERNAL, "symlink");
    if (renameat2(store->fd, hidden, store->fd, name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EEXIST || renameat2(store->fd, hidden, store->fd, name, RENAME_EXCHANGE) < 0) {
        error_set_errno(err, ERR_INTERNAL, "%s", name);
        unlinkat(store->fd, hidden, 0);
        return -1;
    }
    /* A folder stays for the sandboxes that stand on it; a link was but a name. */
    unlinkat(store->fd, hidden, 0);
    return 0;
}

int store_name(const struct store *store, const char *digest, const char *name, struct error *err)
{
    char target[sizeof(IMAGES_STORE) + SHA256_HEX_SIZE];

    snprintf(target, sizeof(target), IMAGES_STORE "/%s", digest);
    if (give_name(store, target, name, err) < 0)
        return -1;
    return fsync(store->fd) < 0 ? error_set_errno(err, ERR_INTERNAL, "image") : 0;
}

int store_commit(const struct store *store, int work, const char *manifest, const char *name,
                 char digest[SHA256_HEX_SIZE], struct error *err)
{
    static const char made[] = "image";
    char target[sizeof(IMAGES_STORE) + SHA256_HEX_SIZE];

    token_sha256(manifest, strlen(manifest), digest);
    snprintf(target, sizeof(target), IMAGES_STORE "/%s", digest);
    if ((mkdirat(store->fd, IMAGES_STORE, 0755) < 0 && errno != EEXIST) ||
        mkdirat(work, made, 0755) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir");
    auto_close int folder = openat(work, made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return error_set_errno(err, ERR_INTERNAL, "image");
    if (write_manifest(folder, manifest, err) < 0)
        return -1;
    if (renameat2(work, made, store->fd, target, RENAME_NOREPLACE) < 0 && errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "image");
    return store_name(store, digest, name, err);
}
