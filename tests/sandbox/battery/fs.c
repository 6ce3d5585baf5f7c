/* fs.*, cgroup.*, tty.*: files, mounts, devices and terminals. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pty.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

/* --- mounts ---------------------------------------------------------------------------------- */

/* Everything is nosuid, and nodev but for what has our own nodes. */
static int mount_flags(const void *row)
{
    FILE *file = fopen("/proc/self/mountinfo", "r");
    char line[4096];
    int verdict = HOLDS, count = 0;

    (void)row;
    while (file && fgets(line, sizeof(line), file)) {
        char where[1024] = "", options[1024] = "", *type = strstr(line, " - ");

        /* id, parent, device, root, where, options */
        if (sscanf(line, "%*d %*d %*s %*s %1023s %1023s", where, options) != 2)
            continue;
        count++;
        if (!strstr(options, "nosuid"))
            verdict = broken("%s: %s", where, options);
        /* A cover of /proc is our null device. */
        if (!strstr(options, "nodev") && strcmp(where, "/dev") != 0 &&
            strcmp(where, "/dev/pts") != 0 && strncmp(where, "/proc/", 6) != 0)
            verdict = broken("%s: %s%s", where, options, type ? type : "");
        if (strncmp(where, "/proc/", 6) == 0 && !strstr(options, "ro"))
            verdict = broken("%s: %s", where, options);
        if (strstr(line, "shared:") || strstr(line, "master:"))
            verdict = broken("%s spreads: %s", where, line);
    }
    return count > 5 ? verdict : broken("%d mounts", count);
}

struct place {
    const char *path;
    unsigned long flags;
};

static int is_read_only(const void *data)
{
    const struct place *place = data;
    char path[256];
    struct statvfs status;

    if (statvfs(place->path, &status) < 0 || !(status.f_flag & ST_RDONLY))
        return broken("%s is not read-only", place->path);
    snprintf(path, sizeof(path), "%s/x", place->path);
    return REFUSED(mkdir(path, 0755)) | REFUSED(mknod(path, S_IFIFO | 0600, 0)) |
           REFUSED(symlink("/", path)) | REFUSED(open(path, O_CREAT | O_WRONLY, 0600));
}

static int has_flags(const void *data)
{
    const struct place *place = data;
    struct statvfs status;

    if (statvfs(place->path, &status) < 0 || (status.f_flag & place->flags) != place->flags)
        return broken("%s has flags %lx", place->path, status.f_flag);
    return HOLDS;
}

/* So big at most, in bytes and in inodes. */
static int is_bounded(const void *data)
{
    const struct place *place = data;
    struct statvfs status;

    if (statvfs(place->path, &status) < 0)
        return broken("%s: %s", place->path, strerror(errno));
    if (status.f_blocks == 0 || status.f_files == 0 ||
        status.f_blocks * status.f_frsize > 1UL << 30 || status.f_files > 1000000)
        return broken("%s has %lu blocks, %lu inodes", place->path, (unsigned long)status.f_blocks,
                      (unsigned long)status.f_files);
    return HOLDS;
}

static const struct place place_dev = {"/dev", 0}, place_sys = {"/sys", 0},
                          place_cgroup = {"/sys/fs/cgroup", 0},
                          flags_root = {"/", ST_NOSUID | ST_NODEV},
                          flags_workspace = {"/workspace", ST_NOSUID | ST_NODEV},
                          flags_tmp = {"/tmp", ST_NOSUID | ST_NODEV},
                          flags_shm = {"/dev/shm", ST_NOSUID | ST_NODEV | ST_NOEXEC},
                          flags_proc = {"/proc", ST_NOSUID | ST_NODEV | ST_NOEXEC},
                          flags_dev = {"/dev", ST_NOSUID | ST_NOEXEC},
                          flags_pts = {"/dev/pts", ST_NOSUID | ST_NOEXEC}, size_tmp = {"/tmp", 0},
                          size_shm = {"/dev/shm", 0};

/* --- devices --------------------------------------------------------------------------------- */

