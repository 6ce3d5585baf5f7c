/* What a new process gives up before it becomes a sandbox's init: see steps.def for the order. */
#include "supervisor/steps.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/init.h"
#include "supervisor/packet.h"
#include "supervisor/seccomp.h"

static const struct {
    const char *name;
    step *run;
} steps[] = {
#define STEP(name) {#name, name},
#include "supervisor/steps.def"
#undef STEP
};

int steps_run(struct containment *containment, struct error *err)
{
    for (size_t i = 0; i < COUNT(steps); i++)
        if (steps[i].run(containment, err) < 0)
            return error_add_context(err, "%s", steps[i].name);
    return 0;
}

/* They come while the steps before this one are done. A worker that died has closed its end. */
int mounts_receive(struct containment *containment, struct error *err)
{
    int grants[GRANTS];
    char go;

    if (packet_receive(containment->report, &go, 1, grants, GRANTS) != 1 || grants[GRANTS - 1] < 0)
        return error_set(err, ERR_INTERNAL, "the spawner is gone");
    containment->root = grants[0];
    containment->workspace = grants[1];
    containment->devices = grants[2];
    return 0;
}

/* What is left: standard streams that lead nowhere, init's socket, its program and the way to
 * report a failure, the last two until the exec. */
int descriptors_close(struct containment *containment, struct error *err)
{
    enum { PROGRAM = INIT_SOCKET + 1, REPORT, END };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    /* First out of the way of the numbers that they will have. */
    int listener = fcntl(containment->listener, F_DUPFD_CLOEXEC, END);
    int program = fcntl(containment->program, F_DUPFD_CLOEXEC, END);
    int report = fcntl(containment->report, F_DUPFD_CLOEXEC, END);

    if (null < 0 || listener < 0 || program < 0 || report < 0)
        return error_set_errno(err, ERR_INTERNAL, "descriptors");
    if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
        dup2(listener, INIT_SOCKET) < 0 || dup3(program, PROGRAM, O_CLOEXEC) < 0 ||
        dup3(report, REPORT, O_CLOEXEC) < 0 || syscall(SYS_close_range, END, ~0U, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "descriptors");
    containment->program = PROGRAM;
    containment->report = REPORT;
    return 0;
}

int syscalls_refuse(struct containment *containment, struct error *err)
{
    (void)containment;
    if (seccomp_allow() < 0)
        return error_set_errno(err, ERR_INTERNAL, "filter");
    return 0;
}
