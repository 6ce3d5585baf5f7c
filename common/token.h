/* Ids and secrets: random bytes, digests, compare in constant time. */
#ifndef COMMON_TOKEN_H
#define COMMON_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

enum { UUID_SIZE = 37, SHA256_HEX_SIZE = 65 };

/* Fill with getrandom(2); aborts where the kernel has none. */
void token_random(void *bytes, size_t length);
/* A random (version 4) UUID in lower case, RFC 9562. */
void token_uuid(char out[UUID_SIZE]);
/* Whether `text` is a UUID with dashes, in any case. */
bool token_is_uuid(const char *text);
/* `prefix` and `bytes` random bytes in base64url without padding. Aborts when `size` does not hold
 * that and a NUL. */
void token_make(const char *prefix, size_t bytes, char *out, size_t size);
/* SHA-256 of `length` bytes, in lower-case hex. */
void token_sha256(const void *bytes, size_t length, char out[SHA256_HEX_SIZE]);
/* Whether two texts are equal, in time that depends on their lengths only. */
bool token_equal(const char *a, const char *b);

#endif
