/* Tries, inside a sandbox, what must not work there (and what must). `probe NAME`: 0 contained or
 * fine, 1 not, 2 unknown name. Static, so that it runs in any image. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_alg.h>
#include <linux/keyctl.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define HIGH_BITS UINT64_C(0x100000000)

/* A call that must fail: says so when it did not. */
static int must_fail(const char *what, long result)
{
    if (result < 0)
        return 0;
    printf("%s worked (%ld)\n", what, result);
    return 1;
}

static int must_work(const char *what, long result)
{
    if (result >= 0)
        return 0;
    printf("%s: %s\n", what, strerror(errno));
    return 1;
}

#define FAILS(call) must_fail(#call, (long)(call))
#define WORKS(call) must_work(#call, (long)(call))

static int can_open(const char *path, int flags)
{
    return FAILS(open(path, flags)) ? (printf("%s\n", path), 1) : 0;
}

/* A child that tries a foreign ABI must be killed. */
static int must_die(void (*attempt)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        attempt();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        return 0;
    printf("status %x\n", status);
    return 1;
}

/* --- mounts and files ----------------------------------------------------------------------------
 */

static int mount_tmpfs(void)
{
    return FAILS(mount("none", "/mnt", "tmpfs", 0, NULL));
}

static int mount_proc(void)
{
    return FAILS(mount("proc", "/mnt", "proc", 0, NULL));
}

static int mount_bind(void)
{
    return FAILS(mount("/", "/mnt", NULL, MS_BIND | MS_REC, NULL));
}

static int mount_remount(void)
{
    return FAILS(mount(NULL, "/dev", NULL, MS_REMOUNT | MS_BIND, NULL)) |
           FAILS(mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
}

static int mount_new_api(void)
{
    return FAILS(syscall(SYS_fsopen, "tmpfs", 0)) |
           FAILS(syscall(SYS_open_tree, AT_FDCWD, "/", 1)) |
           FAILS(syscall(SYS_move_mount, -1, "", AT_FDCWD, "/mnt", 4)) |
           FAILS(syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, "", 0)) |
           FAILS(syscall(467 /* open_tree_attr */, AT_FDCWD, "/", 1, NULL, 0));
}

static int umount_masks(void)
{
    return FAILS(umount2("/proc/kallsyms", MNT_DETACH)) | FAILS(umount2("/proc/sys", MNT_DETACH)) |
           FAILS(umount2("/proc", MNT_DETACH));
}

static int change_root(void)
{
    return FAILS(chroot("/tmp")) | FAILS(syscall(SYS_pivot_root, ".", "."));
}

static int make_device(void)
{
    return FAILS(mknod("/tmp/null", S_IFCHR | 0666, makedev(1, 3))) |
           FAILS(mknod("/workspace/disk", S_IFBLK | 0666, makedev(254, 0))) |
           FAILS(syscall(SYS_mknodat, AT_FDCWD, "/root/mem", S_IFCHR | 0666, makedev(1, 1)));
}

static int host_files(void)
{
    return can_open("/proc/1/root/etc/shadow", O_RDONLY) | can_open("/proc/1/root", O_RDONLY) |
           can_open("/proc/1/cwd", O_RDONLY) | can_open("/proc/1/exe", O_RDONLY) |
           can_open("/proc/1/mem", O_RDWR) | can_open("/proc/1/environ", O_RDONLY) |
           can_open("/proc/1/maps", O_RDONLY) | can_open("/proc/1/ns/mnt", O_RDONLY) |
           can_open("/proc/1/fd/3", O_RDWR) | can_open("/dev/vda", O_RDONLY) |
           can_open("/dev/mem", O_RDONLY) | can_open("/dev/kmsg", O_RDONLY) |
           can_open("/dev/loop-control", O_RDONLY) | can_open("/dev/fuse", O_RDWR);
}

static int own_program(void)
{
    return FAILS(open("/proc/1/exe", O_WRONLY)) | FAILS(truncate("/proc/1/exe", 0));
}

static int file_handles(void)
{
    struct {
        unsigned bytes;
        int type;
        unsigned char data[64];
    } handle = {8, 1, {2}};
    int id;

    return FAILS(syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &handle, &id, 0)) |
           FAILS(syscall(SYS_open_by_handle_at, AT_FDCWD, &handle, O_RDONLY));
}

