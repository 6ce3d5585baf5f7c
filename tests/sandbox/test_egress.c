/* The network that leads out. Everything is in network namespaces that the test makes: "the host",
 * in which the supervisor runs, and behind its uplink "the internet", which has public addresses
 * and every one that must not be reached, each with servers that note who came. */
#include <sys/prctl.h>
#include <sys/un.h>

#include "tests/sandbox/network.h"

enum { PATIENCE = 20000, ROUNDS = 200, POOL = 2, FLOOD_BYTES = 8000000, FLOOD_MS = 250 };

#define HOST4 "93.184.216.2"
#define HOST6 "2606:4700:1::2"
#define ALLOWED "10.9.9.9"
#define DENIED "9.9.9.9"
#define NAMES "1.1.1.1"

static pid_t internet;
static char folder[64]; /* what the servers note */
static char netprobe[PATH_MAX];

/* --- the world ------------------------------------------------------------------------------- */

static const char *const public_addresses[] = {"8.8.8.8", "2606:4700::1111", NAMES};

/* Beyond the uplink, so that nothing but a rule keeps a sandbox from them. */
static const char *const refused[] = {
    "0.1.2.3",          "10.1.2.3",
    "100.64.1.1",       "169.254.169.254",
    "172.16.5.5",       "172.31.255.1",
    "192.0.0.8",        "192.0.2.1",
    "192.88.99.1",      "192.168.7.7",
    "198.18.0.1",       "198.51.100.7",
    "203.0.113.5",      DENIED,
    "fd00:ec2::254",    "fc00::1",
    "64:ff9b::a01:203", "2002:a01:203::1",
    "2001::1",          "2001:db8::1",
    "100::1",           "4000::1",
    "fec0::1",
};

