/* A server that was taken over: whatever it says, in whatever state a sandbox is, with whatever
 * descriptors, it gets an error or a hang-up, and nothing of it stays with the supervisor. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "common/wire.h"
#include "tests/sandbox/fixture.h"

enum { ROUNDS = 120, ANSWER_SECONDS = 10, DESCRIPTORS = 12 };

/* What its memory may grow by. A sanitizer keeps for a while what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { GROWTH_KB = 1 << 20 };
#else
enum { GROWTH_KB = 4 << 10 };
#endif

static const struct {
    uint32_t type;
    const char *name;
    const struct schema *schema;
    int descriptors;
} messages[] = {
#define MESSAGE(number, name, states, descriptors, answer) \
    {number, #name, &schema_##name, descriptors},
#include "common/messages.def"
#undef MESSAGE
};

static int connect_raw(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = ANSWER_SECONDS};

    snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", fixture_socket);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* --- what it costs --------------------------------------------------------------------------- */

static int descriptors_open(void)
{
    char path[64];
    int count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", fixture_supervisor);
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

static long memory_kb(void)
{
    char path[64], line[256];
    long kb = -1;

    snprintf(path, sizeof(path), "/proc/%d/status", fixture_supervisor);
    FILE *file = fopen(path, "r");
    while (file && kb < 0 && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmRSS: %ld", &kb) != 1)
            kb = -1;
    if (file)
        fclose(file);
    return kb;
}

/* --- what it sends --------------------------------------------------------------------------- */

/* Descriptors that nobody is glad to be given. */
static void open_kinds(int *kinds, int connection)
{
    int ends[2], pair[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    kinds[0] = ends[0];
    kinds[1] = ends[1];
    kinds[2] = pair[0];
    kinds[3] = pair[1];
    kinds[4] = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    kinds[5] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    kinds[6] = open("/dev/zero", O_RDWR | O_CLOEXEC);
    kinds[7] = memfd_create("x", MFD_CLOEXEC);
    kinds[8] = eventfd(0, EFD_CLOEXEC);
    kinds[9] = epoll_create1(EPOLL_CLOEXEC);
    kinds[10] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    kinds[11] = fcntl(connection, F_DUPFD_CLOEXEC, 3);
}

/* A body that is fine as far as its table can tell. */
static void fill(const struct schema *schema, const char *id, void *body, const char **words)
{
    for (size_t i = 0; i < schema->count; i++) {
        const struct field *field = &schema->fields[i];
        char *member = (char *)body + field->offset;
        const char *text = strcmp(field->name, "sandbox") == 0     ? id
                           : strcmp(field->name, "image") == 0     ? "base"
                           : strcmp(field->name, "directory") == 0 ? "/"
                           : field->nullable                       ? NULL
                                                                   : "x";

        if (field->type == FIELD_TEXT)
            *(const char **)(void *)member = text;
        else if (field->type == FIELD_NUMBER)
            *(int64_t *)(void *)member = field->min > 0 ? field->min : field->max < 4 ? 0 : 4;
        else if (field->type == FIELD_TEXTS)
            *(struct texts *)(void *)member = (struct texts){words, field->min > 0 ? 1 : 0};
    }
}

static void spoil(struct buffer *body, unsigned round)
{
    if (round % 8 == 0 || body->length == 0)
        return; /* as it is, once more */
    for (unsigned i = 0; i < 1 + round % 3; i++)
        body->data[(size_t)random() % body->length] = (char)random();
    if (round % 5 == 0)
        body->length = (size_t)random() % body->length;
    if (round % 7 == 0)
        buffer_add(body, "more than was asked for", 23);
}

/* True when it was answered, false when it was hung up on; anything else is a failure. */
static bool is_answered(int fd)
{
    auto_arena struct arena arena = {0};
    struct wire_packet packet;
    struct error error;
    int64_t begin = fixture_now_ms();

    if (wire_receive(fd, 1, &packet, &arena, &error) != 1) {
        ck_assert_msg(fixture_now_ms() - begin < ANSWER_SECONDS * 1000, "no answer");
        return false;
    }
    wire_packet_close(&packet);
    return true;
}

static void rant(size_t kind, const char *id)
{
    static const char *word = "/bin/true";
    int kinds[DESCRIPTORS], connection = connect_raw();

    open_kinds(kinds, connection);
    for (unsigned round = 0; round < ROUNDS; round++) {
        auto_buffer struct buffer body = {0};
        char plain[1024] = {0};
        struct wire_header header = {.type = messages[kind].type, .serial = round};
        int passed[WIRE_DESCRIPTORS_MAX];
        size_t count = round % 3 ? (size_t)messages[kind].descriptors
                                 : (size_t)random() % (WIRE_DESCRIPTORS_MAX + 1);
        struct error error;

        ck_assert_uint_le(messages[kind].schema->size, sizeof(plain));
        fill(messages[kind].schema, id, plain, &word);
        ck_assert_int_eq(wire_encode(messages[kind].schema, plain, &body, &error), 0);
        spoil(&body, round);
        for (size_t i = 0; i < count; i++)
            passed[i] = kinds[random() % DESCRIPTORS];
        if (wire_send(connection, &header, body.data, body.length, passed, count, &error) == 0 &&
            is_answered(connection))
            continue;
        close(connection);
        connection = connect_raw();
    }
    close(connection);
    for (size_t i = 0; i < DESCRIPTORS; i++)
        close(kinds[i]);
}

/* What it made on the way, by ids that it hit upon. */
static void destroy_all(void)
{
    auto_arena struct arena arena = {0};
    struct sandbox_entry *entries;
    size_t count;

    ck_done(sandbox_list(fixture_connect(), &arena, &entries, &count, &fixture_error));
    for (size_t i = 0; i < count; i++)
        ck_done(sandbox_destroy(fixture_connect(), entries[i].sandbox, &fixture_error));
}

START_TEST(it_may_say_what_it_likes)
{
    const char *id = fixture_running(), *other = fixture_running();
    int descriptors;
    long memory;

    srandom((unsigned)_i + 1);
    ck_prints(other, "echo before", "before\n");
    descriptors = descriptors_open();
    memory = memory_kb();
    rant((size_t)_i, "ffffffff-0000-4000-8000-0123456789ab");
    rant((size_t)_i, id);
    ck_prints(other, "echo after", "after\n");
    destroy_all();
    ck_soon(descriptors_open() <= descriptors, 5000);
    ck_assert_msg(memory_kb() < memory + GROWTH_KB, "%s: %ld KB, then %ld KB", messages[_i].name, memory,
                  memory_kb());
    /* And what it said is in the log as text. */
    ck_assert_int_ne(
        fixture_shell("LC_ALL=C grep -q -P '[\\x00-\\x09\\x0b-\\x1f\\x7f]' %s/log", fixture_root),
        0);
}
END_TEST

/* --- storms ---------------------------------------------------------------------------------- */

/* The same id, over and over: nothing of the one before is in the next. */
START_TEST(an_id_can_be_used_again_at_once)
{
    const char *id = fixture_id();
    struct start start = fixture_start(id);
    int descriptors = 0;

    for (int round = 0; round < 60; round++) {
        ck_done(sandbox_create(fixture_connect(), id, &fixture_error));
        if (round % 3 != 2) {
            ck_done(sandbox_start(fixture_connect(), &start, &fixture_error));
            ck_prints(id,
                      "ls -A /workspace /tmp | grep -v -e : -e '^$'; ls /root/mark 2>/dev/null; "
                      "test $(ls -d /proc/[0-9]* | "
                      "wc -l) -lt 8 && echo new; touch /workspace/mark /tmp/mark /root/mark; "
                      "sleep 100 >/dev/null 2>&1 &",
                      "new\n");
        }
        if (round % 4 == 1)
            ck_refused(sandbox_create(fixture_connect(), id, &fixture_error), ERR_CONFLICT);
        fixture_destroy(id);
        if (round == 10)
            descriptors = descriptors_open();
    }
    ck_soon(descriptors_open() <= descriptors, 3000);
}
END_TEST

/* Several at once that know nothing of each other. */
START_TEST(many_may_fight_over_one_id)
{
    const char *id = fixture_id();
    int descriptors;
    pid_t peers[6];

    fixture_destroy(id); /* connected */
    descriptors = descriptors_open();
    for (size_t i = 0; i < COUNT(peers); i++) {
        peers[i] = fork();
        if (peers[i] == 0) {
            struct sandbox_link *own = sandbox_link_new(fixture_socket);
            struct start start = fixture_start(id);

            for (int round = 0; round < 40; round++) {
                struct sandbox_output out = {0}, errors = {0};
                struct exec_result result;
                const char *argv[] = {"/bin/true"};
                struct exec exec = fixture_exec(id, argv, 1, 2000);

                sandbox_create(own, id, &fixture_error);
                sandbox_start(own, &start, &fixture_error);
                sandbox_exec(own, &exec, KEEP, -1, &out, &errors, &result, &fixture_error);
                if (fixture_error.kind == ERR_INTERNAL)
                    printf("%s\n", fixture_error.message);
                if ((round + (int)i) % 3 == 0)
                    sandbox_destroy(own, id, &fixture_error);
                else
                    sandbox_stop(own, id, &fixture_error);
                buffer_done(&out.bytes);
                buffer_done(&errors.bytes);
            }
            _exit(0);
        }
    }
    for (size_t i = 0; i < COUNT(peers); i++) {
        int status;

        ck_assert_int_eq(waitpid(peers[i], &status, 0), peers[i]);
        ck_assert_int_eq(status, 0);
    }
    fixture_destroy(id);
    ck_soon(descriptors_open() <= descriptors, 5000);
    fixture_destroy(fixture_running());
}
END_TEST

START_TEST(thousands_may_come_and_go)
{
    int descriptors = descriptors_open();
    long memory = memory_kb();

    for (int round = 0; round < 5000; round++) {
        auto_close int fd = connect_raw();

        if (round % 2)
            ck_assert_int_gt(send(fd, "garbage", (size_t)round % 8, MSG_NOSIGNAL), -1);
    }
    ck_soon(descriptors_open() <= descriptors, 5000);
    ck_assert_int_lt(memory_kb(), memory + GROWTH_KB);
    fixture_destroy(fixture_running());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rogue peer");
    TCase *tests = tcase_create("rogue peer");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, it_may_say_what_it_likes, 0, (int)COUNT(messages));
    tcase_add_test(tests, an_id_can_be_used_again_at_once);
    tcase_add_test(tests, many_may_fight_over_one_id);
    tcase_add_test(tests, thousands_may_come_and_go);
    suite_add_tcase(suite, tests);
    return fixture_main(suite);
}