static int dev_list(const void *row)
{
    static const char *const known[] = {"null",   "zero", "full", "random", "urandom",
                                        "tty",    "ptmx", "fd",   "stdin",  "stdout",
                                        "stderr", "core", "pts",  "shm"};
    DIR *directory = opendir("/dev");
    struct dirent *entry;
    int verdict = directory ? HOLDS : broken("/dev: %s", strerror(errno));

    (void)row;
    while (directory && (entry = readdir(directory))) {
        bool found = entry->d_name[0] == '.';

        for (size_t i = 0; i < COUNT(known); i++)
            found |= strcmp(known[i], entry->d_name) == 0;
        if (!found)
            verdict = broken("/dev/%s", entry->d_name);
    }
    return verdict;
}

static int dev_nodes(const void *row)
{
    static const struct {
        const char *path;
        unsigned major_number, minor_number;
    } nodes[] = {{"/dev/null", 1, 3},   {"/dev/zero", 1, 5},    {"/dev/full", 1, 7},
                 {"/dev/random", 1, 8}, {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0}};

    (void)row;
    for (size_t i = 0; i < COUNT(nodes); i++) {
        struct stat status;

        if (lstat(nodes[i].path, &status) < 0 || !S_ISCHR(status.st_mode) ||
            status.st_rdev != makedev(nodes[i].major_number, nodes[i].minor_number))
            return broken("%s", nodes[i].path);
        if (unlink(nodes[i].path) == 0 || rename(nodes[i].path, "/dev/x") == 0 ||
            chmod(nodes[i].path, 0600) == 0 || chown(nodes[i].path, 1, 1) == 0)
            return broken("%s could be changed", nodes[i].path);
    }
    return HOLDS;
}

static int device_missing(const void *data)
{
    const struct place *place = data;

    return REFUSED(open(place->path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
}

#define NODE(name) static const struct place device_##name = {"/dev/" #name, 0};
#include "tests/sandbox/battery/devices.def"
#undef NODE
static const struct place device_tun = {"/dev/net/tun", 0}, device_loop = {"/dev/loop-control", 0},
                          device_mapper = {"/dev/mapper/control", 0},
                          device_cpu = {"/dev/cpu/0/msr", 0},
                          device_input = {"/dev/input/event0", 0},
                          device_dri = {"/dev/dri/card0", 0}, device_vsock = {"/dev/vsock", 0},
                          device_vhost = {"/dev/vhost-net", 0};

/* --- the tree -------------------------------------------------------------------------------- */

static int cwd_inside_root(const void *row)
{
    char path[PATH_MAX];
    struct stat root, up;

    (void)row;
    if (!getcwd(path, sizeof(path)) || path[0] != '/')
        return broken("the working directory is outside: %s", path);
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            return broken("..: %s", strerror(errno));
    if (stat("/", &root) < 0 || stat(".", &up) < 0 || root.st_ino != up.st_ino ||
        root.st_dev != up.st_dev)
        return broken("the way up does not end at the root");
    return HOLDS;
}

static int host_files(const void *row)
{
    static const char *const prefixes[] = {"",
                                           "/proc/1/root",
                                           "/proc/self/root",
                                           "/oldroot",
                                           "/.old",
                                           "/mnt",
                                           "/host",
                                           "/put_old",
                                           "/..",
                                           "/proc/1/cwd",
                                           "/proc/self/cwd/../../../.."};
    const char *canary = told("BATTERY_CANARY");
    char path[PATH_MAX];

    (void)row;
    if (!canary)
        return SKIPPED_CHECK;
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        snprintf(path, sizeof(path), "%s%s", prefixes[i], canary);
        if (access(path, F_OK) == 0)
            return broken("%s is there", path);
    }
    return HOLDS;
}

static int privileged_attributes(const void *row)
{
    int fd = open("/tmp/attributes", O_CREAT | O_RDWR | O_CLOEXEC, 0600),
        flags = 0x10 /* immutable */;

    (void)row;
    return REFUSED(setxattr("/tmp/attributes", "trusted.overlay.opaque", "y", 1, 0)) |
           REFUSED(setxattr("/tmp", "trusted.x", "y", 1, 0)) |
           REFUSED(setxattr("/root", "trusted.overlay.redirect", "/etc", 4, 0)) |
           REFUSED(setxattr("/tmp/attributes", "security.ima", "y", 1, 0)) |

           REFUSED(ioctl(fd, 0x40086602 /* FS_IOC_SETFLAGS */, &flags)) |
           REFUSED(ioctl(fd, 0xc0045877 /* FIFREEZE */, 0)) |
           REFUSED(ioctl(fd, 0xc0185879 /* FITRIM */, (uint64_t[3]){0, ~0ULL, 0})) |
           REFUSED(ioctl(open("/", O_RDONLY | O_CLOEXEC), 0xc0045877, 0)) |
           REFUSED(ioctl(open("/workspace", O_RDONLY | O_CLOEXEC), 0xc0045877, 0));
}

/* What the maker of a disk may ask of it: nobody inside, whatever the file system. */
static int disk_controls(const void *data)
{
    static const struct {
        const char *name;
        unsigned long number;
    } requests[] = {
        {"FIFREEZE", 0xc0045877},
        {"FITHAW", 0xc0045878},
        {"FITRIM", 0xc0185879},
        {"FS_IOC_SHUTDOWN", 0x8004587d},
        {"RESIZE_FS", 0x40086610},
        {"GROUP_EXTEND", 0x40086607},
        {"GROUP_ADD", 0x40286608},
        {"SWAP_BOOT", 0x6611},
        {"MIGRATE", 0x6609},
        {"CHECKPOINT", 0x4004662b},
        {"SETFSUUID", 0x4008662c},
        {"SETFSLABEL", 0x41009432},
        {"SET_TUNE_SB", 0x40e8662e},
        {"SET_ENCRYPTION", 0x800c6613},
        {"BLKDISCARD", 0x1277},
        {"FIBMAP", 1},
        {"FS_IOC_ADD_ENCRYPTION_KEY", 0xc0506617},
        {"BTRFS_SNAP_CREATE", 0x50009401},
        {"XFS_FSBULKSTAT", 0xc0205865},
    };
    const struct place *place = data;
    static const int flags[] = {0x10 /* immutable */, 0x20 /* append only */,
                                0x4000 /* journal data */};
    int folder = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), file, verdict = HOLDS;
    char path[128];

    snprintf(path, sizeof(path), "%s/controlled.%d", place->path, getuid());
    file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    for (size_t i = 0; i < COUNT(requests); i++)
        verdict |=
            refused(requests[i].name, ioctl(folder, requests[i].number, page_of_zeroes()), 0) |
            refused(requests[i].name, ioctl(file, requests[i].number, page_of_zeroes()), 0);
    for (size_t i = 0; i < COUNT(flags); i++)
        verdict |= refused("SETFLAGS", ioctl(file, 0x40086602, &flags[i]), 0);
    unlink(path);
    return verdict;
}

