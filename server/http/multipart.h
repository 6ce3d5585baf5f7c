/* One file out of a multipart/form-data body (RFC 7578), read strictly and a piece at a time. */
#ifndef HTTP_MULTIPART_H
#define HTTP_MULTIPART_H

#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "http/request.h"

/* Where the body comes from: bytes, 0 at its end, -1 with an error. */
typedef int body_source(void *context, void *into, size_t size, struct error *err);

/* Write the content of the part `file` to upload->fd and fill the rest of `upload` (the descriptor
 * is at offset 0 then); other parts are skipped. The whole body is read. ERR_BAD_REQUEST when it is
 * malformed or cut short, ERR_INVALID when there is no such part or more than one, ERR_TOO_LARGE
 * when the file has more than `limit` bytes. */
int multipart_receive(const char *content_type, body_source *source, void *context, int64_t limit,
                      struct arena *arena, struct upload *upload, struct error *err);

#endif
