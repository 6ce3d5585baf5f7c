/* What is in the folder of a snapshot: see snapshots.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/disks.h"
#include "supervisor/files.h"
#include "supervisor/snapshots.h"
#include "supervisor/supervisor.h"

enum { MANIFEST_MAX = 1024 };

#define MANIFEST "manifest"

/* The content in the folder, and its line in the manifest. */
static const struct {
    const char *name;
    enum storage_kind disk; /* that it is a clone of */
} kinds[] = {
    [SNAPSHOT_PACK] = {"pack", STORAGE_NONE},
    [SNAPSHOT_IMAGE] = {"disk.img", STORAGE_IMAGE},
    [SNAPSHOT_TREE] = {"disk", STORAGE_REFLINK},
};

static int damaged(const char *what, struct error *err)
{
    return error_set(err, ERR_CONFLICT, "the snapshot is damaged: its %s", what);
}

/* --- the manifest ----------------------------------------------------------------------------- */

static int format(const struct snapshot *snapshot, char text[MANIFEST_MAX])
{
    return snprintf(text, MANIFEST_MAX,
                    "snapshot 1\nsandbox %s\ncreated %lld\ndisk %lld %lld\nentries %lld\n"
                    "bytes %lld\nsize %lld\n%s %s\n",
                    snapshot->sandbox, (long long)snapshot->created_ns,
                    (long long)snapshot->disk.bytes, (long long)snapshot->disk.inodes,
                    (long long)snapshot->content.entries, (long long)snapshot->content.bytes,
                    (long long)snapshot->content.size, kinds[snapshot->kind].name,
                    snapshot->sha256);
}

static void digest_of(const char *text, size_t length, char digest[SHA256_TEXT])
{
    struct sha256 sha256;

    sha256_begin(&sha256);
    sha256_add(&sha256, text, length);
    sha256_end(&sha256, digest);
}

/* The last line is the digest of those before it. */
int snapshot_write_manifest(int folder, const struct snapshot *snapshot, struct error *err)
{
    char text[MANIFEST_MAX], digest[SHA256_TEXT];
    int length = format(snapshot, text);

    digest_of(text, (size_t)length, digest);
    length += snprintf(text + length, sizeof(text) - (size_t)length, "manifest %s\n", digest);
    auto_close int fd =
        openat(folder, MANIFEST, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, (size_t)length) != length || fsync(fd) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "write the manifest of a snapshot");
    return 0;
}

static bool is_whole(const char *text)
{
    const char *last = strstr(text, "\nmanifest ");
    char digest[SHA256_TEXT], line[SHA256_TEXT + 16];

    if (!last)
        return false;
    last++;
    digest_of(text, (size_t)(last - text), digest);
    snprintf(line, sizeof(line), "manifest %s\n", digest);
    return strcmp(last, line) == 0;
}

static bool find_kind(const char *name, struct snapshot *snapshot)
{
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0) {
            snapshot->kind = (enum snapshot_kind)i;
            snapshot->disk.kind = kinds[i].disk;
            return true;
        }
    return false;
}

int snapshot_read_manifest(int folder, struct snapshot *snapshot, struct error *err)
{
    char text[MANIFEST_MAX], again[MANIFEST_MAX], kind[16];
    long long created, bytes, inodes, entries, content, size;
    auto_close int fd = openat(folder, MANIFEST, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (length < 0)
        return damaged("manifest", err);
    text[length] = '\0';
    *snapshot = (struct snapshot){0};
    if (!is_whole(text) ||
        sscanf(text,
               "snapshot 1 sandbox %36s created %lld disk %lld %lld entries %lld bytes %lld size "
               "%lld %15s %64s",
               snapshot->sandbox, &created, &bytes, &inodes, &entries, &content, &size, kind,
               snapshot->sha256) != 9)
        return damaged("manifest", err);
    snapshot->created_ns = created;
    snapshot->disk = (struct disk){.bytes = bytes, .inodes = inodes};
    snapshot->content = (struct pack_result){.entries = entries, .bytes = content, .size = size};
    /* A line that is none of ours has another meaning. */
    if (!find_kind(kind, snapshot))
        return damaged("manifest", err);
    length = format(snapshot, again);
    return strncmp(text, again, (size_t)length) == 0 ? 0 : damaged("manifest", err);
}

/* --- making one ------------------------------------------------------------------------------- */

static int open_folder(int at, const char *name, struct error *err)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? error_set_errno(err, ERR_INTERNAL, "folder %s", name) : fd;
}

