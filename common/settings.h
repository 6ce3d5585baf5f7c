/* Environment → struct, by a table. The struct, the parser, --help and the manual page come from
 * one settings.def:
 *
 *     SETTING(NUMBER, port, "PORT", "8000", 1, 65535, "TCP port to listen on")
 *
 * Names are case-insensitive. A `.env` file is read too (KEY=value lines, # comments, optional
 * quotes, optional `export `); the environment wins. With systemd's LoadCredential a file named
 * like the setting in lower case under $CREDENTIALS_DIRECTORY wins over both for SECRETs. A file
 * that a secret comes from may be read by its owner alone; one that came from the environment is
 * removed there, so that it is found once. An unknown variable is ignored. */
#ifndef COMMON_SETTINGS_H
#define COMMON_SETTINGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/error.h"
#include "common/refusal.h"

/* A value that is never logged: V() of log.h has no case for it. */
struct secret {
    const char *value; /* "" when unset */
};

enum setting_type {
    SETTING_TEXT,   /* const char *, "" when unset */
    SETTING_SECRET, /* struct secret */
    SETTING_NUMBER, /* int64_t */
    SETTING_FLAG,   /* bool: 1 0 true false yes no on off */
};

/* C types of the members, for the struct that a program makes from its settings.def. */
#define SETTING_CTYPE_TEXT const char *
#define SETTING_CTYPE_SECRET struct secret
#define SETTING_CTYPE_NUMBER int64_t
#define SETTING_CTYPE_FLAG bool

struct setting {
    const char *variable;
    enum setting_type type;
    size_t offset;
    const char *fallback; /* NULL: "" or 0 */
    int64_t min, max;     /* NUMBER; both 0: no bound */
    const char *about;
};

/* Fill `into`. `file` may be NULL or missing. The texts live as long as the process. ERR_INVALID
 * with one sentence that names the variable and never shows a secret. */
int settings_load(const struct setting *settings, size_t count, const char *file, void *into,
                  struct error *err);
/* The same to the end: every fault is told to `refusals`, and its setting left as the fallback. */
void settings_read(const struct setting *settings, size_t count, const char *file, void *into,
                   struct refusals *refusals);
/* Every setting with its default and meaning, for --help. */
void settings_help(const struct setting *settings, size_t count, FILE *out);
/* The same as mdoc(7) list items, for the manual page. */
void settings_manual(const struct setting *settings, size_t count, FILE *out);

#endif
