/* What sandboxctl does with the supervisor's sandboxes and snapshots. */
#ifndef SERVER_OPERATE_H
#define SERVER_OPERATE_H

#include <stdbool.h>
#include <stdio.h>

#include "common/error.h"
#include "run/sandbox.h"

int operate_list(struct sandbox_link *link, bool running_only, FILE *out, struct error *err);
/* As JSON, or in words. */
int operate_usage(struct sandbox_link *link, const char *sandbox, bool json, FILE *out,
                  struct error *err);
int operate_stop(struct sandbox_link *link, const char *sandbox, struct error *err);
int operate_destroy(struct sandbox_link *link, const char *sandbox, struct error *err);

/* A snapshot with an id of its own, which is printed. */
int operate_snapshot_make(struct sandbox_link *link, const char *sandbox, FILE *out,
                          struct error *err);
/* The newest first; `sandbox` NULL: of all. */
int operate_snapshot_list(struct sandbox_link *link, const char *sandbox, bool json, FILE *out,
                          struct error *err);
int operate_snapshot_remove(struct sandbox_link *link, const char *snapshot, struct error *err);
/* A sandbox from a snapshot. One that has the name already is replaced when `force` says so, once
 * it is known that the snapshot can be restored. */
int operate_snapshot_restore(struct sandbox_link *link, const char *snapshot, const char *sandbox,
                             bool force, struct error *err);

#endif
