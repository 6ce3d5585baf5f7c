/* What adds up: a thousand sandboxes one after the other, two hundred supervisors killed under
 * load, with the warm pool as it comes. `make check` does a part of it, `make soak` (SOAK=1) all.
 */
#include <pthread.h>
#include <sys/sysmacros.h>

#include "tests/sandbox/fixture.h"

enum { LOAD_THREADS = 3, KEPT = 3, SLAB_KIB_EACH = 4, SLAB_KIB_SLACK = 4096 };

static int rounds(int whole, int part)
{
    return getenv("SOAK") ? whole : part;
}

static long number_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
static long number_of(const char *format, ...)
{
    char command[PATH_MAX];
    long number = -1;
    va_list values;

    va_start(values, format);
    vsnprintf(command, sizeof(command), format, values);
    va_end(values);
    FILE *pipe = popen(command, "r");
    if (pipe && fscanf(pipe, "%ld", &number) != 1)
        number = -1;
    if (pipe)
        pclose(pipe);
    return number;
}

/* --- a thousand of them ---------------------------------------------------------------------- */

/* Everything that the host would keep. Namespaces are counted by who is in them. */
static const struct {
    const char *name, *command;
} traces[] = {
    {"mounts of the host", "wc -l </proc/self/mountinfo #%s%d"},
    {"mounts beside the disks", "cat /proc/$(pgrep -P %2$d storekeeper)/mountinfo | wc -l #%1$s"},
    {"cgroups",
     "cut -d' ' -f3 %s/state/cgroups | while read d; do find $d -type d; done | wc -l #%d"},
    {"folders", "find %s/state/sandboxes -mindepth 1 -maxdepth 1 | wc -l #%d"},
    {"descriptors", "ls /proc/%2$d/fd | wc -l #%1$s"},
    {"children", "cat /proc/%2$d/task/%2$d/children | wc -w #%1$s"},
    {"loop devices", "losetup -a 2>/dev/null | grep -c %s #%d"},
};

static void count(long counts[COUNT(traces)])
{
    for (size_t i = 0; i < COUNT(traces); i++) {
        char command[PATH_MAX];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(command, sizeof(command), traces[i].command, fixture_root,
                 (int)fixture_supervisor);
#pragma GCC diagnostic pop
        counts[i] = number_of("%s", command);
    }
}

static long slab_kib(void)
{
    return number_of("awk '/^SUnreclaim:/ { print $2 }' /proc/meminfo");
}

/* No more than before; the pool and the disks made ahead may be on their way. */
static bool settled(const long before[COUNT(traces)], long now[COUNT(traces)])
{
    bool no_more = true;

    count(now);
    for (size_t i = 0; i < COUNT(traces); i++)
        no_more &= now[i] <= before[i] && now[i] >= 0;
    return no_more;
}

static void cycle(int times)
{
    for (int i = 0; i < times; i++) {
        const char *id = fixture_running();

        ck_prints(id, "(sleep 100 &) >/dev/null 2>&1; echo x >file; echo done", "done\n");
        fixture_destroy(id);
    }
}

START_TEST(a_thousand_leave_nothing)
{
    const int times = rounds(1000, 60);
    long before[COUNT(traces)], now[COUNT(traces)], slab;

    cycle(40); /* caches, pools, and what comes into being once */
    sleep(2);
    count(before);
    slab = slab_kib();
    cycle(times);
    for (int i = 0; i < 100 && !settled(before, now); i++)
        usleep(100000);
    for (size_t i = 0; i < COUNT(traces); i++)
        ck_assert_msg(now[i] <= before[i] && now[i] >= 0, "%s: %ld, before %ld", traces[i].name,
                      now[i], before[i]);
    /* Others use the machine as well, and caches are slow to shrink: a sandbox holds hundreds. */
    for (int i = 0; i < 100 && slab_kib() - slab > SLAB_KIB_SLACK + SLAB_KIB_EACH * times; i++)
        usleep(100000);
    ck_assert_int_le(slab_kib() - slab, SLAB_KIB_SLACK + SLAB_KIB_EACH * times);
}
END_TEST

/* --- kill -9 --------------------------------------------------------------------------------- */

static volatile bool load_ends;

