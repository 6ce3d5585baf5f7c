/* The file messages. What may take long is done by a job. */
#ifndef SUPERVISOR_FILE_JOBS_H
#define SUPERVISOR_FILE_JOBS_H

#include "common/error.h"
#include "common/field.h"

struct file_job;
struct stream;

/* The peer went away: a listing ends, a removal goes on. */
void file_job_abandon(struct file_job *job);

/* In a listing's job: one more body for the pipe. */
int stream_add(struct stream *stream, const struct schema *schema, const void *value,
               struct error *err);
/* The work of snapshot_list, in snapshots.c. */
int snapshots_list(const char *sandbox, struct stream *stream, struct error *err);

#endif
