/* The list of turns in flight. */
#include "run/cancel.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>

#include "common/scope.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct cancel *first;
static enum cancel_reason everybody;

/* With the lock held. */
static void raise_to(struct cancel *cancel, enum cancel_reason reason)
{
    if ((int)reason <= cancel->reason)
        return;
    cancel->reason = (int)reason;
    if (reason >= CANCEL_GIVE_BACK)
        eventfd_write(cancel->fd, 1);
}

int cancel_open(struct cancel *cancel, const char *run_id, struct error *err)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "eventfd");
    *cancel = (struct cancel){.fd = fd};
    strncat(cancel->run_id, run_id, sizeof(cancel->run_id) - 1);
    pthread_mutex_lock(&lock);
    cancel->next = first;
    if (first)
        first->previous = cancel;
    first = cancel;
    raise_to(cancel, everybody);
    pthread_mutex_unlock(&lock);
    return 0;
}

void cancel_close(struct cancel *cancel)
{
    if (cancel->fd < 0)
        return;
    pthread_mutex_lock(&lock);
    if (cancel->previous)
        cancel->previous->next = cancel->next;
    else
        first = cancel->next;
    if (cancel->next)
        cancel->next->previous = cancel->previous;
    pthread_mutex_unlock(&lock);
    close(cancel->fd);
    cancel->fd = -1;
}

void cancel_run(const char *run_id, enum cancel_reason reason)
{
    pthread_mutex_lock(&lock);
    for (struct cancel *cancel = first; cancel; cancel = cancel->next)
        if (strcmp(cancel->run_id, run_id) == 0)
            raise_to(cancel, reason);
    pthread_mutex_unlock(&lock);
}

void cancel_all(enum cancel_reason reason)
{
    pthread_mutex_lock(&lock);
    if (reason > everybody)
        everybody = reason;
    for (struct cancel *cancel = first; cancel; cancel = cancel->next)
        raise_to(cancel, reason);
    pthread_mutex_unlock(&lock);
}

size_t cancel_runs(struct buffer *array)
{
    size_t count = 0;

    buffer_char(array, '{');
    pthread_mutex_lock(&lock);
    for (const struct cancel *cancel = first; cancel; cancel = cancel->next)
        buffer_format(array, "%s%s", count++ ? "," : "", cancel->run_id);
    pthread_mutex_unlock(&lock);
    buffer_char(array, '}');
    return count;
}
