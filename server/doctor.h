/* What this machine lacks for sandboxes: sandboxctl doctor. */
#ifndef SERVER_DOCTOR_H
#define SERVER_DOCTOR_H

#include <stdio.h>

/* One line for each thing looked at; what is missing has its cure. `folder` is where sandboxes are
 * kept: its file system is tried. Returns how many needed things are missing. */
int doctor_examine(const char *folder, FILE *out);

#endif