/* Sandboxes of its own, at any stage when the supervisor goes; every call may fail. */
static void *load(void *data)
{
    struct sandbox_link *link = sandbox_link_new(fixture_socket);
    unsigned serial = 0;

    while (!load_ends) {
        char id[37];
        const char *argv[] = {"/bin/sh", "-c", "echo x >f; sleep 0.01"};
        struct start start = fixture_start(id);
        struct exec exec = fixture_exec(id, argv, 3, 5000);
        auto_outcome struct outcome outcome = {0};
        struct error error;

        snprintf(id, sizeof(id), "%08x-%04x-4000-9000-%012x", (unsigned)getpid(),
                 (unsigned)(uintptr_t)data, serial++);
        if (sandbox_create(link, id, &error) < 0 || sandbox_start(link, &start, &error) < 0 ||
            sandbox_exec(link, &exec, KEEP, -1, &outcome.out, &outcome.errors, &outcome.result,
                         &error) < 0)
            usleep(1000);
        sandbox_destroy(link, id, &error);
    }
    sandbox_link_free(link);
    return NULL;
}

struct kept {
    char id[37];
    long init;
    bool stopped;
};

static long init_of(const char *id)
{
    return number_of("sed -n 's/^pid //p' %s/state/sandboxes/%s/state", fixture_root, id);
}

static void keep(struct kept *kept, int number)
{
    char command[100];

    snprintf(kept->id, sizeof(kept->id), "%s", fixture_running());
    snprintf(command, sizeof(command), "echo %d >file; (sleep 5151.%d >/dev/null 2>&1 &)", number,
             number);
    ck_prints(kept->id, command, "");
    kept->init = init_of(kept->id);
    kept->stopped = number == 0;
    if (kept->stopped)
        ck_done(sandbox_stop(fixture_connect(), kept->id, &fixture_error));
}

static void look_at(const struct kept *kept, int number)
{
    char expected[16], command[100];

    snprintf(expected, sizeof(expected), "%d\n", number);
    if (kept->stopped) {
        struct start start = fixture_start(kept->id);

        ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
        ck_prints(kept->id, "cat file", expected);
        ck_done(sandbox_stop(fixture_connect(), kept->id, &fixture_error));
        return;
    }
    ck_prints(kept->id, "cat file", expected);
    ck_assert_int_eq(init_of(kept->id), kept->init);
    snprintf(command, sizeof(command), "5151.%d", number);
    ck_assert_int_eq(fixture_count_processes(command), 1);
}

/* Nothing is there but what is kept and what the supervisor says that there is. */
static void look_around(const struct kept *kept)
{
    auto_arena struct arena arena = {0};
    struct sandbox_entry *entries;
    size_t total;

    ck_done(sandbox_list(fixture_connect(), &arena, &entries, &total, &fixture_error));
    for (size_t i = 0; i < total; i++) {
        bool is_kept = false;

        for (int k = 0; k < KEPT; k++)
            is_kept |= strcmp(entries[i].sandbox, kept[k].id) == 0;
        if (!is_kept)
            fixture_destroy(entries[i].sandbox);
    }
    ck_soon(number_of("ls -A %s/state/sandboxes | grep -vc '^warm-'", fixture_root) == KEPT, 5000);
}

START_TEST(two_hundred_kills_lose_nothing)
{
    const int times = rounds(200, 8);
    struct kept kept[KEPT];
    pthread_t threads[LOAD_THREADS];

    for (int i = 0; i < KEPT; i++)
        keep(&kept[i], i);
    for (intptr_t i = 0; i < LOAD_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, load, (void *)i), 0);
    for (int round = 0; round < times; round++) {
        usleep((unsigned)(rand() % 250) * 1000);
        fixture_stop_supervisor(SIGKILL);
        ck_assert(fixture_start_supervisor());
        for (int i = 0; i < KEPT; i++)
            look_at(&kept[i], i);
    }
    load_ends = true;
    for (int i = 0; i < LOAD_THREADS; i++)
        pthread_join(threads[i], NULL);
    look_around(kept);
    for (int i = 0; i < KEPT; i++)
        fixture_destroy(kept[i].id);
    /* And with the last supervisor all of it goes. */
    fixture_stop_supervisor(SIGTERM);
    ck_assert_int_eq(number_of("ls -A %s/state/sandboxes | wc -l", fixture_root), 0);
    ck_assert_int_ne(fixture_shell("test -e %s/state/cgroups", fixture_root), 0);
    ck_assert_int_eq(fixture_count_processes("5151.1") + fixture_count_processes("5151.2"), 0);
    ck_assert(fixture_start_supervisor());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("soak");
    TCase *tests = tcase_create("soak");

    setenv("CK_FORK", "no", 1); /* one supervisor after the other, known to all */
    setenv("WARM_POOL", "2", 1);
    srand((unsigned)time(NULL));
    tcase_set_timeout(tests, 1200);
    tcase_add_test(tests, a_thousand_leave_nothing);
    tcase_add_test(tests, two_hundred_kills_lose_nothing);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
