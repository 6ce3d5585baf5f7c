/* What a sandbox's files say of its name: written at the start, and by init when it gets another.
 */
#ifndef SUPERVISOR_NAMES_H
#define SUPERVISOR_NAMES_H

#include <stdio.h>

enum { NAMES_LENGTH = 256 };

/* /etc/hostname (hostname(5)). */
static inline void names_hostname(char text[NAMES_LENGTH], const char *hostname)
{
    snprintf(text, NAMES_LENGTH, "%.64s\n", hostname);
}

/* /etc/hosts (hosts(5)). */
static inline void names_hosts(char text[NAMES_LENGTH], const char *hostname)
{
    snprintf(text, NAMES_LENGTH,
             "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %.64s\n",
             hostname);
}

#endif
