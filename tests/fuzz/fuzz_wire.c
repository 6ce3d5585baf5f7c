/* Any bytes as the body of any message: what is taken must be written again as the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/messages.h"
#include "common/wire.h"

static const struct schema *const schemas[] = {
#define MESSAGE(number, name, states, descriptors, answer) &schema_##name,
#include "common/messages.def"
#undef MESSAGE
    &schema_nothing,       &schema_exec_result, &schema_sandbox_status,
    &schema_sandbox_entry, &schema_file_entry,  &schema_file_info,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer out = {0};
    const struct schema *schema;
    struct error err;
    void *value;

    if (!size)
        return 0;
    schema = schemas[*data % COUNT(schemas)];
    value = arena_alloc(&arena, schema->size);
    if (wire_decode(schema, data + 1, size - 1, value, &arena, &err) < 0)
        return 0;
    if (wire_encode(schema, value, &out, &err) < 0 || out.length != size - 1 ||
        (size > 1 && memcmp(out.data, data + 1, size - 1) != 0))
        abort();
    return 0;
}
