/* What landlock takes by itself, without the other fences: the step alone, in a process that has
 * nothing else to stop it. And that it is in force in a sandbox. */
#include <linux/landlock.h>
#include <pty.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "supervisor/steps.h"
#include "tests/sandbox/fixture.h"

static long abi;

/* Of the abstract kind, in the network namespace of the test. */
static struct sockaddr_un abstract_name(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "sandbox-test-%d", getppid());
    return address;
}

static bool cannot_make_devices(const char *folder)
{
    (void)folder;
    return mknod("device", S_IFCHR | 0600, makedev(1, 3)) < 0 && errno == EACCES &&
           mknod("disk", S_IFBLK | 0600, makedev(254, 0)) < 0 && errno == EACCES &&
           mknod("whiteout", S_IFCHR | 0600, makedev(0, 0)) < 0 && errno == EACCES;
}

static bool cannot_mount(const char *folder)
{
    return mount("none", folder, "tmpfs", 0, NULL) < 0 && errno == EPERM &&
           mount(folder, folder, NULL, MS_BIND, NULL) < 0 && errno == EPERM &&
           umount2("/proc", MNT_DETACH) < 0 && errno == EPERM;
}

static bool cannot_signal_others(const char *folder)
{
    (void)folder;
    return abi < 6 || (kill(getppid(), SIGCONT) < 0 && errno == EPERM);
}

static bool cannot_trace_others(const char *folder)
{
    (void)folder;
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) < 0 && errno == EPERM;
}

static bool cannot_reach_abstract_sockets(const char *folder)
{
    struct sockaddr_un address = abstract_name();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)folder;
    return abi < 6 ||
           (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 && errno == EPERM);
}

/* Packages are unpacked beside their place and moved, repositories are cloned by hard links. */
static bool can_move_and_link(const char *folder)
{
    (void)folder;
    return mkdir("one", 0755) == 0 && mkdir("two", 0755) == 0 &&
           close(open("one/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644)) == 0 &&
           link("one/file", "two/link") == 0 && rename("one/file", "two/file") == 0 &&
           mkdir("one/folder", 0755) == 0 && rename("one/folder", "two/folder") == 0 &&
           syscall(SYS_renameat2, AT_FDCWD, "two/file", AT_FDCWD, "two/folder", 2 /* EXCHANGE */) ==
               0;
}

static bool can_make_all_else(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};

    (void)folder;
    return mkfifo("fifo", 0600) == 0 && symlink("/", "link") == 0 &&
           bind(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), (struct sockaddr *)&address,
                sizeof(address)) == 0 &&
           connect(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), (struct sockaddr *)&address,
                   sizeof(address)) < 0 &&
           errno == EPROTOTYPE;
}

static bool can_use_terminals(const char *folder)
{
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    int master, slave;

    (void)folder;
    return openpty(&master, &slave, NULL, NULL, &size) == 0 && isatty(slave) &&
           ioctl(slave, TIOCGWINSZ, &size) == 0;
}

static bool can_signal_and_trace_its_own(const char *folder)
{
    int status;
    pid_t pid = fork();

    (void)folder;
    if (pid == 0)
        for (;;)
            pause();
    return ptrace(PTRACE_ATTACH, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid &&
           kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid;
}

static bool can_nest(const char *folder)
{
    uint64_t files = LANDLOCK_ACCESS_FS_MAKE_FIFO;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &files, sizeof(files), 0);

    (void)folder;
    return ruleset >= 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) == 0 &&
           mkfifo("refused", 0600) < 0 && errno == EACCES;
}

static const struct {
    const char *name;
    bool (*holds)(const char *folder);
} facts[] = {
    {"cannot make devices", cannot_make_devices},
    {"cannot mount", cannot_mount},
    {"cannot signal others", cannot_signal_others},
    {"cannot trace others", cannot_trace_others},
    {"cannot reach abstract sockets", cannot_reach_abstract_sockets},
    {"can move and link", can_move_and_link},
    {"can make all else", can_make_all_else},
    {"can use terminals", can_use_terminals},
    {"can signal and trace its own", can_signal_and_trace_its_own},
    {"can nest", can_nest},
};

static void need_landlock(void)
{
    abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

START_TEST(the_step_alone_holds)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char folder[] = "/tmp/sandbox-landlock-XXXXXX";
    int status;
    pid_t pid;

    if (abi < 2)
        return;
    snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "sandbox-test-%d", getpid());
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    pid = fork();
    if (pid == 0) {
        struct containment none = {0};
        struct error error;

        if (chdir(folder) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            landlock_restrict(&none, &error) < 0)
            _exit(2);
        _exit(facts[_i].holds(folder) ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    fixture_shell("rm -rf %s", folder);
    ck_assert_msg(status == 0, "%s: %x", facts[_i].name, (unsigned)status);
}
END_TEST

/* The kernel stacks sixteen; one is ours. */
START_TEST(it_is_in_force_in_a_sandbox)
{
    const char *id = fixture_running();

    if (abi >= 2)
        ck_prints(id, "/probe landlock.layers_left", "15\n");
    fixture_destroy(id);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("landlock");
    TCase *tests = tcase_create("landlock");

    need_landlock();
    tcase_add_loop_test(tests, the_step_alone_holds, 0, (int)COUNT(facts));
    tcase_add_test(tests, it_is_in_force_in_a_sandbox);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
