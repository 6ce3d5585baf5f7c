/* The supervisor's settings, and what it does not start with: faults of an operator that would take
 * away a barrier which everybody believes in. */
#ifndef SUPERVISOR_CONFIG_H
#define SUPERVISOR_CONFIG_H

#include "common/refusal.h"

/* Read the settings and look at what they name, changing nothing. Every fault is told. */
void config_check(struct refusals *refusals);
/* Every setting, for --help and for supervisor.8. */
void config_help(FILE *out);
void config_manual(FILE *out);

#endif
