/* How fast sandboxes are, beside bwrap, crun and runc with the same program on the same image, in
 * rounds that take turns: sandbox_bench IMAGE prints one JSON line for each figure.
 *
 * It starts a supervisor of its own whose state is on tmpfs. The others run in a mount namespace
 * where the v2 half of a hybrid layout of cgroups is hidden, since crun refuses that. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/scope.h"
#include "run/sandbox.h"

enum { SAMPLES_MAX = 4096, GAP_US = 50000, THREADS_MAX = 16, IDLE = 1000 };
enum { CLAIM_ROUNDS = 60, POOL = 4 };

static char root[64], build[PATH_MAX], program[256] = "/bin/true";
static const char *image;
static pid_t supervisor;
static char socket_path[128];

static _Noreturn __attribute__((format(printf, 1, 2))) void die(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    if (supervisor > 0) {
        kill(supervisor, SIGTERM);
        waitpid(supervisor, NULL, 0);
    }
    exit(EXIT_FAILURE);
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static __attribute__((format(printf, 1, 2))) int shell(const char *format, ...)
{
    char command[PATH_MAX * 2];
    va_list values;

    va_start(values, format);
    vsnprintf(command, sizeof(command), format, values);
    va_end(values);
    return system(command);
}

/* --- figures --------------------------------------------------------------------------------- */

struct samples {
    double us[SAMPLES_MAX];
    size_t count;
};

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

static void add(struct samples *samples, double us)
{
    if (samples->count < SAMPLES_MAX)
        samples->us[samples->count++] = us;
}

static void report(const char *part, const char *who, struct samples *samples)
{
    size_t n = samples->count;

    if (!n)
        return;
    qsort(samples->us, n, sizeof(*samples->us), compare);
    printf(
        "{\"part\": \"%s\", \"who\": \"%s\", \"count\": %zu, \"p50_us\": %.0f, \"p99_us\": %.0f}\n",
        part, who, n, samples->us[n / 2], samples->us[n * 99 / 100]);
    fflush(stdout);
}

static void figure(const char *part, const char *who, const char *name, double value)
{
    printf("{\"part\": \"%s\", \"who\": \"%s\", \"%s\": %.3f}\n", part, who, name, value);
    fflush(stdout);
}

/* --- ours ------------------------------------------------------------------------------------ */

static struct error error;

#define MUST(call)                               \
    do {                                         \
        if ((call) != 0)                         \
            die("%s: %s", #call, error.message); \
    } while (0)

static void name_sandbox(char id[37])
{
    static unsigned serial;
    unsigned number = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);

    snprintf(id, 37, "%08x-0000-4000-8000-%012x", (unsigned)getpid(), number);
}

static struct start start_of(const char *id)
{
    return (struct start){.sandbox = id,
                          .image = "base",
                          .hostname = "box",
                          .memory_bytes = 256 << 20,
                          .pids = 256,
                          .cpu_percent = 200,
                          .tmp_bytes = 32 << 20};
}

static void ours_begin(struct sandbox_link *link, const char *id)
{
    struct start start = start_of(id);

    MUST(sandbox_create(link, id, &error));
    MUST(sandbox_start(link, &start, &error));
}

static void ours_exec(struct sandbox_link *link, const char *id)
{
    static const char *const environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin"};
    const char *argv[] = {program};
    struct exec exec = {.sandbox = id,
                        .argv = {argv, 1},
                        .environment = {(const char **)(uintptr_t)environment, 1},
                        .directory = "/workspace",
                        .timeout_ms = 10000};
    struct sandbox_output out = {0}, errors = {0};
    struct exec_result result;

    MUST(sandbox_exec(link, &exec, 1024, -1, &out, &errors, &result, &error));
    if (result.exit_code != 0)
        die("%s ended with %ld", program, (long)result.exit_code);
    buffer_done(&out.bytes);
    buffer_done(&errors.bytes);
}

static void ours_cold(struct sandbox_link *link)
{
    char id[37];

    name_sandbox(id);
    ours_begin(link, id);
    ours_exec(link, id);
    MUST(sandbox_destroy(link, id, &error));
}

