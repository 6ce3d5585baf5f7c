/* proc.*: what /proc shows, and what can be done to other processes through it. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

struct place {
    const char *path;
    int flags;
};

/* --- one path a row -------------------------------------------------------------------------- */

static int open_refused(const void *data)
{
    const struct place *place = data;
    int fd = open(place->path, place->flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    return fd < 0 ? HOLDS : broken("%s was opened", place->path);
}

/* A link that must tell nothing. */
static int link_hidden(const void *data)
{
    const struct place *place = data;
    char target[PATH_MAX];
    ssize_t length = readlink(place->path, target, sizeof(target) - 1);

    return length < 0 ? HOLDS : broken("%s -> %.*s", place->path, (int)length, target);
}

/* A masked file is the null device; a masked folder is empty; either may be missing. */
static int masked(const void *data)
{
    const struct place *place = data;
    struct stat status;
    char byte;
    int fd = open(place->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return HOLDS;
    if (fstat(fd, &status) < 0)
        return broken("%s: %s", place->path, strerror(errno));
    if (S_ISDIR(status.st_mode)) {
        DIR *directory = fdopendir(fd);
        struct dirent *entry;

        while (directory && (entry = readdir(directory)))
            if (entry->d_name[0] != '.')
                return broken("%s has %s", place->path, entry->d_name);
        return HOLDS;
    }
    if (read(fd, &byte, 1) > 0)
        return broken("%s has content", place->path);
    fd = open(place->path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &status) < 0 || status.st_rdev != makedev(1, 3)))
        return broken("%s can be written to", place->path);
    return HOLDS;
}

/* A folder of links, each of which tells and gives nothing. */
static int links_hidden(const void *data)
{
    const struct place *place = data;
    DIR *directory = opendir(place->path);
    struct dirent *entry;
    int verdict = HOLDS;

    while (directory && (entry = readdir(directory))) {
        char path[512], target[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", place->path, entry->d_name);
        if (entry->d_name[0] == '.')
            continue;
        verdict |= refused(path, readlink(path, target, sizeof(target)), 0) |
                   refused(path, open(path, O_PATH), 0) |
                   refused(path, open(path, O_RDONLY | O_NONBLOCK), 0);
    }
    return verdict;
}

/* Some may be opened by anybody, but what is written counts for the writer alone. */
static int write_refused(const void *data)
{
    const struct place *place = data;

    return refused(place->path, write(open(place->path, O_WRONLY | O_CLOEXEC), "0", 1), 0);
}

#define FILE(name, path, flags) static const struct place file_##name = {"/proc/1/" path, flags};
#include "tests/sandbox/battery/pid1.def"
#undef FILE

#define FILE(name, path) static const struct place switch_##name = {path, O_WRONLY};
#include "tests/sandbox/battery/switches.def"
#undef FILE

#define FILE(name) static const struct place masked_##name = {"/proc/" #name, 0};
#include "tests/sandbox/battery/masked.def"
#undef FILE
static const struct place masked_config = {"/proc/config.gz", 0},
                          masked_key_users = {"/proc/key-users", 0},
                          masked_sysrq = {"/proc/sysrq-trigger", 0}, link_exe = {"/proc/1/exe", 0},
                          link_root = {"/proc/1/root", 0}, link_cwd = {"/proc/1/cwd", 0},
                          link_ns = {"/proc/1/ns/user", 0}, link_fd = {"/proc/1/fd/3", 0},
                          links_fd = {"/proc/1/fd", 0}, links_map = {"/proc/1/map_files", 0},
                          links_ns = {"/proc/1/ns", 0}, write_attr = {"/proc/1/attr/current", 0},
                          write_timens = {"/proc/1/timens_offsets", 0},
                          write_timer = {"/proc/1/timerslack_ns", 0},
                          write_sched = {"/proc/1/sched", 0},
                          write_autogroup = {"/proc/1/autogroup", 0},
                          write_comm = {"/proc/1/comm", 0};

/* --- walks ----------------------------------------------------------------------------------- */

static int walk_verdict;

/* A file of /proc/sys that can be opened for writing is one too many. */
static int try_switch(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)at;
    if (type == FTW_F && S_ISREG(status->st_mode)) {
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

        if (fd >= 0) {
            walk_verdict = broken("%s can be opened for writing", path);
            close(fd);
        }
    }
    return 0;
}

