/* File names, which are any bytes but / and NUL, as text that is UTF-8, and back.
 *
 * A byte that is not part of UTF-8 is written as U+FFFD and its two hexadecimal digits, of which
 * the first is 8 to F, in capitals: a name of the bytes 61 FF is "a\uFFFDFF". What looks so by
 * itself is written like that byte for byte. So every name has one text, and no text can stand for
 * "/", "." or NUL by such digits. */
#ifndef COMMON_FILE_NAME_H
#define COMMON_FILE_NAME_H

#include "common/arena.h"

/* Append the name, or path, as text. */
void file_name_show(struct buffer *out, const char *name);
/* The name, or path, that a text (UTF-8) stands for; in the arena. */
const char *file_name_read(struct arena *arena, const char *text);

#endif