static void start_supervisor(const char *pool)
{
    char path[PATH_MAX + 64], value[PATH_MAX];

    snprintf(socket_path, sizeof(socket_path), "%s/supervisor.sock", root);
    snprintf(path, sizeof(path), "%s/sandbox-supervisor", build);
    unlink(socket_path);
    supervisor = fork();
    if (supervisor == 0) {
        int log;

        snprintf(value, sizeof(value), "%s/log", root);
        log = open(value, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(log, 2);
        setenv("SUPERVISOR_SOCKET", socket_path, 1);
        snprintf(value, sizeof(value), "%s/state", root);
        setenv("SUPERVISOR_STATE", value, 1);
        snprintf(value, sizeof(value), "%s/images", root);
        setenv("IMAGES_DIR", value, 1);
        snprintf(value, sizeof(value), "%.4000s/sandbox-init", build);
        setenv("INIT_PATH", value, 1);
        setenv("STOP_ON_EXIT", "1", 1);
        setenv("WARM_POOL", pool, 1);
        setpgid(0, 0);
        execl(path, path, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000 && access(socket_path, F_OK) < 0; i++) {
        if (waitpid(supervisor, NULL, WNOHANG) != 0) {
            supervisor = 0;
            shell("cat %s/log >&2", root);
            die("the supervisor did not start");
        }
        usleep(10000);
    }
}

static void stop_supervisor(void)
{
    kill(supervisor, SIGTERM);
    waitpid(supervisor, NULL, 0);
    supervisor = 0;
}

/* --- the others ------------------------------------------------------------------------------ */

enum peer { BWRAP, CRUN, RUNC, PEERS };
enum task { RUN, EXEC };

static const char *const peer_names[PEERS] = {"bwrap", "crun", "runc"};

struct order {
    enum peer peer;
    enum task task;
};

static int runner = -1; /* the socket of the process that runs them */
static bool present[PEERS];

static double spawn_and_wait(char *const *argv)
{
    posix_spawn_file_actions_t actions;
    double began = now_us();
    pid_t pid;
    int status;

    posix_spawn_file_actions_init(&actions);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    if (posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) != 0)
        return -1;
    waitpid(pid, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    return status == 0 ? now_us() - began : -1;
}

static double run_order(const struct order *order)
{
    static unsigned serial;
    char bundle[128], state[128], name[64], held[64];
    const char *tool = peer_names[order->peer];
    char *const bwrap[] = {(char *)"bwrap",
                           (char *)"--unshare-all",
                           (char *)"--ro-bind",
                           (char *)image,
                           (char *)"/",
                           (char *)"--proc",
                           (char *)"/proc",
                           (char *)"--dev",
                           (char *)"/dev",
                           program,
                           NULL};
    char *const run[] = {(char *)tool,       (char *)"--root", state, (char *)"run",
                         (char *)"--bundle", bundle,           name,  NULL};
    char *const exec[] = {(char *)tool, (char *)"--root", state, (char *)"exec",
                          held,         program,          NULL};

    snprintf(bundle, sizeof(bundle), "%s/bundle", root);
    snprintf(state, sizeof(state), "%s/%s", root, tool);
    snprintf(name, sizeof(name), "bench-%d-%u", getpid(),
             __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED));
    snprintf(held, sizeof(held), "bench-held-%s-%d", tool, getpid());
    return spawn_and_wait(order->peer == BWRAP ? bwrap : order->task == RUN ? run : exec);
}

/* One container of each, in which commands run. */
static bool hold(enum peer peer, bool begin)
{
    const char *tool = peer_names[peer];

    if (begin)
        return shell("%s --root %s/%s run --detach --bundle %s/held bench-held-%s-%d </dev/null "
                     ">/dev/null 2>>%s/log.peers",
                     tool, root, tool, root, tool, getpid(), root) == 0;
    return shell("%s --root %s/%s delete --force bench-held-%s-%d 2>/dev/null", tool, root, tool,
                 tool, getpid()) == 0;
}

static void make_bundle(const char *name, const char *arguments)
{
    if (shell("mkdir -p %s/%s && cd %s/%s && crun spec && python3 - '%s' '%s' <<'END'\n"
              "import json, sys\n"
              "config = json.load(open('config.json'))\n"
              "config['root'] = {'path': sys.argv[1], 'readonly': True}\n"
              "config['process'].update(terminal=False, args=sys.argv[2].split())\n"
              "config['linux'].setdefault('resources', {}).update(memory={'limit': 1 << 28},\n"
              "    pids={'limit': 256}, cpu={'quota': 200000, 'period': 100000})\n"
              "json.dump(config, open('config.json', 'w'))\nEND\n",
              root, name, root, name, image, arguments) != 0)
        die("no bundle for crun");
}

static void *answer_orders(void *data)
{
    int socket = *(int *)data;
    struct order order;

    while (recv(socket, &order, sizeof(order), 0) == sizeof(order)) {
        double us = run_order(&order);

        if (send(socket, &us, sizeof(us), 0) != sizeof(us))
            break;
    }
    return NULL;
}

static int lanes[THREADS_MAX][2]; /* an own one for each thread */

static void start_runner(void)
{
    pthread_t threads[THREADS_MAX];
    bool ready[PEERS];
    int sockets[2];

    make_bundle("bundle", program);
    make_bundle("held", "/bin/sleep 600");
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets);
    for (int i = 0; i < THREADS_MAX; i++)
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lanes[i]);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        close(sockets[0]);
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
            _exit(1);
        if (access("/sys/fs/cgroup/unified", F_OK) == 0)
            mount("none", "/sys/fs/cgroup/unified", "tmpfs", 0, NULL);
        for (int peer = 0; peer < PEERS; peer++)
            ready[peer] = run_order(&(struct order){(enum peer)peer, RUN}) > 0 &&
                          (peer == BWRAP || hold((enum peer)peer, true));
        if (write(sockets[1], ready, sizeof(ready)) != sizeof(ready))
            _exit(1);
        for (int i = 0; i < THREADS_MAX; i++) {
            close(lanes[i][0]);
            pthread_create(&threads[i], NULL, answer_orders, &lanes[i][1]);
        }
        for (int i = 0; i < THREADS_MAX; i++)
            pthread_join(threads[i], NULL);
        for (int peer = CRUN; peer < PEERS; peer++)
            hold((enum peer)peer, false);
        _exit(0);
    }
    close(sockets[1]);
    for (int i = 0; i < THREADS_MAX; i++)
        close(lanes[i][1]);
    runner = sockets[0];
    if (read(runner, present, sizeof(present)) != sizeof(present))
        die("the others can't be run");
    for (int peer = 0; peer < PEERS; peer++)
        if (!present[peer])
            fprintf(stderr, "%s is not measured: it is missing, or does not run here\n",
                    peer_names[peer]);
}

