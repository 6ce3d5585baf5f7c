/* SHA-256: see sha256.h. */
#include "supervisor/sha256.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "common/scope.h"

enum { CHUNK = 256 * 1024, LENGTH_BYTES = 8, ROUNDS = 64, SPARSE_BLOCK = 4096 };

/* The first 32 bits of what is behind the point in the cube roots of the first 64 primes. */
static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* --- on any processor ------------------------------------------------------------------------ */

static uint32_t rotate(uint32_t value, int by)
{
    return value >> by | value << (32 - by);
}

static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void add_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t words[ROUNDS], s[8];

    for (int i = 0; i < 16; i++)
        words[i] = big_endian(block + (ptrdiff_t)4 * i);
    for (int i = 16; i < ROUNDS; i++) {
        uint32_t early = words[i - 15], late = words[i - 2];

        words[i] = words[i - 16] + words[i - 7] +
                   (rotate(early, 7) ^ rotate(early, 18) ^ early >> 3) +
                   (rotate(late, 17) ^ rotate(late, 19) ^ late >> 10);
    }
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t first = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
                         ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + words[i];
        uint32_t second = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
                          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(s[0]));
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

static void add_blocks_anywhere(uint32_t state[8], const unsigned char *bytes, size_t blocks)
{
    for (; blocks; blocks--, bytes += SHA256_BLOCK)
        add_block(state, bytes);
}

/* --- on one that has instructions for it ------------------------------------------------------ */

#ifdef __x86_64__
static bool has_instructions(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3))
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

/* The instructions want the state as ABEF and CDGH, and do four rounds at a time of two each. */
__attribute__((target("sha,sse4.1,ssse3"))) static void
add_blocks_x86(uint32_t state[8], const unsigned char *bytes, size_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const void *)state), 0xB1);
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const void *)(state + 4)), 0x1B);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xF0);

    for (; blocks; blocks--, bytes += SHA256_BLOCK) {
        __m128i before_abef = abef, before_cdgh = cdgh, words[4];

        for (int i = 0; i < 4; i++)
            words[i] =
                _mm_shuffle_epi8(_mm_loadu_si128((const void *)(bytes + (ptrdiff_t)16 * i)), swap);
        for (int i = 0; i < 16; i++) {
            __m128i now = words[i % 4];
            __m128i sum = _mm_add_epi32(now, _mm_loadu_si128((const void *)(constants + 4 * i)));

            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
            if (i < 12) { /* the four words that come in the place of these, four steps on */
                __m128i last = words[(i + 3) % 4];
                __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(now, words[(i + 1) % 4]),
                                             _mm_alignr_epi8(last, words[(i + 2) % 4], 4));

                words[i % 4] = _mm_sha256msg2_epu32(next, last);
            }
        }
        abef = _mm_add_epi32(abef, before_abef);
        cdgh = _mm_add_epi32(cdgh, before_cdgh);
    }
    low = _mm_shuffle_epi32(abef, 0x1B);
    high = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((void *)state, _mm_blend_epi16(low, high, 0xF0));
    _mm_storeu_si128((void *)(state + 4), _mm_alignr_epi8(high, low, 8));
}
#else
static bool has_instructions(void)
{
    return false;
}

#define add_blocks_x86 add_blocks_anywhere
#endif

static int fast = -1; /* not yet known */

void sha256_forgo_instructions(void)
{
    fast = 0;
}

static void add_blocks(uint32_t state[8], const unsigned char *bytes, size_t blocks)
{
    if (fast < 0)
        fast = has_instructions();
    if (fast)
        add_blocks_x86(state, bytes, blocks);
    else
        add_blocks_anywhere(state, bytes, blocks);
}

/* --- messages of any length ------------------------------------------------------------------- */

void sha256_begin(struct sha256 *digest)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(digest->state, first, sizeof(first));
    digest->length = 0;
}

void sha256_add(struct sha256 *digest, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    size_t held = digest->length % SHA256_BLOCK;

    digest->length += length;
    if (held) {
        size_t taken = length < SHA256_BLOCK - held ? length : SHA256_BLOCK - held;

        memcpy(digest->rest + held, at, taken);
        at += taken;
        length -= taken;
        if (held + taken < SHA256_BLOCK)
            return;
        add_blocks(digest->state, digest->rest, 1);
    }
    add_blocks(digest->state, at, length / SHA256_BLOCK);
    if (length % SHA256_BLOCK)
        memcpy(digest->rest, at + length / SHA256_BLOCK * SHA256_BLOCK, length % SHA256_BLOCK);
}

void sha256_end(struct sha256 *digest, char text[SHA256_TEXT])
{
    static const unsigned char padding[SHA256_BLOCK] = {0x80};
    size_t held = digest->length % SHA256_BLOCK, room = SHA256_BLOCK - LENGTH_BYTES;
    uint64_t bits = digest->length * 8;
    unsigned char length[LENGTH_BYTES];

    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(digest, padding, (held < room ? room : room + SHA256_BLOCK) - held);
    sha256_add(digest, length, sizeof(length));
    for (int i = 0; i < 8; i++)
        snprintf(text + (ptrdiff_t)8 * i, 9, "%08x", digest->state[i]);
}

int sha256_file(int fd, char text[SHA256_TEXT], struct error *err)
{
    auto_free char *chunk = malloc(CHUNK);
    struct sha256 digest;
    off_t at = 0;
    ssize_t got;

    if (!chunk)
        abort();
    sha256_begin(&digest);
    while ((got = pread(fd, chunk, CHUNK, at)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, ERR_INTERNAL, "read what is to be checked");
        sha256_add(&digest, chunk, (size_t)got);
        at += got;
    }
    sha256_end(&digest, text);
    return 0;
}

static bool is_zero(const char *block, size_t length)
{
    return length == 0 || (block[0] == 0 && memcmp(block, block + 1, length - 1) == 0);
}

static void add_used(struct sha256 *digest, const char *chunk, size_t length, int64_t place,
                     int64_t *bytes)
{
    for (size_t at = 0; at < length; at += SPARSE_BLOCK) {
        size_t part = length - at < SPARSE_BLOCK ? length - at : SPARSE_BLOCK;
        int64_t where = place + (int64_t)at;

        if (is_zero(chunk + at, part))
            continue;
        sha256_add(digest, &where, sizeof(where));
        sha256_add(digest, chunk + at, part);
        *bytes += (int64_t)part;
    }
}

int sha256_sparse(int fd, char text[SHA256_TEXT], int64_t *bytes, struct error *err)
{
    auto_free char *chunk = malloc(CHUNK);
    off_t size = lseek(fd, 0, SEEK_END), at = 0;
    struct sha256 digest;

    if (!chunk)
        abort();
    sha256_begin(&digest);
    sha256_add(&digest, &(int64_t){size}, sizeof(int64_t));
    *bytes = 0;
    while (at < size && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
        ssize_t got;

        at -= at % SPARSE_BLOCK;
        got = pread(fd, chunk, CHUNK, at);
        if (got <= 0)
            return error_set_errno(err, ERR_INTERNAL, "read what is to be checked");
        add_used(&digest, chunk, (size_t)got, at, bytes);
        at += got;
    }
    if (size < 0 || (at < 0 && errno != ENXIO))
        return error_set_errno(err, ERR_INTERNAL, "read what is to be checked");
    sha256_end(&digest, text);
    return 0;
}
