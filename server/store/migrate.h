/* Migrations: embedded, applied in order under an advisory lock, recorded with their digests. */
#ifndef STORE_MIGRATE_H
#define STORE_MIGRATE_H

#include "common/error.h"

/* Apply what is missing. Each migration is one transaction. ERR_CONFLICT when an applied one has
 * another digest, or the database has one that this program does not know. Returns how many were
 * applied. */
int migrate(const char *url, struct error *err);
/* The newest migration that this program knows. */
int migrate_current(void);

#endif
