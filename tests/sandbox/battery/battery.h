/* The battery: one row a check, named group.name; see main.c for how they are run. */
#ifndef TESTS_SANDBOX_BATTERY_H
#define TESTS_SANDBOX_BATTERY_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define HIGH_BITS UINT64_C(0x100000000)

/* What a check answers. A check that can't be told here (its argument from the host is missing) is
 * SKIPPED; the test reviews those by name. */
enum verdict { HOLDS = 0, BROKEN = 1, SKIPPED_CHECK = 2 };
enum whom { EVERYBODY, ROOT, USER };

struct check {
    const char *name;
    int (*run)(const void *row); /* a verdict; with its row's data, which may be NULL */
    const void *row;
    enum whom whom;
};

struct battery {
    const char *name;
    const struct check *checks;
    size_t count;
};

extern const struct battery battery_proc, battery_processes, battery_fs, battery_cgroup,
    battery_sys, battery_calls, battery_net, battery_sockets, battery_tty, battery_limit,
    battery_abi, battery_unix, battery_compat, battery_compat_io, battery_neighbour;

/* What else the program does than its checks. */
int bomb_main(const char *name);
int traps_main(void);
int stay_main(void);
int exchange_main(const char *one, const char *other);
int spin_main(bool tracing);

/* BROKEN, with the reason told. */
__attribute__((format(printf, 1, 2))) int broken(const char *format, ...);
/* The result of a call that must fail (with one of these errors, if any is named), or must not. */
int refused(const char *what, long result, int error);
int works(const char *what, long result);

#define REFUSED(call) refused(#call, (long)(call), 0)
#define REFUSED_WITH(error, call) refused(#call, (long)(call), error)
#define WORKS_FINE(call) works(#call, (long)(call))

/* What the host's side told (the environment), or NULL. */
const char *told(const char *name);
void *page_of_zeroes(void);

#endif
