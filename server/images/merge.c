/* Several layers made one: see merge.h. */
#include "images/merge.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/scope.h"

static const struct archive_rules rules = {
    .entries_max = 2000000, .bytes_max = INT64_C(64) << 30, .ratio_max = 1};

/* An overlay of the layers alone, attached nowhere: as the kernel sees them together. */
static int mount_together(const int *layers, size_t count, struct error *err)
{
    auto_close int overlay = fsopen("overlay", FSOPEN_CLOEXEC);
    int mount;

    if (overlay < 0)
        return error_set_errno(err, ERR_INTERNAL, "fsopen overlay");
    while (count--) { /* the highest first */
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", layers[count]);
        if (fsconfig(overlay, FSCONFIG_SET_STRING, "lowerdir+", path, 0) < 0)
            return error_set_errno(err, ERR_INTERNAL, "put layers together");
    }
    if (fsconfig(overlay, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "put layers together");
    mount = fsmount(overlay, FSMOUNT_CLOEXEC,
                    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    return mount < 0 ? error_set_errno(err, ERR_INTERNAL, "fsmount") : mount;
}

static _Noreturn void write_archive(int folder, int out)
{
    struct archive_result result;
    struct error err;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (archive_pack(folder, out, ARCHIVE_TAR, &rules, &result, &err) < 0) {
        fprintf(stderr, "sandboxctl: %s\n", err.message);
        _exit(1);
    }
    _exit(0);
}

int layer_merge(const int *layers, size_t count, int folder, struct layer *layer, struct error *err)
{
    auto_close int together = mount_together(layers, count, err);
    int ends[2], status = 0, result;
    pid_t pid;

    if (together < 0)
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERR_INTERNAL, "pipe");
    auto_close int in = ends[0], out = ends[1];
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        close(in);
        write_archive(together, out);
    }
    close(take_fd(&out));
    if (pid < 0)
        return error_set_errno(err, ERR_INTERNAL, "fork");
    result = layer_unpack(in, folder, layer, err);
    close(take_fd(&in)); /* whoever still writes hears of it */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (result == 0 && status != 0)
        return error_set(err, ERR_INTERNAL, "layers can't be put together");
    return result;
}
