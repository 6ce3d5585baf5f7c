/* One of the master's processes, as seen from inside it: see role.h. */
#include "server/role.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/counters.h"
#include "common/log.h"
#include "server/settings.h"

/* There with a sanitizer only. LeakSanitizer traces its own process, which one that can't be dumped
 * does not allow. */
extern void __asan_init(void) __attribute__((weak));
extern void __tsan_init(void) __attribute__((weak));

static int stop_pipe[2] = {-1, -1};
static int ready_pipe = -1;

static void on_signal(int number)
{
    const char byte = number == SIGHUP ? 'H' : 'T';
    int saved = errno;

    /* A full pipe has been told already. */
    if (write(stop_pipe[1], &byte, 1) < 0)
        errno = saved;
}

static void set_signals(void)
{
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction none = {.sa_handler = SIG_IGN};
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t empty;

    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGHUP, &stop, NULL);
    /* A terminal sends it to the whole group, and the master says who ends when. */
    sigaction(SIGINT, &none, NULL);
    sigaction(SIGPIPE, &none, NULL);
    sigaction(SIGCHLD, &usual, NULL);
    sigemptyset(&empty);
    sigprocmask(SIG_SETMASK, &empty, NULL);
}

_Noreturn void role_main(const struct role *role, pid_t master, int ready_fd)
{
    struct error err;
    int result;

    ready_pipe = ready_fd;
    prctl(PR_SET_NAME, role->name);
    log_init(role->name, (enum log_level)log_level_of(settings.log_level));
    if (pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        LOG(ERROR, "process_failed", V("reason", "no pipe"), V("errno", errno));
        exit(1);
    }
    set_signals();
    /* Whoever kills the master, its processes end too; it may be gone already (prctl(2)). */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != master)
        exit(0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!__asan_init && !__tsan_init)
        prctl(PR_SET_DUMPABLE, 0);
    counters_enter();
    result = role->run(stop_pipe[0], &err);
    if (result < 0) {
        LOG(ERROR, "process_failed", V("reason", err.message));
        _exit(1); /* threads may still be at work */
    }
    exit(0);
}

void role_ready(void)
{
    const char byte = 'R';

    if (ready_pipe < 0)
        return;
    if (write(ready_pipe, &byte, 1) < 0)
        LOG(WARNING, "ready_not_told", V("errno", errno));
    close(ready_pipe);
    ready_pipe = -1;
}