__attribute__((format(printf, 1, 2))) static void must_run(const char *format, ...)
{
    char command[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(command, sizeof(command), format, values);
    va_end(values);
    if (system(command) != 0)
        fixture_skip(command);
}

/* netprobe as a server; what it notes goes to a file of that name. */
static pid_t serve(const char *note, const char *kind, const char *address, const char *port)
{
    char path[128];
    pid_t pid;

    snprintf(path, sizeof(path), "%s/%s", folder, note);
    pid = fork();
    if (pid == 0) {
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fd, STDOUT_FILENO);
        execl(netprobe, netprobe, kind, address, port, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void add_addresses(const char *const *addresses, size_t count)
{
    for (size_t i = 0; i < count; i++)
        must_run("ip addr add %s/%d dev lo nodad 2>/dev/null", addresses[i],
                 strchr(addresses[i], ':') ? 128 : 32);
}

static _Noreturn void be_the_internet(int go)
{
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(go, &byte, 1) != 1)
        _exit(1);
    must_run("ip link set lo up && ip link set up0 up && ip addr add 93.184.216.1/24 dev up0 && "
             "ip addr add 2606:4700:1::1/64 dev up0 nodad");
    add_addresses(public_addresses, COUNT(public_addresses));
    add_addresses(refused, COUNT(refused));
    must_run("ip addr add " ALLOWED "/32 dev lo");
    /* A network that would take a sandbox's own addresses. */
    must_run("ip route add 10.207.0.0/16 via " HOST4 " && ip route add fd5b:5b::/64 via " HOST6);
    serve("tcp", "serve-tcp", "0.0.0.0", "80");
    serve("tcp", "serve-tcp", "::", "80");
    serve("udp", "serve-udp", "0.0.0.0", "9");
    serve("udp", "serve-udp", "::", "9");
    /* Which answer under the address that was asked. */
    serve("udp", "serve-udp", "8.8.8.8", "10");
    serve("udp", "serve-udp", "2606:4700::1111", "10");
    serve("sink", "sink", "0.0.0.0", "81");
    serve("names", "names", NAMES, NULL);
    for (;;)
        pause();
}

static void make_the_internet(void)
{
    int go[2], gone[2];

    if (pipe(go) < 0 || pipe(gone) < 0)
        fixture_skip("pipe");
    internet = fork();
    if (internet == 0) {
        if (unshare(CLONE_NEWNET) < 0)
            _exit(1);
        close(gone[0]);
        if (write(gone[1], "", 1) != 1)
            _exit(1);
        be_the_internet(go[0]);
    }
    if (read(gone[0], &(char){0}, 1) != 1)
        fixture_skip("no network namespace for the internet");
    must_run("ip link add up0 type veth peer name up0 netns %d && ip link set up0 up && "
             "ip addr add " HOST4 "/24 dev up0 && ip addr add " HOST6 "/64 dev up0 nodad && "
             "ip route add default via 93.184.216.1 && ip route add default via 2606:4700:1::1",
             internet);
    if (write(go[1], "", 1) != 1)
        fixture_skip("the internet is gone");
    close(go[0]);
    close(go[1]);
    close(gone[0]);
    close(gone[1]);
}

static void make_the_world(void)
{
    char *slash;

    snprintf(folder, sizeof(folder), "/tmp/sandbox-net-XXXXXX");
    if (!mkdtemp(folder) || readlink("/proc/self/exe", netprobe, sizeof(netprobe) - 16) < 0)
        fixture_skip("no folder under /tmp");
    if ((slash = strrchr(netprobe, '/')))
        snprintf(slash, 16, "/netprobe");
    make_the_internet();
    serve("host", "serve-tcp", "0.0.0.0", "7070");
    serve("host", "serve-tcp", "::", "7070");
    setenv("EGRESS", "1", 1);
    setenv("EGRESS_RANGE6", "fd5b:5b::/64", 1);
    setenv("EGRESS_ALLOW", ALLOWED, 1);
    setenv("EGRESS_DENY", DENIED ", 2606:4700:dead::/48", 1);
    setenv("EGRESS_DNS", NAMES, 1);
    setenv("EGRESS_POOL", "2", 1);
}

/* How often that stands in what the servers noted. */
static int noted(const char *note, const char *what)
{
    char command[256];
    int count = 0;
    FILE *file;

    snprintf(command, sizeof(command), "grep -c -- '%s' %s/%s", what, folder, note);
    file = popen(command, "r");
    if (!file || fscanf(file, "%d", &count) != 1)
        count = 0;
    if (file)
        pclose(file);
    return count;
}

static int count_of(const char *command)
{
    FILE *file = popen(command, "r");
    int count = -1;

    if (!file || fscanf(file, "%d", &count) != 1)
        count = -1;
    if (file)
        pclose(file);
    return count;
}

static const char *egress_running(void)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.network = "egress";
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    return id;
}

static struct outcome probe(const char *id, const char *arguments)
{
    char command[256];

    snprintf(command, sizeof(command), "/netprobe %s", arguments);
    return fixture_run(id, command, PATIENCE);
}

__attribute__((format(printf, 2, 3))) static bool succeeds(const char *id, const char *format, ...)
{
    char arguments[200];
    va_list values;

    va_start(values, format);
    vsnprintf(arguments, sizeof(arguments), format, values);
    va_end(values);
    auto_outcome struct outcome outcome = probe(id, arguments);
    return outcome.result.exit_code == 0;
}

static void address_of(const char *id, char family, char text[64])
{
    char arguments[32];

    snprintf(arguments, sizeof(arguments), "address eth0 %c", family);
    auto_outcome struct outcome outcome = probe(id, arguments);
    ck_assert_int_eq(outcome.result.exit_code, 0);
    snprintf(text, 64, "%s", outcome_text(&outcome));
    text[strcspn(text, "\n")] = '\0';
}

static char box[37]; /* runs, for all tests */

static void box_make(void)
{
    install_netprobe();
    snprintf(box, sizeof(box), "%s", egress_running());
}

static void box_remove(void)
{
    fixture_destroy(box);
}

static bool port_opens(int64_t port)
{
    auto_close int fd = -1;

    return sandbox_port_open(fixture_connect(), box, port, 2000, &fd, &fixture_error) == 0;
}

/* --- what works ------------------------------------------------------------------------------ */

START_TEST(public_addresses_are_reached)
{
    ck_prints(box, "/netprobe tcp 8.8.8.8 80", "hello " HOST4 "\n");
    ck_prints(box, "/netprobe tcp 2606:4700::1111 80", "hello " HOST6 "\n");
    ck_prints(box, "/netprobe udp 8.8.8.8 10", "answer\n");
    ck_prints(box, "/netprobe udp 2606:4700::1111 10", "answer\n");
}
END_TEST

START_TEST(names_are_resolved)
{
    ck_prints(box, "/netprobe resolve www.example.org", "93.184.216.34\n");
    ck_prints(box,
              "read a b </etc/resolv.conf; /netprobe resolve-tcp $b "
              "www.example.org",
              "93.184.216.34\n");
}
END_TEST

START_TEST(what_the_operator_allows_is_reached)
{
    ck_prints(box, "/netprobe tcp " ALLOWED " 80", "hello " HOST4 "\n");
}
END_TEST

START_TEST(a_port_of_it_is_opened_all_the_same)
{
    background(box, "/netprobe serve-tcp 127.0.0.1 8000");
    ck_soon(port_opens(8000), 5000);
}
END_TEST

/* --- what does not --------------------------------------------------------------------------- */

START_TEST(a_refused_address_is_not_reached)
{
    const char *address = refused[_i];
    char line[128];
    int tcp, udp;

    /* The host does reach it: there is a server that would answer. */
    ck_assert_int_eq(fixture_shell("%s tcp %s 80 >/dev/null", netprobe, address), 0);
    snprintf(line, sizeof(line), "to %s$", address);
    ck_soon((tcp = noted("tcp", line)) > 0, 2000);
    udp = noted("udp", "sent");
    ck_assert(!succeeds(box, "tcp %s 80", address));
    ck_assert(!succeeds(box, "udp %s 9", address));
    ck_assert_int_eq(noted("tcp", line), tcp);
    ck_assert_int_eq(noted("udp", "sent"), udp);
}
END_TEST

START_TEST(the_host_is_reached_by_none_of_its_addresses)
{
    static const char *const own[] = {HOST4,       HOST6, "10.207.0.1",
                                      "127.0.0.1", "::1", "255.255.255.255"};
    char four[64];

    for (size_t i = 0; i < COUNT(own); i++)
        ck_assert_msg(!succeeds(box, "tcp %s 7070", own[i]), "%s", own[i]);
    /* The other ends of its own links. */
    address_of(box, '4', four);
    *(strrchr(four, '.')) = '\0';
    for (int last = 1; last < 12; last += 4) {
        ck_assert(!succeeds(box, "tcp %s.%d 7070", four, last));
        ck_assert(!succeeds(box, "tcp fd5b:5b::%x 7070", last));
    }
    ck_assert_int_eq(noted("host", "to"), 0);
}
END_TEST

START_TEST(a_neighbour_is_not_reached)
{
    const char *other = egress_running();
    char four[64], six[64];

    background(other, "/netprobe serve-tcp 0.0.0.0 8000");
    background(other, "/netprobe serve-tcp :: 8000");
    address_of(other, '4', four);
    address_of(other, '6', six);
    /* It does listen there. */
    ck_soon(succeeds(other, "tcp %s 8000", four) && succeeds(other, "tcp %s 8000", six), 5000);
    ck_assert(!succeeds(box, "tcp %s 8000", four));
    ck_assert(!succeeds(box, "tcp %s 8000", six));
    /* Nor by the host, nor from outside. */
    ck_assert_int_ne(fixture_shell("%s tcp %s 8000 >/dev/null", netprobe, four), 0);
    ck_assert_int_ne(fixture_shell("%s tcp %s 8000 >/dev/null", netprobe, six), 0);
    ck_assert_int_ne(
        fixture_shell("nsenter -t %d -n %s tcp %s 8000 >/dev/null", internet, netprobe, four), 0);
    ck_assert_int_ne(
        fixture_shell("nsenter -t %d -n %s tcp %s 8000 >/dev/null", internet, netprobe, six), 0);
    fixture_destroy(other);
}
END_TEST

START_TEST(a_source_that_is_not_its_own_is_dropped)
{
    const char *other = egress_running();
    char four[64], six[64];
    int before;

    address_of(other, '4', four);
    address_of(other, '6', six);
    before = noted("udp", "sent");
    ck_assert(!succeeds(box, "spoof 8.8.8.8 9 %s", four));
    ck_assert(!succeeds(box, "spoof 8.8.8.8 9 8.8.4.4"));
    ck_assert(!succeeds(box, "spoof 8.8.8.8 9 " HOST4));
    ck_assert(!succeeds(box, "spoof 2606:4700::1111 9 %s", six));
    ck_assert(!succeeds(box, "spoof 2606:4700::1111 9 2606:4700::7"));
    ck_assert_int_eq(noted("udp", "sent"), before);
    fixture_destroy(other);
}
END_TEST

START_TEST(its_root_changes_nothing)
{
    ck_prints(box, "/netprobe changes eth0", "");
    ck_prints(box, "/netprobe changes lo", "");
    ck_prints(box,
              "for f in $(find /proc/sys/net -type f); do (echo 1 >$f) 2>/dev/null && echo $f; "
              "done; true",
              "");
}
END_TEST

START_TEST(without_a_network_there_is_none)
{
    const char *id = fixture_running();

    ck_assert(!succeeds(id, "tcp 8.8.8.8 80"));
    ck_assert(!succeeds(id, "tcp 2606:4700::1111 80"));
    ck_assert(!succeeds(id, "resolve www.example.org"));
    fixture_destroy(id);
}
END_TEST

/* Only a lower bound: a busy machine is slower still. */
START_TEST(a_rate_holds)
{
    int64_t begun = fixture_now_ms();

    ck_assert(succeeds(box, "flood 8.8.8.8 81 %d", FLOOD_BYTES));
    ck_assert_int_ge(fixture_now_ms() - begun, FLOOD_MS);
}
END_TEST

/* --- what is left ---------------------------------------------------------------------------- */

static int interfaces(void)
{
    return count_of("ip -o link | grep -c ': vsb'");
}

START_TEST(many_rounds_leave_nothing)
{
    int rules = count_of("nft list ruleset | wc -l");
    int routes;

    ck_soon(interfaces() == POOL + 1, 5000); /* and that of the box */
    routes = count_of("(ip route show table all; ip -6 route show table all) | wc -l");
    for (int round = 0; round < ROUNDS; round++)
        fixture_destroy(egress_running());
    ck_soon(interfaces() == POOL + 1, PATIENCE);
    ck_assert_int_eq(count_of("nft list ruleset | wc -l"), rules);
    ck_soon(count_of("(ip route show table all; ip -6 route show table all) | wc -l") == routes,
            5000);
}
END_TEST

START_TEST(a_killed_supervisor_leaves_the_network_as_it_was)
{
    fixture_stop_supervisor(SIGKILL);
    /* Nobody is needed for what runs; only names wait. */
    ck_assert_int_ge(interfaces(), 1);
    ck_assert(fixture_start_supervisor());
    ck_assert(succeeds(box, "tcp 8.8.8.8 80"));
    ck_assert(!succeeds(box, "tcp 10.1.2.3 80"));
    ck_assert(succeeds(box, "resolve www.example.org"));
    ck_soon(interfaces() == POOL + 1, 5000);
    background(box, "/netprobe serve-tcp 127.0.0.1 8001");
    ck_soon(port_opens(8001), 5000);
    fixture_destroy(egress_running());
}
END_TEST

START_TEST(switched_off_it_is_cut_off)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);

    start.network = "egress";
    fixture_stop_supervisor(SIGKILL);
    setenv("EGRESS", "0", 1);
    ck_assert(fixture_start_supervisor());
    ck_assert(!succeeds(box, "tcp 8.8.8.8 80"));
    ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
    ck_refused(sandbox_start(fixture_connect(), &start, &fixture_error), ERR_CONFLICT);
    ck_assert_ptr_nonnull(strstr(fixture_error.message, "EGRESS"));
    start.network = "none";
    ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
    fixture_destroy(id);
    fixture_stop_supervisor(SIGKILL);
    setenv("EGRESS", "1", 1);
    ck_assert(fixture_start_supervisor());
    ck_assert(succeeds(box, "tcp 8.8.8.8 80"));
}
END_TEST

