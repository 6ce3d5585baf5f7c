/* Memory that the kernel counts for nobody: whoever takes most of it is ended before the machine
 * runs out of it.
 *
 * Answers that wait in a netlink socket are such memory, on every kernel up to 6.18 at least: some
 * 200 KiB a socket, which itself costs its sandbox 3. */
#ifndef SUPERVISOR_PRESSURE_H
#define SUPERVISOR_PRESSURE_H

/* Look at the machine's memory from now on, beside everything else. */
void pressure_watch(void);

#endif
