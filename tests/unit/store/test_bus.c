/* The bus: what is sent arrives, and a receiver that is away or stuck stops nobody. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "store/backend.h"
#include "store/bus.h"
#include "tests/unit/unit.h"

static const char session[] = "11111111-1111-4111-8111-111111111111";
static char folder[64], path[96];
static struct bus_message message;
static struct error err;

static void setup(void)
{
    strcpy(folder, "/tmp/bus-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/socket", folder);
    bus_init(path);
}

static void teardown(void)
{
    unlink(path);
    rmdir(folder);
}

static int receiver(void)
{
    int bus = bus_receive_open(&err);

    ck_assert_msg(bus >= 0, "%s", err.message);
    return bus;
}

START_TEST(messages_arrive_as_they_were_sent)
{
    auto_close int bus = receiver();

    ck_assert_int_eq(bus_receive(bus, &message), 0);
    bus_send(BUS_WAKE, session, 0, NULL, 0);
    bus_send(BUS_DELTA, session, INT64_C(1) << 40, "data: x\n\n", 9);
    ck_assert_int_eq(bus_receive(bus, &message), 1);
    ck_assert_int_eq(message.kind, BUS_WAKE);
    ck_assert_str_eq(message.session, session);
    ck_assert_uint_eq(message.length, 0);
    ck_assert_int_eq(bus_receive(bus, &message), 1);
    ck_assert_int_eq(message.kind, BUS_DELTA);
    ck_assert_int_eq(message.after, INT64_C(1) << 40);
    ck_assert_uint_eq(message.length, 9);
    ck_assert_mem_eq(message.frame, "data: x\n\n", 9);
    ck_assert_int_eq(bus_receive(bus, &message), 0);
}
END_TEST

START_TEST(the_largest_message_fits)
{
    auto_close int bus = receiver();
    auto_free char *frame = malloc(BUS_MESSAGE_MAX + 1);

    memset(frame, 'x', BUS_MESSAGE_MAX + 1);
    bus_send(BUS_DELTA, session, 1, frame, BUS_MESSAGE_MAX + 1);
    ck_assert_int_eq(bus_receive(bus, &message), 0);
    bus_send(BUS_DELTA, session, 1, frame, BUS_MESSAGE_MAX);
    ck_assert_int_eq(bus_receive(bus, &message), 1);
    ck_assert_uint_eq(message.length, BUS_MESSAGE_MAX);
    ck_assert_mem_eq(message.frame, frame, BUS_MESSAGE_MAX);
}
END_TEST

START_TEST(the_socket_is_its_owners)
{
    auto_close int bus = receiver();
    struct stat status;

    ck_assert_int_ge(bus, 0);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0600);
}
END_TEST

START_TEST(nobody_there_is_fine)
{
    int bus;

    bus_send(BUS_WAKE, session, 0, NULL, 0);
    bus = receiver();
    bus_send(BUS_WAKE, session, 0, NULL, 0);
    ck_assert_int_eq(bus_receive(bus, &message), 1);
    /* Gone with its process; its file is still there. */
    close(bus);
    bus_send(BUS_WAKE, session, 0, NULL, 0);
    bus_send(BUS_WAKE, session, 0, NULL, 0);
    /* The next one takes the file over, and hears. */
    bus = receiver();
    bus_send(BUS_WAKE, session, 7, NULL, 0);
    ck_assert_int_eq(bus_receive(bus, &message), 1);
    ck_assert_int_eq(message.after, 7);
    close(bus);
}
END_TEST

START_TEST(a_stuck_receiver_costs_little)
{
    auto_close int bus = receiver();
    int64_t began = monotonic_ms();

    for (int i = 0; i < 20000; i++)
        bus_send(BUS_WAKE, session, i, NULL, 0);
    ck_assert_int_lt(monotonic_ms() - began, 2500);
    ck_assert_int_eq(bus_receive(bus, &message), 1);
    ck_assert_int_eq(message.after, 0);
}
END_TEST

static void *send_many(void *sender)
{
    char frame[32];

    for (int i = 0; i < 200; i++) {
        int length = snprintf(frame, sizeof(frame), "%d %d", (int)(intptr_t)sender, i);

        bus_send(BUS_DELTA, session, i, frame, (size_t)length);
    }
    return NULL;
}

START_TEST(threads_share_the_sender)
{
    auto_close int bus = receiver();
    pthread_t threads[4];
    int next[4] = {0}, received = 0;
    int64_t deadline = monotonic_ms() + 5000;

    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, send_many, (void *)(intptr_t)i);
    while (received < 800 && monotonic_ms() < deadline) {
        int sender;

        if (!bus_receive(bus, &message)) {
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
            continue;
        }
        received++;
        sender = message.frame[0] - '0';
        ck_assert_int_eq(message.after, next[sender]++);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(received, 800);
}
END_TEST

START_TEST(what_is_no_message_is_passed_over)
{
    auto_close int bus = receiver();
    auto_close int stranger = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char bytes[64];

    memset(bytes, 0xff, sizeof(bytes));
    memcpy(to.sun_path, path, strlen(path));
    ck_assert_int_eq(connect(stranger, (struct sockaddr *)&to, sizeof(to)), 0);
    ck_assert_int_eq(send(stranger, bytes, 3, 0), 3);
    ck_assert_int_eq(send(stranger, bytes, sizeof(bytes), 0), sizeof(bytes));
    bus_send(BUS_WAKE, session, 5, NULL, 0);
    ck_assert_int_eq(bus_receive(bus, &message), 1);
    ck_assert_int_eq(message.after, 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bus");
    TCase *tests = unit_case(suite, "bus");

    tcase_set_timeout(tests, 10);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, messages_arrive_as_they_were_sent);
    tcase_add_test(tests, the_largest_message_fits);
    tcase_add_test(tests, the_socket_is_its_owners);
    tcase_add_test(tests, nobody_there_is_fine);
    tcase_add_test(tests, a_stuck_receiver_costs_little);
    tcase_add_test(tests, threads_share_the_sender);
    tcase_add_test(tests, what_is_no_message_is_passed_over);
    return unit_run(suite);
}
