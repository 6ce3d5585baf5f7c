/* What one sandbox may use, as it was asked for and with what stands for 0 put in. No padding, and
 * made from zeroed memory: pool.c compares bytes. */
#ifndef SUPERVISOR_LIMITS_H
#define SUPERVISOR_LIMITS_H

#include <stdint.h>

#include "common/error.h"
#include "common/messages.h"

enum { LIMITS_INIT_SCORE = 300 }; /* oom_score_adj of init */

struct limits {
    int64_t memory_bytes;
    int64_t swap_bytes; /* beyond it */
    int64_t oom_group;  /* 1: when memory runs out, all of the sandbox ends */
    int64_t pids;
    int64_t cpu_percent; /* 100: one core */
    int64_t cpu_weight;  /* among sandboxes that want more than there is; 100: as most */
    int64_t open_files;  /* of each process */
    int64_t tmp_bytes;
    int64_t nice;
    int64_t oom_score; /* oom_score_adj of commands (proc(5)) */
};

/* ERR_BAD_REQUEST for what this host can't give. */
int limits_of(const struct start *start, struct limits *limits, struct error *err);

#endif
