/* Ids of the sandboxes beside those of the machine: nobody else may have one (passwd(5), group(5),
 * subuid(5)). */
#ifndef COMMON_IDS_H
#define COMMON_IDS_H

#include <stdint.h>

#include "common/refusal.h"

/* Ids from `first` to before `end`. */
struct ids {
    int64_t first, end;
};

/* Each sandbox has a range of ids, and one range more is for the owners of their namespaces. */
enum { IDS_OF_A_SANDBOX = 65536 };
struct ids ids_of_sandboxes(int64_t base, int64_t sandboxes);
/* Tell every user, group and grant of subordinate ids that has one of these ids, and a grant to
 * root that is too small. Reads the files under `root` ("" for this machine's) as they are: what
 * getpwnam(3) would load and ask is not for a privileged program. */
void ids_check(const char *root, struct ids ids, struct refusals *refusals);

#endif
