/* SHA-256 (FIPS 180-4): the supervisor links no library of cryptography for one digest. */
#ifndef SUPERVISOR_SHA256_H
#define SUPERVISOR_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { SHA256_BLOCK = 64, SHA256_TEXT = 65 };

struct sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    unsigned char rest[SHA256_BLOCK];
};

void sha256_begin(struct sha256 *digest);
void sha256_add(struct sha256 *digest, const void *bytes, size_t length);
/* In lower-case hex; the digest is used up. */
void sha256_end(struct sha256 *digest, char text[SHA256_TEXT]);

/* From now on as on a processor that has no instructions for it. */
void sha256_forgo_instructions(void);

/* Of a whole file: where it has holes, of their zeros too. */
int sha256_file(int fd, char text[SHA256_TEXT], struct error *err);
/* Of the blocks that are not zero, each behind its place, and how many bytes those have: the same
 * whether zeros are holes or not, and in the time that data takes. */
int sha256_sparse(int fd, char text[SHA256_TEXT], int64_t *bytes, struct error *err);

#endif
