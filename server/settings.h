/* The server's settings: one struct from settings.def, filled once by main and read by every
 * process. */
#ifndef SERVER_SETTINGS_H
#define SERVER_SETTINGS_H

#include <stdbool.h>

#include "common/settings.h"

struct server_settings {
#define SETTING(type, member, variable, fallback, min, max, about) SETTING_CTYPE_##type member;
#include "server/settings.def"
#undef SETTING
};

/* Set before the first fork, constant afterwards. Defined in store/settings.c, so that every room
 * can read it. */
extern struct server_settings settings;

/* Fill `settings` from the environment and the file `.env`, and refuse what must not start. */
int server_settings_load(struct error *err);
/* The same, with every refusal. */
void server_settings_check(struct refusals *refusals);
void server_settings_help(FILE *out);
void server_settings_manual(FILE *out);
/* ENV is dev, development or test. */
bool server_settings_relaxed(void);

#endif
