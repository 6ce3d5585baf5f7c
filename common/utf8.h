/* UTF-8 (RFC 3629), one character at a time. */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of the character at `bytes`, of which `left` may be read: 1 to 4, or 0 when there is
 * none (over-long forms, surrogates, beyond U+10FFFF, cut short). */
static inline size_t utf8_length(const void *bytes, size_t left)
{
    const unsigned char *b = bytes;
    unsigned char low = 0x80, high = 0xBF;
    size_t length;

    if (!left)
        return 0;
    if (b[0] < 0x80)
        return 1;
    if (b[0] < 0xC2 || b[0] > 0xF4)
        return 0;
    length = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    if (left < length)
        return 0;
    if (b[0] == 0xE0)
        low = 0xA0;
    else if (b[0] == 0xED)
        high = 0x9F;
    else if (b[0] == 0xF0)
        low = 0x90;
    else if (b[0] == 0xF4)
        high = 0x8F;
    if (b[1] < low || b[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((b[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

/* Write the character `code` (at most U+10FFFF) to `out`; returns how many bytes, at most 4. */
static inline size_t utf8_put(char *out, uint32_t code)
{
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (size_t i = length; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(lead[length] | code);
    return length;
}

/* The characters of a text that is UTF-8. */
static inline size_t utf8_count(const char *text, size_t length)
{
    size_t count = 0;

    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* The longest part of a UTF-8 text that has at most `limit` bytes and ends at a character's edge.
 */
static inline size_t utf8_cut(const char *text, size_t length, size_t limit)
{
    if (length <= limit)
        return length;
    while (limit > 0 && ((unsigned char)text[limit] & 0xC0) == 0x80)
        limit--;
    return limit;
}

#endif
