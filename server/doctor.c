/* What this machine lacks for sandboxes, each thing found out by trying it: see doctor.h. */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <limits.h>
#include <linux/if_link.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/btrfs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/kernel.h"
#include "common/loop_device.h"
#include "common/scope.h"

enum {
    XFS_MAGIC = 0x58465342,
    POSTGRES_LEAST = 140000,
    DATABASE_SECONDS = 5,
    SKEW_SECONDS = 5,
    FIRST_SANE_YEAR = 2025,
    NAMESPACES_LEAST = 64,
    DESCRIPTORS_EACH = 4, /* of the supervisor, for one sandbox */
    DESCRIPTORS_BESIDE = 1024,
};

/* --- what the checks are written with ----------------------------------------------------------
 */

/* Say it, behind what was said before; returns `finding`. */
__attribute__((format(printf, 3, 4))) static enum doctor_finding
tell(struct doctor_row *row, enum doctor_finding finding, const char *format, ...)
{
    size_t used = strlen(row->detail);
    va_list values;

    if (used && used + 3 < sizeof(row->detail))
        used += (size_t)snprintf(row->detail + used, sizeof(row->detail) - used, ", ");
    va_start(values, format);
    vsnprintf(row->detail + used, sizeof(row->detail) - used, format, values);
    va_end(values);
    return finding;
}

static enum doctor_finding judge(struct doctor_row *row, bool good, enum doctor_finding otherwise,
                                 const char *what)
{
    return good ? DOCTOR_GOOD : tell(row, otherwise, "%s: %s", what, strerror(errno));
}

__attribute__((format(printf, 3, 4))) static void
path_under(const struct doctor *doctor, char path[PATH_MAX], const char *format, ...)
{
    va_list values;
    int used = snprintf(path, PATH_MAX, "%s", doctor->root);

    va_start(values, format);
    vsnprintf(path + used, PATH_MAX - (size_t)used, format, values);
    va_end(values);
}

