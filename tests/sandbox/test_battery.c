/* What a tenant could try, all of it, in each way that a command can come to run in a sandbox: see
 * battery/. None may make a difference. */
#include <sys/un.h>

#include "tests/sandbox/network.h"

enum { BATTERY_MS = 60000 };

/* Of the host: what must be neither seen nor reached from inside. */
static struct host {
    pid_t process;
    int port, listener, abstract;
    char canary[128], name[32], namespaces[512];
} host;

static char *environment[16];
static size_t environment_count;

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    ck_assert_int_gt(vasprintf(&environment[environment_count++], format, values), 0);
    va_end(values);
}

static void host_namespaces(void)
{
    static const char *const kinds[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};

    for (size_t i = 0; i < COUNT(kinds); i++) {
        char path[64], target[64];
        ssize_t length;

        snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
        length = readlink(path, target, sizeof(target) - 1);
        ck_assert_int_gt(length, 0);
        target[length] = '\0';
        strcat(host.namespaces, target);
    }
}

/* A listener that all of the host reaches, and a name in the namespace of Unix sockets. */
static void host_sockets(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length = sizeof(here);

    host.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(host.listener, (struct sockaddr *)&here, length), 0);
    ck_assert_int_eq(listen(host.listener, 8), 0);
    ck_assert_int_eq(getsockname(host.listener, (struct sockaddr *)&here, &length), 0);
    host.port = ntohs(here.sin_port);
    snprintf(host.name, sizeof(host.name), "battery-of-%d", getpid());
    snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "%s", host.name);
    host.abstract = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(
        bind(host.abstract, (struct sockaddr *)&name,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(host.name))),
        0);
    ck_assert_int_eq(listen(host.abstract, 8), 0);
}

static void host_open(void)
{
    host.process = fork();
    if (host.process == 0)
        for (;;)
            pause();
    host_namespaces();
    host_sockets();
    snprintf(host.canary, sizeof(host.canary), "%s/canary", fixture_root);
    ck_assert_int_eq(fixture_shell("echo secret >%s", host.canary), 0);
    tell("PATH=/bin");
    tell("BATTERY_HOST_PID=%d", host.process);
    tell("BATTERY_HOST_NAMESPACES=%s", host.namespaces);
    tell("BATTERY_HOST_PORT=%d", host.port);
    tell("BATTERY_HOST_ABSTRACT=%s", host.name);
    tell("BATTERY_HOST_SOCKET=%s", fixture_socket);
    tell("BATTERY_HOST_WORD=%s", strrchr(fixture_root, '/') + 1);
    tell("BATTERY_CANARY=%s", host.canary);
    tell("BATTERY_HOSTNAME=box");
    tell("BATTERY_MEMORY=%d", 256 * MEGABYTE);
    tell("BATTERY_PIDS=256");
    tell("BATTERY_CPU=200000 100000");
}

/* Another tenant, who has things by the same names. */
static const char *neighbour_open(void)
{
    const char *id = fixture_running();
    auto_outcome struct outcome map =
        fixture_run(id, "read a b c </proc/self/uid_map; echo $b", 5000);

    tell("BATTERY_NEIGHBOUR=%ld", atol(outcome_text(&map)));
    ck_prints(id,
              "/battery --stay >/tmp/stay 2>&1 & until test -s /tmp/stay; do sleep 0.02; done; cat "
              "/tmp/stay",
              "stays\n");
    return id;
}

static void host_close(void)
{
    ck_assert_int_eq(kill(host.process, 0), 0);
    ck_assert_int_eq(waitpid(host.process, NULL, WNOHANG), 0);
    kill(host.process, SIGKILL);
    waitpid(host.process, NULL, 0);
    close(host.listener);
    close(host.abstract);
}

/* The ways in which a command comes to run. */
static const struct way {
    const char *name;
    bool first; /* of all that runs in the sandbox */
    bool network;
    int64_t uid;
    const char *argv[5];
} ways[] = {
    {"first", true, false, 0, {"/battery"}},
    {"first, as 1000", true, false, 1000, {"/battery"}},
    {"later", false, false, 0, {"/battery"}},
    {"later, as 1000", false, false, 1000, {"/battery"}},
    {"by su", false, false, 0, {"/battery", "--as", "1000"}},
    {"below a shell", false, false, 0, {"/bin/sh", "-c", "/battery; exit $?"}},
    {"with a network", false, true, 0, {"/battery"}},
    {"with a network, as 1000", false, true, 1000, {"/battery"}},
};

/* What another leaves: its directory, its processes, its setuid program. */
static const char *prepared(const struct way *way)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    if (way->network) {
        start.network = "egress";
        tell("BATTERY_NETWORK=1");
    }
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    if (!way->first) {
        const char *argv[] = {"/battery", "proc.setuid_program_is_left"};

        ck_prints(id, "sleep 1000 & echo ready", "ready\n");
        outcome_done(&(struct outcome[]){fixture_argv(id, argv, 2, BATTERY_MS)}[0]);
    }
    return id;
}

static struct outcome run_battery(const char *id, const struct way *way)
{
    struct outcome outcome = {0};
    size_t count = 0;

    while (way->argv[count])
        count++;
    struct exec exec = fixture_exec(id, (const char **)(uintptr_t)way->argv, count, BATTERY_MS);
    exec.uid = way->uid;
    exec.directory = "/";
    exec.environment.items = (const char **)(uintptr_t)environment;
    exec.environment.count = environment_count;
    ck_done(sandbox_exec(fixture_connect(), &exec, 1 << 20, -1, &outcome.out, &outcome.errors,
                         &outcome.result, &fixture_error));
    return outcome;
}

/* Where there is nothing to look at; everything else is looked at. */
static const char *const skipped[] = {"skip proc.setuid_program", "skip net.interfaces"};

static bool is_fine(const char *line)
{
    for (size_t i = 0; i < COUNT(skipped); i++)
        if (strcmp(line, skipped[i]) == 0)
            return true;
    return strncmp(line, "ok ", 3) == 0;
}

START_TEST(nothing_is_let_out)
{
    const struct way *way = &ways[_i];
    size_t checks = 0;

    host_open();
    const char *neighbour = neighbour_open(), *id = prepared(way);
    auto_outcome struct outcome outcome = run_battery(id, way);

    for (char *save, *line = strtok_r(outcome.out.bytes.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        if (line[0] >= '0' && line[0] <= '9') {
            checks = strtoul(line, NULL, 10);
            continue;
        }
        if (!is_fine(line))
            printf("%s: %s\n", way->name, line);
    }
    ck_assert_msg(checks > 400, "%s: only %zu checks: %s", way->name, checks,
                  outcome.errors.bytes.data ? outcome.errors.bytes.data : "");
    ck_assert_int_eq(outcome.result.exit_code, 0);
    ck_prints(neighbour, "/battery --true && echo lives", "lives\n");
    fixture_destroy(neighbour);
    fixture_destroy(id);
    host_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("battery");
    TCase *tests = tcase_create("battery");
    int count = (int)COUNT(ways);

    if (access("/usr/sbin/nft", X_OK) == 0) {
        enter_own_network();
        setenv("EGRESS", "1", 1);
    } else {
        printf("skipped: with a network, since nft(8) is not installed\n");
        while (ways[count - 1].network)
            count--;
    }
    setenv("TMP_INODES", "8192", 1); /* all are taken, again and again */
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, nothing_is_let_out, 0, count);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
