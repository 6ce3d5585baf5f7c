/* Archives of files, from and to a folder: tar, tar with gzip or zstd, zip. Needs libarchive, and
 * so is for the programs of the server alone: the supervisor must not link it.
 *
 * What an archive says is hostile until it was checked. Nothing outside the folder is touched:
 * every name is resolved beneath it, and no symbolic link is followed, whether the archive made it
 * or it was there before. */
#ifndef COMMON_ARCHIVE_H
#define COMMON_ARCHIVE_H

#include <stdint.h>

#include "common/error.h"
#include "common/token.h"

enum archive_kind { ARCHIVE_TAR, ARCHIVE_TAR_GZIP, ARCHIVE_TAR_ZSTD, ARCHIVE_ZIP };

enum archive_flag {
    ARCHIVE_OWNERS = 1,       /* keep users and groups, 0 to 65535; else all is the caller's */
    ARCHIVE_SET_ID = 2,       /* keep set-user-id, set-group-id and sticky bits */
    ARCHIVE_SKIP_SPECIAL = 4, /* leave devices, FIFOs and sockets out, instead of refusing them */
};

/* All bounds count, none may be 0. */
struct archive_rules {
    unsigned flags;
    int64_t entries_max;
    int64_t bytes_max; /* of all files together, with their holes */
    int64_t ratio_max; /* how many bytes one byte may become, beyond the first 64 MiB */
};

struct archive_result {
    int64_t entries;
    int64_t bytes;
    int64_t skipped;
    char stored_sha256[SHA256_HEX_SIZE]; /* of the archive as it came; empty for zip */
    char plain_sha256[SHA256_HEX_SIZE];  /* of the tar within */
};

/* Unpack what `fd` gives, up to its end, into `folder`. A file appears whole (by rename) and
 * replaces one that is there; a folder joins one that is there. Refused are names that are
 * absolute, have "..", or are too long; links to what is not a file of the folder; anything in the
 * place of a folder, and a folder in the place of anything else. Extended attributes and access
 * lists are left out. ERR_INVALID: the archive is bad; ERR_TOO_LARGE: a bound, or the disk. A
 * folder that was new is best removed then: what came before the fault is in it. */
int archive_unpack(int fd, int folder, const struct archive_rules *rules,
                   struct archive_result *result, struct error *err);

/* Write an archive of all that is beneath `folder` to `out`, in the order of names: the same tree
 * gives the same bytes. Holes and hard links stay what they are (not in zip); names may be any
 * bytes. Sockets and devices are left out. Of `rules` the bounds of entries and bytes hold. */
int archive_pack(int folder, int out, enum archive_kind kind, const struct archive_rules *rules,
                 struct archive_result *result, struct error *err);

#endif