/* Who sends much for names, or nonsense, has neither more nor stops it for others. */
START_TEST(names_survive_nonsense)
{
    const char *other = egress_running();

    background(other, "sh -c 'read a b </etc/resolv.conf; exec /netprobe nonsense $b'");
    for (int i = 0; i < 20; i++)
        ck_prints(box, "/netprobe resolve www.example.org", "93.184.216.34\n");
    fixture_destroy(other);
    ck_prints(box, "/netprobe resolve www.example.org", "93.184.216.34\n");
}
END_TEST

/* One that is not there any more, and one that is: its rules would undo those of the first. */
START_TEST(another_supervisor_of_the_host_is_refused)
{
    ck_assert_int_eq(
        fixture_shell("cd %s && mkdir -p other && SUPERVISOR_STATE=$PWD/other/state "
                      "SUPERVISOR_SOCKET=$PWD/other/socket IMAGES_DIR=$PWD/images "
                      "INIT_PATH=%s/sandbox-init ID_BASE=200000000 timeout 30 "
                      "%s/sandbox-supervisor 2>other/log; test $? = 1 && grep -q 'EGRESS: another "
                      "supervisor' other/log",
                      fixture_root, fixture_build, fixture_build),
        0);
    ck_assert(succeeds(box, "tcp 8.8.8.8 80"));
}
END_TEST

