/* What a sandbox changed becomes an image: see image_commit.h. */
#include "supervisor/image_commit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/scope.h"
#include "common/sha256.h"
#include "common/tree.h"
#include "common/tree_copy.h"
#include "common/tree_digest.h"
#include "supervisor/files.h"
#include "supervisor/image.h"
#include "supervisor/job.h"

enum {
    FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
    LOCK_MS = 120000,
    LOCK_PAUSE_MS = 50,
    SWEEP_SECONDS = 600,
    MANIFEST_BYTES = 128 * 1024,
    SPARE_PERCENT = 5, /* of the images' file system, which the host may need */
};

#define STORE ".store"
#define LAYERS ".layers"
#define WORK ".import."

/* --- in the main loop ------------------------------------------------------------------------ */

static bool is_free(int images, const char *name)
{
    struct stat status;

    return fstatat(images, name, &status, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static int taken(const char *name, struct error *err)
{
    return error_set(err, ERR_CONFLICT, "there is an image '%s' already", name);
}

int image_commit_check(const struct sandbox *box, const char *image, struct error *err)
{
    auto_close int images = open(settings.images, FOLDER & ~O_NOFOLLOW);

    if (images < 0)
        return error_set_errno(err, ERR_INTERNAL, "IMAGES_DIR %s", settings.images);
    if (!is_free(images, image))
        return taken(image, err);
    if (!box->image)
        return error_set(err, ERR_CONFLICT, "it is not known on which image the sandbox stands");
    return 0;
}

bool image_commit_due(struct sandbox *box, store_done *done, void *data)
{
    struct store_request request = {.work = STORE_COMMIT, .disk = box->disk, .base = box->image};

    if (!box->commit[0])
        return false;
    snprintf(request.path, sizeof(request.path), "sandboxes/%s", box->id);
    memcpy(request.image, box->commit, sizeof(request.image));
    box->commit[0] = '\0';
    return storekeeper_begin(&request, done, data, &box->failure) == 0;
}

/* --- the folder of images -------------------------------------------------------------------- */

/* Commands of sandboxctl hold it for seconds. */
static int take_lock(int images, int64_t patience_ms, struct error *err)
{
    auto_close int lock = openat(images, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int64_t deadline = clock_ms() + patience_ms;

    if (lock < 0)
        return error_set_errno(err, ERR_INTERNAL, "lock the images");
    while (flock(lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return error_set_errno(err, ERR_INTERNAL, "lock the images");
        if (clock_ms() >= deadline)
            return error_set(err, ERR_UNAVAILABLE, "another command is at work on the images");
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_MS * 1000000L}, NULL);
    }
    return take_fd(&lock);
}

/* Calls `call` for the folder of each that is under way, or was. Returns how many there are. */
static int each_work(int images, int (*call)(int images, const char *name, struct error *err),
                     struct error *err)
{
    DIR *directory = fdopendir(fcntl(images, F_DUPFD_CLOEXEC, 3));
    struct dirent *entry;
    int count = 0;

    while (directory && count >= 0 && (entry = readdir(directory))) {
        if (strncmp(entry->d_name, WORK, strlen(WORK)) != 0)
            continue;
        count++;
        if (call && call(images, entry->d_name, err) < 0)
            count = -1;
    }
    if (directory)
        closedir(directory);
    return count;
}

static int sweep_work(void *data, struct error *err)
{
    auto_close int images = open(settings.images, FOLDER & ~O_NOFOLLOW);
    auto_close int lock = images < 0 ? -1 : take_lock(images, LOCK_MS, err);

    (void)data;
    if (images < 0)
        return error_set_errno(err, ERR_INTERNAL, "IMAGES_DIR");
    return lock < 0 || each_work(images, files_delete_tree, err) < 0 ? -1 : 0;
}

static void swept(void *data, const struct error *result)
{
    (void)data;
    if (result->kind != ERR_NONE)
        LOG(ERROR, "sweep_images", V("reason", (const char *)result->message));
}

/* Its process may be still on its way out, with the lock, and so may a command of sandboxctl that
 * is well alive: a job waits for either. */
void image_commit_sweep(void)
{
    auto_close int images = open(settings.images, FOLDER & ~O_NOFOLLOW);
    struct error error;

    if (images >= 0 && each_work(images, NULL, &error) > 0 &&
        !job_begin("sweep_images", SWEEP_SECONDS, sweep_work, swept, NULL, &error))
        swept(NULL, &error);
}

static int make_folder(int parent, const char *name, struct error *err)
{
    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "mkdir %s", name);
    auto_close int fd = openat(parent, name, FOLDER);
    /* Whatever the mask of this process: sandboxes look through it. */
    if (fd < 0 || fchown(fd, 0, 0) < 0 || fchmod(fd, 0755) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", name);
    return take_fd(&fd);
}

static int check_space(int images, struct error *err)
{
    struct statvfs room;

    if (fstatvfs(images, &room) < 0)
        return error_set_errno(err, ERR_INTERNAL, "IMAGES_DIR");
    if (room.f_bavail < room.f_blocks / 100 * SPARE_PERCENT)
        return error_set(err, ERR_UNAVAILABLE,
                         "less than %d %% of the file system of the images is left", SPARE_PERCENT);
    return 0;
}

/* --- the image below ------------------------------------------------------------------------- */

struct manifest {
    char text[MANIFEST_BYTES];
    size_t length;
    size_t layers;
    long long bytes;
};

static int read_manifest(int version, const char *digest, struct manifest *manifest,
                         struct error *err)
{
    auto_close int fd = openat(version, "manifest", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct sha256 sha256;
    char seen[SHA256_HEX_SIZE];
    ssize_t length = fd < 0 ? -1 : read(fd, manifest->text, sizeof(manifest->text) - 1);

    if (length < 0)
        return error_set_errno(err, ERR_INTERNAL, "the manifest of the image below");
    manifest->length = (size_t)length;
    manifest->text[length] = '\0';
    sha256_begin(&sha256);
    sha256_add(&sha256, manifest->text, manifest->length);
    sha256_end(&sha256, seen);
    if (strcmp(seen, digest) != 0)
        return error_set(err, ERR_INTERNAL, "the image below is damaged: its digest is another");
    return 0;
}

/* Which version the sandbox stands on is known by its inode: the name may have another by now. */
static int find_base(int images, uint64_t inode, struct manifest *manifest, struct error *err)
{
    auto_close int store = openat(images, STORE, FOLDER);
    DIR *directory = store < 0 ? NULL : fdopendir(fcntl(store, F_DUPFD_CLOEXEC, 3));
    int result = 1;
    struct dirent *entry;

    while (directory && result == 1 && (entry = readdir(directory))) {
        struct stat status;
        auto_close int version = -1;

        if (entry->d_ino != inode || entry->d_name[0] == '.')
            continue;
        version = openat(store, entry->d_name, FOLDER);
        if (version >= 0 && fstat(version, &status) == 0 && status.st_ino == inode)
            result = read_manifest(version, entry->d_name, manifest, err);
    }
    if (directory)
        closedir(directory);
    if (result == 1)
        return error_set(err, ERR_CONFLICT,
                         "the image below is a folder without a digest, on which nothing can be "
                         "built: sandboxctl image adopt gives it one");
    return result;
}

/* --- the layer ------------------------------------------------------------------------------- */

/* What every start writes anew (rootfs.c). */
static const char *const own_files[] = {"etc/hostname", "etc/hosts", "etc/resolv.conf"};

static int strip(int directory, const char *name, struct error *err)
{
    auto_close int fd =
        openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    char names[XATTR_LIST_MAX];
    ssize_t length = fd < 0 ? -1 : flistxattr(fd, names, sizeof(names));

    if (length < 0)
        return errno == ENOTSUP ? 0 : error_set_errno(err, ERR_INTERNAL, "attributes of a file");
    for (const char *at = names; at < names + length; at += strlen(at) + 1)
        if (strncmp(at, "trusted.overlay.", 16) == 0 && !tree_keeps_attribute(at) &&
            fremovexattr(fd, at) < 0 && errno != ENODATA)
            return error_set_errno(err, ERR_INTERNAL, "remove %s", at);
    return 0;
}

/* A socket without its process is nothing; device nodes can only be the marks of what is hidden. */
static int clean_entry(int directory, const char *path, const char *name, const struct stat *status,
                       void *context, struct error *err)
{
    bool gone = S_ISSOCK(status->st_mode) || S_ISBLK(status->st_mode) ||
                (S_ISCHR(status->st_mode) && status->st_rdev != 0);

    (void)context;
    for (size_t i = 0; i < COUNT(own_files); i++)
        gone |= strcmp(path, own_files[i]) == 0 && !S_ISDIR(status->st_mode);
    if (gone)
        return unlinkat(directory, name, 0) < 0
                   ? error_set_errno(err, ERR_INTERNAL, "remove a file")
                   : 0;
    return S_ISREG(status->st_mode) || S_ISDIR(status->st_mode) ? strip(directory, name, err) : 0;
}

static void add_to_digest(void *sha256, const void *bytes, size_t length)
{
    sha256_add(sha256, bytes, length);
}

/* By rename where that can be, since nobody has it any more: the sandbox's processes have ended,
 * and the supervisor alone can reach the folder. Else by a copy that follows no link. */
static int take_layer(const char *folder, int work, char tree[SHA256_HEX_SIZE],
                      struct tree_content *content, struct error *err)
{
    char path[PATH_MAX];
    struct sha256 sha256;
    const struct tree_hash hash = {add_to_digest, &sha256};

    snprintf(path, sizeof(path), "%s/disk/l", folder);
    auto_close int layers = open(path, FOLDER);
    if (layers < 0)
        return error_set_errno(err, ERR_INTERNAL, "layers of the sandbox");
    if (renameat(layers, "u", work, "layer") < 0) {
        if (errno != EXDEV)
            return error_set_errno(err, ERR_INTERNAL, "layer of the sandbox");
        auto_close int from = openat(layers, "u", FOLDER), to = make_folder(work, "layer", err);
        if (from < 0)
            return error_set_errno(err, ERR_INTERNAL, "layer of the sandbox");
        if (to < 0 || tree_copy(from, to, TREE_COPY, err) < 0)
            return -1;
    }
    auto_close int layer = make_folder(work, "layer", err);
    if (layer < 0 || tree_each(layer, clean_entry, NULL, err) < 0)
        return -1;
    sha256_begin(&sha256);
    if (tree_digest(layer, &hash, content, err) < 0)
        return -1;
    sha256_end(&sha256, tree);
    return 0;
}

/* --- the image ------------------------------------------------------------------------------- */

struct made {
    char tree[SHA256_HEX_SIZE];   /* of the layer */
    char layer[SHA256_HEX_SIZE];  /* its name */
    char digest[SHA256_HEX_SIZE]; /* of the manifest */
    struct tree_content content;
    struct buffer manifest;
};

static void made_done(struct made *made)
{
    buffer_done(&made->manifest);
}

static bool has_layer(const struct manifest *base, const char *digest)
{
    char line[8 + SHA256_HEX_SIZE];

    snprintf(line, sizeof(line), "\nlayer %s\n", digest);
    return strstr(base->text, line) != NULL;
}

/* An overlay takes no layer twice, but a file may well be changed back and forth. */
static void name_layer(const struct manifest *base, struct made *made)
{
    struct sha256 sha256;

    memcpy(made->layer, made->tree, sizeof(made->layer));
    while (has_layer(base, made->layer)) {
        sha256_begin(&sha256);
        sha256_add(&sha256, "again ", 6);
        sha256_add(&sha256, made->layer, strlen(made->layer));
        sha256_end(&sha256, made->layer);
    }
}

/* The lines of the image below, with the layer behind the others. */
static int write_manifest(const struct manifest *base, struct made *made, struct error *err)
{
    struct buffer *out = &made->manifest;
    long long bytes = made->content.bytes;
    bool added = made->content.entries == 0;
    size_t layers = !added;
    struct sha256 sha256;

    for (const char *line = base->text, *end; (end = strchr(line, '\n')); line = end + 1) {
        size_t length = (size_t)(end + 1 - line);

        layers += strncmp(line, "layer ", 6) == 0;
        if (strncmp(line, "size ", 5) == 0) {
            bytes += strtoll(line + 5, NULL, 10);
            if (!added)
                buffer_format(out, "layer %s\ntree %s\n", made->layer, made->tree);
            added = true;
            buffer_format(out, "size %lld\n", bytes);
        } else {
            buffer_add(out, line, length);
        }
    }
    if (!added)
        return error_set(err, ERR_INTERNAL, "the image below is damaged: it has no size");
    if (layers > IMAGE_LAYERS_MAX)
        return error_set(err, ERR_CONFLICT, "the image would have more than %d layers",
                         IMAGE_LAYERS_MAX);
    if (out->length >= MANIFEST_BYTES)
        return error_set(err, ERR_TOO_LARGE, "the manifest of the image is too long");
    sha256_begin(&sha256);
    sha256_add(&sha256, out->data, out->length);
    sha256_end(&sha256, made->digest);
    return 0;
}

static int save_manifest(int work, const struct made *made, struct error *err)
{
    auto_close int version = make_folder(work, "image", err);
    auto_close int fd = version < 0
                            ? -1
                            : openat(version, "manifest",
                                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (version < 0)
        return -1;
    if (fd < 0 || fchmod(fd, 0644) < 0 ||
        write(fd, made->manifest.data, made->manifest.length) != (ssize_t)made->manifest.length)
        return error_set_errno(err, ERR_INTERNAL, "manifest");
    return 0;
}

/* Under its digest; one that is there is the same. */
static int install(int work, const char *from, int images, const char *place, const char *digest,
                   struct error *err)
{
    auto_close int folder = make_folder(images, place, err);

    if (folder < 0)
        return -1;
    if (renameat2(work, from, folder, digest, RENAME_NOREPLACE) < 0 && errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "%s", from);
    return fsync(folder) < 0 ? error_set_errno(err, ERR_INTERNAL, "%s", place) : 0;
}

static int give_name(int images, const char *name, const char *digest, struct error *err)
{
    char target[sizeof(STORE) + SHA256_HEX_SIZE];

    snprintf(target, sizeof(target), STORE "/%s", digest);
    if (symlinkat(target, images, name) < 0)
        return errno == EEXIST ? taken(name, err) : error_set_errno(err, ERR_INTERNAL, "%s", name);
    return fsync(images) < 0 ? error_set_errno(err, ERR_INTERNAL, "%s", name) : 0;
}

/* All of it is on the disk before anything names it. */
static int make(const char *folder, const struct store_request *request, int images, int work,
                struct manifest *base, struct error *err)
{
    __attribute__((cleanup(made_done))) struct made made = {0};

    if (find_base(images, request->base, base, err) < 0 ||
        take_layer(folder, work, made.tree, &made.content, err) < 0)
        return -1;
    name_layer(base, &made);
    if (write_manifest(base, &made, err) < 0 || save_manifest(work, &made, err) < 0)
        return -1;
    if (syncfs(work) < 0)
        return error_set_errno(err, ERR_INTERNAL, "write the image");
    if (made.content.entries > 0 && install(work, "layer", images, LAYERS, made.layer, err) < 0)
        return -1;
    return install(work, "image", images, STORE, made.digest, err) < 0
               ? -1
               : give_name(images, request->image, made.digest, err);
}

static int begin_work(int images, char name[64], struct error *err)
{
    unsigned long long random[2];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return error_set_errno(err, ERR_INTERNAL, "getrandom");
    snprintf(name, 64, WORK "%016llx%016llx", random[0], random[1]);
    if (mkdirat(images, name, 0700) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir among the images");
    int work = openat(images, name, FOLDER);
    return work < 0 ? error_set_errno(err, ERR_INTERNAL, "%s", name) : work;
}

/* Safe: the names written are digests and one that has the form of a name; what a tenant made is
 * walked by names of one part, and no link of it is followed. */
int image_commit_make(const char *folder, const struct store_request *request, struct error *err)
{
    static struct manifest base;
    auto_close int images = open(settings.images, FOLDER & ~O_NOFOLLOW);
    auto_close int lock = images < 0 ? -1 : take_lock(images, LOCK_MS, err);
    struct error cleanup;
    char name[64];
    int result;

    if (images < 0)
        return error_set_errno(err, ERR_INTERNAL, "IMAGES_DIR %s", settings.images);
    if (lock < 0 || check_space(images, err) < 0)
        return -1;
    if (!is_free(images, request->image))
        return taken(request->image, err);
    auto_close int work = begin_work(images, name, err);
    if (work < 0)
        return -1;
    result = make(folder, request, images, work, &base, err);
    if (files_delete_tree(images, name, &cleanup) < 0 && result == 0)
        *err = cleanup, result = -1;
    return result;
}