/* The first line of a small file, or "" */
static void read_line(const char *path, char *line, size_t size)
{
    auto_fclose FILE *file = fopen(path, "re");

    if (!file || !fgets(line, (int)size, file))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

/* A number of /proc/sys; false when there is none. */
static bool read_switch(const struct doctor *doctor, const char *name, long *value)
{
    char path[PATH_MAX], line[64], *end;

    path_under(doctor, path, "/proc/sys/%s", name);
    read_line(path, line, sizeof(line));
    *value = strtol(line, &end, 10);
    return end != line;
}

static bool is_program(const struct doctor *doctor, const char *name)
{
    static const char *const folders[] = {"/usr/sbin", "/sbin", "/usr/bin", "/bin"};
    char path[PATH_MAX];

    for (size_t i = 0; i < COUNT(folders); i++) {
        path_under(doctor, path, "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* Whether a blank- or comma-separated list has this word. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);

    while (*list) {
        size_t next = strcspn(list, " ,\n");

        if (next == length && strncmp(list, word, length) == 0)
            return true;
        list += next + (list[next] != '\0');
    }
    return false;
}

static bool is_folder(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The folder of the state, or the nearest one above that exists. */
static void find_folder(const struct doctor *doctor, char folder[PATH_MAX])
{
    char *slash;

    snprintf(folder, PATH_MAX, "%s", doctor->state);
    while (!is_folder(folder) && (slash = strrchr(folder, '/')) && slash != folder)
        *slash = '\0';
    if (!is_folder(folder))
        snprintf(folder, PATH_MAX, "/");
}

/* --- the kernel --------------------------------------------------------------------------------
 */

static enum doctor_finding check_root(const struct doctor *doctor, struct doctor_row *row)
{
    (void)doctor;
    (void)row;
    return geteuid() == 0 ? DOCTOR_GOOD : DOCTOR_MISSING;
}

static enum doctor_finding check_version(const struct doctor *doctor, struct doctor_row *row)
{
    struct utsname name;

    (void)doctor;
    uname(&name);
    return tell(row, kernel_version() >= KERNEL_VERSION_NEEDED ? DOCTOR_GOOD : DOCTOR_MISSING,
                "Linux %s on %s", name.release, name.machine);
}

static enum doctor_finding check_namespace_count(const struct doctor *doctor,
                                                 struct doctor_row *row)
{
    static const char *const names[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
    enum doctor_finding finding = DOCTOR_GOOD;

    for (size_t i = 0; i < COUNT(names); i++) {
        char name[64];
        long value;

        snprintf(name, sizeof(name), "user/max_%s_namespaces", names[i]);
        if (read_switch(doctor, name, &value) && value < NAMESPACES_LEAST)
            finding = tell(row, DOCTOR_MISSING, "user.max_%s_namespaces is %ld", names[i], value);
    }
    return finding;
}

static enum doctor_finding check_landlock(const struct doctor *doctor, struct doctor_row *row)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    (void)doctor;
    if (version < 1)
        return judge(row, false, DOCTOR_ADVICE, "landlock_create_ruleset");
    return tell(row, DOCTOR_GOOD, "version %ld", version);
}

/* Crashes inside would be fed to a program that is root of the host. */
static enum doctor_finding check_core_pattern(const struct doctor *doctor, struct doctor_row *row)
{
    char path[PATH_MAX], pattern[256];
    struct rlimit core = {0};

    path_under(doctor, path, "/proc/sys/kernel/core_pattern");
    read_line(path, pattern, sizeof(pattern));
    if (pattern[0] != '|')
        return DOCTOR_GOOD;
    getrlimit(RLIMIT_CORE, &core);
    if (core.rlim_max >= 1)
        return tell(row, DOCTOR_GOOD, "a pipe, which the limit of one byte keeps away");
    return tell(row, DOCTOR_ADVICE, "a pipe to %.100s, and the hard limit of cores is 0 here",
                pattern + 1);
}

/* --- control groups ----------------------------------------------------------------------------
 */

/* Call with each mounted hierarchy: its folder under the root, whether it is version 2, and the
 * words of its options or of cgroup.controllers. Stops when true is returned, and returns that. */
static bool each_hierarchy(const struct doctor *doctor,
                           bool (*look)(const char *folder, bool unified, const char *controllers,
                                        const void *data),
                           const void *data)
{
    char path[PATH_MAX], line[4096], target[1024], type[64], options[1024];

    path_under(doctor, path, "/proc/self/mounts");
    auto_fclose FILE *mounts = fopen(path, "re");
    while (mounts && fgets(line, sizeof(line), mounts)) {
        char folder[PATH_MAX], controllers[PATH_MAX];
        bool unified;

        if (sscanf(line, "%*s %1023s %63s %1023s", target, type, options) != 3)
            continue;
        unified = strcmp(type, "cgroup2") == 0;
        if (!unified && strcmp(type, "cgroup") != 0)
            continue;
        path_under(doctor, folder, "%s", target);
        if (unified) {
            path_under(doctor, path, "%s/cgroup.controllers", target);
            read_line(path, controllers, sizeof(controllers));
        } else {
            snprintf(controllers, sizeof(controllers), "%s", options);
        }
        if (look(folder, unified, controllers, data))
            return true;
    }
    return false;
}

static bool holds_controller(const char *folder, bool unified, const char *controllers,
                             const void *name)
{
    (void)unified;
    return has_word(controllers, name) && access(folder, W_OK) == 0;
}

static enum doctor_finding check_controllers(const struct doctor *doctor, struct doctor_row *row)
{
    static const char *const names[] = {"memory", "pids", "cpu"};
    enum doctor_finding finding = DOCTOR_GOOD;

    for (size_t i = 0; i < COUNT(names); i++)
        if (!each_hierarchy(doctor, holds_controller, names[i]))
            finding = tell(row, DOCTOR_MISSING, "no %s that can be written to", names[i]);
    return finding;
}

/* A child that is born in a cgroup of its own, and the way to kill all in one. */
static bool try_unified(const char *folder, bool unified, const char *controllers, const void *data)
{
    struct clone_args arguments = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};
    char path[PATH_MAX + 64];
    int status = 1;
    pid_t pid = -1;

    (void)controllers;
    (void)data;
    snprintf(path, sizeof(path), "%s/agent-sandbox-doctor-%d", folder, (int)getpid());
    if (!unified || mkdir(path, 0755) < 0)
        return false;
    auto_close int cgroup = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    arguments.cgroup = (unsigned)cgroup;
    if (faccessat(cgroup, "cgroup.kill", W_OK, 0) == 0)
        pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, &status, 0);
    rmdir(path);
    return status == 0;
}

static enum doctor_finding check_unified(const struct doctor *doctor, struct doctor_row *row)
{
    errno = ENOENT;
    return judge(row, each_hierarchy(doctor, try_unified, NULL), DOCTOR_MISSING,
                 "cgroup 2, CLONE_INTO_CGROUP, cgroup.kill");
}

/* Version 1 may have been built, or booted, without a count of swap. */
static bool counts_no_swap(const char *folder, bool unified, const char *controllers,
                           const void *data)
{
    char path[PATH_MAX + 64];

    (void)data;
    snprintf(path, sizeof(path), "%s/memory.memsw.limit_in_bytes", folder);
    return !unified && has_word(controllers, "memory") && access(path, F_OK) < 0;
}

static enum doctor_finding check_swap(const struct doctor *doctor, struct doctor_row *row)
{
    char path[PATH_MAX], line[256];
    bool swaps;

    path_under(doctor, path, "/proc/swaps");
    auto_fclose FILE *file = fopen(path, "re");
    /* A line of titles, and one for each place. */
    swaps = file && fgets(line, sizeof(line), file) && fgets(line, sizeof(line), file);
    if (!swaps)
        return tell(row, DOCTOR_GOOD, "none");
    if (each_hierarchy(doctor, counts_no_swap, NULL))
        return tell(row, DOCTOR_ADVICE, "what a sandbox has in swap counts for nobody");
    return DOCTOR_GOOD;
}

/* --- where sandboxes are kept ------------------------------------------------------------------
 */

static const char *filesystem_name(long type)
{
    switch (type) {
    case EXT4_SUPER_MAGIC:
        return "ext4";
    case XFS_MAGIC:
        return "xfs";
    case BTRFS_SUPER_MAGIC:
        return "btrfs";
    case TMPFS_MAGIC:
        return "tmpfs";
    default:
        return NULL;
    }
}

static enum doctor_finding check_state(const struct doctor *doctor, struct doctor_row *row)
{
    char path[PATH_MAX];
    struct stat status;

    path_under(doctor, path, "%s", doctor->state);
    if (stat(path, &status) < 0)
        return tell(row, DOCTOR_GOOD, "%s is made at the first start", doctor->state);
    if (!S_ISDIR(status.st_mode))
        return tell(row, DOCTOR_MISSING, "%s is no folder", doctor->state);
    if (status.st_uid != 0 || (status.st_mode & 077))
        return tell(row, DOCTOR_MISSING, "%s belongs to user %u and has mode %04o", doctor->state,
                    status.st_uid, status.st_mode & 07777);
    return DOCTOR_GOOD;
}

static enum doctor_finding check_filesystem(const struct doctor *doctor, struct doctor_row *row)
{
    char folder[PATH_MAX];
    struct statfs status;
    struct statvfs flags;
    const char *name;

    find_folder(doctor, folder);
    if (statfs(folder, &status) < 0 || statvfs(folder, &flags) < 0)
        return judge(row, false, DOCTOR_MISSING, folder);
    name = filesystem_name(status.f_type);
    if (!name)
        return tell(row, DOCTOR_MISSING, "%s is on a file system of type 0x%lx", folder,
                    (unsigned long)status.f_type);
    tell(row, DOCTOR_GOOD, "%s is on %s", folder, name);
    if (!(flags.f_flag & ST_NOSUID) || !(flags.f_flag & ST_NODEV))
        return tell(row, DOCTOR_ADVICE, "mounted without%s%s",
                    flags.f_flag & ST_NOSUID ? "" : " nosuid",
                    flags.f_flag & ST_NODEV ? "" : " nodev");
    return DOCTOR_GOOD;
}

/* Tried, not guessed: in containers the devices are there and can't be used, or the other way
 * round. */
static bool has_loop(const struct doctor *doctor, struct error *err)
{
    char path[PATH_MAX];

    path_under(doctor, path, "/dev/loop-control");
    auto_close int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "/dev/loop-control") == 0;
    find_folder(doctor, path);
    return doctor->root[0] || loop_device_probe(path, err) == 0;
}

static enum doctor_finding check_loop(const struct doctor *doctor, struct doctor_row *row)
{
    struct error error;

    return has_loop(doctor, &error) ? DOCTOR_GOOD : tell(row, DOCTOR_ADVICE, "%s", error.message);
}

static enum doctor_finding check_mkfs(const struct doctor *doctor, struct doctor_row *row)
{
    (void)row;
    return is_program(doctor, "mkfs.ext4") ? DOCTOR_GOOD : DOCTOR_ADVICE;
}

/* What STORAGE=auto of the supervisor would choose; without any it does not start. */
static enum doctor_finding check_sizes(const struct doctor *doctor, struct doctor_row *row)
{
    char folder[PATH_MAX];
    struct statfs status = {0};
    struct error error;

    find_folder(doctor, folder);
    if (statfs(folder, &status) == 0 && status.f_type == TMPFS_MAGIC)
        return tell(row, DOCTOR_GOOD, "tmpfs, which is gone with a reboot");
    auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (btrfs_is(fd) && btrfs_has_quotas(fd))
        return tell(row, DOCTOR_GOOD, "quota groups of btrfs");
    if (has_loop(doctor, &error) && is_program(doctor, "mkfs.ext4"))
        return tell(row, DOCTOR_GOOD, "an ext4 image in a loop device each");
    return tell(row, DOCTOR_MISSING, "nothing here can bound the size of a workspace");
}

/* --- the network of sandboxes ------------------------------------------------------------------
 */

/* In a network namespace of its own: a pair of interfaces. The exit status is an errno. */
static int make_pair(void)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
        struct rtattr info;
        struct rtattr kind;
        char name[8];
    } request = {
        .head = {.nlmsg_len = sizeof(request),
                 .nlmsg_type = RTM_NEWLINK,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK},
        .info = {.rta_len = 2 * sizeof(struct rtattr) + 8, .rta_type = IFLA_LINKINFO},
        .kind = {.rta_len = sizeof(struct rtattr) + 4, .rta_type = IFLA_INFO_KIND},
        .name = "veth",
    };
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char more[256];
    } answer;
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0 || send(fd, &request, sizeof(request), 0) < 0 ||
        recv(fd, &answer, sizeof(answer), 0) < (ssize_t)sizeof(struct nlmsghdr))
        return errno;
    return -answer.error.error;
}