static int kernel_switches(void)
{
    return can_open("/proc/sys/kernel/core_pattern", O_WRONLY) |
           can_open("/proc/sys/kernel/hostname", O_WRONLY) |
           can_open("/proc/sys/user/max_user_namespaces", O_WRONLY) |
           can_open("/proc/sys/vm/drop_caches", O_WRONLY) |
           can_open("/proc/sys/net/ipv4/ip_forward", O_WRONLY) |
           can_open("/proc/irq/default_smp_affinity", O_WRONLY) |
           can_open("/sys/kernel/uevent_helper", O_WRONLY) | FAILS(mkdir("/sys/x", 0755)) |
           FAILS(mkdir("/dev/x", 0755)) | FAILS(mkdir("/proc/x", 0755)) |
           FAILS(open("/dev/null2", O_CREAT | O_WRONLY, 0600));
}

/* Masked files read as empty. */
static int masked(void)
{
    static const char *const paths[] = {"/proc/kcore",      "/proc/kallsyms", "/proc/keys",
                                        "/proc/timer_list", "/proc/kmsg",     "/proc/config.gz"};
    int wrong = 0;
    char byte;

    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        int fd = open(paths[i], O_RDONLY | O_NONBLOCK);

        if (fd >= 0 && read(fd, &byte, 1) > 0)
            wrong |= printf("%s has content\n", paths[i]) > 0;
        if (fd >= 0)
            close(fd);
    }
    int fd = open("/proc/sysrq-trigger", O_WRONLY);
    struct stat status;
    if (fd >= 0 && (fstat(fd, &status) < 0 || status.st_rdev != makedev(1, 3)))
        wrong |= printf("sysrq-trigger is real\n") > 0;
    return wrong;
}

static int descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int wrong = 0;

    while ((entry = readdir(directory))) {
        int fd = atoi(entry->d_name);

        if (fd > 2 && fd != dirfd(directory))
            wrong |= printf("descriptor %d is open\n", fd) > 0;
    }
    return wrong;
}

static int host_paths(void)
{
    char line[4096];
    FILE *file = fopen("/proc/self/cgroup", "r");
    int wrong = 0;

    while (fgets(line, sizeof(line), file))
        if (strstr(line, "agent-sandbox"))
            wrong |= printf("cgroup: %s", line) > 0;
    return wrong | FAILS(access("/sys/fs/cgroup/cgroup.procs", F_OK));
}

/* --- processes -----------------------------------------------------------------------------------
 */

static int namespaces(void)
{
    static const int flags[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,   CLONE_NEWNET,
                                CLONE_NEWIPC,  CLONE_NEWUTS, CLONE_NEWCGROUP};
    int wrong = FAILS(setns(open("/proc/self/ns/net", O_RDONLY), 0));

    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
        long pid;

        wrong |= FAILS(unshare(flags[i]));
        for (int high = 0; high < 2; high++) {
            pid = syscall(SYS_clone, (high ? HIGH_BITS : 0) | (unsigned)flags[i] | SIGCHLD, NULL,
                          NULL, NULL, NULL);
            if (pid == 0)
                _exit(0);
            wrong |= must_fail("clone into a namespace", pid);
        }
    }
    return wrong;
}

static int clone3_hidden(void)
{
    struct {
        uint64_t flags, rest[10];
    } args = {CLONE_NEWUSER, {0}};
    long pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0)
        _exit(0);
    return must_fail("clone3", pid) | (errno != ENOSYS);
}

static int trace_init(void)
{
    char bytes[8];
    struct iovec own = {bytes, 8}, theirs = {(void *)0x400000, 8};
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);

    return FAILS(ptrace(PTRACE_ATTACH, 1, NULL, NULL)) |
           FAILS(ptrace((int)0x4206 /* SEIZE */, 1, NULL, NULL)) |
           FAILS(process_vm_readv(1, &own, 1, &theirs, 1, 0)) |
           FAILS(process_vm_writev(1, &own, 1, &theirs, 1, 0)) |
           FAILS(syscall(SYS_pidfd_getfd, pidfd, 3, 0)) |
           FAILS(prlimit(1, RLIMIT_NOFILE, &(struct rlimit){1, 1}, NULL));
}

static int kill_init(void)
{
    for (int number = 1; number < 32; number++)
        kill(1, number);
    usleep(100000);
    return must_work("init lives", kill(1, 0));
}