START_TEST(an_orderly_end_leaves_the_host_as_it_was)
{
    const char *forwards = "cat /proc/sys/net/ipv4/conf/up0/forwarding";

    /* One that was killed has left it on. */
    fixture_stop_supervisor(SIGKILL);
    fixture_shell("echo 0 >/proc/sys/net/ipv4/conf/up0/forwarding");
    ck_assert(fixture_start_supervisor());
    ck_assert_int_eq(count_of(forwards), 1);
    fixture_stop_supervisor(SIGTERM); /* with STOP_ON_EXIT=1 */
    ck_assert_int_eq(count_of("nft list tables | wc -l"), 0);
    ck_assert_int_eq(count_of("ip addr show dev lo | grep -c 10.207"), 0);
    ck_soon(interfaces() == 0, 5000);
    ck_assert_int_eq(count_of(forwards), 0);
    ck_assert(fixture_start_supervisor());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("egress");
    TCase *tests = tcase_create("egress");
    int result;

    if (access("/usr/sbin/nft", X_OK) < 0)
        fixture_skip("nft(8) is not installed");
    enter_own_network();
    make_the_world();
    /* Some replace the supervisor, so they all run in this process. */
    setenv("CK_FORK", "no", 1);
    tcase_set_timeout(tests, 300);
    tcase_add_unchecked_fixture(tests, box_make, box_remove);
    tcase_add_test(tests, public_addresses_are_reached);
    tcase_add_test(tests, names_are_resolved);
    tcase_add_test(tests, what_the_operator_allows_is_reached);
    tcase_add_test(tests, a_port_of_it_is_opened_all_the_same);
    tcase_add_loop_test(tests, a_refused_address_is_not_reached, 0, COUNT(refused));
    tcase_add_test(tests, the_host_is_reached_by_none_of_its_addresses);
    tcase_add_test(tests, a_neighbour_is_not_reached);
    tcase_add_test(tests, a_source_that_is_not_its_own_is_dropped);
    tcase_add_test(tests, its_root_changes_nothing);
    tcase_add_test(tests, without_a_network_there_is_none);
    tcase_add_test(tests, a_rate_holds);
    tcase_add_test(tests, names_survive_nonsense);
    tcase_add_test(tests, many_rounds_leave_nothing);
    tcase_add_test(tests, a_killed_supervisor_leaves_the_network_as_it_was);
    tcase_add_test(tests, another_supervisor_of_the_host_is_refused);
    tcase_add_test(tests, switched_off_it_is_cut_off);
    tcase_add_test(tests, an_orderly_end_leaves_the_host_as_it_was);
    suite_add_tcase(suite, tests);
    result = fixture_main(suite);
    kill(internet, SIGKILL);
    waitpid(internet, NULL, 0);
    fixture_shell("rm -rf %s", folder);
    return result;
}