static int sys_read_only(const void *row)
{
    (void)row;
    nftw("/proc/sys", try_switch, 16, FTW_PHYS);
    return walk_verdict | REFUSED(mkdir("/proc/sys/x", 0755)) | REFUSED(mkdir("/proc/x", 0755)) |
           REFUSED(chmod("/proc/sys/kernel/core_pattern", 0666));
}

/* Files right below /proc, and those of the network, that take what is written. */
static int nothing_is_writable(const void *row)
{
    static const char *const folders[] = {"/proc",          "/proc/net", "/proc/sysvipc",
                                          "/proc/pressure", "/proc/irq", "/proc/fs",
                                          "/proc/bus",      "/proc/tty"};
    int verdict = HOLDS;

    (void)row;
    for (size_t i = 0; i < COUNT(folders); i++) {
        DIR *directory = opendir(folders[i]);
        struct dirent *entry;

        while (directory && (entry = readdir(directory))) {
            char path[512];
            struct stat status;
            int fd;

            snprintf(path, sizeof(path), "%s/%s", folders[i], entry->d_name);
            if (entry->d_name[0] == '.' || lstat(path, &status) < 0 || !S_ISREG(status.st_mode))
                continue;
            fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
            if (fd < 0)
                continue;
            if (fstat(fd, &status) == 0 && status.st_rdev != makedev(1, 3))
                verdict = broken("%s can be opened for writing", path);
            close(fd);
        }
        if (directory)
            closedir(directory);
    }
    return verdict;
}

static int own_fds(const void *row)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int verdict = HOLDS;

    (void)row;
    while (directory && (entry = readdir(directory))) {
        int fd = atoi(entry->d_name);

        if (entry->d_name[0] != '.' && fd > 2 && fd != dirfd(directory))
            verdict = broken("descriptor %d is open", fd);
    }
    return verdict | (directory ? HOLDS : broken("/proc/self/fd: %s", strerror(errno)));
}

/* Pipes, terminals or the null device: nothing that leads anywhere. */
static int std_fds(const void *row)
{
    (void)row;
    for (int fd = 0; fd < 3; fd++) {
        struct stat status;
        int flags = fcntl(fd, F_GETFL);

        if (flags < 0 && errno == EBADF)
            continue;
        if (fstat(fd, &status) < 0 || (flags & O_PATH) || S_ISDIR(status.st_mode) ||
            S_ISBLK(status.st_mode) || S_ISSOCK(status.st_mode))
            return broken("descriptor %d has mode %o, flags %x", fd, status.st_mode,
                          (unsigned)flags);
        if (S_ISCHR(status.st_mode) && status.st_rdev != makedev(1, 3) &&
            major(status.st_rdev) != 136)
            return broken("descriptor %d is device %x", fd, (unsigned)status.st_rdev);
    }
    return HOLDS;
}

/* Whatever descriptors of others can be looked at lead to pipes, sockets or files in here. */
static int other_fds(const void *row)
{
    DIR *all = opendir("/proc");
    struct dirent *process;
    int verdict = HOLDS;

    (void)row;
    while (all && (process = readdir(all))) {
        char path[300];
        struct dirent *entry;
        DIR *directory;

        if (process->d_name[0] < '1' || process->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%.20s/fd", process->d_name);
        directory = opendir(path);
        while (directory && (entry = readdir(directory))) {
            char name[600], target[PATH_MAX];
            struct stat status;
            ssize_t length;

            snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
            length = readlink(name, target, sizeof(target) - 1);
            if (entry->d_name[0] == '.' || length <= 0)
                continue;
            target[length] = '\0';
            if (target[0] == '/' && lstat(target, &status) < 0 && errno == ENOENT)
                verdict = broken("%s -> %s", name, target);
        }
        if (directory)
            closedir(directory);
    }
    if (all)
        closedir(all);
    return verdict;
}

/* --- what is told about this process --------------------------------------------------------- */

static bool file_has(const char *path, const char *text)
{
    FILE *file = fopen(path, "r");
    char line[8192];
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file))
        found = strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return found;
}

