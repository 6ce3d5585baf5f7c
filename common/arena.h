/* Memory that ends with one request. Out of memory aborts: the master starts another worker. */
#ifndef COMMON_ARENA_H
#define COMMON_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena_block;

/* Not shared between threads. Zero-initialised is empty and ready. */
struct arena {
    struct arena_block *block;
};

/* Forget everything; one block is kept for the next request. */
void arena_reset(struct arena *arena);
/* Give all memory back; the arena is empty and usable again. */
void arena_done(struct arena *arena);
#define auto_arena __attribute__((cleanup(arena_done)))

/* Zeroed memory, aligned for any type, until arena_reset. */
void *arena_alloc(struct arena *arena, size_t size);
/* A copy of `length` bytes with a NUL behind it. */
char *arena_copy(struct arena *arena, const char *bytes, size_t length);
/* A formatted text, as printf(3). */
char *arena_text(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A growing text on the heap. Zero-initialised is empty. `data` is NUL-terminated once anything was
 * added. */
struct buffer {
    char *data;
    size_t length;
    size_t capacity;
};

void buffer_done(struct buffer *buffer);
#define auto_buffer __attribute__((cleanup(buffer_done)))
/* Room for `extra` more bytes and a NUL; returns where they go (add to `length` afterwards). */
char *buffer_reserve(struct buffer *buffer, size_t extra);
void buffer_add(struct buffer *buffer, const void *bytes, size_t length);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_format(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void buffer_char(struct buffer *buffer, char c)
{
    *buffer_reserve(buffer, 1) = c;
    buffer->data[++buffer->length] = '\0';
}

#endif
