/* What this machine lacks for sandboxes, each thing found out by trying it. */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/scope.h"

enum finding { GOOD, MISSING, ADVICE };

/* What a check looks at, and what it has to say about it. */
struct patient {
    const char *folder;
    char detail[160];
};

static enum finding judge(struct patient *patient, bool good, const char *what)
{
    if (!good)
        snprintf(patient->detail, sizeof(patient->detail), "%.110s: %s", what, strerror(errno));
    return good ? GOOD : MISSING;
}

/* The first line of a small file, or "" */
static void read_line(const char *path, char *line, size_t size)
{
    auto_fclose FILE *file = fopen(path, "re");

    if (!file || !fgets(line, (int)size, file))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

/* --- namespaces
 * --------------------------------------------------------------------------------------------------
 */

struct clone_attempt {
    uint64_t flags;
    int (*inside)(void);
    int cgroup;
};

/* Run `inside` in a child with these namespaces. Returns its exit status, or -1 with errno when the
 * clone failed. */
static int in_child(struct clone_attempt attempt)
{
    struct clone_args arguments = {
        .flags = attempt.flags, .exit_signal = SIGCHLD, .cgroup = (unsigned)attempt.cgroup};
    pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
    int status;

    if (pid == 0)
        _exit(attempt.inside ? attempt.inside() : 0);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static enum finding check_root(struct patient *patient)
{
    (void)patient;
    return geteuid() == 0 ? GOOD : MISSING;
}

static enum finding check_kernel(struct patient *patient)
{
    struct utsname name;

    uname(&name);
    snprintf(patient->detail, sizeof(patient->detail), "Linux %s", name.release);
    return GOOD;
}

static enum finding check_user_namespace(struct patient *patient)
{
    return judge(patient, in_child((struct clone_attempt){.flags = CLONE_NEWUSER}) == 0, "clone3");
}

static enum finding check_namespaces(struct patient *patient)
{
    uint64_t all = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                   CLONE_NEWUTS | CLONE_NEWCGROUP;

    return judge(patient, in_child((struct clone_attempt){.flags = all}) == 0, "clone3");
}

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

static enum finding check_proc(struct patient *patient)
{
    int result = in_child((struct clone_attempt){
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, .inside = mount_proc});

    if (result > 0)
        errno = result;
    return judge(patient, result == 0, "mount");
}

/* --- file systems
 * ---------------------------------------------------------------------------------------------------
 */

/* A descriptor of a user namespace whose ids all map to one range; the child that held it is gone.
 */
static int make_userns(void)
{
    int ready[2], userns;
    char path[64];
    struct clone_args arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    pid_t pid;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
    if (pid == 0) {
        char end;

        close(ready[1]);
        _exit(read(ready[0], &end, 1) < 0);
    }
    close(ready[0]);
    userns = -1;
    if (pid > 0) {
        static const char map[] = "0 1048576 65536\n";
        bool mapped = true;

        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, i ? "gid_map" : "uid_map");
            auto_close int file = open(path, O_WRONLY | O_CLOEXEC);
            mapped = mapped && file >= 0 && write(file, map, strlen(map)) > 0;
        }
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
        if (mapped)
            userns = open(path, O_RDONLY | O_CLOEXEC);
    }
    close(ready[1]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
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

static enum finding check_idmap(struct patient *patient)
{
    auto_close int mount = idmap(patient->folder);

    return judge(patient, mount >= 0, patient->folder);
}

/* An overlay of detached mounts, one of them id-mapped. It wants two layers at least, and not twice
 * the same. */
static int overlay(const char *folder)
{
    auto_close int empty = fsopen("tmpfs", FSOPEN_CLOEXEC);
    auto_close int upper_layer = make_mount(empty);
    auto_close int lower_layer = idmap(folder);
    auto_close int filesystem = fsopen("overlay", FSOPEN_CLOEXEC);
    auto_close int mount = -1;

    if (upper_layer < 0 || lower_layer < 0 || filesystem < 0 ||
        fsconfig(filesystem, FSCONFIG_SET_FD, "lowerdir+", NULL, upper_layer) < 0 ||
        fsconfig(filesystem, FSCONFIG_SET_FD, "lowerdir+", NULL, lower_layer) < 0)
        return -1;
    mount = make_mount(filesystem);
    return mount < 0 ? -1 : 0;
}

static enum finding check_overlay(struct patient *patient)
{
    return judge(patient, overlay(patient->folder) == 0, "overlay of id-mapped layers");
}

/* --- control groups
 * ---------------------------------------------------------------------------------------------------
 */

/* Whether a controller can be used, in version 2 or 1. */
static bool has_controller(const char *name)
{
    auto_fclose FILE *mounts = fopen("/proc/self/mounts", "re");
    char line[4096], controllers[512], path[1200];

    while (mounts && fgets(line, sizeof(line), mounts)) {
        char target[1024], type[64], options[1024];

        if (sscanf(line, "%*s %1023s %63s %1023s", target, type, options) != 3)
            continue;
        if (!strcmp(type, "cgroup2")) {
            snprintf(path, sizeof(path), "%s/cgroup.controllers", target);
            read_line(path, controllers, sizeof(controllers));
        } else if (!strcmp(type, "cgroup")) {
            snprintf(controllers, sizeof(controllers), "%.500s", options);
        } else {
            continue;
        }
        for (char *save, *word = strtok_r(controllers, " ,", &save); word;
             word = strtok_r(NULL, " ,", &save))
            if (!strcmp(word, name))
                return true;
    }
    return false;
}

static enum finding check_controllers(struct patient *patient)
{
    static const char *const names[] = {"memory", "pids", "cpu"};
    enum finding finding = GOOD;

    for (size_t i = 0; i < COUNT(names); i++) {
        size_t used = strlen(patient->detail);

        if (has_controller(names[i]))
            continue;
        finding = MISSING;
        snprintf(patient->detail + used, sizeof(patient->detail) - used, "%s%s",
                 used ? ", " : "no ", names[i]);
    }
    return finding;
}

/* Where version 2 is mounted, or "". */
static void find_unified(char target[1024])
{
    auto_fclose FILE *mounts = fopen("/proc/self/mounts", "re");
    char line[4096], type[64];

    while (mounts && fgets(line, sizeof(line), mounts))
        if (sscanf(line, "%*s %1023s %63s", target, type) == 2 && !strcmp(type, "cgroup2"))
            return;
    target[0] = '\0';
}

static enum finding check_unified(struct patient *patient)
{
    char target[1024], path[1100];
    int result;

    find_unified(target);
    if (!target[0]) {
        errno = ENOENT;
        return judge(patient, false, "no cgroup2 mount");
    }
    snprintf(path, sizeof(path), "%s/agent-sandbox-doctor-%d", target, (int)getpid());
    if (mkdir(path, 0755) < 0)
        return judge(patient, false, path);
    auto_close int cgroup = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    result = in_child((struct clone_attempt){.flags = CLONE_INTO_CGROUP, .cgroup = cgroup});
    if (result == 0 && faccessat(cgroup, "cgroup.kill", W_OK, 0) < 0)
        result = -1;
    judge(patient, result == 0, "CLONE_INTO_CGROUP, cgroup.kill");
    rmdir(path);
    return result == 0 ? GOOD : MISSING;
}

/* --- system calls
 * -------------------------------------------------------------------------------------------------------
 */

static enum finding check_seccomp(struct patient *patient)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;

    return judge(patient, syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0,
                 "seccomp");
}

static enum finding check_openat2(struct patient *patient)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    auto_close int fd = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));

    return judge(patient, fd >= 0, "openat2");
}

