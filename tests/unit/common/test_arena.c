/* The arena and the growing text. */
#include "common/arena.h"

#include <signal.h>
#include <string.h>

#include "tests/unit/unit.h"

START_TEST(memory_is_zeroed_and_aligned)
{
    auto_arena struct arena arena = {0};

    for (size_t size = 0; size < 300; size += 7) {
        unsigned char *memory = arena_alloc(&arena, size);

        ck_assert_uint_eq((uintptr_t)memory % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++)
            ck_assert_uint_eq(memory[i], 0);
        memset(memory, 0xAA, size);
    }
}
END_TEST

START_TEST(memory_is_zeroed_again_after_a_reset)
{
    auto_arena struct arena arena = {0};

    memset(arena_alloc(&arena, 1000), 0xAA, 1000);
    arena_reset(&arena);
    for (const unsigned char *at = arena_alloc(&arena, 1000), *end = at + 1000; at < end; at++)
        ck_assert_uint_eq(*at, 0);
}
END_TEST

static const size_t sizes[] = {1, 16, 16 * 1024, 16 * 1024 + 1, 300 * 1024, 8 << 20};

START_TEST(any_size_fits_and_pieces_do_not_overlap)
{
    auto_arena struct arena arena = {0};
    unsigned char *first = arena_alloc(&arena, sizes[_i]);
    unsigned char *second = arena_alloc(&arena, sizes[_i]);

    memset(first, 1, sizes[_i]);
    memset(second, 2, sizes[_i]);
    ck_assert_uint_eq(first[0], 1);
    ck_assert_uint_eq(first[sizes[_i] - 1], 1);
    arena_reset(&arena);
    memset(arena_alloc(&arena, sizes[_i]), 3, sizes[_i]);
}
END_TEST

START_TEST(an_arena_is_usable_after_done)
{
    auto_arena struct arena arena = {0};

    arena_alloc(&arena, 10);
    arena_done(&arena);
    ck_assert_ptr_null(arena.block);
    ck_assert_str_eq(arena_copy(&arena, "again", 5), "again");
}
END_TEST

START_TEST(a_copy_ends_in_nul)
{
    auto_arena struct arena arena = {0};

    ck_assert_str_eq(arena_copy(&arena, "abcdef", 3), "abc");
    ck_assert_str_eq(arena_copy(&arena, NULL, 0), "");
    ck_assert_str_eq(arena_text(&arena, "%s-%d", "a", 7), "a-7");
}
END_TEST

START_TEST(more_than_there_can_be_aborts)
{
    auto_arena struct arena arena = {0};

    arena_alloc(&arena, SIZE_MAX - 3);
}
END_TEST

START_TEST(a_buffer_grows_and_stays_terminated)
{
    auto_buffer struct buffer out = {0};

    for (int i = 0; i < 1000; i++) {
        buffer_text(&out, "ab");
        buffer_char(&out, 'c');
        buffer_format(&out, "%d", i % 10);
        buffer_add(&out, "xyz", 2);
        ck_assert_uint_eq(strlen(out.data), out.length);
    }
    ck_assert_uint_eq(out.length, 6000);
    ck_assert_int_eq(strncmp(out.data, "abc0xyabc1xy", 12), 0);
}
END_TEST

START_TEST(a_buffer_is_empty_again_after_done)
{
    struct buffer out = {0};

    buffer_add(&out, NULL, 0);
    ck_assert_str_eq(out.data, "");
    buffer_done(&out);
    ck_assert_ptr_null(out.data);
    ck_assert_uint_eq(out.length, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tests = unit_case(suite, "arena");

    tcase_add_test(tests, memory_is_zeroed_and_aligned);
    tcase_add_test(tests, memory_is_zeroed_again_after_a_reset);
    unit_table(tests, any_size_fits_and_pieces_do_not_overlap, sizes);
    tcase_add_test(tests, an_arena_is_usable_after_done);
    tcase_add_test(tests, a_copy_ends_in_nul);
    tcase_add_test_raise_signal(tests, more_than_there_can_be_aborts, SIGABRT);
    tcase_add_test(tests, a_buffer_grows_and_stays_terminated);
    tcase_add_test(tests, a_buffer_is_empty_again_after_done);
    return unit_run(suite);
}
