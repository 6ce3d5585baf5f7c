/* Folders brought into the store: see adopt.h. */
#include "images/adopt.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/scope.h"
#include "common/tree_copy.h"
#include "images/layer.h"

/* As new folders with the same files: so the one that sandboxes run on is not touched. */
static int copy_folder(int from, int work, const char *name, struct layer *layer, struct error *err)
{
    struct stat status;

    if (mkdirat(work, name, 0755) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir");
    auto_close int to = openat(work, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to < 0 || fstat(from, &status) < 0 || fchown(to, status.st_uid, status.st_gid) < 0 ||
        fchmod(to, status.st_mode & 07777) < 0)
        return error_set_errno(err, ERR_INTERNAL, "copy the folder");
    if (tree_copy(from, to, TREE_LINK, err) < 0 || layer_measure(to, layer, err) < 0)
        return -1;
    if (layer->entries == 0)
        return error_set(err, ERR_INVALID, "the folder is empty");
    return syncfs(to) < 0 ? error_set_errno(err, ERR_INTERNAL, "copy the folder") : 0;
}

static int adopt(const struct store *store, int work, int folder, const char *name,
                 char digest[SHA256_HEX_SIZE], struct error *err)
{
    static const char made[] = "layer";
    auto_buffer struct buffer manifest = {0};
    struct layer layer = {0};

    if (copy_folder(folder, work, made, &layer, err) < 0 ||
        store_keep_layer(store, work, made, layer.tree_sha256, err) < 0)
        return -1;
    buffer_format(&manifest, "image 1\nlayer %s\ntree %s\nsize %lld\nend\n", layer.tree_sha256,
                  layer.tree_sha256, (long long)layer.bytes);
    return store_commit(store, work, manifest.data, name, digest, err);
}

int adopt_folder(const struct store *store, int folder, const char *name,
                 char digest[SHA256_HEX_SIZE], struct error *err)
{
    struct error cleanup;
    char work[32];
    int result;

    if (geteuid() != 0)
        return error_set(err, ERR_FORBIDDEN, "only root can give an image a digest");
    auto_close int fd = store_work_open(store, work, err);
    if (fd < 0)
        return -1;
    result = adopt(store, fd, folder, name, digest, err);
    if (store_work_close(store, work, &cleanup) < 0 && result == 0)
        *err = cleanup, result = -1;
    return result;
}

int adopt_image(const struct store *store, const char *name, char digest[SHA256_HEX_SIZE],
                struct error *err)
{
    struct image_entry image;

    if (store_find(store, name, &image, err) < 0)
        return -1;
    if (*image.digest) {
        memcpy(digest, image.digest, SHA256_HEX_SIZE);
        return 0;
    }
    auto_close int folder =
        openat(store->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return folder < 0 ? error_set_errno(err, ERR_INVALID, "image %s is no folder", name)
                      : adopt_folder(store, folder, name, digest, err);
}