static enum doctor_finding check_veth(const struct doctor *doctor, struct doctor_row *row)
{
    int result = kernel_try(CLONE_NEWUSER | CLONE_NEWNET, make_pair);

    (void)doctor;
    if (result > 0)
        errno = result;
    return judge(row, result == 0, DOCTOR_ADVICE, "a pair of veth interfaces");
}

/* In a network namespace of its own: one table, through the program. */
static int make_table(void)
{
    int null = open("/dev/null", O_RDWR);

    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execle("/usr/sbin/nft", "nft", "add", "table", "inet", "doctor", (char *)NULL,
           (char *[]){NULL});
    return errno;
}

static enum doctor_finding check_nft(const struct doctor *doctor, struct doctor_row *row)
{
    if (!is_program(doctor, "nft"))
        return tell(row, DOCTOR_ADVICE, "nft is not installed");
    if (!doctor->root[0] && kernel_try(CLONE_NEWNET, make_table) != 0)
        return tell(row, DOCTOR_ADVICE, "nft makes no table in a network namespace");
    return DOCTOR_GOOD;
}

static enum doctor_finding check_forwarding(const struct doctor *doctor, struct doctor_row *row)
{
    static const char *const names[] = {"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"};
    enum doctor_finding finding = DOCTOR_GOOD;

