/* Arena and buffer: see arena.h. */
#include "common/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 16 * 1024, KEEP_SIZE = 256 * 1024 };

struct arena_block {
    struct arena_block *next;
    size_t size;
    size_t used;
    _Alignas(16) unsigned char data[];
};

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    struct arena_block *block = arena->block;
    size_t need = (size + 15) & ~(size_t)15;
    void *memory;

    if (size > SIZE_MAX / 2)
        abort();
    if (!block || block->size - block->used < need) {
        size_t room = need > BLOCK_SIZE ? need : BLOCK_SIZE;

        block = must(malloc(sizeof(*block) + room));
        block->next = arena->block;
        block->size = room;
        block->used = 0;
        arena->block = block;
    }
    memory = block->data + block->used;
    block->used += need;
    return memset(memory, 0, need);
}

char *arena_copy(struct arena *arena, const char *bytes, size_t length)
{
    char *copy = arena_alloc(arena, length + 1);

    if (length)
        memcpy(copy, bytes, length);
    return copy;
}

char *arena_text(struct arena *arena, const char *format, ...)
{
    va_list values, again;
    char *text;
    int length;

    va_start(values, format);
    va_copy(again, values);
    length = vsnprintf(NULL, 0, format, values);
    va_end(values);
    if (length < 0)
        abort();
    text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void arena_reset(struct arena *arena)
{
    struct arena_block *kept = NULL;

    while (arena->block) {
        struct arena_block *next = arena->block->next;

        if (!kept && arena->block->size <= KEEP_SIZE)
            kept = arena->block;
        else
            free(arena->block);
        arena->block = next;
    }
    if (kept) {
        kept->next = NULL;
        kept->used = 0;
        arena->block = kept;
    }
}

void arena_done(struct arena *arena)
{
    while (arena->block) {
        struct arena_block *next = arena->block->next;

        free(arena->block);
        arena->block = next;
    }
}

void buffer_done(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

char *buffer_reserve(struct buffer *buffer, size_t extra)
{
    size_t need = buffer->length + extra + 1;

    if (need < extra)
        abort();
    if (need > buffer->capacity) {
        size_t capacity = buffer->capacity ? buffer->capacity : 256;

        while (capacity < need)
            capacity *= 2;
        buffer->data = must(realloc(buffer->data, capacity));
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->length;
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t length)
{
    char *end = buffer_reserve(buffer, length);

    if (length)
        memcpy(end, bytes, length);
    buffer->length += length;
    buffer->data[buffer->length] = '\0';
}

void buffer_text(struct buffer *buffer, const char *text)
{
    buffer_add(buffer, text, strlen(text));
}

void buffer_format(struct buffer *buffer, const char *format, ...)
{
    va_list values, again;
    int length;

    va_start(values, format);
    va_copy(again, values);
    length = vsnprintf(NULL, 0, format, values);
    va_end(values);
    if (length < 0)
        abort();
    vsnprintf(buffer_reserve(buffer, (size_t)length), (size_t)length + 1, format, again);
    va_end(again);
    buffer->length += (size_t)length;
}
