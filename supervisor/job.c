/* Work that takes long, in a forked child: see job.h. */
#include "supervisor/job.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/loop.h"

struct job {
    const char *name;
    pid_t pid; /* 0: reaped */
    job_done *done;
    void *data;
    bool late;
    struct watch answer;
    struct timer deadline;
    struct job *next;
};

static struct job *jobs;

static void finish(struct watch *watch, uint32_t events)
{
    struct job *job = OWNER(watch, struct job, answer);
    struct error result;
    struct job **at = &jobs;

    (void)events;
    if (read(watch->fd, &result, sizeof(result)) != sizeof(result))
        error_set(&result, job->late ? ERR_TIMEOUT : ERR_INTERNAL, "%s: %s", job->name,
                  job->late ? "took too long" : "ended without an answer");
    result.fields = NULL;
    result.message[sizeof(result.message) - 1] = '\0';
    loop_close_watch(watch);
    loop_clear(&job->deadline);
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    job->done(job->data, &result);
    free(job);
}

void job_kill(struct job *job)
{
    job->late = true;
    if (job->pid)
        kill(job->pid, SIGKILL);
}

static void overdue(struct timer *timer)
{
    job_kill(OWNER(timer, struct job, deadline));
}

void job_reaped(pid_t pid)
{
    for (struct job *job = jobs; job; job = job->next)
        if (job->pid == pid)
            job->pid = 0;
}

static void run_child(int answer, job_work *work, void *data)
{
    struct error result = {0};
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (work(data, &result) == 0)
        result.kind = ERR_NONE;
    if (write(answer, &result, sizeof(result)) != sizeof(result))
        _exit(1);
    _exit(0);
}

struct job *job_begin(const char *name, int seconds, job_work *work, job_done *done, void *data,
                      struct error *err)
{
    struct job *job = calloc(1, sizeof(*job));
    int ends[2];

    if (!job)
        abort();
    *job = (struct job){.name = name, .done = done, .data = data, .answer.fd = -1};
    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set_errno(err, ERR_UNAVAILABLE, "%s: pipe", name);
        free(job);
        return NULL;
    }
    job->pid = fork();
    if (job->pid == 0) {
        close(ends[0]);
        run_child(ends[1], work, data);
    }
    close(ends[1]);
    if (job->pid < 0 || loop_watch(&job->answer, ends[0], EPOLLIN, finish, err) < 0) {
        if (job->pid < 0)
            error_set_errno(err, ERR_UNAVAILABLE, "%s: fork", name);
        else
            kill(job->pid, SIGKILL);
        close(ends[0]);
        free(job);
        return NULL;
    }
    job->next = jobs;
    jobs = job;
    loop_set(&job->deadline, seconds * 1000L, overdue);
    return job;
}
