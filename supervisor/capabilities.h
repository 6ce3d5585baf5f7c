/* Capabilities (capabilities(7)) of the supervisor itself. */
#ifndef SUPERVISOR_CAPABILITIES_H
#define SUPERVISOR_CAPABILITIES_H

#include <stdbool.h>

#include "common/error.h"
#include "common/refusal.h"

/* Make everything that is permitted effective again: setfsuid(2) takes some away. */
int capabilities_raise(struct error *err);
/* Leave exactly `kept` permitted and effective, nothing inheritable or ambient, and nothing else to
 * gain by an exec. */
int capabilities_keep(const int *kept, int count, struct error *err);
/* Refuse to go on without those that making a sandbox takes. */
void capabilities_check(struct refusals *refusals);
bool capabilities_have(int capability); /* effective */
/* The main loop keeps what it needs for files of other owners and for killing; mounting stays with
 * the spawner. */
int capabilities_keep_main(struct error *err);

#endif