static bool status_value(const char *name, char *value, size_t size)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[4096];
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':') {
            snprintf(value, size, "%s",
                     line + strlen(name) + 1 + strspn(line + strlen(name) + 1, " \t"));
            value[strcspn(value, "\n")] = '\0';
            found = true;
        }
    if (file)
        fclose(file);
    return found;
}

static int status_is(const char *name, const char *expected)
{
    char value[256];

    if (!status_value(name, value, sizeof(value)))
        return broken("no %s", name);
    return strcmp(value, expected) == 0 ? HOLDS : broken("%s is %s", name, value);
}

static int status(const void *row)
{
    char capabilities[64] = "";

    (void)row;
    /* CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SETFCAP */
    snprintf(capabilities, sizeof(capabilities), "%016llx", 0x800005fbULL);
    return status_is("NoNewPrivs", "1") | status_is("Seccomp", "2") |
           status_is("Seccomp_filters", "2") | status_is("CapBnd", capabilities) |
           status_is("CapAmb", "0000000000000000") | status_is("CapInh", "0000000000000000") |
           status_is("CapPrm", getuid() ? "0000000000000000" : capabilities) |
           status_is("CapEff", getuid() ? "0000000000000000" : capabilities) |
           status_is("Groups", "");
}

static int cgroup_path_hidden(const void *row)
{
    FILE *file = fopen("/proc/self/cgroup", "r");
    char line[4096];
    int verdict = HOLDS;

    (void)row;
    while (file && fgets(line, sizeof(line), file)) {
        const char *path = strrchr(line, ':');

        if (!path || strcmp(path, ":/\n") != 0)
            verdict = broken("%s", line);
    }
    return verdict;
}

/* A word of the host: a folder of the supervisor, say. */
static int host_word_hidden(const void *row)
{
    static const char *const files[] = {
        "/proc/self/mountinfo", "/proc/mounts",    "/proc/self/mountstats",
        "/proc/self/cgroup",    "/proc/self/maps", "/proc/1/mountinfo",
        "/proc/net/unix",       "/proc/swaps",     "/proc/cmdline"};
    const char *word = told("BATTERY_HOST_WORD");
    int verdict = HOLDS;

    (void)row;
    if (!word)
        return SKIPPED_CHECK;
    for (size_t i = 0; i < COUNT(files); i++)
        if (file_has(files[i], word))
            verdict = broken("%s has %s", files[i], word);
    return verdict;
}

/* Namespaces whose inode is the host's. */
static int namespaces_differ(const void *row)
{
    static const char *const names[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
    const char *told_all =
        told("BATTERY_HOST_NAMESPACES"); /* as readlink tells, one after the other */
    int verdict = HOLDS;

    (void)row;
    if (!told_all)
        return SKIPPED_CHECK;
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[64], target[64];
        ssize_t length;

        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        length = readlink(path, target, sizeof(target) - 1);
        target[length < 0 ? 0 : length] = '\0';
        if (length <= 0 || strstr(told_all, target))
            verdict = broken("%s is the host's", path);
    }
    return verdict;
}

static int ids_are_mapped(const void *row)
{
    static const char *const files[] = {"/proc/self/uid_map", "/proc/self/gid_map"};

    (void)row;
    for (size_t i = 0; i < COUNT(files); i++) {
        long inside = -1, outside = -1, count = -1;
        FILE *file = fopen(files[i], "r");

        if (!file || fscanf(file, "%ld %ld %ld", &inside, &outside, &count) != 3 || inside != 0 ||
            outside < 100000 || count != 65536 || fscanf(file, "%ld", &inside) == 1)
            return broken("%s: %ld %ld %ld", files[i], inside, outside, count);
        fclose(file);
    }
    return REFUSED(write(open("/proc/self/uid_map", O_WRONLY), "0 0 1", 5)) |
           REFUSED(write(open("/proc/self/gid_map", O_WRONLY), "0 0 1", 5)) |
           REFUSED(write(open("/proc/self/projid_map", O_WRONLY), "0 0 1", 5)) |
           REFUSED(write(open("/proc/self/setgroups", O_WRONLY), "deny", 4));
}

