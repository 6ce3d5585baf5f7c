/* Tables of the kernel that all of the machine share. */
#ifndef SUPERVISOR_HOST_H
#define SUPERVISOR_HOST_H

#include <stdbool.h>

/* Where a table has one bound for the whole machine, a single sandbox could take all of it: raise
 * those bounds, so that the sandbox's own come first. What can't be raised is logged. */
void host_raise_tables(void);
/* Whether crashes are fed to a program, which runs as root outside of every sandbox (core(5)). */
bool host_has_crash_handler(void);

#endif