    for (size_t i = 0; i < COUNT(names); i++) {
        long value;

        if (read_switch(doctor, names[i], &value) && value < 1)
            finding = tell(row, DOCTOR_ADVICE, "%s is %ld", names[i], value);
    }
    return finding;
}

/* --- bounds, ids, switches ---------------------------------------------------------------------
 */

static enum doctor_finding check_ids(const struct doctor *doctor, struct doctor_row *row)
{
    struct ids ids = ids_of_sandboxes(doctor->id_base, doctor->sandboxes_max);
    struct refusals refusals = {0};

    ids_check(doctor->root, ids, &refusals);
    if (refusals.count)
        return tell(row, DOCTOR_MISSING, "%s%s", refusals.first.message,
                    refusals.count > 1 ? ", and more" : "");
    return tell(row, DOCTOR_GOOD, "%lld to %lld", (long long)ids.first, (long long)ids.end - 1);
}

static enum doctor_finding check_descriptors(const struct doctor *doctor, struct doctor_row *row)
{
    int64_t wanted = doctor->sandboxes_max * DESCRIPTORS_EACH + DESCRIPTORS_BESIDE;
    struct rlimit files = {0};

    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max >= (rlim_t)wanted)
        return DOCTOR_GOOD;
    return tell(row, DOCTOR_ADVICE, "the hard limit is %llu here, %lld sandboxes want %lld",
                (unsigned long long)files.rlim_max, (long long)doctor->sandboxes_max,
                (long long)wanted);
}

