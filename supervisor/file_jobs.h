/* The file messages. What may take long is done by a job. */
#ifndef SUPERVISOR_FILE_JOBS_H
#define SUPERVISOR_FILE_JOBS_H

struct file_job;

/* The peer went away: a listing ends, a removal goes on. */
void file_job_abandon(struct file_job *job);

#endif