static double peer(int lane, enum peer peer, enum task task)
{
    struct order order = {peer, task};
    double us;

    if (send(lanes[lane][0], &order, sizeof(order), 0) != sizeof(order) ||
        recv(lanes[lane][0], &us, sizeof(us), 0) != sizeof(us) || us < 0)
        die("%s failed", peer_names[peer]);
    return us;
}

/* --- the parts ------------------------------------------------------------------------------- */

static void pause_for(unsigned gap_us)
{
    if (gap_us)
        usleep(gap_us);
}

static void measure_cold(struct sandbox_link *link, const char *part, size_t rounds,
                         unsigned gap_us)
{
    static struct samples ours, peers[PEERS];

    ours.count = 0;
    memset(peers, 0, sizeof(peers));
    for (size_t round = 0; round < rounds; round++) {
        double began;

        pause_for(gap_us);
        began = now_us();
        ours_cold(link);
        add(&ours, now_us() - began);
        for (int who = 0; who < PEERS; who++) {
            /* The slow ones need fewer. */
            if (!present[who] || (who == RUNC && round % 4))
                continue;
            pause_for(gap_us);
            add(&peers[who], peer(0, (enum peer)who, RUN));
        }
    }
    report(part, "ours", &ours);
    for (int who = 0; who < PEERS; who++)
        report(part, peer_names[who], &peers[who]);
}

static void measure_exec(struct sandbox_link *link, const char *part, size_t rounds,
                         unsigned gap_us)
{
    static struct samples ours, peers[PEERS];
    char id[37];

    ours.count = 0;
    memset(peers, 0, sizeof(peers));
    name_sandbox(id);
    ours_begin(link, id);
    ours_exec(link, id);
    for (size_t round = 0; round < rounds; round++) {
        double began;

        pause_for(gap_us);
        began = now_us();
        ours_exec(link, id);
        add(&ours, now_us() - began);
        for (int who = CRUN; who < PEERS; who++) {
            if (!present[who] || (who == RUNC && round % 4))
                continue;
            pause_for(gap_us);
            add(&peers[who], peer(0, (enum peer)who, EXEC));
        }
    }
    /* Without anybody between: what a busy client sees. */
    for (size_t round = 0; !gap_us && round < rounds; round++) {
        double began = now_us();

        ours_exec(link, id);
        add(&ours, now_us() - began);
    }
    MUST(sandbox_destroy(link, id, &error));
    report(part, "ours", &ours);
    for (int who = CRUN; who < PEERS; who++)
        report(part, peer_names[who], &peers[who]);
}