/* Switches of the kernel that leave less to whoever escapes. */
static enum doctor_finding check_hardening(const struct doctor *doctor, struct doctor_row *row)
{
    static const struct {
        const char *name;
        long least, most;
    } wanted[] = {
        {"kernel/dmesg_restrict", 1, 1},
        {"kernel/kptr_restrict", 1, 2},
        {"kernel/unprivileged_bpf_disabled", 1, 2},
        {"kernel/perf_event_paranoid", 2, 4},
        {"kernel/yama/ptrace_scope", 1, 3},
        {"kernel/io_uring_disabled", 1, 2},
        {"vm/unprivileged_userfaultfd", 0, 0},
        {"dev/tty/legacy_tiocsti", 0, 0},
        {"fs/protected_hardlinks", 1, 1},
        {"fs/protected_symlinks", 1, 1},
        {"fs/protected_fifos", 1, 2},
        {"fs/protected_regular", 1, 2},
    };
    enum doctor_finding finding = DOCTOR_GOOD;

    for (size_t i = 0; i < COUNT(wanted); i++) {
        long value;

        /* One that the kernel lacks has nothing to restrict. */
        if (read_switch(doctor, wanted[i].name, &value) &&
            (value < wanted[i].least || value > wanted[i].most))
            finding = tell(row, DOCTOR_ADVICE, "%s=%ld", wanted[i].name, value);
    }
    return finding;
}

/* Parts of the kernel that no sandbox can reach, and through which others were escaped from. */
static enum doctor_finding check_modules(const struct doctor *doctor, struct doctor_row *row)
{
    static const char risky[] = "algif_aead algif_hash algif_rng algif_skcipher rxrpc esp4 esp6 "
                                "tipc sctp dccp n_gsm n_hdlc";
    enum doctor_finding finding = DOCTOR_GOOD;
    char path[PATH_MAX], line[1024];

    path_under(doctor, path, "/proc/modules");
    auto_fclose FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, " ")] = '\0';
        if (has_word(risky, line))
            finding = tell(row, DOCTOR_ADVICE, "%s is loaded", line);
    }
    return finding;
}

/* --- what runs beside it -----------------------------------------------------------------------
 */

static void finish(PGconn **connection)
{
    PQfinish(*connection);
}

/* Seconds that the database's clock is ahead of ours. */
static double database_ahead(PGconn *connection)
{
    PGresult *result = PQexec(connection, "SELECT extract(epoch FROM clock_timestamp())");
    double theirs = PQntuples(result) == 1 ? strtod(PQgetvalue(result, 0, 0), NULL) : 0;
    struct timespec ours;

    PQclear(result);
    clock_gettime(CLOCK_REALTIME, &ours);
    return theirs - (double)ours.tv_sec;
}

static enum doctor_finding check_database(const struct doctor *doctor, struct doctor_row *row)
{
    static const char *const names[] = {"dbname", "connect_timeout", NULL};
    const char *const values[] = {doctor->database, "5", NULL};
    double ahead;

