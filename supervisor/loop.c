/* The one loop: see loop.h. */
#include "supervisor/loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static int queue = -1;
static struct timer *timers; /* the next one first */

int loop_open(struct error *err)
{
    queue = epoll_create1(EPOLL_CLOEXEC);
    return queue < 0 ? error_set_errno(err, ERR_INTERNAL, "epoll") : 0;
}

int loop_watch(struct watch *watch, int fd, uint32_t events,
               void (*ready)(struct watch *, uint32_t), struct error *err)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    *watch = (struct watch){.fd = fd, .ready = ready};
    if (epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event) == 0)
        return 0;
    watch->fd = -1;
    return error_set_errno(err, ERR_INTERNAL, "epoll");
}

void loop_change(struct watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    epoll_ctl(queue, EPOLL_CTL_MOD, watch->fd, &event);
}

void loop_silence(struct watch *watch)
{
    epoll_ctl(queue, EPOLL_CTL_DEL, watch->fd, NULL);
}

int loop_release(struct watch *watch)
{
    int fd = watch->fd;

    watch->fd = -1;
    /* Also when it is about to be closed: a copy in a child keeps the registration alive. */
    if (fd >= 0)
        epoll_ctl(queue, EPOLL_CTL_DEL, fd, NULL);
    return fd;
}

void loop_close_watch(struct watch *watch)
{
    int fd = loop_release(watch);

    if (fd >= 0)
        close(fd);
}

int64_t loop_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void loop_clear(struct timer *timer)
{
    if (!timer->link)
        return;
    *timer->link = timer->next;
    if (timer->next)
        timer->next->link = timer->link;
    timer->link = NULL;
    timer->next = NULL;
}

void loop_set(struct timer *timer, int64_t after_ms, void (*due)(struct timer *))
{
    struct timer **at = &timers;

    loop_clear(timer);
    timer->at_ms = loop_now() + after_ms;
    timer->due = due;
    while (*at && (*at)->at_ms <= timer->at_ms)
        at = &(*at)->next;
    timer->next = *at;
    if (timer->next)
        timer->next->link = &timer->next;
    timer->link = at;
    *at = timer;
}

static int wait_ms(void)
{
    int64_t left;

    if (!timers)
        return -1;
    left = timers->at_ms - loop_now();
    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

void loop_run(const bool *stop)
{
    while (!*stop) {
        struct epoll_event event;

        if (epoll_wait(queue, &event, 1, wait_ms()) == 1) {
            struct watch *watch = event.data.ptr;

            watch->ready(watch, event.events);
        }
        while (timers && timers->at_ms <= loop_now()) {
            struct timer *timer = timers;

            loop_clear(timer);
            timer->due(timer);
        }
    }
}
