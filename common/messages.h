/* The bodies of messages.def. Their field tables bound every value before any operation sees it. */
#ifndef COMMON_MESSAGES_H
#define COMMON_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/field.h"

enum message_type {
#define MESSAGE(number, name, states, descriptors, answer) MESSAGE_##name = number,
#include "common/messages.def"
#undef MESSAGE
};

/* What a sandbox is, as bits, so that messages.def can name several. */
enum sandbox_state {
    SANDBOX_ABSENT = 1,
    SANDBOX_CREATED = 2, /* it has a workspace, and has never run */
    SANDBOX_RUNNING = 4,
    SANDBOX_STOPPED = 8, /* it has a workspace, and no process */
};

/* 128 bits, as a lower-case UUID. */
#define SANDBOX_ID_PATTERN "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

struct nothing {
    char none; /* a struct has at least one member */
};

/* Make the sandbox's disk, with an empty workspace. Its sizes hold for all that the sandbox writes,
 * in its workspace and elsewhere but /tmp; 0: what the supervisor's settings say. More than those
 * allow: ERR_BAD_REQUEST. ERR_UNAVAILABLE when all disks together would be too large. */
struct create {
    const char *sandbox;
    int64_t disk_bytes;
    int64_t disk_inodes;
    const char *snapshot; /* what its workspace is; NULL: empty. A size that is 0 is the snapshot's,
                             as far as the settings allow. ERR_NOT_FOUND; ERR_CONFLICT when the
                             snapshot is damaged, ERR_TOO_LARGE when the disk is too small for it:
                             then there is no sandbox */
};

#define IMAGE_NAME_PATTERN "[a-z0-9][a-z0-9._-]*"

/* Boot: namespaces, root file system over `image`, workspace at /workspace, init. Answered when
 * init is ready. A start that fails leaves the sandbox as it was (CREATED or STOPPED) and nothing
 * else behind. */
struct start {
    const char *sandbox;
    const char *image; /* a name below the images folder */
    const char *hostname;
    int64_t memory_bytes;
    int64_t pids;
    int64_t cpu_percent; /* 100: one core */
    int64_t tmp_bytes;   /* what /tmp and /dev/shm hold together */
    const char *network; /* "none" (also NULL): loopback alone; "egress": one that leads out, as the
                            operator allows */
    /* 0 in what follows: what is usual. */
    int64_t swap_bytes; /* beyond memory_bytes; 0: none */
    int64_t cpu_weight; /* of it when processors are short; 100: as much as the others */
    int64_t open_files; /* of each process */
    int64_t nice;       /* of its commands (nice(2)) */
    int64_t
        oom_score;  /* of its commands: how soon the host gives them up (oom_score_adj, proc(5)) */
    bool oom_group; /* when memory runs out, everything in it ends, not one process alone; it
                       needs version 2 of cgroups */
};

/* Run one command. Answered when it ends; a connection that closes before ends the command (its
 * whole tree). */
struct exec {
    const char *sandbox;
    struct texts argv;        /* argv[0] is looked up in PATH of `environment` */
    struct texts environment; /* "NAME=value"; the image's come behind, where it has others */
    const char *directory;    /* absolute, inside */
    int64_t timeout_ms;       /* then the whole tree is killed */
    int64_t uid;              /* and gid, inside; capabilities go with 0 only */
    struct texts defaults;    /* variables that neither `environment` nor the image has */
};

struct exec_result {
    int64_t exit_code; /* as sh reports it: 128+n for a signal, 124 after the timeout, 126/127 when
                          it could not run */
    int64_t signal;    /* 0: it exited */
    bool timed_out;
    bool oom_killed;
    int64_t duration_ms;
};

/* Kill every process; the workspace stays. Anything outside it (the overlay's upper layer) is
 * dropped. */
struct stop {
    const char *sandbox;
};

/* Remove everything. Succeeds when there is nothing. */
struct destroy {
    const char *sandbox;
};

struct status {
    const char *sandbox;
};

struct sandbox_status {
    int64_t state;    /* enum sandbox_state */
    const char *boot; /* differs from one start to the next; NULL when not running */
};

/* Writes a stream of wire bodies of sandbox_entry, each behind a 32-bit little-endian length, into
 * the pipe, then closes it. */
struct list {
    const char *sandbox; /* the nil UUID */
};

struct sandbox_entry {
    const char *sandbox;
    int64_t state;
    int64_t
        image; /* inode of the folder of the image that it runs on; 0: on none; SANDBOX_STARTING */
};

/* It starts, and may stand on any image. */
#define SANDBOX_STARTING (-1)

/* Paths are relative to the workspace, "." is itself. None leaves it: they are resolved by
 * openat2(2) beneath it, without magic links. Refused: absolute, "..", empty, components over 255
 * bytes (ERR_BAD_REQUEST). Missing: ERR_NOT_FOUND. */

/* The entries of a directory, not recursive, in the order of their names' bytes, or the one entry
 * of anything else (symbolic links are not followed at the end), as a stream of wire bodies of
 * file_entry, each behind a 32-bit length, into the pipe. More names than a list takes:
 * ERR_TOO_LARGE. */