/* The file system in the image is as after a loss of power, when everything had been written: its
 * journal brings it back when it is mounted. It is not frozen, since nobody would thaw it if we
 * were killed now. */
static bool clone_image(int disk, int sandbox, int folder)
{
    const char *name = kinds[SNAPSHOT_IMAGE].name;
    auto_close int from = openat(sandbox, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int to =
        openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (from >= 0 && to >= 0 && syncfs(disk) == 0 && ioctl(to, FICLONE, from) == 0)
        return true;
    unlinkat(folder, name, 0);
    return false;
}

static enum snapshot_kind clone_disk(const struct disk *kind, int disk, int sandbox, int folder)
{
    if (kind->kind == STORAGE_IMAGE && clone_image(disk, sandbox, folder))
        return SNAPSHOT_IMAGE;
    if (kind->kind == STORAGE_REFLINK &&
        reflink_clone(disk, folder, kinds[SNAPSHOT_TREE].name) == 0)
        return SNAPSHOT_TREE;
    return SNAPSHOT_PACK;
}

static int describe_image(int folder, struct snapshot *snapshot, struct error *err)
{
    auto_close int file =
        openat(folder, kinds[SNAPSHOT_IMAGE].name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (file < 0 || fsync(file) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "write a snapshot");
    return sha256_sparse(file, snapshot->sha256, &snapshot->content.size, err);
}

/* Its digest is that of the pack that it would be. */
static int describe_tree(int folder, struct snapshot *snapshot, struct error *err)
{
    auto_close int disk = open_folder(folder, kinds[SNAPSHOT_TREE].name, err);
    auto_close int workspace = disk < 0 ? -1 : open_folder(disk, "ws", err);
    struct sha256 digest;

    /* What else is on the disk is nobody's. */
    if (workspace < 0 || files_delete_tree(disk, "l", err) < 0 ||
        files_delete_tree(disk, "trash", err) < 0)
        return -1;
    sha256_begin(&digest);
    if (pack_write(workspace, -1, &digest, snapshot->disk.inodes, NULL, NULL, &snapshot->content,
                   err) < 0)
        return -1;
    sha256_end(&digest, snapshot->sha256);
    return 0; /* the clone was committed as it was made */
}

static void count_disk(int disk, struct pack_result *content)
{
    struct statvfs status;

    if (fstatvfs(disk, &status) < 0)
        return;
    content->entries = (int64_t)(status.f_files - status.f_ffree);
    content->bytes = (int64_t)((status.f_blocks - status.f_bfree) * status.f_frsize);
}

static int pack(int disk, int folder, pack_room *room, void (*copied)(void *data), void *data,
                struct snapshot *snapshot, struct error *err)
{
    auto_close int workspace = open_folder(disk, "ws", err);
    auto_close int out = openat(folder, kinds[SNAPSHOT_PACK].name,
                                O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int done = -1;

    if (out < 0)
        error_set_errno(err, ERR_UNAVAILABLE, "make a snapshot");
    else if (workspace >= 0)
        done = pack_write(workspace, out, NULL, snapshot->disk.inodes, room, data,
                          &snapshot->content, err);
    copied(data);
    if (done < 0 || sha256_file(out, snapshot->sha256, err) < 0)
        return -1;
    return fsync(out) < 0 ? error_set_errno(err, ERR_UNAVAILABLE, "write a snapshot") : 0;
}

static int copy_content(int sandbox, int folder, pack_room *room, void (*copied)(void *data),
                        void *data, struct snapshot *snapshot, struct error *err)
{
    auto_close int disk = open_folder(sandbox, "disk", err);

    if (disk < 0) {
        copied(data);
        return -1;
    }
    count_disk(disk, &snapshot->content);
    snapshot->kind = clone_disk(&snapshot->disk, disk, sandbox, folder);
    if (snapshot->kind == SNAPSHOT_PACK)
        return pack(disk, folder, room, copied, data, snapshot, err);
    copied(data);
    if ((snapshot->kind == SNAPSHOT_IMAGE ? describe_image : describe_tree)(folder, snapshot, err) <
        0)
        return -1;
    return room(data, snapshot->content.size, err);
}

int snapshot_copy(int sandbox, int folder, pack_room *room, void (*copied)(void *data), void *data,
                  struct snapshot *snapshot, struct error *err)
{
    if (copy_content(sandbox, folder, room, copied, data, snapshot, err) < 0 ||
        snapshot_write_manifest(folder, snapshot, err) < 0)
        return -1;
    return fsync(folder) < 0 ? error_set_errno(err, ERR_UNAVAILABLE, "write a snapshot") : 0;
}

/* A subvolume for itself: nothing moves from it into another. */
int snapshot_delete(int store, const char *name, struct error *err)
{
    auto_close int own = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int disk = own < 0 ? -1
                                  : openat(own, kinds[SNAPSHOT_TREE].name,
                                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (disk >= 0 && files_empty(disk, err) < 0)
        return -1;
    return files_delete_tree(store, name, err);
}

/* --- and back --------------------------------------------------------------------------------- */

/* What is restored has owners, modes and capabilities of its own; nothing else is needed. */
static int give_up_rights(struct error *err)
{
    static const cap_value_t needed[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID,
                                         CAP_SETFCAP};

    return capabilities_keep(needed, COUNT(needed), err);
}

static int open_path(const char *folder, const char *name, struct error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%.3900s/%.100s", folder, name);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? error_set_errno(err, ERR_INTERNAL, "folder %s", name) : fd;
}

/* A pack into the new disk in `folder`. */
static int unpack(int in, const char *folder, const char *sha256, struct error *err)
{
    auto_close int workspace = open_path(folder, "disk/ws", err);
    auto_close int trash = workspace < 0 ? -1 : open_path(folder, "disk/trash", err);

    if (trash < 0 || give_up_rights(err) < 0)
        return -1;
    return pack_read(in, workspace, trash, sha256, err);
}

/* From one kind of disk to another, by way of a pack without a name. `sha256` is its digest, if
 * that is known. */
static int copy_tree(int store, int workspace, const char *folder, const struct snapshot *snapshot,
                     const char *sha256, struct error *err)
{
    auto_close int between = openat(store, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct pack_result result;
    char found[SHA256_TEXT];
    struct sha256 digest;

    if (between < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "restore a snapshot");
    sha256_begin(&digest);
    if (pack_write(workspace, between, &digest, snapshot->disk.inodes, NULL, NULL, &result, err) <
        0)
        return -1;
    sha256_end(&digest, found);
    if (sha256 && strcmp(found, sha256) != 0)
        return damaged("content", err);
    if (lseek(between, 0, SEEK_SET) < 0)
        return error_set_errno(err, ERR_INTERNAL, "restore a snapshot");
    return unpack(between, folder, found, err);
}

static int check_image(int image, const struct snapshot *snapshot, struct error *err)
{
    char found[SHA256_TEXT];
    int64_t bytes;

    if (sha256_sparse(image, found, &bytes, err) < 0)
        return -1;
    return strcmp(found, snapshot->sha256) == 0 ? 0 : damaged("content", err);
}

static int check_tree(int workspace, const struct snapshot *snapshot, struct error *err)
{
    struct pack_result result;
    char found[SHA256_TEXT];
    struct sha256 digest;

    sha256_begin(&digest);
    if (pack_write(workspace, -1, &digest, snapshot->disk.inodes, NULL, NULL, &result, err) < 0)
        return -1;
    sha256_end(&digest, found);
    return strcmp(found, snapshot->sha256) == 0 ? 0 : damaged("content", err);
}

/* What a clone has besides the workspace is of the boot that it was made in. */
static int clear(const char *folder, struct error *err)
{
    auto_close int disk = open_path(folder, "disk", err);

    if (disk < 0 || give_up_rights(err) < 0)
        return -1;
    if (files_delete_tree(disk, "l", err) < 0 || files_delete_tree(disk, "trash", err) < 0)
        return -1;
    return mkdirat(disk, "trash", 0700) < 0 ? error_set_errno(err, ERR_INTERNAL, "trash") : 0;
}

static int open_content(int own, const struct snapshot *snapshot, struct error *err)
{
    int fd = openat(own, kinds[snapshot->kind].name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? damaged("content is missing", err) : fd;
}

static int clone_back(int content, const char *folder, const struct snapshot *snapshot,
                      const struct disk *disk, struct error *err)
{
    auto_close int workspace = -1;

    if (snapshot->kind == SNAPSHOT_IMAGE) {
        if (check_image(content, snapshot, err) < 0 || image_clone(content, folder, err) < 0)
            return -1;
    } else {
        workspace = open_folder(content, "ws", err);
        if (workspace < 0 || check_tree(workspace, snapshot, err) < 0 ||
            reflink_make_clone(content, folder, disk, err) < 0)
            return -1;
    }
    return clear(folder, err);
}

/* The image is mounted from a clone of its own: mounting plays its journal back. */
static int copy_image(int own, int content, const char *folder, const struct snapshot *snapshot,
                      struct error *err)
{
    auto_close int file = openat(own, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (file < 0 || ioctl(file, FICLONE, content) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "restore a snapshot");
    if (check_image(content, snapshot, err) < 0)
        return -1;
    auto_close int mount = image_mount_file(file, err);
    auto_close int workspace = mount < 0 ? -1 : open_folder(mount, "ws", err);
    return workspace < 0 ? -1 : copy_tree(own, workspace, folder, snapshot, NULL, err);
}

static int copy_back(int own, int content, const char *folder, const struct snapshot *snapshot,
                     struct error *err)
{
    if (snapshot->kind == SNAPSHOT_PACK)
        return unpack(content, folder, snapshot->sha256, err);
    if (snapshot->kind == SNAPSHOT_IMAGE)
        return copy_image(own, content, folder, snapshot, err);
    auto_close int workspace = open_folder(content, "ws", err);
    return workspace < 0 ? -1 : copy_tree(own, workspace, folder, snapshot, snapshot->sha256, err);
}

bool snapshot_is_whole(const struct snapshot *snapshot, const struct disk *disk)
{
    return snapshot->kind != SNAPSHOT_PACK && disk->kind == snapshot->disk.kind &&
           disk->bytes == snapshot->disk.bytes && disk->inodes == snapshot->disk.inodes;
}

int snapshot_restore(const char *id, const char *folder, const struct disk *disk, bool missing,
                     struct error *err)
{
    char path[PATH_MAX];
    struct snapshot snapshot;

    snprintf(path, sizeof(path), "%.3900s/snapshots/%.64s", settings.state, id);
    auto_close int own = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (own < 0)
        return error_set(err, ERR_NOT_FOUND, "there is no such snapshot");
    if (snapshot_read_manifest(own, &snapshot, err) < 0)
        return -1;
    auto_close int content = open_content(own, &snapshot, err);
    if (content < 0)
        return -1;
    if (missing && snapshot_is_whole(&snapshot, disk))
        return clone_back(content, folder, &snapshot, disk, err);
    if (missing && disk_make(folder, disk, err) < 0)
        return -1;
    return copy_back(own, content, folder, &snapshot, err);
}
