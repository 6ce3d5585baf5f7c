/* The doctor: each row that reads files finds what is wrong with a made-up machine, and says so in
 * a line. */
#include "server/doctor.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/kernel.h"
#include "tests/unit/unit.h"

static char root[64];

/* A file under the made-up root, with its folders. */
static void put(const char *path, const char *content, mode_t mode)
{
    char full[256];

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    auto_fclose FILE *file = fopen(full, "we");
    ck_assert_ptr_nonnull(file);
    fputs(content, file);
    ck_assert_int_eq(chmod(full, mode), 0);
}

static void make_root(void)
{
    strcpy(root, "/tmp/test_doctor.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void remove_root(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

static struct doctor made_up(void)
{
    return (struct doctor){.root = root,
                           .state = "/state",
                           .socket = "/nonexistent/socket",
                           .database = "",
                           .id_base = 1048576,
                           .sandboxes_max = 100};
}

static struct doctor_row look(const struct doctor *doctor, const char *name)
{
    struct doctor_row row;

    for (size_t i = 0; i < doctor_count(); i++) {
        doctor_look(doctor, i, &row);
        if (strcmp(row.name, name) == 0)
            return row;
    }
    ck_abort_msg("there is no row %s", name);
}

#define MOUNTS "/proc/self/mounts"
#define SYS "/proc/sys/"

static const struct {
    const char *row, *path, *content;
    enum doctor_finding finding;
    const char *detail; /* a part of it */
} cases[] = {
    {"how many namespaces", SYS "user/max_user_namespaces", "0\n", DOCTOR_MISSING,
     "user.max_user_namespaces is 0"},
    {"how many namespaces", SYS "user/max_net_namespaces", "5\n", DOCTOR_MISSING,
     "user.max_net_namespaces is 5"},
    {"how many namespaces", SYS "user/max_user_namespaces", "60000\n", DOCTOR_GOOD, ""},
    {"cgroup controllers", MOUNTS, "cgroup /memory cgroup rw,memory 0 0\n", DOCTOR_MISSING,
     "no memory that can be written to, no pids that can be written to, no cpu"},
    {"cgroup controllers", MOUNTS, "none / tmpfs rw 0 0\n", DOCTOR_MISSING, "no memory"},
    {"core_pattern", SYS "kernel/core_pattern", "core\n", DOCTOR_GOOD, ""},
    {"core_pattern", SYS "kernel/core_pattern", "|/usr/bin/handler %p\n", DOCTOR_ADVICE,
     "a pipe to /usr/bin/handler %p"},
    {"loop devices", "/none", "", DOCTOR_ADVICE, "/dev/loop-control"},
    {"mkfs.ext4", "/none", "", DOCTOR_ADVICE, ""},
    {"mkfs.ext4", "/sbin/mkfs.ext4", "", DOCTOR_GOOD, ""},
    {"sizes of workspaces", "/none", "", DOCTOR_MISSING, "nothing here can bound"},
    /* What no back end of the supervisor uses bounds nothing. */
    {"sizes of workspaces", MOUNTS, "x / xfs rw,prjquota 0 0\n", DOCTOR_MISSING,
     "nothing here can bound"},
    {"nftables", "/none", "", DOCTOR_ADVICE, "nft is not installed"},
    {"nftables", "/usr/sbin/nft", "", DOCTOR_GOOD, ""},
    {"image builder", "/none", "", DOCTOR_ADVICE, ""},
    {"forwarding", SYS "net/ipv4/ip_forward", "0\n", DOCTOR_ADVICE, "net/ipv4/ip_forward is 0"},
    {"forwarding", SYS "net/ipv4/ip_forward", "1\n", DOCTOR_GOOD, ""},
    {"ids", "/etc/subuid", "anna:1000000:65536\n", DOCTOR_MISSING, "/etc/subuid gives 'anna'"},
    {"ids", "/etc/subgid", "root:1048576:65536\n", DOCTOR_MISSING, "SANDBOXES_MAX"},
    {"ids", "/etc/passwd", "max:x:1048577:1::/:/bin/sh\n", DOCTOR_MISSING, "user 'max'"},
    {"ids", "/etc/subuid", "root:1048576:6619136\nanna:100000:65536\n", DOCTOR_GOOD,
     "1048576 to 7667711"},
    {"hardening", SYS "kernel/dmesg_restrict", "0\n", DOCTOR_ADVICE, "kernel/dmesg_restrict=0"},
    {"hardening", SYS "dev/tty/legacy_tiocsti", "1\n", DOCTOR_ADVICE, "dev/tty/legacy_tiocsti=1"},
    {"hardening", SYS "kernel/yama/ptrace_scope", "2\n", DOCTOR_GOOD, ""},
    {"modules", "/proc/modules", "ext4 1 0 - Live 0x0\nrxrpc 1 0 - Live 0x0\n", DOCTOR_ADVICE,
     "rxrpc is loaded"},
    {"modules", "/proc/modules", "ext4 1 0 - Live 0x0\nesp4_offload 1 0 - Live 0x0\n", DOCTOR_GOOD,
     ""},
    {"state folder", "/none", "", DOCTOR_GOOD, "is made at the first start"},
    {"state folder", "/state", "", DOCTOR_MISSING, "is no folder"},
    {"state folder", "/state/x", "", DOCTOR_MISSING, "has mode 0755"},
    {"supervisor", "/none", "", DOCTOR_ADVICE, "no supervisor listens on /nonexistent/socket"},
    {"PostgreSQL", "/none", "", DOCTOR_ADVICE, "DATABASE_URL is not set"},
};

START_TEST(a_row_says_what_it_found)
{
    const struct doctor doctor = made_up();
    struct doctor_row row;
    struct rlimit none = {0, 0};

    /* A crash handler matters where no core may be written. */
    if (strcmp(cases[_i].row, "core_pattern") == 0)
        setrlimit(RLIMIT_CORE, &none);
    put(cases[_i].path, cases[_i].content, 0755);
    row = look(&doctor, cases[_i].row);
    ck_assert_msg(row.finding == cases[_i].finding, "%s: %s", row.name, row.detail);
    ck_assert_msg(strstr(row.detail, cases[_i].detail) != NULL, "%s: %s", row.name, row.detail);
    ck_assert(cases[_i].detail[0] || row.finding != DOCTOR_GOOD || !row.detail[0]);
}
END_TEST

START_TEST(controllers_count_where_they_can_be_written_to)
{
    const struct doctor doctor = made_up();

    put(MOUNTS, "cgroup /memory cgroup rw,memory 0 0\ncgroup2 /two cgroup2 rw 0 0\n", 0644);
    put("/memory/tasks", "", 0644);
    put("/two/cgroup.controllers", "cpuset cpu io pids\n", 0644);
    ck_assert_int_eq(look(&doctor, "cgroup controllers").finding, DOCTOR_GOOD);
    put("/two/cgroup.controllers", "cpuset io pids\n", 0644);
    ck_assert_str_eq(look(&doctor, "cgroup controllers").detail, "no cpu that can be written to");
}
END_TEST

START_TEST(swap_that_is_not_counted_is_told)
{
    const struct doctor doctor = made_up();

    put("/proc/swaps", "Filename Type Size\n/dev/x partition 1\n", 0644);
    put(MOUNTS, "cgroup /memory cgroup rw,memory 0 0\ncgroup2 /two cgroup2 rw 0 0\n", 0644);
    put("/two/cgroup.controllers", "cpu\n", 0644);
    ck_assert_int_eq(look(&doctor, "swap").finding, DOCTOR_ADVICE);
    put("/memory/memory.memsw.limit_in_bytes", "0\n", 0644);
    ck_assert_int_eq(look(&doctor, "swap").finding, DOCTOR_GOOD);
    put("/proc/swaps", "Filename Type Size\n", 0644);
    ck_assert_str_eq(look(&doctor, "swap").detail, "none");
}
END_TEST

START_TEST(a_workspace_can_be_an_image)
{
    const struct doctor doctor = made_up();

    put("/dev/loop-control", "", 0600);
    ck_assert_int_eq(look(&doctor, "sizes of workspaces").finding, DOCTOR_MISSING);
    put("/usr/sbin/mkfs.ext4", "", 0755);
    ck_assert_str_eq(look(&doctor, "sizes of workspaces").detail,
                     "an ext4 image in a loop device each");
}
END_TEST

START_TEST(a_socket_for_everybody_is_a_fault)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct doctor doctor = made_up();
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", root);
    doctor.socket = address.sun_path;
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(chmod(address.sun_path, 0666), 0);
    ck_assert_int_eq(look(&doctor, "supervisor").finding, DOCTOR_MISSING);
    ck_assert_int_eq(chmod(address.sun_path, 0660), 0);
    ck_assert_int_eq(look(&doctor, "supervisor").finding, DOCTOR_GOOD);
}
END_TEST

START_TEST(a_database_that_does_not_answer_is_a_fault)
{
    struct doctor doctor = made_up();
    struct doctor_row row;

    doctor.database = "postgresql://somebody:hidden-password@/x?host=/nonexistent";
    row = look(&doctor, "PostgreSQL");
    ck_assert_int_eq(row.finding, DOCTOR_MISSING);
    ck_assert_ptr_null(strstr(row.detail, "hidden-password"));
}
END_TEST

/* Two ways to say it, of one count. */
START_TEST(all_rows_are_printed)
{
    const struct doctor doctor = made_up();
    static char text[64 * 1024], json[64 * 1024];
    FILE *out = fmemopen(text, sizeof(text), "w");
    size_t lines = 0, objects = 0, missing = 0;
    int told = doctor_examine(&doctor, false, out);

    fclose(out);
    out = fmemopen(json, sizeof(json), "w");
    ck_assert_int_eq(doctor_examine(&doctor, true, out), told);
    fclose(out);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    for (const char *at = json; (at = strstr(at, "{\"name\":")); at++)
        objects++;
    for (const char *at = json; (at = strstr(at, "\"finding\":\"missing\"")); at++)
        missing++;
    ck_assert_uint_eq(lines, doctor_count());
    ck_assert_uint_eq(objects, doctor_count());
    ck_assert_uint_eq(missing, (size_t)told);
    ck_assert_int_gt(told, 0); /* no controllers, at the least */
    ck_assert(strncmp(json, "[\n{", 3) == 0 && strstr(json, "}\n]\n"));
    for (size_t i = 0; i < doctor_count(); i++) {
        struct doctor_row row;

        doctor_look(&doctor, i, &row);
        ck_assert_msg(row.cure && strlen(row.cure) > 8 && !strchr(row.cure, '\n'), "%s", row.name);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("doctor");
    TCase *tests = unit_case(suite, "doctor");

    tcase_add_checked_fixture(tests, make_root, remove_root);
    unit_table(tests, a_row_says_what_it_found, cases);
    tcase_add_test(tests, controllers_count_where_they_can_be_written_to);
    tcase_add_test(tests, swap_that_is_not_counted_is_told);
    tcase_add_test(tests, a_workspace_can_be_an_image);
    tcase_add_test(tests, a_socket_for_everybody_is_a_fault);
    tcase_add_test(tests, a_database_that_does_not_answer_is_a_fault);
    tcase_add_test(tests, all_rows_are_printed);
    return unit_run(suite);
}
