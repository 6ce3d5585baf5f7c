/* What is in the folder of a snapshot: see snapshots.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/snapshots.h"
#include "supervisor/supervisor.h"

enum { MANIFEST_MAX = 1024 };

#define MANIFEST "manifest"
#define PACK "pack"

/* --- the manifest ----------------------------------------------------------------------------- */

static int format(const struct snapshot *snapshot, char text[MANIFEST_MAX])
{
    return snprintf(text, MANIFEST_MAX,
                    "snapshot 1\nsandbox %s\ncreated %lld\ndisk %lld %lld\nentries %lld\n"
                    "bytes %lld\nsize %lld\n" PACK " %s\n",
                    snapshot->sandbox, (long long)snapshot->created_ns,
                    (long long)snapshot->disk.bytes, (long long)snapshot->disk.inodes,
                    (long long)snapshot->content.entries, (long long)snapshot->content.bytes,
                    (long long)snapshot->content.size, snapshot->sha256);
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

static int damaged(struct error *err)
{
    return error_set(err, ERR_CONFLICT, "the snapshot is damaged: its manifest");
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

int snapshot_read_manifest(int folder, struct snapshot *snapshot, struct error *err)
{
    char text[MANIFEST_MAX], again[MANIFEST_MAX];
    long long created, bytes, inodes, entries, content, size;
    auto_close int fd = openat(folder, MANIFEST, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (length < 0)
        return damaged(err);
    text[length] = '\0';
    *snapshot = (struct snapshot){0};
    if (!is_whole(text) ||
        sscanf(text,
               "snapshot 1 sandbox %36s created %lld disk %lld %lld entries %lld bytes %lld size "
               "%lld " PACK " %64s",
               snapshot->sandbox, &created, &bytes, &inodes, &entries, &content, &size,
               snapshot->sha256) != 8)
        return damaged(err);
    snapshot->created_ns = created;
    snapshot->disk = (struct disk){.bytes = bytes, .inodes = inodes};
    snapshot->content = (struct pack_result){.entries = entries, .bytes = content, .size = size};
    /* A line that is none of ours has another meaning. */
    length = format(snapshot, again);
    return strncmp(text, again, (size_t)length) == 0 ? 0 : damaged(err);
}

/* --- making one ------------------------------------------------------------------------------- */

int snapshot_copy(int workspace, int folder, pack_room *room, void (*copied)(void *data),
                  void *data, struct snapshot *snapshot, struct error *err)
{
    auto_close int pack =
        openat(folder, PACK, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int done = pack < 0 ? error_set_errno(err, ERR_UNAVAILABLE, "make a snapshot")
                        : pack_write(workspace, pack, snapshot->disk.inodes, room, data,
                                     &snapshot->content, err);

    copied(data);
    if (done < 0)
        return -1;
    if (sha256_file(pack, snapshot->sha256, err) < 0)
        return -1;
    if (fsync(pack) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "write a snapshot");
    return snapshot_write_manifest(folder, snapshot, err) < 0 || fsync(folder) < 0 ? -1 : 0;
}

/* --- and back --------------------------------------------------------------------------------- */

/* What is restored has owners, modes and capabilities of its own; nothing else is needed. */
static int give_up_rights(struct error *err)
{
    static const cap_value_t needed[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID,
                                         CAP_SETFCAP};

    return capabilities_keep(needed, COUNT(needed), err);
}

int snapshot_restore(const char *id, const char *disk, struct error *err)
{
    enum { FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
    char path[PATH_MAX];
    struct snapshot snapshot;

    snprintf(path, sizeof(path), "%.3900s/snapshots/%.64s", settings.state, id);
    auto_close int folder = open(path, FOLDER);
    if (folder < 0)
        return error_set(err, ERR_NOT_FOUND, "there is no such snapshot");
    snprintf(path, sizeof(path), "%.3900s/ws", disk);
    auto_close int workspace = open(path, FOLDER);
    snprintf(path, sizeof(path), "%.3900s/trash", disk);
    auto_close int trash = open(path, FOLDER);
    if (workspace < 0 || trash < 0)
        return error_set_errno(err, ERR_INTERNAL, "folders of a disk");
    if (snapshot_read_manifest(folder, &snapshot, err) < 0 || give_up_rights(err) < 0)
        return -1;
    auto_close int pack = openat(folder, PACK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (pack < 0)
        return error_set(err, ERR_CONFLICT, "the snapshot is damaged: its content is missing");
    return pack_read(pack, workspace, trash, snapshot.sha256, err);
}
