/* What a block acquires is released at its end. */
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "tests/unit/unit.h"

static int open_null(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static int is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

START_TEST(a_descriptor_is_closed_with_its_block)
{
    int seen;

    {
        auto_close int fd = open_null();

        seen = fd;
        ck_assert(is_open(seen));
    }
    ck_assert(!is_open(seen));
}
END_TEST

START_TEST(a_descriptor_that_was_taken_stays_open)
{
    int taken;

    {
        auto_close int fd = open_null();

        taken = take_fd(&fd);
        ck_assert_int_eq(fd, -1);
    }
    ck_assert(is_open(taken));
    close(taken);
}
END_TEST

START_TEST(what_was_never_acquired_is_left_alone)
{
    errno = 0;
    {
        auto_close int fd = -1;
        auto_free char *text = NULL;
        auto_fclose FILE *file = NULL;

        (void)fd;
        (void)text;
        (void)file;
    }
    ck_assert_int_eq(errno, 0);
}
END_TEST

START_TEST(memory_and_files_are_released)
{
    int seen;

    {
        auto_free char *text = strdup("kept until the brace");
        auto_fclose FILE *file = fopen("/dev/null", "re");

        ck_assert_ptr_nonnull(text);
        ck_assert_ptr_nonnull(file);
        seen = fileno(file);
    }
    ck_assert(!is_open(seen));
}
END_TEST

START_TEST(count_is_the_number_of_elements)
{
    int three[3];

    ck_assert_uint_eq(COUNT(three), 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scope");
    TCase *tests = unit_case(suite, "scope");

    tcase_add_test(tests, a_descriptor_is_closed_with_its_block);
    tcase_add_test(tests, a_descriptor_that_was_taken_stays_open);
    tcase_add_test(tests, what_was_never_acquired_is_left_alone);
    tcase_add_test(tests, memory_and_files_are_released);
    tcase_add_test(tests, count_is_the_number_of_elements);
    return unit_run(suite);
}