static int few_processes(const void *row)
{
    DIR *all = opendir("/proc");
    struct dirent *process;
    int count = 0;

    (void)row;
    while (all && (process = readdir(all)))
        count += process->d_name[0] >= '1' && process->d_name[0] <= '9';
    return count > 0 && count < 30 ? HOLDS : broken("%d processes are seen", count);
}

/* A directory of a process that is gone, or a thread's, leads nowhere else. */
static int escapes_by_links(const void *row)
{
    static const char *const paths[] = {"/proc/self/root/../..",
                                        "/proc/thread-self/root/../../..",
                                        "/proc/self/cwd/../../../..",
                                        "/proc/self/task/../../..",
                                        "/../../..",
                                        "/proc/self/root/proc/self/root/.."};
    struct stat root, there;

    (void)row;
    if (stat("/", &root) < 0)
        return broken("/: %s", strerror(errno));
    for (size_t i = 0; i < COUNT(paths); i++)
        if (stat(paths[i], &there) == 0 && there.st_ino != root.st_ino &&
            strstr(paths[i], "task") == NULL)
            return broken("%s is not the root", paths[i]);
    return HOLDS;
}

static const struct check checks[] = {
#define FILE(name, path, flags) {#name, open_refused, &file_##name, EVERYBODY},
#include "tests/sandbox/battery/pid1.def"
#undef FILE
#define FILE(name, path) {"switch_" #name, open_refused, &switch_##name, EVERYBODY},
#include "tests/sandbox/battery/switches.def"
#undef FILE
#define FILE(name) {"masked_" #name, masked, &masked_##name, EVERYBODY},
#include "tests/sandbox/battery/masked.def"
#undef FILE
    {"masked_config", masked, &masked_config, EVERYBODY},
    {"masked_key_users", masked, &masked_key_users, EVERYBODY},
    {"masked_sysrq_trigger", masked, &masked_sysrq, EVERYBODY},
    {"link_exe_pid1", link_hidden, &link_exe, EVERYBODY},
    {"link_root_pid1", link_hidden, &link_root, EVERYBODY},
    {"link_cwd_pid1", link_hidden, &link_cwd, EVERYBODY},
    {"link_ns_pid1", link_hidden, &link_ns, EVERYBODY},
    {"link_fd_pid1", link_hidden, &link_fd, EVERYBODY},
    {"links_fd_pid1", links_hidden, &links_fd, EVERYBODY},
    {"links_map_files_pid1", links_hidden, &links_map, EVERYBODY},
    {"links_ns_pid1", links_hidden, &links_ns, EVERYBODY},
    {"attr_current_pid1", write_refused, &write_attr, EVERYBODY},
    {"timens_offsets_pid1", write_refused, &write_timens, EVERYBODY},
    {"timerslack_pid1", write_refused, &write_timer, EVERYBODY},
    {"sched_pid1", write_refused, &write_sched, EVERYBODY},
    {"autogroup_pid1", write_refused, &write_autogroup, EVERYBODY},
    {"comm_pid1", write_refused, &write_comm, EVERYBODY},
    {"sys_read_only", sys_read_only, NULL, EVERYBODY},
    {"nothing_is_writable", nothing_is_writable, NULL, EVERYBODY},
    {"own_fds", own_fds, NULL, EVERYBODY},
    {"std_fds", std_fds, NULL, EVERYBODY},
    {"other_fds", other_fds, NULL, EVERYBODY},
    {"status", status, NULL, EVERYBODY},
    {"cgroup_path_hidden", cgroup_path_hidden, NULL, EVERYBODY},
    {"host_word_hidden", host_word_hidden, NULL, EVERYBODY},
    {"namespaces_differ", namespaces_differ, NULL, EVERYBODY},
    {"ids_are_mapped", ids_are_mapped, NULL, EVERYBODY},
    {"few_processes", few_processes, NULL, EVERYBODY},
    {"escapes_by_links", escapes_by_links, NULL, EVERYBODY},
};

const struct battery battery_proc = {"proc", checks, COUNT(checks)};
