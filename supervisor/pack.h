/* A tree of files in one file, with all that makes it what it is: contents and their holes, names
 * of any bytes, modes, owners, times to the nanosecond, extended attributes, symbolic links, hard
 * links, FIFOs, sockets and whiteouts.
 *
 * A stream of entries, in the order in which they are made again: a folder is entered, filled, and
 * left, which is when its own attributes are set. In this machine's byte order; no archive to be
 * carried elsewhere. */
#ifndef SUPERVISOR_PACK_H
#define SUPERVISOR_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "supervisor/sha256.h"

enum {
    PACK_NAME_MAX = 255,
    PACK_TARGET_MAX = 4095,
    PACK_XATTRS_MAX = 16 << 20,
    PACK_CHUNK = 256 * 1024,
};

#define PACK_MAGIC "sbxpack1"

enum pack_type {
    PACK_ENTER = 'D', /* a folder: only its name */
    PACK_LEAVE = 'U', /* the folder that was entered last; the outermost ends the stream */
    PACK_FILE = 'F',
    PACK_LINK = 'L', /* symbolic */
    PACK_SAME = 'H', /* another name of an earlier file */
    PACK_FIFO = 'P',
    PACK_SOCKET = 'S',
    PACK_WHITEOUT = 'W',
};

/* Behind it: the name, the target of a symbolic link, extended attributes (struct pack_xattr each),
 * then of a file its extents (struct pack_extent each, the last one of length 0). */
struct pack_entry {
    uint32_t type;
    uint32_t mode, uid, gid;
    uint32_t name_length, target_length, xattrs_length;
    uint32_t modified_ns;
    int64_t modified_s;
    int64_t size;
    uint64_t same; /* which of the files with several names it is, from 1; 0: it has one */
};

struct pack_xattr {
    uint32_t name_length, value_length;
};

struct pack_extent {
    int64_t offset, length;
};

struct pack_result {
    int64_t entries; /* without the outermost folder */
    int64_t bytes;   /* of all files, without holes */
    int64_t size;    /* of the pack */
};

/* May so many more bytes be written? */
typedef int pack_room(void *data, int64_t bytes, struct error *err);

/* Pack what is in `folder` into `out` (-1: nowhere), and into the digest, if there is one. Files
 * that go away meanwhile are left out. `entries_max`: more are refused (ERR_TOO_LARGE). */
int pack_write(int folder, int out, struct sha256 *digest, int64_t entries_max, pack_room *room,
               void *data, struct pack_result *result, struct error *err);

/* Make the tree again in `folder`, which is empty; `aside` is another folder of the same file
 * system, which is left as it was. Everything of `in` is checked before it is used, and all of it
 * together against `sha256`: ERR_CONFLICT when it is damaged, ERR_TOO_LARGE when there is no room.
 * After a failure a part of it is there. */
int pack_read(int in, int folder, int aside, const char *sha256, struct error *err);

#endif