static int priorities(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);
    struct sched_param real = {.sched_priority = 1};
    struct rlimit core;

    return FAILS(write(fd, "-1000", 5)) | FAILS(setpriority(PRIO_PROCESS, 0, -20)) |
           FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &real)) |
           (getrlimit(RLIMIT_CORE, &core) < 0 || core.rlim_max > 1) |
           FAILS(setrlimit(RLIMIT_CORE, &(struct rlimit){1 << 20, 1 << 20})) |
           FAILS(setrlimit(RLIMIT_NPROC, &(struct rlimit){1 << 16, 1 << 16}));
}

/* The kernel picks the one with the higher score: no process may get below init. */
static int init_outlives(void)
{
    int own = open("/proc/self/oom_score_adj", O_RDWR),
        other = open("/proc/1/oom_score_adj", O_RDONLY);
    char mine[16] = "", theirs[16] = "";

    for (int score = 0; score <= 1000; score += 100) {
        snprintf(mine, sizeof(mine), "%d", score);
        if (write(own, mine, strlen(mine)) > 0)
            break;
    }
    memset(mine, 0, sizeof(mine));
    return WORKS(pread(own, mine, sizeof(mine) - 1, 0)) |
           WORKS(pread(other, theirs, sizeof(theirs) - 1, 0)) |
           (atoi(theirs) > atoi(mine) ? printf("init has %s, I have %s", theirs, mine) > 0 : 0);
}

static int capabilities(void)
{
    struct {
        uint32_t version;
        int pid;
    } head = {0x20080522, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } all[2] = {{~0U, ~0U, 0}, {~0U, ~0U, 0}};

    return FAILS(syscall(SYS_capset, &head, all)) | (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) |
           (prctl(PR_CAPBSET_READ, 21 /* SYS_ADMIN */) != 0);
}

static void call_x32(void)
{
    syscall(0x40000000 + 39);
}

static void call_i386(void)
{
    int result;

    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20 /* getpid */));
}

static int foreign_abis(void)
{
    return must_die(call_x32) | must_die(call_i386);
}

static int forbidden_calls(void)
{
    union bpf_attr bpf = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    unsigned char perf[128] = {0};

    perf[4] = sizeof(perf);
    return FAILS(syscall(SYS_bpf, BPF_MAP_CREATE, &bpf, sizeof(bpf))) |
           FAILS(syscall(SYS_perf_event_open, perf, 0, -1, -1, 0)) |
           FAILS(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, -3, 0)) |
           FAILS(syscall(SYS_add_key, "user", "x", "y", 1, -3)) |
           FAILS(syscall(SYS_userfaultfd, 1)) | FAILS(syscall(SYS_io_uring_setup, 1, perf)) |
           FAILS(syscall(SYS_kcmp, 1, 1, 0, 0, 0)) | FAILS(syscall(SYS_init_module, "", 0, "")) |
           FAILS(syscall(SYS_kexec_load, 0, 0, NULL, 0)) |
           FAILS(syscall(SYS_reboot, 0xfee1dead, 0x28121969, 0, NULL)) |
           FAILS(syscall(SYS_syslog, 2, perf, 10)) | FAILS(syscall(SYS_swapon, "/x", 0)) |
           FAILS(syscall(SYS_iopl, 3)) | FAILS(syscall(SYS_acct, NULL)) |
           FAILS(syscall(SYS_settimeofday, NULL, &(struct { int a, b; }){0, 0})) |
           FAILS(sethostname("x", 1)) | FAILS(syscall(SYS_fanotify_init, 0, 0)) |
           FAILS(syscall(SYS_modify_ldt, 0, perf, 10)) | FAILS(syscall(SYS_vhangup)) |
           FAILS(syscall(SYS_quotactl, 0, "/x", 0, NULL)) | FAILS(personality(0x0040000)) |
           FAILS(syscall(SYS_process_madvise, -1, NULL, 0, 0, 0)) |
           FAILS(syscall(SYS_vmsplice, 1, NULL, 0, 0));
}

/* --- terminals and network -----------------------------------------------------------------------
 */

