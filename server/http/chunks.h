/* Taking the chunked coding (RFC 9112, 7.1) off a body, strictly and a piece at a time. */
#ifndef HTTP_CHUNKS_H
#define HTTP_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHUNK_SIZE_DIGITS = 8,        /* hex digits of a chunk's size */
    CHUNK_EXTENSION_MAX = 256,    /* bytes behind a size; ignored */
    CHUNK_TRAILER_MAX = 8 * 1024, /* bytes of all trailer fields; ignored */
};

/* Zero-initialised is the start of a body. */
struct chunks {
    unsigned step;
    uint32_t left;  /* of the chunk's data */
    uint32_t count; /* digits, extension or trailer bytes so far */
    bool done;      /* the last byte of the body's framing was read */
};

/* Read from `in`; `*in_length` is how much there is, and on return how much was used. Data goes to
 * `out`, at most `*out_length` bytes; on return how much there was. With `out` NULL data is
 * skipped. Returns -1 when this is no chunked body. */
int chunks_read(struct chunks *chunks, const char *in, size_t *in_length, char *out,
                size_t *out_length);

#endif