static int ids_beyond_the_range(const void *row)
{
    (void)row;
    close(open("/tmp/owned", O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    return REFUSED(chown("/tmp/owned", 65536, 0)) | REFUSED(chown("/tmp/owned", 0, 100000)) |
           REFUSED(setuid(65536)) | REFUSED(setgid(1 << 20)) | REFUSED(syscall(SYS_setuid, -1L));
}

static int system_folder_is_empty(const void *row)
{
    static const char *const paths[] = {"/sys/kernel",  "/sys/firmware", "/sys/devices",
                                        "/sys/class",   "/sys/block",    "/sys/module",
                                        "/sys/bus",     "/sys/power",    "/sys/fs/bpf",
                                        "/sys/fs/fuse", "/sys/fs/ext4"};

    (void)row;
    for (size_t i = 0; i < COUNT(paths); i++)
        if (access(paths[i], F_OK) == 0)
            return broken("%s is there", paths[i]);
    return HOLDS;
}

/* Links of /tmp that another user left are not followed, nor its files linked (sysctl
 * fs.protected_* is the host's; here only that no link leads out). */
static int links_lead_nowhere(const void *row)
{
    static const char *const targets[] = {"/proc/1/root/etc/shadow", "/proc/1/cwd/x",
                                          "/proc/1/fd/3", "../../../../../../etc/hostname.host",
                                          "/proc/self/task/1/root"};

    (void)row;
    for (size_t i = 0; i < COUNT(targets); i++) {
        unlink("/tmp/leads");
        if (symlink(targets[i], "/tmp/leads") < 0)
            return broken("symlink: %s", strerror(errno));
        if (open("/tmp/leads", O_RDONLY | O_NONBLOCK) >= 0)
            return broken("%s was opened", targets[i]);
    }
    return HOLDS;
}

static int clone_of_a_foreign_file(const void *row)
{
    int own = open("/tmp/clone", O_CREAT | O_RDWR | O_CLOEXEC, 0600);

    (void)row;
    return REFUSED(ioctl(own, 0x40049409 /* FICLONE */, 0)) |
           REFUSED(ioctl(own, 0x8008660d /* EXT4_IOC_MOVE_EXT */, 0)) |
           REFUSED(syscall(SYS_copy_file_range, open("/proc/1/exe", O_RDONLY), NULL, own, NULL, 100,
                           0));
}

/* --- cgroups --------------------------------------------------------------------------------- */

static int none_mounted(const void *row)
{
    FILE *file = fopen("/proc/self/mountinfo", "r");
    char line[4096];

    (void)row;
    while (file && fgets(line, sizeof(line), file))
        if (strstr(line, " - cgroup") || strstr(line, " - sysfs") || strstr(line, " - bpf") ||
            strstr(line, " - debugfs") || strstr(line, " - tracefs") ||
            strstr(line, " - securityfs") || strstr(line, " - configfs"))
            return broken("%s", line);
    return HOLDS;
}

static int control_missing(const void *data)
{
    const struct place *place = data;
    char path[256];
    static const char *const folders[] = {"", "/memory", "/pids", "/cpu", "/devices", "/unified"};

    for (size_t i = 0; i < COUNT(folders); i++) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", folders[i], place->path);
        if (open(path, O_WRONLY) >= 0 || access(path, W_OK) == 0)
            return broken("%s", path);
    }
    return HOLDS;
}

#define FILE(name, file) static const struct place control_##name = {file, 0};
#include "tests/sandbox/battery/controls.def"
#undef FILE

static int makes_no_group(const void *row)
{
    (void)row;
    return REFUSED(mkdir("/sys/fs/cgroup/x", 0755)) |
           REFUSED(mkdir("/sys/fs/cgroup/memory/x", 0755)) |
           REFUSED(mount("x", "/tmp", "cgroup", 0, "rdma")) |
           REFUSED(mount("x", "/tmp", "cgroup2", 0, NULL)) |
           REFUSED(open("/proc/cgroups", O_WRONLY)) | REFUSED(open("/proc/1/cgroup", O_WRONLY));
}

/* --- terminals ------------------------------------------------------------------------------- */

struct request {
    unsigned long number;
};

static int ioctl_refused(const void *data)
{
    const struct request *request = data;
    int master = -1, slave = -1;
    char byte[64] = "x";

    if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
        return broken("openpty: %s", strerror(errno));
    return REFUSED_WITH(EPERM, syscall(SYS_ioctl, slave, request->number, byte)) |
           REFUSED_WITH(EPERM, syscall(SYS_ioctl, master, request->number, byte)) |
           REFUSED_WITH(EPERM, syscall(SYS_ioctl, 0, request->number, byte)) |
           REFUSED_WITH(EPERM, syscall(SYS_ioctl, -1, request->number, byte));
}

#define REQUEST(name, number) static const struct request request_##name = {number};
#include "tests/sandbox/battery/requests.def"
#undef REQUEST

static int terminal_of_its_own(const void *row)
{
    char name[128];
    int master = -1, slave = -1;
    struct stat status;

    (void)row;
    if (openpty(&master, &slave, name, NULL, NULL) < 0)
        return broken("openpty: %s", strerror(errno));
    if (strncmp(name, "/dev/pts/", 9) != 0 || stat(name, &status) < 0 || !S_ISCHR(status.st_mode))
        return broken("%s", name);
    return atoi(name + 9) < 64 ? HOLDS : broken("%s", name);
}

static int no_controlling_terminal(const void *row)
{
    (void)row;
    return REFUSED_WITH(ENXIO, open("/dev/tty", O_RDWR));
}

static int privileged_terminal(const void *row)
{
    int master = -1, slave = -1, value = 1;
    char lock[64] = "";

    (void)row;
    if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
        return broken("openpty: %s", strerror(errno));
    return REFUSED(ioctl(slave, 0x541d /* TIOCCONS */, 0)) |
           REFUSED(ioctl(slave, 0x5457 /* TIOCSLCKTRMIOS */, lock)) |
           REFUSED(ioctl(slave, 0x5437 /* TIOCVHANGUP */, 0)) |
           REFUSED(ioctl(slave, 0x4b3a /* KDSETMODE */, value)) |
           REFUSED(ioctl(slave, 0x5606 /* VT_ACTIVATE */, value));
}

static int terminals_are_bounded(const void *row)
{
    int count = 0;

    (void)row;
    while (count < 200 && open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0)
        count++;
    return count > 0 && count <= 64 ? HOLDS : broken("%d terminals", count);
}

static const struct check checks[] = {
    {"mount_flags", mount_flags, NULL, EVERYBODY},
    {"dev_read_only", is_read_only, &place_dev, EVERYBODY},
    {"sys_read_only", is_read_only, &place_sys, EVERYBODY},
    {"fake_cgroup_read_only", is_read_only, &place_cgroup, EVERYBODY},
    {"flags_root", has_flags, &flags_root, EVERYBODY},
    {"flags_workspace", has_flags, &flags_workspace, EVERYBODY},
    {"flags_tmp", has_flags, &flags_tmp, EVERYBODY},
    {"flags_shm", has_flags, &flags_shm, EVERYBODY},
    {"flags_proc", has_flags, &flags_proc, EVERYBODY},
    {"flags_dev", has_flags, &flags_dev, EVERYBODY},
    {"flags_pts", has_flags, &flags_pts, EVERYBODY},
    {"size_tmp", is_bounded, &size_tmp, EVERYBODY},
    {"size_shm", is_bounded, &size_shm, EVERYBODY},
    {"dev_list", dev_list, NULL, EVERYBODY},
    {"dev_nodes", dev_nodes, NULL, EVERYBODY},
#define NODE(name) {"device_" #name, device_missing, &device_##name, EVERYBODY},
#include "tests/sandbox/battery/devices.def"
#undef NODE
    {"device_tun", device_missing, &device_tun, EVERYBODY},
    {"device_loop_control", device_missing, &device_loop, EVERYBODY},
    {"device_mapper", device_missing, &device_mapper, EVERYBODY},
    {"device_msr", device_missing, &device_cpu, EVERYBODY},
    {"device_input", device_missing, &device_input, EVERYBODY},
    {"device_dri", device_missing, &device_dri, EVERYBODY},
    {"device_vsock", device_missing, &device_vsock, EVERYBODY},
    {"device_vhost", device_missing, &device_vhost, EVERYBODY},
    {"cwd_inside_root", cwd_inside_root, NULL, EVERYBODY},
    {"host_files", host_files, NULL, EVERYBODY},
    {"privileged_attributes", privileged_attributes, NULL, EVERYBODY},
    {"disk_controls_root", disk_controls, &flags_root, EVERYBODY},
    {"disk_controls_workspace", disk_controls, &flags_workspace, EVERYBODY},
    {"disk_controls_tmp", disk_controls, &flags_tmp, EVERYBODY},
    {"ids_beyond_the_range", ids_beyond_the_range, NULL, EVERYBODY},
    {"system_folder_is_empty", system_folder_is_empty, NULL, EVERYBODY},
    {"links_lead_nowhere", links_lead_nowhere, NULL, EVERYBODY},
    {"clone_of_a_foreign_file", clone_of_a_foreign_file, NULL, EVERYBODY},
};

const struct battery battery_fs = {"fs", checks, COUNT(checks)};

static const struct check cgroup_checks[] = {
    {"none_mounted", none_mounted, NULL, EVERYBODY},
    {"makes_no_group", makes_no_group, NULL, EVERYBODY},
#define FILE(name, file) {#name, control_missing, &control_##name, EVERYBODY},
#include "tests/sandbox/battery/controls.def"
#undef FILE
};

const struct battery battery_cgroup = {"cgroup", cgroup_checks, COUNT(cgroup_checks)};

static const struct check tty_checks[] = {
#define REQUEST(name, number) {#name, ioctl_refused, &request_##name, EVERYBODY},
#include "tests/sandbox/battery/requests.def"
#undef REQUEST
    {"terminal_of_its_own", terminal_of_its_own, NULL, EVERYBODY},
    {"no_controlling_terminal", no_controlling_terminal, NULL, EVERYBODY},
    {"privileged_terminal", privileged_terminal, NULL, EVERYBODY},
    {"terminals_are_bounded", terminals_are_bounded, NULL, EVERYBODY},
};

const struct battery battery_tty = {"tty", tty_checks, COUNT(tty_checks)};