static int terminal_injection(void)
{
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY), discipline = 3;

    return WORKS(fd) | FAILS(ioctl(fd, TIOCSTI, "x")) |
           FAILS(syscall(SYS_ioctl, fd, HIGH_BITS | TIOCSTI, "x")) |
           FAILS(ioctl(fd, TIOCLINUX, "x")) | FAILS(ioctl(fd, TIOCSETD, &discipline)) |
           FAILS(syscall(SYS_ioctl, fd, HIGH_BITS | TIOCSETD, &discipline));
}

static int socket_families(void)
{
    int wrong = 0;

    for (int family = 0; family < 64; family++) {
        bool allowed =
            family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;

        for (int type = SOCK_STREAM; type <= SOCK_SEQPACKET && !allowed; type++)
            wrong |=
                FAILS(socket(family, type, 0)) |
                must_fail("high bits", syscall(SYS_socket, HIGH_BITS | (unsigned)family, type, 0));
    }
    return wrong | FAILS(socket(AF_ALG, SOCK_SEQPACKET, 0)) |
           FAILS(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)) |
           FAILS(socket(AF_INET6, SOCK_RAW, IPPROTO_RAW)) |
           FAILS(socket(AF_INET, SOCK_STREAM, 262 /* MPTCP */)) |
           FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP)) |
           FAILS(socket(AF_NETLINK, SOCK_RAW, 6 /* XFRM */)) |
           FAILS(socket(AF_NETLINK, SOCK_RAW, 12 /* NETFILTER */)) |
           must_fail("socketpair", socketpair(AF_TIPC, SOCK_STREAM, 0, (int[2]){0}));
}

static int network(void)
{
    struct if_nameindex *all = if_nameindex();
    struct sockaddr_in away = {
        .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = inet_addr("1.1.1.1")};
    int wrong = 0, fd = socket(AF_INET, SOCK_DGRAM, 0);

    for (struct if_nameindex *at = all; at && at->if_index; at++)
        if (strcmp(at->if_name, "lo") != 0 && strncmp(at->if_name, "tunl", 4) != 0 &&
            strncmp(at->if_name, "sit", 3) != 0 && strncmp(at->if_name, "ip", 2) != 0 &&
            strncmp(at->if_name, "gre", 3) != 0 && strncmp(at->if_name, "erspan", 6) != 0)
            wrong |= printf("interface %s\n", at->if_name) > 0;
    return wrong | FAILS(connect(fd, (struct sockaddr *)&away, sizeof(away)));
}

/* Full buffers of many connections are memory too. */
static int socket_buffers(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(here);
    int listener = socket(AF_INET, SOCK_STREAM, 0), size = 1 << 30, wrong;
    static char bytes[1 << 16];
    size_t total = 0;

    wrong = WORKS(bind(listener, (struct sockaddr *)&here, length)) | WORKS(listen(listener, 200)) |
            WORKS(getsockname(listener, (struct sockaddr *)&here, &length));
    for (int i = 0; i < 200 && !wrong; i++) {
        int client = socket(AF_INET, SOCK_STREAM, 0);

        setsockopt(client, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        wrong = WORKS(connect(client, (struct sockaddr *)&here, length)) |
                WORKS(accept(listener, NULL, NULL));
        for (ssize_t sent; (sent = send(client, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0;)
            total += (size_t)sent;
    }
    if (total > 64 << 20)
        wrong |= printf("%zu MB are in socket buffers\n", total >> 20) > 0;
    return wrong;
}

/* --- what must work ------------------------------------------------------------------------------
 */

static void *thread(void *data)
{
    return data;
}

static int everyday(void)
{
    struct sockaddr_in here = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "/tmp/socket"};
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0),
        status;
    pthread_t other;
    int wrong =
        WORKS(bind(listener, (struct sockaddr *)&here, sizeof(here))) | WORKS(listen(listener, 1)) |
        WORKS(connect(client, (struct sockaddr *)&here, sizeof(here))) |
        WORKS(bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&name, sizeof(name))) |
        WORKS(mkfifo("/tmp/fifo", 0600)) | WORKS(open("/workspace/file", O_CREAT | O_RDWR, 0600)) |
        WORKS(open("/dev/shm/file", O_CREAT | O_RDWR, 0600)) |
        WORKS(open("/etc/file", O_CREAT | O_RDWR, 0600)) |
        WORKS(write(open("/dev/null", O_WRONLY), "x", 1)) |
        WORKS(chown("/workspace/file", 1000, 1000)) |
        WORKS(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)) | WORKS(socket(AF_NETLINK, SOCK_RAW, 0)) |
        WORKS(syscall(SYS_memfd_create, "x", 0)) |
        WORKS(-pthread_create(&other, NULL, thread, NULL)) |
        WORKS(syscall(SYS_openat2, AT_FDCWD, "/", &(struct { uint64_t a, b, c; }){O_RDONLY, 0, 0},
                      24));
    pid_t pid = fork();

    if (pid == 0)
        _exit(setgid(1000) || setuid(1000) || getuid() != 1000 || open("/etc/shadow", O_RDWR) >= 0);
    waitpid(pid, &status, 0);
    pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    return wrong | status | WORKS(ptrace(PTRACE_ATTACH, pid, NULL, NULL)) |
           WORKS(kill(pid, SIGKILL));
}

