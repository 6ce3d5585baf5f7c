/* What sandboxes need of the kernel: see kernel.h. */
#include "common/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/scope.h"

enum { PIDFS_MAGIC = 0x50494446, UNUSED_DESCRIPTOR = 1 << 30 };

/* --- namespaces ------------------------------------------------------------------------------ */

int kernel_try(unsigned long flags, int (*inside)(void))
{
    struct clone_args arguments = {.flags = flags, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
    int status;

    if (pid == 0)
        _exit(inside ? inside() : 0);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EFAULT;
}

/* The child's exit status is an errno. */
static bool works_in_child(unsigned long flags, int (*inside)(void))
{
    int result = kernel_try(flags, inside);

    if (result > 0)
        errno = result;
    return result == 0;
}

static bool try_user_namespace(const char *folder)
{
    (void)folder;
    return works_in_child(CLONE_NEWUSER, NULL);
}

static bool try_namespaces(const char *folder)
{
    (void)folder;
    return works_in_child(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                              CLONE_NEWUTS | CLONE_NEWCGROUP,
                          NULL);
}

/* --- file systems ---------------------------------------------------------------------------- */

/* A detached mount of a new file system. */
static int make_mount(int filesystem)
{
    if (filesystem < 0 || fsconfig(filesystem, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    return fsmount(filesystem, FSMOUNT_CLOEXEC, 0);
}

static int mount_proc(void)
{
    auto_close int filesystem = fsopen("proc", FSOPEN_CLOEXEC);
    auto_close int mount = make_mount(filesystem);

    return mount < 0 ? errno : 0;
}

static bool try_proc(const char *folder)
{
    (void)folder;
    return works_in_child(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, mount_proc);
}

static bool write_map(pid_t pid, const char *name)
{
    static const char map[] = "0 1048576 65536\n";
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    auto_close int file = open(path, O_WRONLY | O_CLOEXEC);
    return file >= 0 && write(file, map, strlen(map)) > 0;
}

/* A descriptor of a user namespace whose ids all map to one range; the child that held it is gone.
 */
static int make_userns(void)
{
    struct clone_args arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    int ready[2], userns = -1, error;
    char path[64], end;
    pid_t pid;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
    error = errno;
    if (pid == 0) {
        close(ready[1]);
        _exit(read(ready[0], &end, 1) < 0);
    }
    close(ready[0]);
    if (pid > 0 && write_map(pid, "uid_map") && write_map(pid, "gid_map")) {
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
        userns = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (pid > 0)
        error = errno;
    close(ready[1]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    errno = error;
    return userns;
}

/* A detached id-mapped mount of the folder. */
static int idmap(const char *folder)
{
    auto_close int userns = make_userns();
    auto_close int mount = open_tree(AT_FDCWD, folder, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    struct mount_attr mapped = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)userns};

    if (userns < 0 || mount < 0 ||
        mount_setattr(mount, "", AT_EMPTY_PATH, &mapped, sizeof(mapped)) < 0)
        return -1;
    return take_fd(&mount);
}

static bool try_idmap(const char *folder)
{
    auto_close int mount = idmap(folder);

    return mount >= 0;
}

/* An overlay of detached mounts, one of them id-mapped. It wants two layers at least, and not twice
 * the same. */
static bool try_overlay(const char *folder)
{
    auto_close int empty = fsopen("tmpfs", FSOPEN_CLOEXEC);
    auto_close int upper_layer = make_mount(empty);
    auto_close int lower_layer = idmap(folder);
    auto_close int filesystem = fsopen("overlay", FSOPEN_CLOEXEC);
    auto_close int mount = -1;

    if (upper_layer < 0 || lower_layer < 0 || filesystem < 0 ||
        fsconfig(filesystem, FSCONFIG_SET_FD, "lowerdir+", NULL, upper_layer) < 0 ||
        fsconfig(filesystem, FSCONFIG_SET_FD, "lowerdir+", NULL, lower_layer) < 0)
        return false;
    mount = make_mount(filesystem);
    return mount >= 0;
}

/* --- system calls ---------------------------------------------------------------------------- */

static bool try_seccomp(const char *folder)
{
    static const uint32_t actions[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ERRNO};

    (void)folder;
    for (size_t i = 0; i < COUNT(actions); i++)
        if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &actions[i]) != 0)
            return false;
    return true;
}

static int lock_privileges(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : errno;
}

static bool try_no_new_privs(const char *folder)
{
    (void)folder;
    return works_in_child(0, lock_privileges);
}

static bool try_openat2(const char *folder)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    auto_close int fd = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));

    (void)folder;
    return fd >= 0;
}

/* By its inode a process is told from a later one with its number, which takes a file system of
 * pidfds. */
static bool try_pidfd(const char *folder)
{
    auto_close int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    struct statfs status;

    (void)folder;
    if (fd < 0 || fstatfs(fd, &status) < 0)
        return false;
    errno = ENOTSUP;
    return status.f_type == PIDFS_MAGIC;
}

static bool try_close_range(const char *folder)
{
    (void)folder;
    return syscall(SYS_close_range, UNUSED_DESCRIPTOR, ~0u, 0) == 0;
}

/* Init is run from a file in memory that nobody can write to. */
static bool try_sealed_memory(const char *folder)
{
    auto_close int fd = memfd_create("init", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    (void)folder;
    return fd >= 0 &&
           fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0;
}

const struct kernel_feature kernel_features[] = {
    {"user namespaces", try_user_namespace,
     "a kernel with CONFIG_USER_NS, and in a container its privileges"},
    {"all namespaces", try_namespaces,
     "a kernel with CONFIG_NAMESPACES (pid, net, ipc, uts, mount, cgroup)"},
    {"a new /proc", try_proc,
     "this process's /proc is covered: no ProtectKernelTunables= or ProtectProc= in the unit, no "
     "masked paths"},
    {"id-mapped mounts", try_idmap,
     "Linux 5.12, and SUPERVISOR_STATE on ext4, xfs, btrfs or tmpfs (6.3)"},
    {"overlayfs", try_overlay, "Linux 6.15 with CONFIG_OVERLAY_FS (modprobe overlay)"},
    {"seccomp", try_seccomp, "a kernel with CONFIG_SECCOMP_FILTER"},
    {"no_new_privs", try_no_new_privs, "Linux 3.5"},
    {"openat2", try_openat2, "Linux 5.6"},
    {"pidfd", try_pidfd, "Linux 6.9 (CONFIG_FS_PID)"},
    {"close_range", try_close_range, "Linux 5.9"},
    {"sealed memory", try_sealed_memory, "a kernel with CONFIG_MEMFD_CREATE"},
};

const size_t kernel_feature_count = COUNT(kernel_features);

int kernel_version(void)
{
    struct utsname name;
    int major = 0, minor = 0;

    if (uname(&name) < 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2)
        return 0;
    return major * 100 + minor;
}