static enum finding check_pidfd(struct patient *patient)
{
    auto_close int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    return judge(patient, fd >= 0, "pidfd_open");
}

static enum finding check_close_range(struct patient *patient)
{
    return judge(patient, syscall(SYS_close_range, 1u << 30, ~0u, 0) == 0, "close_range");
}

/* --- around it
 * ----------------------------------------------------------------------------------------------------------------
 */

static enum finding check_nested_limit(struct patient *patient)
{
    char value[32];

    read_line("/proc/sys/user/max_user_namespaces", value, sizeof(value));
    if (strtol(value, NULL, 10) >= 64)
        return GOOD;
    snprintf(patient->detail, sizeof(patient->detail), "user.max_user_namespaces is %s",
             value[0] ? value : "unknown");
    return MISSING;
}

static enum finding check_builder(struct patient *patient)
{
    (void)patient;
    return access("/usr/bin/mmdebstrap", X_OK) == 0 ? GOOD : ADVICE;
}

/* Settings of the kernel that leave less to whoever escapes. */
static enum finding check_hardening(struct patient *patient)
{
    static const struct {
        const char *name;
        long at_least;
    } wanted[] = {{"kernel/dmesg_restrict", 1},
                  {"kernel/kptr_restrict", 1},
                  {"kernel/unprivileged_bpf_disabled", 1},
                  {"kernel/perf_event_paranoid", 2},
                  {"kernel/yama/ptrace_scope", 1},
                  {"kernel/io_uring_disabled", 1},
                  {"fs/protected_hardlinks", 1},
                  {"fs/protected_symlinks", 1}};
    enum finding finding = GOOD;

