/* The supervisor's own SHA-256, beside libcrypto's. */
#include <openssl/sha.h>
#include <string.h>
#include <sys/mman.h>

#include "supervisor/sha256.h"
#include "tests/unit/unit.h"

enum { LENGTHS = 300, LARGE = 1 << 20 };

static void expected(const unsigned char *bytes, size_t length, char text[SHA256_TEXT])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];

    SHA256(bytes, length, digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        sprintf(text + 2 * i, "%02x", digest[i]);
}

static unsigned char *some_bytes(void)
{
    static unsigned char bytes[LARGE];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + 5);
    return bytes;
}

static void sparse_digest(int fd, char text[SHA256_TEXT], int64_t *bytes)
{
    struct error error;

    ck_assert_int_eq(sha256_sparse(fd, text, bytes, &error), 0);
}

START_TEST(zeros_and_holes_are_the_same_and_everything_else_counts)
{
    static const char zeros[LARGE];
    auto_close int holes = memfd_create("holes", 0), full = memfd_create("full", 0);
    char one[SHA256_TEXT], other[SHA256_TEXT];
    int64_t bytes;

    ck_assert_int_eq(write(full, zeros, LARGE), LARGE);
    ck_assert_int_eq(ftruncate(holes, LARGE), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pwrite(i ? full : holes, "data", 4, 70000), 4);
    sparse_digest(holes, one, &bytes);
    ck_assert_int_eq(bytes, 4096);
    sparse_digest(full, other, &bytes);
    ck_assert_str_eq(one, other);
    ck_assert_int_eq(bytes, 4096);
    /* Elsewhere, something else, longer. */
    ck_assert_int_eq(pwrite(full, "\0\0\0\0data", 8, 70000), 8);
    sparse_digest(full, other, &bytes);
    ck_assert_str_ne(one, other);
    ck_assert_int_eq(pwrite(full, zeros, 4096, 69632), 4096);
    ck_assert_int_eq(pwrite(full, "data", 4, 70000 + 4096), 4);
    sparse_digest(full, other, &bytes);
    ck_assert_str_ne(one, other);
    ck_assert_int_eq(ftruncate(holes, LARGE + 1), 0);
    sparse_digest(holes, other, &bytes);
    ck_assert_str_ne(one, other);
}
END_TEST

static void check_lengths(void)
{
    const unsigned char *bytes = some_bytes();
    char ours[SHA256_TEXT], theirs[SHA256_TEXT];

    for (size_t length = 0; length < LENGTHS; length++) {
        struct sha256 digest;

        sha256_begin(&digest);
        sha256_add(&digest, bytes, length);
        sha256_end(&digest, ours);
        expected(bytes, length, theirs);
        ck_assert_str_eq(ours, theirs);
    }
}

static void check_parts(void)
{
    const unsigned char *bytes = some_bytes();
    char ours[SHA256_TEXT], theirs[SHA256_TEXT];

    expected(bytes, LARGE, theirs);
    for (size_t part = 1; part < 200; part += 9) {
        struct sha256 digest;

        sha256_begin(&digest);
        for (size_t at = 0; at < LARGE; at += part)
            sha256_add(&digest, bytes + at, at + part < LARGE ? part : LARGE - at);
        sha256_end(&digest, ours);
        ck_assert_str_eq(ours, theirs);
    }
}

START_TEST(every_length_has_the_known_digest)
{
    check_lengths();
}
END_TEST

START_TEST(it_does_not_matter_how_it_is_cut)
{
    check_parts();
}
END_TEST

START_TEST(a_file_is_read_whole)
{
    const unsigned char *bytes = some_bytes();
    char ours[SHA256_TEXT], theirs[SHA256_TEXT];
    auto_close int fd = memfd_create("test", 0);
    struct error error;

    ck_assert_int_eq(write(fd, bytes, LARGE - 3), LARGE - 3);
    ck_assert_int_eq(sha256_file(fd, ours, &error), 0);
    expected(bytes, LARGE - 3, theirs);
    ck_assert_str_eq(ours, theirs);
}
END_TEST

START_TEST(on_any_processor)
{
    sha256_forgo_instructions();
    check_lengths();
    check_parts();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sha256");
    TCase *tests = unit_case(suite, "sha256");

    tcase_add_test(tests, every_length_has_the_known_digest);
    tcase_add_test(tests, it_does_not_matter_how_it_is_cut);
    tcase_add_test(tests, a_file_is_read_whole);
    tcase_add_test(tests, zeros_and_holes_are_the_same_and_everything_else_counts);
    tcase_add_test(tests, on_any_processor);
    return unit_run(suite);
}
