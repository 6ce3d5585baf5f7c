/* Work that takes long, in a forked child, so that the loop never waits for it. */
#ifndef SUPERVISOR_JOB_H
#define SUPERVISOR_JOB_H

#include <sys/types.h>

#include "common/error.h"

struct job;

/* In the child; its answer is the job's. Descriptors and memory are copies. */
typedef int job_work(void *data, struct error *err);
/* In the loop, once; err->kind is ERR_NONE when the work succeeded. The job is gone afterwards. */
typedef void job_done(void *data, const struct error *err);

/* Fork. After `seconds` the child is killed and the job fails. `data` must live until `done`. */
struct job *job_begin(const char *name, int seconds, job_work *work, job_done *done, void *data,
                      struct error *err);
/* Kill the child; `done` is still called. */
void job_kill(struct job *job);
/* A child of that pid was reaped. */
void job_reaped(pid_t pid);

#endif