struct file_list {
    const char *sandbox;
    const char *path;
};

struct file_entry {
    const char *name; /* any bytes but / and NUL; "." alone for a file named itself: then `path` is
                         what was asked */
    int64_t mode;     /* st_mode: type and permissions */
    int64_t size;
    int64_t uid, gid; /* as seen inside */
    int64_t modified_ns;
};

/* A descriptor to read a regular file. A directory: ERR_BAD_REQUEST. A FIFO, socket or device:
 * ERR_BAD_REQUEST, at once. */
struct file_open {
    const char *sandbox;
    const char *path;
};

struct file_info {
    int64_t size;
    int64_t mode;
    int64_t modified_ns;
};

/* A descriptor to write a new file's content to; parents are made. Nothing is visible before
 * file_commit on the same connection, which replaces what was there atomically. A connection that
 * closes forgets the file. ERR_BAD_REQUEST when the path is a directory. */
struct file_create {
    const char *sandbox;
    const char *path;
    int64_t mode; /* permissions, 0644 for uploads */
};

struct file_commit {
    const char *sandbox;
};

/* A directory with content needs `recursive`: ERR_CONFLICT. A symbolic link is removed itself. "."
 * is ERR_BAD_REQUEST. */
struct file_remove {
    const char *sandbox;
    const char *path;
    bool recursive;
};

/* Like mkdir -p. */
struct directory_make {
    const char *sandbox;
    const char *path;
};

/* A snapshot of the workspace, as it is at one moment: what runs is frozen while it is copied.
 * Answered when it is on the disk; stop, destroy and start wait so long. The asker chooses the id.
 * ERR_CONFLICT when it is taken, ERR_UNAVAILABLE when the store is full; then nothing is left. */
struct snapshot_make {
    const char *sandbox;
    const char *snapshot;
};

/* Succeeds when there is none. Sandboxes that were made from it do not need it. */
struct snapshot_remove {
    const char *sandbox; /* the nil UUID */
    const char *snapshot;
};

/* Those that were made of the sandbox, which need not exist any more, or all for the nil UUID: a
 * stream of wire bodies of snapshot_entry, each behind a 32-bit length, into the pipe. */
struct snapshot_list {
    const char *sandbox;
};

struct snapshot_entry {
    const char *snapshot;
    const char *sandbox; /* of which it was made; NULL when that can't be told */
    int64_t created_ns;
    int64_t size_bytes;    /* in the store */
    int64_t content_bytes; /* of the files, without their holes */
    int64_t entries;       /* files, folders and the rest */
    int64_t disk_bytes, disk_inodes;
    bool damaged; /* it can only be removed; the numbers are 0 */
};

/* What the path is itself (links are not followed at the end); its name is ".". */
struct file_stat {
    const char *sandbox;
    const char *path;
};

/* Give it another name, whose parents are made. A link is moved itself. What had that name is
 * replaced atomically, but a directory with content, or where one of the two is a directory alone:
 * ERR_CONFLICT. A directory into itself, and ".": ERR_BAD_REQUEST. */
struct file_move {
    const char *sandbox;
    const char *path;
    const char *to;
};

/* Set permissions. A symbolic link has none: ERR_BAD_REQUEST. */
struct file_mode {
    const char *sandbox;
    const char *path;
    int64_t mode; /* 0777 at most */
};

/* What the sandbox uses now; what processes use is 0 when it does not run. A limit of 0: none. */
struct resources {
    const char *sandbox;
};

struct sandbox_usage {
    int64_t disk_bytes, disk_bytes_limit; /* -1: nobody counts (plain; files on btrfs). The limit is
                                             what fits, without the file system's own */
    int64_t disk_inodes, disk_inodes_limit;
    int64_t memory_bytes, memory_peak_bytes, memory_limit_bytes;
    int64_t pids, pids_limit;
    int64_t cpu_us;    /* of all processors, since the start */
    int64_t oom_kills; /* since the start */
};

/* A TCP socket inside the sandbox's network namespace, not connected, non-blocking: whoever gets it
 * connects it to 127.0.0.1 or ::1 at `port`. */
struct port_open {
    const char *sandbox;
    int64_t port;
    int64_t family; /* 4 or 6 */
};

/* What the supervisor counts and measures, in the Prometheus text format, as a descriptor to read.
 */
struct statistics {
    const char *sandbox; /* the nil UUID */
};

/* Stop the sandbox, and make of the image that it ran on and of what it changed, outside its
 * workspace and /tmp, the new image `image`. ERR_CONFLICT when there is one of that name: none is
 * ever replaced. The sandbox is STOPPED then, also when no image could be made. */
struct image_commit {
    const char *sandbox;
    const char *image;
};

extern const struct schema schema_nothing;
#define MESSAGE(number, name, states, descriptors, answer) extern const struct schema schema_##name;
#include "common/messages.def"
#undef MESSAGE
extern const struct schema schema_exec_result, schema_sandbox_status, schema_sandbox_entry,
    schema_file_entry, schema_file_info, schema_snapshot_entry, schema_sandbox_usage;

#endif
