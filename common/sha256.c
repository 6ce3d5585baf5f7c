/* SHA-256: see sha256.h. */
#include "common/sha256.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, LENGTH_AT = 56 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t word, int by)
{
    return word >> by | word << (32 - by);
}

static void take_block(uint32_t state[8], const unsigned char *bytes)
{
    uint32_t words[64], s[8];

    for (int i = 0; i < 16; i++) {
        memcpy(&words[i], bytes + 4 * i, sizeof(words[i]));
        words[i] = be32toh(words[i]);
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];

        words[i] = words[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + words[i - 7] +
                   (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t first = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
                         ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + words[i];
        uint32_t second = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void sha256_begin(struct sha256 *sha256)
{
    /* Of the square roots of the first 8 primes. */
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    *sha256 = (struct sha256){0};
    memcpy(sha256->state, first, sizeof(first));
}

void sha256_add(struct sha256 *sha256, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    size_t held = sha256->length % BLOCK;

    if (!length)
        return;
    sha256->length += length;
    if (held) {
        size_t room = BLOCK - held, taken = length < room ? length : room;

        memcpy(sha256->block + held, at, taken);
        at += taken;
        length -= taken;
        if (taken < room)
            return;
        take_block(sha256->state, sha256->block);
    }
    for (; length >= BLOCK; at += BLOCK, length -= BLOCK)
        take_block(sha256->state, at);
    memcpy(sha256->block, at, length);
}

void sha256_end(struct sha256 *sha256, char out[SHA256_HEX_SIZE])
{
    uint64_t bits = htobe64(sha256->length * 8);
    size_t held = sha256->length % BLOCK;

    sha256->block[held++] = 0x80;
    if (held > LENGTH_AT) {
        memset(sha256->block + held, 0, BLOCK - held);
        take_block(sha256->state, sha256->block);
        held = 0;
    }
    memset(sha256->block + held, 0, LENGTH_AT - held);
    memcpy(sha256->block + LENGTH_AT, &bits, sizeof(bits));
    take_block(sha256->state, sha256->block);
    for (int i = 0; i < 8; i++)
        snprintf(out + (size_t)i * 8, 9, "%08x", sha256->state[i]);
}