/* Create, start and the first command; the pool has time to fill up in between, as a service has.
 */
static void measure_claim(struct sandbox_link *link, const char *part, unsigned gap_us)
{
    static struct samples ours, theirs;
    char id[37];

    ours.count = theirs.count = 0;
    for (size_t round = 0; round < CLAIM_ROUNDS; round++) {
        double began;

        pause_for(gap_us);
        name_sandbox(id);
        began = now_us();
        ours_begin(link, id);
        ours_exec(link, id);
        add(&ours, now_us() - began);
        MUST(sandbox_destroy(link, id, &error));
        if (!present[BWRAP])
            continue;
        pause_for(gap_us);
        add(&theirs, peer(0, BWRAP, RUN));
    }
    report(part, "ours", &ours);
    report(part, "bwrap", &theirs);
}

struct lane {
    pthread_t thread;
    int number, who; /* -1: ours */
    double until_us;
    size_t done;
};

static void *run_lane(void *data)
{
    struct lane *lane = data;
    struct sandbox_link *link = lane->who < 0 ? sandbox_link_new(socket_path) : NULL;

    while (now_us() < lane->until_us) {
        if (link)
            ours_cold(link);
        else
            peer(lane->number, (enum peer)lane->who, RUN);
        lane->done++;
    }
    if (link)
        sandbox_link_free(link);
    return NULL;
}

static void measure_together(int threads)
{
    static struct lane crew[THREADS_MAX];
    char part[32];

    snprintf(part, sizeof(part), "cold, %d at once", threads);
    for (int who = -1; who < PEERS; who++) {
        double began = now_us();
        size_t done = 0;

        if (who >= 0 && !present[who])
            continue;
        for (int i = 0; i < threads; i++) {
            crew[i] = (struct lane){.number = i, .who = who, .until_us = began + 2e6};
            pthread_create(&crew[i].thread, NULL, run_lane, &crew[i]);
        }
        for (int i = 0; i < threads; i++) {
            pthread_join(crew[i].thread, NULL);
            done += crew[i].done;
        }
        figure(part, who < 0 ? "ours" : peer_names[who], "per_second",
               (double)done / ((now_us() - began) / 1e6));
    }
}

/* Everything the kernel holds and does not give back by itself. The stacks are part of VmallocUsed. */
static const char *const counted[] = {"AnonPages:", "SUnreclaim:", "SReclaimable:", "PageTables:",
                                      "Percpu:",    "Shmem:",      "VmallocUsed:"};

static void memory_kib(double kib[COUNT(counted)])
{
    auto_fclose FILE *file = fopen("/proc/meminfo", "re");
    char line[128], name[64];
    double value;

    while (file && fgets(line, sizeof(line), file))
        for (size_t i = 0; i < COUNT(counted); i++)
            if (sscanf(line, "%63s %lf", name, &value) == 2 && strcmp(name, counted[i]) == 0)
                kib[i] = value;
}

/* What each of the crowd holds, in all and by part. */
static void report_memory(const double before[COUNT(counted)], const double after[COUNT(counted)])
{
    double sum = 0;
    char name[64];

    for (size_t i = 0; i < COUNT(counted); i++) {
        sum += (after[i] - before[i]) / IDLE;
        snprintf(name, sizeof(name), "kib_each_%.*s", (int)strlen(counted[i]) - 1, counted[i]);
        figure("crowd", "ours", name, (after[i] - before[i]) / IDLE);
    }
    figure("crowd", "ours", "kib_each", sum);
}

static void measure_beside(struct sandbox_link *link, const char *part, const char *id)
{
    static struct samples exec, cold;

    exec.count = cold.count = 0;
    for (int i = 0; i < 100; i++) {
        double began = now_us();

        ours_exec(link, id);
        add(&exec, now_us() - began);
    }
    for (int i = 0; i < 50; i++) {
        double began = now_us();

        ours_cold(link);
        add(&cold, now_us() - began);
    }
    report(part, "exec", &exec);
    report(part, "cold", &cold);
}

