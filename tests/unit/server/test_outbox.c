/* Frames on their way to one socket. */
#include "server/outbox.h"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/unit.h"

static int ours = -1, theirs = -1;
static struct outbox box;

static void open_pair(void)
{
    int sockets[2];
    const int small = 4096;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    ours = sockets[0];
    theirs = sockets[1];
    ck_assert_int_eq(setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    box = (struct outbox){0};
}

static void close_pair(void)
{
    outbox_done(&box);
    close(ours);
    if (theirs >= 0)
        close(theirs);
}

static void add(const char *bytes, size_t length)
{
    struct frame *frame = frame_new(bytes, length);

    outbox_add(&box, frame, 1);
    frame_release(frame);
}

static size_t take(char *into, size_t size)
{
    ssize_t got = read(theirs, into, size);

    return got > 0 ? (size_t)got : 0;
}

START_TEST(frames_arrive_in_order)
{
    char got[64];

    for (int i = 0; i < 10; i++)
        add((const char[]){(char)('a' + i)}, 1);
    ck_assert_uint_eq(box.bytes, 10);
    ck_assert_int_eq(outbox_flush(&box, ours, 2), 0);
    ck_assert_uint_eq(take(got, sizeof(got)), 10);
    ck_assert_mem_eq(got, "abcdefghij", 10);
}
END_TEST

START_TEST(an_empty_box_holds_no_memory)
{
    add("x", 1);
    ck_assert_int_eq(outbox_flush(&box, ours, 2), 0);
    ck_assert_ptr_null(box.queue);
    ck_assert_uint_eq(box.bytes, 0);
    ck_assert_int_eq(outbox_flush(&box, ours, 3), 0);
}
END_TEST

START_TEST(what_a_slow_socket_does_not_take_waits_and_is_not_lost)
{
    static char big[300000], got[sizeof(big) * 3];
    size_t total = 0;
    int left;

    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (char)(i % 251);
    for (int i = 0; i < 3; i++)
        add(big, sizeof(big));
    left = outbox_flush(&box, ours, 7);
    ck_assert_int_eq(left, 1);
    ck_assert_int_eq(box.moved_ms, 7);
    while (total < sizeof(got)) {
        size_t took = take(got + total, sizeof(got) - total);

        ck_assert_uint_gt(took, 0);
        total += took;
        left = outbox_flush(&box, ours, 8);
        ck_assert_int_ge(left, 0);
    }
    ck_assert_int_eq(left, 0);
    for (size_t i = 0; i < 3; i++)
        ck_assert_mem_eq(got + i * sizeof(big), big, sizeof(big));
}
END_TEST

START_TEST(a_socket_that_takes_nothing_does_not_look_as_if_it_moved)
{
    static char big[300000];

    add(big, sizeof(big));
    ck_assert_int_eq(outbox_flush(&box, ours, 5), 1);
    ck_assert_int_eq(outbox_flush(&box, ours, 9), 1);
    ck_assert_int_eq(box.moved_ms, 5);
}
END_TEST

START_TEST(a_peer_that_is_gone_is_told)
{
    add("x", 1);
    close(theirs);
    theirs = -1;
    ck_assert_int_eq(outbox_flush(&box, ours, 2), -1);
}
END_TEST

START_TEST(frames_are_shared_and_freed_with_their_last_box)
{
    struct frame *frame = frame_new("x", 1);
    struct outbox other = {0};

    outbox_add(&box, frame, 1);
    outbox_add(&other, frame, 1);
    ck_assert_int_eq(frame->references, 3);
    outbox_done(&other);
    ck_assert_int_eq(frame->references, 2);
    frame_release(frame);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("outbox");
    TCase *tests = unit_case(suite, "outbox");

    tcase_add_checked_fixture(tests, open_pair, close_pair);
    tcase_add_test(tests, frames_arrive_in_order);
    tcase_add_test(tests, an_empty_box_holds_no_memory);
    tcase_add_test(tests, what_a_slow_socket_does_not_take_waits_and_is_not_lost);
    tcase_add_test(tests, a_socket_that_takes_nothing_does_not_look_as_if_it_moved);
    tcase_add_test(tests, a_peer_that_is_gone_is_told);
    tcase_add_test(tests, frames_are_shared_and_freed_with_their_last_box);
    return unit_run(suite);
}