    for (size_t i = 0; i < COUNT(wanted); i++) {
        char path[96], value[32];
        size_t used = strlen(patient->detail);

        snprintf(path, sizeof(path), "/proc/sys/%s", wanted[i].name);
        read_line(path, value, sizeof(value));
        if (!value[0] || strtol(value, NULL, 10) >= wanted[i].at_least)
            continue;
        finding = ADVICE;
        snprintf(patient->detail + used, sizeof(patient->detail) - used, "%s%s=%s", used ? " " : "",
                 wanted[i].name, value);
    }
    return finding;
}

static const struct {
    const char *what;
    enum finding (*check)(struct patient *);
    const char *cure;
} checks[] = {
    {"root", check_root,
     "run sandboxctl doctor as root: most of what follows cannot be tried otherwise"},
    {"kernel", check_kernel, NULL},
    {"user namespaces", check_user_namespace,
     "a kernel with CONFIG_USER_NS, and in a container its privileges"},
    {"how many of them", check_nested_limit, "sysctl user.max_user_namespaces=60000"},
    {"all namespaces", check_namespaces,
     "a kernel with CONFIG_NAMESPACES (pid, net, ipc, uts, mount, cgroup)"},
    {"a new /proc", check_proc,
     "this process's /proc is covered: no ProtectKernelTunables= or ProtectProc= in the unit, no "
     "masked paths"},
    {"id-mapped mounts", check_idmap,
     "Linux 5.12, and SUPERVISOR_STATE on ext4, xfs, btrfs or tmpfs (6.3)"},
    {"overlayfs", check_overlay, "Linux 6.15 with CONFIG_OVERLAY_FS (modprobe overlay)"},
    {"cgroup controllers", check_controllers,
     "mount the controllers; in a unit Delegate=yes; for memory perhaps cgroup_enable=memory at "
     "boot"},
    {"cgroup 2", check_unified,
     "mount -t cgroup2 none /sys/fs/cgroup (Linux 5.14 for cgroup.kill)"},
    {"seccomp", check_seccomp, "a kernel with CONFIG_SECCOMP_FILTER"},
    {"openat2", check_openat2, "Linux 5.6"},
    {"pidfd", check_pidfd, "Linux 5.3"},
    {"close_range", check_close_range, "Linux 5.9"},
    {"image builder", check_builder, "apt-get install mmdebstrap, to build images here"},
    {"hardening", check_hardening, "set these by a file under /etc/sysctl.d"},
};

int doctor_examine(const char *folder, FILE *out)
{
    static const char *const words[] = {[GOOD] = "ok", [MISSING] = "MISSING", [ADVICE] = "advice"};
    int missing = 0;

    for (size_t i = 0; i < COUNT(checks); i++) {
        struct patient patient = {.folder = folder};
        enum finding finding = checks[i].check(&patient);

        fprintf(out, "%-8s %-19s", words[finding], checks[i].what);
        if (patient.detail[0])
            fprintf(out, " %s", patient.detail);
        if (finding != GOOD && checks[i].cure)
            fprintf(out, "%s cure: %s", patient.detail[0] ? ";" : "", checks[i].cure);
        fputc('\n', out);
        missing += finding == MISSING;
    }
    return missing;
}
