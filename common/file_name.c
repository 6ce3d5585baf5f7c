/* Names of any bytes as text: see file_name.h. */
#include "common/file_name.h"

#include <stdbool.h>
#include <string.h>

#include "common/utf8.h"

#define MARK "\xEF\xBF\xBD"
enum { MARK_BYTES = 3, DIGITS = 2 };

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that the digits stand for; -1 when they are none. */
static int byte_of(const char *digits)
{
    int high = digit(digits[0]), low = high < 8 ? -1 : digit(digits[1]);

    return low < 0 ? -1 : high << 4 | low;
}

static bool is_mark(const char *text)
{
    return strncmp(text, MARK, MARK_BYTES) == 0;
}

static void add_byte(struct buffer *out, char byte)
{
    static const char digits[] = "0123456789ABCDEF";

    buffer_add(out, MARK, MARK_BYTES);
    buffer_char(out, digits[(unsigned char)byte >> 4]);
    buffer_char(out, digits[byte & 15]);
}

void file_name_show(struct buffer *out, const char *name)
{
    size_t left = strlen(name);

    while (left) {
        size_t length = utf8_length(name, left);
        bool shown = length && !(is_mark(name) && byte_of(name + MARK_BYTES) >= 0);

        if (!length)
            length = 1;
        if (shown)
            buffer_add(out, name, length);
        for (size_t i = 0; !shown && i < length; i++)
            add_byte(out, name[i]);
        name += length;
        left -= length;
    }
}

const char *file_name_read(struct arena *arena, const char *text)
{
    char *name = arena_copy(arena, text, strlen(text)), *to = name;

    while (*text) {
        int byte = is_mark(text) ? byte_of(text + MARK_BYTES) : -1;

        *to++ = byte < 0 ? *text : (char)byte;
        text += byte < 0 ? 1 : MARK_BYTES + DIGITS;
    }
    *to = '\0';
    return name;
}
