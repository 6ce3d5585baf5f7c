/* Mounts, all of them detached until a sandbox attaches them. */
#include "supervisor/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/capabilities.h"
#include "supervisor/steps.h"
#include "supervisor/supervisor.h"

enum {
    ATTR_COMMON = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
    TERMINALS_MAX = 64,
    LIMITS_TOLD = 5,
    SYSTEM_FILES = 64,
    PAGE = 4096,
};

static int set_option(int filesystem, const char *key, const char *value, struct error *err)
{
    unsigned command = value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

    if (fsconfig(filesystem, command, key, value, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mount option %s=%s", key, value ? value : "");
    return 0;
}

/* Make the configured file system and a mount of it. */
static int finish(int filesystem, unsigned attributes, struct error *err)
{
    int mount;

    if (fsconfig(filesystem, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "create file system");
    mount = fsmount(filesystem, FSMOUNT_CLOEXEC, attributes);
    if (mount < 0)
        return error_set_errno(err, ERR_INTERNAL, "fsmount");
    return mount;
}

/* `options` are pairs, up to a NULL key. */
static int make(const char *type, unsigned attributes, const char *const *options,
                struct error *err)
{
    auto_close int filesystem = fsopen(type, FSOPEN_CLOEXEC);
    int mount;

    if (filesystem < 0)
        return error_set_errno(err, ERR_INTERNAL, "fsopen %s", type);
    for (; options && options[0]; options += 2)
        if (set_option(filesystem, options[0], options[1], err) < 0)
            return error_add_context(err, "%s", type);
    mount = finish(filesystem, attributes, err);
    return mount < 0 ? error_add_context(err, "%s", type) : mount;
}

/* --- outside --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned minor_number, major_number;
} nodes[] = {{"null", 3, 1},   {"zero", 5, 1},    {"full", 7, 1},
             {"random", 8, 1}, {"urandom", 9, 1}, {"tty", 0, 5}};

static const struct {
    const char *name, *target;
} links[] = {
    {"ptmx", "pts/ptmx"},          {"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"},
    {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"}, {"core", "/proc/kcore"},
};

int mounts_devices(struct error *err)
{
    static const char *const options[] = {"mode", "0755", "size", "64k", "nr_inodes", "64", NULL};
    auto_close int mount = make("tmpfs", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, options, err);
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};

    if (mount < 0)
        return -1;
    for (size_t i = 0; i < COUNT(nodes); i++)
        if (mknodat(mount, nodes[i].name, S_IFCHR,
                    makedev(nodes[i].major_number, nodes[i].minor_number)) < 0 ||
            fchmodat(mount, nodes[i].name, 0666, 0) < 0)
            return error_set_errno(err, ERR_INTERNAL, "mknod %s", nodes[i].name);
    for (size_t i = 0; i < COUNT(links); i++)
        if (symlinkat(links[i].target, mount, links[i].name) < 0)
            return error_set_errno(err, ERR_INTERNAL, "symlink %s", links[i].name);
    if (mkdirat(mount, "pts", 0755) < 0 || mkdirat(mount, "shm", 0755) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir in /dev");
    if (mount_setattr(mount, "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "read-only /dev");
    return take_fd(&mount);
}

/* Another mount of the tree at `directory` (a descriptor). */
static int clone_mount(int directory, struct error *err)
{
    int mount = open_tree(directory, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (mount < 0)
        return error_set_errno(err, ERR_INTERNAL, "clone mount");
    return mount;
}

int mounts_idmap(int directory, int userns, struct error *err)
{
    auto_close int mount = clone_mount(directory, err);
    struct mount_attr mapped = {
        .attr_set = MOUNT_ATTR_IDMAP | ATTR_COMMON,
        .userns_fd = (unsigned)userns,
    };

    if (mount < 0)
        return -1;
    if (mount_setattr(mount, "", AT_EMPTY_PATH, &mapped, sizeof(mapped)) < 0)
        return error_set_errno(err, ERR_INTERNAL,
                               "id-mapped mount (the file system must support it)");
    return take_fd(&mount);
}

static int set_layer(int filesystem, const char *key, int layer, struct error *err)
{
    if (fsconfig(filesystem, FSCONFIG_SET_FD, key, NULL, layer) < 0)
        return error_set_errno(err, ERR_INTERNAL, "overlay %s", key);
    return 0;
}

static int overlay_as_root_of_sandbox(const int *lowers, size_t count, int upper, struct error *err)
{
    static const char *const options[] = {"redirect_dir", "on", "xino", "off",
                                          "volatile",     NULL, NULL};
    auto_close int filesystem = fsopen("overlay", FSOPEN_CLOEXEC);
    auto_close int changes = openat(upper, "u", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int work = openat(upper, "w", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (filesystem < 0 || changes < 0 || work < 0)
        return error_set_errno(err, ERR_INTERNAL, "overlay");
    for (size_t i = 0; options[i]; i += 2)
        if (set_option(filesystem, options[i], options[i + 1], err) < 0)
            return -1;
    while (count--) /* the highest first */
        if (set_layer(filesystem, "lowerdir+", lowers[count], err) < 0)
            return -1;
    if (set_layer(filesystem, "upperdir", changes, err) < 0 ||
        set_layer(filesystem, "workdir", work, err) < 0)
        return -1;
    return finish(filesystem, ATTR_COMMON, err);
}

/* The overlay works on its layers with the rights of its maker, whose id must exist in their maps:
 * so it is made by the sandbox's root, but with the supervisor's capabilities, which setfsuid(2)
 * takes away. */
int mounts_overlay(const int *lowers, size_t count, int upper, uid_t root_id, struct error *err)
{
    int mount = -1;

    setfsgid(root_id);
    setfsuid(root_id);
    if (capabilities_raise(err) == 0)
        mount = overlay_as_root_of_sandbox(lowers, count, upper, err);
    setfsuid(0);
    setfsgid(0);
    return mount;
}

/* --- inside: before the root changes
 * ------------------------------------------------------------------------------------ */

static int write_limit(int system, const char *path, const char *format, int64_t value,
                       struct error *err)
{
    char full[128], text[64];
    int length = snprintf(text, sizeof(text), format, (long long)value);

    snprintf(full, sizeof(full), "fs/cgroup/%s", path);
    auto_close int fd = openat(system, full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0 || write(fd, text, (size_t)length) != length)
        return error_set_errno(err, ERR_INTERNAL, "/sys/%s", full);
    return 0;
}

/* Where language runtimes look for how much they may use, in both shapes: nothing but numbers, and
 * nothing behind them. */
static int tell_limits(const struct containment *containment, struct error *err)
{
    const struct {
        const char *path, *format;
        int64_t value;
    } limits[] = {
        {"memory.max", "%lld\n", containment->limits->memory_bytes},
        {"pids.max", "%lld\n", containment->limits->pids},
        {"cpu.max", "%lld 100000\n", containment->limits->cpu_percent * 1000},
        {"cpu/cpu.cfs_quota_us", "%lld\n", containment->limits->cpu_percent * 1000},
        {"cpu/cpu.cfs_period_us", "%lld\n", 100000},
    };
    _Static_assert(COUNT(limits) == LIMITS_TOLD, "each takes a page");
    /* The same numbers: a page of memory less for each. */
    static const char *const equal[][2] = {
        {"fs/cgroup/memory.max", "fs/cgroup/memory/memory.limit_in_bytes"},
        {"fs/cgroup/pids.max", "fs/cgroup/pids/pids.max"},
    };
    static const char *const folders[] = {"fs", "fs/cgroup", "fs/cgroup/memory", "fs/cgroup/pids",
                                          "fs/cgroup/cpu"};

    for (size_t i = 0; i < COUNT(folders); i++)
        if (mkdirat(containment->system, folders[i], 0755) < 0)
            return error_set_errno(err, ERR_INTERNAL, "/sys/%s", folders[i]);
    for (size_t i = 0; i < COUNT(limits); i++)
        if (write_limit(containment->system, limits[i].path, limits[i].format, limits[i].value,
                        err) < 0)
            return -1;
    for (size_t i = 0; i < COUNT(equal); i++)
        if (linkat(containment->system, equal[i][0], containment->system, equal[i][1], 0) < 0)
            return error_set_errno(err, ERR_INTERNAL, "/sys/%s", equal[i][1]);
    return 0;
}

/* What masks are made of, on the file system of /sys. */
static const char empty_file[] = ".none", empty_folder[] = ".empty";

static int fill_system(const struct containment *containment, struct error *err)
{
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};

    if (tell_limits(containment, err) < 0)
        return -1;
    if (mknodat(containment->system, empty_file, S_IFREG | 0444, 0) < 0 ||
        mkdirat(containment->system, empty_folder, 0555) < 0 ||
        mount_setattr(containment->system, "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "/sys");
    return 0;
}

/* A mount of a new folder of the file system in memory. */
static int make_folder(int memory, const char *name, mode_t mode, unsigned attributes,
                       struct error *err)
{
    struct mount_attr wanted = {.attr_set = attributes};
    auto_close int mount = -1;

    /* The umask is not asked for its opinion. */
    if (mkdirat(memory, name, 0700) == 0 && fchmodat(memory, name, mode, 0) == 0)
        mount = open_tree(memory, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (mount < 0 || mount_setattr(mount, "", AT_EMPTY_PATH, &wanted, sizeof(wanted)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "folder %s in memory", name);
    return take_fd(&mount);
}

/* /tmp, /dev/shm and /sys share one file system: each would cost the kernel two dozen KiB where a
 * thousand sandboxes idle, since every memory cgroup keeps lists for every file system's caches. */
static int make_memory(struct containment *containment, struct error *err)
{
    char size[32], inodes[32];
    const char *options[] = {"mode", "0755", "size", size, "nr_inodes", inodes, NULL};

    snprintf(size, sizeof(size), "%lld",
             (long long)containment->limits->tmp_bytes + LIMITS_TOLD * PAGE);
    snprintf(inodes, sizeof(inodes), "%lld", (long long)containment->tmp_inodes + SYSTEM_FILES);
    auto_close int memory = make("tmpfs", ATTR_COMMON, options, err);
    if (memory < 0)
        return -1;
    containment->temporary = make_folder(memory, "tmp", 01777, ATTR_COMMON, err);
    if (containment->temporary < 0)
        return -1;
    containment->shared_memory =
        make_folder(memory, "shm", 01777, ATTR_COMMON | MOUNT_ATTR_NOEXEC, err);
    if (containment->shared_memory < 0)
        return -1;
    containment->system = make_folder(memory, "sys", 0755, ATTR_COMMON | MOUNT_ATTR_NOEXEC, err);
    return containment->system < 0 ? -1 : fill_system(containment, err);
}

/* Of /proc. What this kernel does not have is fine. */
static const char *const masked_files[] = {
    "kcore",      "kallsyms",      "keys",          "key-users",   "timer_list",
    "kmsg",       "sysrq-trigger", "iomem",         "ioports",     "interrupts",
    "config.gz",  "cmdline",       "bootconfig",    "modules",     "diskstats",
    "partitions", "mtrr",          "latency_stats", "timer_stats", "sched_debug",
};

/* These, too, unless this kernel opens them to nobody but the host's root: a mount less each. */
static const char *const masked_if_open[] = {
    "slabinfo", "kpagecount", "kpageflags", "kpagecgroup", "vmallocinfo", "pagetypeinfo",
};

static const char *const masked_folders[] = {"acpi", "scsi", "asound", "driver",  "dynamic_debug",
                                             "irq",  "bus",  "fs",     "pressure"};

/* 1 is this process, which becomes init: root inside may open its switches. */
static const char *const read_only_folders[] = {"sys", "tty", "1"};

/* Put a clone of `source`/`name` over `target` of the new /proc, before it is anywhere: names of
 * one part in a file system of the kernel's own, so nothing can lead elsewhere. */
static int cover(int source, const char *name, bool read_only, int proc, const char *target,
                 struct error *err)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};

    if (faccessat(proc, target, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    auto_close int mount =
        open_tree(source, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
    if (mount < 0 ||
        (!read_only &&
         mount_setattr(mount, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) < 0) ||
        move_mount(mount, "", proc, target, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return error_set_errno(err, ERR_INTERNAL, "cover /proc/%s", target);
    return 0;
}

/* Root inside is not its owner, and has no capability over what others than its users own. */
static bool is_closed(int proc, const char *name)
{
    struct stat status;

    return fstatat(proc, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_uid != 0 &&
           !(status.st_mode & (S_IRWXG | S_IRWXO));
}

int proc_mask(struct containment *containment, struct error *err)
{
    const int proc = containment->proc, system = containment->system;

    for (size_t i = 0; i < COUNT(masked_files); i++)
        if (cover(system, empty_file, true, proc, masked_files[i], err) < 0)
            return -1;
    for (size_t i = 0; i < COUNT(masked_if_open); i++)
        if (!is_closed(proc, masked_if_open[i]) &&
            cover(system, empty_file, true, proc, masked_if_open[i], err) < 0)
            return -1;
    for (size_t i = 0; i < COUNT(masked_folders); i++)
        if (cover(system, empty_folder, true, proc, masked_folders[i], err) < 0)
            return -1;
    for (size_t i = 0; i < COUNT(read_only_folders); i++)
        if (cover(proc, read_only_folders[i], false, proc, read_only_folders[i], err) < 0)
            return -1;
    return 0;
}

int mounts_make(struct containment *containment, struct error *err)
{
    char terminals[16];
    const char *proc_options[] = {NULL};
    const char *terminal_options[] = {"ptmxmode", "0666", "mode",    "0620", "gid",
                                      "5",        "max",  terminals, NULL};

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return error_set_errno(err, ERR_INTERNAL, "private mounts");
    snprintf(terminals, sizeof(terminals), "%d", TERMINALS_MAX);
    /* /proc must be made while a whole one is visible (mount_namespaces(7)): now. It is written to
     * through this descriptor, before any file of an image is in reach. */
    if ((containment->proc = make("proc", ATTR_COMMON | MOUNT_ATTR_NOEXEC, proc_options, err)) <
            0 ||
        (containment->terminals =
             make("devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, terminal_options, err)) < 0)
        return -1;
    return make_memory(containment, err);
}

/* --- inside: after it ------------------------------------------------------------------------ */

static int open_strictly(const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC | flags,
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };

    return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
}

static int attach(int mount, const char *path, struct error *err)
{
    auto_close int target = open_strictly(path, O_DIRECTORY);

    if (target < 0 && errno == ENOENT && mkdir(path, 0755) == 0)
        target = open_strictly(path, O_DIRECTORY);
    if (target < 0)
        return error_set_errno(err, ERR_INTERNAL, "the image's %s must be a directory or missing",
                               path);
    if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mount %s", path);
    return 0;
}

int mounts_attach(struct containment *containment, struct error *err)
{
    if (attach(containment->devices, "/dev", err) < 0 ||
        attach(containment->terminals, "/dev/pts", err) < 0 ||
        attach(containment->shared_memory, "/dev/shm", err) < 0 ||
        attach(containment->proc, "/proc", err) < 0 ||
        attach(containment->temporary, "/tmp", err) < 0 ||
        attach(containment->workspace, WORKSPACE_PATH, err) < 0 ||
        attach(containment->system, "/sys", err) < 0)
        return -1;
    return 0;
}
