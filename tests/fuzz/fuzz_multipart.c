/* Any bytes as a multipart body, in two ways of being cut into pieces: both see the same, and
 * nothing more than was sent. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "http/multipart.h"
#include "http/router.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

const struct route routes[] = {{.room = "none"}};
const size_t route_count = COUNT(routes);

struct source {
    const uint8_t *bytes;
    size_t left, step;
};

static int take(void *context, void *into, size_t size, struct error *err)
{
    struct source *source = context;

    (void)err;
    if (size > source->left)
        size = source->left;
    if (size > source->step)
        size = source->step;
    memcpy(into, source->bytes, size);
    source->bytes += size;
    source->left -= size;
    return (int)size;
}

static void must(bool fine)
{
    if (!fine)
        abort();
}

static int receive(const uint8_t *data, size_t size, size_t step, struct arena *arena,
                   struct upload *upload)
{
    struct source source = {data, size, step};
    struct error err = {0};
    int result;

    *upload = (struct upload){.fd = memfd_create("upload", MFD_CLOEXEC), .file_name = ""};
    must(upload->fd >= 0);
    result = multipart_receive("multipart/form-data; boundary=b", take, &source, 1000, arena,
                               upload, &err);
    must(result == 0 || (result == -1 && err.kind != ERR_NONE && err.kind != ERR_INTERNAL));
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena struct arena arena = {0};
    struct upload whole, pieces;
    int result = receive(data, size, SIZE_MAX, &arena, &whole);

    must(receive(data, size, 1, &arena, &pieces) == result);
    if (result == 0) {
        char a[1000], b[1000];

        must(whole.size <= (int64_t)size && whole.size == pieces.size &&
             !strcmp(whole.file_name, pieces.file_name));
        must(pread(whole.fd, a, sizeof(a), 0) == whole.size &&
             pread(pieces.fd, b, sizeof(b), 0) == whole.size);
        must(memcmp(a, b, (size_t)whole.size) == 0);
    }
    close(whole.fd);
    close(pieces.fd);
    return 0;
}
