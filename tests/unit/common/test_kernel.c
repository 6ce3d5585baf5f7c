/* What the kernel lacks is found by its name: each call that a feature takes is refused by a filter
 * in a child, as an older kernel would. */
#include "common/kernel.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

enum { SKIPPED = 2 };

static const struct kernel_feature *find(const char *name)
{
    for (size_t i = 0; i < kernel_feature_count; i++)
        if (strcmp(kernel_features[i].name, name) == 0)
            return &kernel_features[i];
    ck_abort_msg("there is no feature %s", name);
}

/* From now on this process is told that the call does not exist. */
static void lose(int number)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {COUNT(filter), filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        _exit(SKIPPED);
}

static const struct {
    const char *feature;
    int call;
} cases[] = {
    {"user namespaces", SYS_clone3},
    {"all namespaces", SYS_clone3},
    {"a new /proc", SYS_fsopen},
    {"id-mapped mounts", SYS_mount_setattr},
    {"id-mapped mounts", SYS_open_tree},
    {"overlayfs", SYS_fsconfig},
    {"overlayfs", SYS_fsmount},
    {"seccomp", SYS_seccomp},
    {"openat2", SYS_openat2},
    {"pidfd", SYS_pidfd_open},
    {"close_range", SYS_close_range},
    {"sealed memory", SYS_memfd_create},
};

START_TEST(a_lost_call_is_a_missing_feature)
{
    const struct kernel_feature *feature = find(cases[_i].feature);
    pid_t pid;
    int status;

    if (!feature->works("/tmp")) { /* most of them take privilege */
        printf("skipped: %s: %s\n", feature->name, strerror(errno));
        return;
    }
    pid = fork();
    if (pid == 0) {
        lose(cases[_i].call);
        _exit(feature->works("/tmp") || errno != ENOSYS);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_msg(WEXITSTATUS(status) == 0, "%s without call %d: status %d", feature->name,
                  cases[_i].call, WEXITSTATUS(status));
}
END_TEST

START_TEST(every_feature_has_a_cure_in_a_line)
{
    ck_assert_uint_gt(kernel_feature_count, 8);
    for (size_t i = 0; i < kernel_feature_count; i++)
        ck_assert(kernel_features[i].name[0] && strlen(kernel_features[i].cure) > 8 &&
                  !strchr(kernel_features[i].cure, '\n'));
    ck_assert_int_gt(kernel_version(), 300);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernel");
    TCase *tests = unit_case(suite, "kernel");

    unit_table(tests, a_lost_call_is_a_missing_feature, cases);
    tcase_add_test(tests, every_feature_has_a_cure_in_a_line);
    return unit_run(suite);
}
