/* Any bytes as a request's head and as a chunked body: pieces read as the whole does, and what
 * passes passes again as it is written for the parser behind the gate. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/chunks.h"
#include "http/head.h"
#include "http/router.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

const struct route routes[] = {{.room = "none"}};
const size_t route_count = COUNT(routes);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_head(const char *bytes, size_t size)
{
    static char written[HEAD_WRITTEN_MAX];
    struct head whole, pieces, again;
    size_t scanned = 0, so_far = 0, length;
    enum head_state state = head_check(bytes, size, &scanned, &whole), piece = HEAD_PARTIAL;

    for (size_t end = 0; end <= size && piece == HEAD_PARTIAL; end += end < 64 ? 1 : 61)
        piece = head_check(bytes, end, &so_far, &pieces);
    if (piece == HEAD_PARTIAL)
        piece = head_check(bytes, size, &so_far, &pieces);
    /* A head that is refused as a whole may have been refused at its first line already. */
    must(piece == state);
    if (state != HEAD_COMPLETE)
        return;
    must(whole.length <= size && whole.length <= HEAD_BYTES_MAX && whole.length == pieces.length);
    must(!(whole.chunked && whole.content_length >= 0));
    must(memchr(bytes, '\0', whole.length) == NULL);
    length = head_write(&whole, written);
    must(length <= HEAD_WRITTEN_MAX);
    scanned = 0;
    must(length > HEAD_BYTES_MAX || head_check(written, length, &scanned, &again) == HEAD_COMPLETE);
    must(length > HEAD_BYTES_MAX || (!again.chunked && again.content_length == -1));
}

static void check_chunks(const char *bytes, size_t size)
{
    struct chunks whole = {0}, steps = {0};
    size_t in = size, out = SIZE_MAX, used = 0, got = 0;
    int result = chunks_read(&whole, bytes, &in, NULL, &out), step_result = 0;

    while (used < size && step_result == 0 && !steps.done) {
        char data[7];
        size_t step = size - used < 5 ? size - used : 5, room = sizeof(data);

        step_result = chunks_read(&steps, bytes + used, &step, data, &room);
        must(room <= sizeof(data));
        if (step_result == 0) {
            used += step;
            got += room;
        }
    }
    must(result == step_result);
    if (result == 0)
        must(used == in && got == out && steps.done == whole.done);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_head((const char *)data, size);
    check_chunks((const char *)data, size);
    return 0;
}
