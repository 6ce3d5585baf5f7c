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
    tcase_add_test(tests, on_any_processor);
    return unit_run(suite);
}
