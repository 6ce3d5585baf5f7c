/* Ids and secrets: see token.h. */
#include "common/token.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char hex[] = "0123456789abcdef";

void token_random(void *bytes, size_t length)
{
    unsigned char *at = bytes;

    while (length) {
        ssize_t got = getrandom(at, length, 0);

        if (got < 0 && errno != EINTR)
            abort();
        if (got > 0) {
            at += got;
            length -= (size_t)got;
        }
    }
}

void token_uuid(char out[UUID_SIZE])
{
    unsigned char bytes[16];

    token_random(bytes, sizeof(bytes));
    bytes[6] = (unsigned char)((bytes[6] & 0x0F) | 0x40);
    bytes[8] = (unsigned char)((bytes[8] & 0x3F) | 0x80);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *out++ = '-';
        *out++ = hex[bytes[i] >> 4];
        *out++ = hex[bytes[i] & 0x0F];
    }
    *out = '\0';
}

bool token_is_uuid(const char *text)
{
    static const char shape[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    size_t i;

    for (i = 0; shape[i]; i++) {
        if (!text[i])
            return false;
        if (shape[i] == '-' ? text[i] != '-' : !strchr("0123456789abcdefABCDEF", text[i]))
            return false;
    }
    return !text[i];
}

/* Base64url of up to three bytes; returns the characters written: one more than the bytes. */
static size_t encode_group(const unsigned char *bytes, size_t count, char out[4])
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned group = 0;

    for (size_t i = 0; i < 3; i++)
        group = group << 8 | (i < count ? bytes[i] : 0);
    for (size_t i = 0; i <= count; i++)
        out[i] = alphabet[group >> (18 - 6 * i) & 0x3F];
    return count + 1;
}

void token_make(const char *prefix, size_t bytes, char *out, size_t size)
{
    size_t used = strlen(prefix);
    unsigned char group[3];

    /* A secret that was cut would be a weaker one. */
    if (bytes > size || used > size || used + (bytes * 4 + 2) / 3 >= size)
        abort();
    memcpy(out, prefix, used);
    while (bytes) {
        size_t count = bytes < sizeof(group) ? bytes : sizeof(group);

        token_random(group, count);
        used += encode_group(group, count, out + used);
        bytes -= count;
    }
    out[used] = '\0';
    OPENSSL_cleanse(group, sizeof(group));
}

void token_sha256(const void *bytes, size_t length, char out[SHA256_HEX_SIZE])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];

    if (!SHA256(bytes, length, digest))
        abort();
    for (size_t i = 0; i < sizeof(digest); i++) {
        *out++ = hex[digest[i] >> 4];
        *out++ = hex[digest[i] & 0x0F];
    }
    *out = '\0';
}

bool token_equal(const char *a, const char *b)
{
    size_t length = strlen(a);

    return strlen(b) == length && CRYPTO_memcmp(a, b, length) == 0;
}