    if (!doctor->database[0])
        return tell(row, DOCTOR_ADVICE, "DATABASE_URL is not set");
    __attribute__((cleanup(finish))) PGconn *connection = PQconnectdbParams(names, values, 1);
    if (PQstatus(connection) != CONNECTION_OK)
        /* libpq's reason names the host and the user, not the password. */
        return tell(row, DOCTOR_MISSING, "%.*s", (int)strcspn(PQerrorMessage(connection), "\n"),
                    PQerrorMessage(connection));
    tell(row, DOCTOR_GOOD, "version %s", PQparameterStatus(connection, "server_version"));
    if (PQserverVersion(connection) < POSTGRES_LEAST)
        return DOCTOR_MISSING;
    ahead = database_ahead(connection);
    if (ahead > SKEW_SECONDS || ahead < -SKEW_SECONDS)
        return tell(row, DOCTOR_MISSING, "its clock is %.0f s off ours", ahead);
    return DOCTOR_GOOD;
}

static enum doctor_finding check_supervisor(const struct doctor *doctor, struct doctor_row *row)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct stat status;

    if (snprintf(address.sun_path, sizeof(address.sun_path), "%s", doctor->socket) >=
        (int)sizeof(address.sun_path))
        return tell(row, DOCTOR_MISSING, "%s is too long for a socket", doctor->socket);
    if (stat(doctor->socket, &status) < 0)
        return tell(row, DOCTOR_ADVICE, "no supervisor listens on %s", doctor->socket);
    if (status.st_mode & S_IRWXO)
        return tell(row, DOCTOR_MISSING, "everybody may connect to %s", doctor->socket);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return judge(row, false, DOCTOR_ADVICE, doctor->socket);
    return DOCTOR_GOOD;
}

/* Tokens, leases and logs go by it. */
static enum doctor_finding check_clock(const struct doctor *doctor, struct doctor_row *row)
{
    time_t now = time(NULL);
    struct timex state = {0};
    struct tm parts;

    (void)doctor;
    if (!gmtime_r(&now, &parts) || parts.tm_year + 1900 < FIRST_SANE_YEAR)
        return tell(row, DOCTOR_MISSING, "it is in the past");
    if (adjtimex(&state) == TIME_ERROR || (state.status & STA_UNSYNC))
        return tell(row, DOCTOR_ADVICE, "nothing keeps it right");
    return DOCTOR_GOOD;
}

static enum doctor_finding check_builder(const struct doctor *doctor, struct doctor_row *row)
{
    (void)row;
    return is_program(doctor, "mmdebstrap") ? DOCTOR_GOOD : DOCTOR_ADVICE;
}

/* --- the table ---------------------------------------------------------------------------------
 */

/* Before and after the kernel's features, which are rows of their own. */
static const struct check {
    const char *name;
    enum doctor_finding (*look)(const struct doctor *doctor, struct doctor_row *row);
    const char *cure;
} first[] =
    {
        {"root", check_root,
         "run sandboxctl doctor as root: most of what follows cannot be tried otherwise"},
        {"kernel", check_version, "Linux 6.15 or newer (Debian: from backports)"},
},
  rest[] = {
      {"how many namespaces", check_namespace_count,
       "sysctl user.max_user_namespaces=60000, and so on for each that is named"},
      {"landlock", check_landlock,
       "a second fence, by a kernel with CONFIG_SECURITY_LANDLOCK and landlock in lsm= at boot"},
      {"cgroup controllers", check_controllers,
       "mount the controllers; in a unit Delegate=yes; for memory perhaps cgroup_enable=memory at "
       "boot"},
      {"cgroup 2", check_unified,
       "mount -t cgroup2 none /sys/fs/cgroup (Linux 5.14 for cgroup.kill)"},
      {"swap", check_swap, "swapaccount=1 at boot, cgroups of version 2 alone, or swapoff -a"},
      {"core_pattern", check_core_pattern,
       "LimitCORE=1 for the supervisor, or sysctl kernel.core_pattern=core"},
      {"state folder", check_state, "chown root: and chmod 0700 SUPERVISOR_STATE"},
      {"its file system", check_filesystem,
       "SUPERVISOR_STATE on ext4, xfs, btrfs or tmpfs, better one of its own, mounted "
       "nosuid,nodev"},
      {"loop devices", check_loop, "for sizes of workspaces: " LOOP_DEVICE_CURE},
      {"mkfs.ext4", check_mkfs, "for sizes of workspaces: apt-get install e2fsprogs"},
      {"sizes of workspaces", check_sizes,
       "modprobe loop and apt-get install e2fsprogs, or SUPERVISOR_STATE on btrfs with btrfs quota "
       "enable; QUOTA_REQUIRED=0 does without"},
      {"veth", check_veth, "for sandboxes with a network: a kernel with CONFIG_VETH"},
      {"nftables", check_nft,
       "for sandboxes with a network: apt-get install nftables, a kernel with CONFIG_NF_TABLES"},
      {"forwarding", check_forwarding,
       "for sandboxes with a network: sysctl net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"},
      {"ids", check_ids,
       "another ID_BASE, and a line for root in /etc/subuid and /etc/subgid (supervisor.env)"},
      {"descriptors", check_descriptors, "LimitNOFILE=524288 for the supervisor"},
      {"PostgreSQL", check_database, "PostgreSQL 14 or newer behind DATABASE_URL"},
      {"supervisor", check_supervisor, "systemctl start sandbox-supervisor.socket"},
      {"clock", check_clock, "timedatectl set-ntp true"},
      {"image builder", check_builder, "apt-get install mmdebstrap, to build images here"},
      {"hardening", check_hardening,
       "cp /usr/share/doc/agent-sandbox/agent-sandbox.sysctl.conf /etc/sysctl.d/ && sysctl "
       "--system"},
      {"modules", check_modules,
       "cp /usr/share/doc/agent-sandbox/agent-sandbox.modprobe.conf /etc/modprobe.d/, and reboot"},
};