/* What neighbours must not take from each other: the counts of a user, and the inodes of /dev. Both
 * sides run this; the first keeps all it got. */
static int take(int instances, bool keep)
{
    struct mq_attr size = {.mq_maxmsg = 10, .mq_msgsize = 8192};
    int wrong = WORKS(inotify_init1(0)) | WORKS(mq_open("/queue", O_CREAT | O_RDWR, 0600, &size)) |
                WORKS(flock(open("/dev/null", O_RDONLY), LOCK_EX | LOCK_NB)) |
                WORKS(mq_unlink("/queue"));
    char name[32];

    for (int i = 0; i < instances; i++)
        inotify_init1(0);
    for (int i = 0; i < instances; i++) {
        snprintf(name, sizeof(name), "/queue%d", i);
        mq_open(name, O_CREAT | O_RDWR, 0600, &size);
    }
    if (keep && !wrong && fork() == 0)
        for (;;)
            pause();
    return wrong;
}

static int takes_its_own(void)
{
    return take(0, false);
}

static int takes_all(void)
{
    return take(1000, true);
}

/* Not a check: how many domains more can be stacked. */
static int landlock_layers_left(void)
{
    uint64_t files = 1 << 10 /* MAKE_FIFO */;
    int count = 0;

    for (;;) {
        int ruleset = (int)syscall(SYS_landlock_create_ruleset, &files, sizeof(files), 0);

        if (ruleset < 0 || syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
            return printf("%d\n", count) < 0;
        close(ruleset);
        count++;
    }
}

static const struct {
    const char *name;
    int (*run)(void);
} checks[] = {
    {"mount_tmpfs", mount_tmpfs},
    {"mount_proc", mount_proc},
    {"mount_bind", mount_bind},
    {"mount_remount", mount_remount},
    {"mount_new_api", mount_new_api},
    {"umount_masks", umount_masks},
    {"change_root", change_root},
    {"make_device", make_device},
    {"host_files", host_files},
    {"own_program", own_program},
    {"file_handles", file_handles},
    {"kernel_switches", kernel_switches},
    {"masked", masked},
    {"descriptors", descriptors},
    {"host_paths", host_paths},
    {"namespaces", namespaces},
    {"clone3_hidden", clone3_hidden},
    {"trace_init", trace_init},
    {"kill_init", kill_init},
    {"priorities", priorities},
    {"init_outlives", init_outlives},
    {"socket_buffers", socket_buffers},
    {"capabilities", capabilities},
    {"foreign_abis", foreign_abis},
    {"forbidden_calls", forbidden_calls},
    {"terminal_injection", terminal_injection},
    {"socket_families", socket_families},
    {"network", network},
    {"everyday", everyday},
    {"takes_its_own", takes_its_own},
    {"takes_all", takes_all},
};

int main(int argc, char **argv)
{
    /* Not a check: to be ended by others. */
    while (argc > 1 && strcmp(argv[1], "crowd") == 0)
        fork();
    if (argc > 1 && strcmp(argv[1], "landlock.layers_left") == 0)
        return landlock_layers_left();
    for (size_t i = 0; argc > 1 && i < sizeof(checks) / sizeof(*checks); i++) {
        if (strcmp(argv[1], checks[i].name) == 0) {
            int wrong = checks[i].run();

            fflush(stdout);
            return wrong != 0;
        }
    }
    for (size_t i = 0; argc == 1 && i < sizeof(checks) / sizeof(*checks); i++)
        puts(checks[i].name);
    return argc == 1 ? 0 : 2;
}
