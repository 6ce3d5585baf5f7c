/* The bytes of an archive on their way in: counted, digested, decompressed once, bounded. */
#ifndef COMMON_ARCHIVE_SOURCE_H
#define COMMON_ARCHIVE_SOURCE_H

#include <archive.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/archive.h"

enum { SOURCE_BLOCK = 128 * 1024 };

struct archive_source {
    int fd;
    enum archive_kind kind;
    const struct archive_rules *rules;
    struct archive *tar;      /* reads the entries */
    struct archive *unpacker; /* decompresses for it; NULL: nothing to do */
    EVP_MD_CTX *stored, *plain;
    struct error error; /* why a callback failed */
    int64_t in, out;    /* bytes before and after */
    int64_t zeros;      /* how many the tar has ended with so far */
    size_t peeked;      /* bytes of `block` that were read to see what it is */
    unsigned char block[SOURCE_BLOCK];
};

/* Open `fd` for reading entries with `source->tar`. */
int archive_source_open(struct archive_source *source, int fd, const struct archive_rules *rules,
                        struct error *err);
/* Read on to the end, and say what the digests are. */
int archive_source_finish(struct archive_source *source, struct archive_result *result,
                          struct error *err);
void archive_source_close(struct archive_source *source);
/* Why `archive` failed, in words that are fit for a terminal and a log. Returns -1. */
int archive_source_error(const struct archive_source *source, struct archive *archive,
                         struct error *err);
/* Whether so many bytes in files are too many for what the archive has. */
bool archive_source_is_bomb(const struct archive_source *source, int64_t bytes);
/* A name that came from outside, for an error: printable, and not long. */
const char *archive_source_show(const char *name, char out[128]);

#endif
