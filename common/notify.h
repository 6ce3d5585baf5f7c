/* Tell the service manager how we are (sd_notify(3)); nothing happens where there is none. */
#ifndef COMMON_NOTIFY_H
#define COMMON_NOTIFY_H

#include <stdint.h>

/* "READY=1", "STOPPING=1", "RELOADING=1", "WATCHDOG=1", "STATUS=…"; several lines may be given at
 * once. */
void notify_send(const char *state);
/* How often WATCHDOG=1 is expected at the latest, halved so that one may be late; 0: never. */
int64_t notify_watchdog_ms(void);

#endif