static void measure_crowd(struct sandbox_link *link)
{
    static char ids[IDLE][37];
    double before[COUNT(counted)] = {0}, after[COUNT(counted)] = {0}, began;
    char one[37];

    name_sandbox(one);
    ours_begin(link, one);
    ours_exec(link, one);
    measure_beside(link, "beside 1", one);
    memory_kib(before);
    began = now_us();
    for (int i = 0; i < IDLE; i++) {
        name_sandbox(ids[i]);
        ours_begin(link, ids[i]);
    }
    figure("crowd", "ours", "created_per_second", IDLE / ((now_us() - began) / 1e6));
    sleep(2);
    memory_kib(after);
    report_memory(before, after);
    measure_beside(link, "beside 1000", one);
    began = now_us();
    for (int i = 0; i < IDLE; i++)
        MUST(sandbox_destroy(link, ids[i], &error));
    figure("crowd", "ours", "destroyed_per_second", IDLE / ((now_us() - began) / 1e6));
    MUST(sandbox_destroy(link, one, &error));
}

/* --- the program ----------------------------------------------------------------------------- */

static void make_root(const char *self)
{
    char *slash;

    if (!realpath(self, build))
        die("%s", strerror(errno));
    for (int up = 0; up < 3; up++)
        if ((slash = strrchr(build, '/')))
            *slash = '\0';
    snprintf(root, sizeof(root), "/tmp/sandbox-bench-XXXXXX");
    if (!mkdtemp(root))
        die("no folder under /tmp");
    /* Seen by this process and its children only, and gone with them. */
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
        mount("bench", root, "tmpfs", 0, "mode=0755,size=2g") < 0)
        die("no tmpfs: %s", strerror(errno));
    if (shell("mkdir %s/images && mkdir %s/images/base && mount --bind '%s' %s/images/base", root,
              root, image, root) != 0)
        die("no image");
}

static const struct {
    const char *name;
    int pool;
} phases[] = {{"cold", 0}, {"exec", 0}, {"claim", POOL}, {"together", 0}, {"crowd", 0}};

static bool wanted(int argc, char **argv, const char *name)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc <= 2;
}

static void run_phase(const char *name, struct sandbox_link *link)
{
    for (int i = 0; i < 5; i++)
        ours_cold(link);
    if (strcmp(name, "cold") == 0) {
        measure_cold(link, "cold, back to back", 100, 0);
        measure_cold(link, "cold, one per 50 ms", 40, GAP_US);
    } else if (strcmp(name, "exec") == 0) {
        measure_exec(link, "exec, back to back", 100, 0);
        measure_exec(link, "exec, one per 50 ms", 60, GAP_US);
    } else if (strcmp(name, "claim") == 0) {
        measure_claim(link, "claim, one per 50 ms", GAP_US);
        measure_claim(link, "claim, back to back", 0);
    } else if (strcmp(name, "together") == 0) {
        for (int threads = 1; threads <= THREADS_MAX; threads *= 4)
            measure_together(threads);
    } else {
        measure_crowd(link);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        die("sandbox_bench IMAGE [cold|exec|claim|together|crowd]...");
    if (geteuid() != 0)
        die("sandboxes are made by root");
    image = realpath(argv[1], NULL);
    if (!image)
        die("%s: %s", argv[1], strerror(errno));
    if (getenv("PROGRAM"))
        snprintf(program, sizeof(program), "%s", getenv("PROGRAM"));
    signal(SIGPIPE, SIG_IGN);
    make_root(argv[0]);
    start_runner();
    for (size_t i = 0; i < COUNT(phases); i++) {
        struct sandbox_link *link;
        char pool[16];

        if (!wanted(argc, argv, phases[i].name))
            continue;
        snprintf(pool, sizeof(pool), "%d", phases[i].pool);
        start_supervisor(pool);
        link = sandbox_link_new(socket_path);
        run_phase(phases[i].name, link);
        sandbox_link_free(link);
        stop_supervisor();
    }
    for (int i = 0; i < THREADS_MAX; i++)
        close(lanes[i][0]);
    while (wait(NULL) > 0)
        ;
    umount2(root, MNT_DETACH);
    rmdir(root);
    return EXIT_SUCCESS;
}