size_t doctor_count(void)
{
    return COUNT(first) + kernel_feature_count + COUNT(rest);
}

static void look_at_kernel(const struct doctor *doctor, const struct kernel_feature *feature,
                           struct doctor_row *row)
{
    char folder[PATH_MAX];

    row->name = feature->name;
    row->cure = feature->cure;
    find_folder(doctor, folder);
    row->finding = judge(row, feature->works(folder), DOCTOR_MISSING, "the kernel says");
}

void doctor_look(const struct doctor *doctor, size_t index, struct doctor_row *row)
{
    const struct check *check = &first[index < COUNT(first) ? index : 0];

    *row = (struct doctor_row){0};
    if (index >= COUNT(first) && index < COUNT(first) + kernel_feature_count) {
        look_at_kernel(doctor, &kernel_features[index - COUNT(first)], row);
        return;
    }
    if (index >= COUNT(first))
        check = &rest[index - COUNT(first) - kernel_feature_count];
    row->name = check->name;
    row->cure = check->cure;
    row->finding = check->look(doctor, row);
}

static const char *const words[] = {
    [DOCTOR_GOOD] = "ok", [DOCTOR_MISSING] = "MISSING", [DOCTOR_ADVICE] = "advice"};

static void print_line(const struct doctor_row *row, FILE *out)
{
    fprintf(out, "%-8s %-19s", words[row->finding], row->name);
    if (row->detail[0])
        fprintf(out, " %s", row->detail);
    if (row->finding != DOCTOR_GOOD)
        fprintf(out, "%s cure: %s", row->detail[0] ? ";" : "", row->cure);
    fputc('\n', out);
}

static void print_json(const struct doctor_row *row, bool is_first, FILE *out)
{
    auto_buffer struct buffer text = {0};
    bool good = row->finding == DOCTOR_GOOD;

    json_format(&text, "{\"name\":%s,\"finding\":%s,\"detail\":%s,\"cure\":%s}", row->name,
                row->finding == DOCTOR_MISSING ? "missing" : words[row->finding],
                row->detail[0] ? row->detail : NULL, good ? NULL : row->cure);
    fprintf(out, "%s%s", is_first ? "[\n" : ",\n", text.data);
}

int doctor_examine(const struct doctor *doctor, bool json, FILE *out)
{
    int missing = 0;

    for (size_t i = 0; i < doctor_count(); i++) {
        struct doctor_row row;

        doctor_look(doctor, i, &row);
        if (json)
            print_json(&row, i == 0, out);
        else
            print_line(&row, out);
        missing += row.finding == DOCTOR_MISSING;
    }
    if (json)
        fputs("\n]\n", out);
    return missing;
}
