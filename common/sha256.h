/* SHA-256 (FIPS 180-4) of what comes in pieces, for a program that links no cryptographic library.
 * The server's programs have OpenSSL's, which is several times as fast. */
#ifndef COMMON_SHA256_H
#define COMMON_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "common/token.h"

struct sha256 {
    uint32_t state[8];
    uint64_t length; /* of all, in bytes */
    unsigned char block[64];
};

void sha256_begin(struct sha256 *sha256);
void sha256_add(struct sha256 *sha256, const void *bytes, size_t length);
/* In lower-case hex. */
void sha256_end(struct sha256 *sha256, char out[SHA256_HEX_SIZE]);

#endif
