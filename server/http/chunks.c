/* Taking the chunked coding off a body: see chunks.h. */
#include "http/chunks.h"

#include <string.h>

enum step {
    SIZE, /* first, so that zeroes are a start */
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_START, /* of a trailer's line, or of the empty line */
    TRAILER,
    TRAILER_LF,
    END_LF,
};

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Within a line that is skipped: no controls, so that no reader sees another line end. */
static bool skippable(char c)
{
    return (unsigned char)c >= ' ' ? c != 0x7F : c == '\t';
}

static int next_if(struct chunks *chunks, bool allowed, enum step step)
{
    chunks->step = step;
    return allowed ? 0 : -1;
}

static int read_size(struct chunks *chunks, char c)
{
    int digit = hex(c);

    if (digit >= 0) {
        chunks->left = chunks->left << 4 | (uint32_t)digit;
        return ++chunks->count <= CHUNK_SIZE_DIGITS ? 0 : -1;
    }
    if (chunks->count == 0)
        return -1;
    chunks->count = 0;
    if (c == ';')
        return next_if(chunks, true, EXTENSION);
    return next_if(chunks, c == '\r', SIZE_LF);
}

/* One byte of framing. */
static int read_framing(struct chunks *chunks, char c)
{
    switch ((enum step)chunks->step) {
    case SIZE:
        return read_size(chunks, c);
    case EXTENSION:
        if (c == '\r')
            return next_if(chunks, true, SIZE_LF);
        return skippable(c) && ++chunks->count <= CHUNK_EXTENSION_MAX ? 0 : -1;
    case SIZE_LF:
        chunks->count = 0;
        return next_if(chunks, c == '\n', chunks->left ? DATA : TRAILER_START);
    case DATA_CR:
        return next_if(chunks, c == '\r', DATA_LF);
    case DATA_LF:
        return next_if(chunks, c == '\n', SIZE);
    case TRAILER_START:
        if (c == '\r')
            return next_if(chunks, true, END_LF);
        chunks->step = TRAILER;
        return skippable(c) && c != ' ' && c != '\t' && ++chunks->count <= CHUNK_TRAILER_MAX ? 0
                                                                                             : -1;
    case TRAILER:
        if (c == '\r')
            return next_if(chunks, true, TRAILER_LF);
        return skippable(c) && ++chunks->count <= CHUNK_TRAILER_MAX ? 0 : -1;
    case TRAILER_LF:
        return next_if(chunks, c == '\n', TRAILER_START);
    case END_LF:
        chunks->done = c == '\n';
        return chunks->done ? 0 : -1;
    case DATA:
        break;
    }
    return -1;
}

int chunks_read(struct chunks *chunks, const char *in, size_t *in_length, char *out,
                size_t *out_length)
{
    size_t used = 0, written = 0;

    while (used < *in_length && !chunks->done) {
        size_t length = *in_length - used;

        if (chunks->step != DATA) {
            if (read_framing(chunks, in[used++]) < 0)
                return -1;
            continue;
        }
        if (length > chunks->left)
            length = chunks->left;
        if (out && length > *out_length - written)
            length = *out_length - written;
        if (length == 0)
            break;
        if (out)
            memcpy(out + written, in + used, length);
        used += length;
        written += length;
        chunks->left -= (uint32_t)length;
        if (chunks->left == 0)
            chunks->step = DATA_CR;
    }
    *in_length = used;
    *out_length = written;
    return 0;
}
