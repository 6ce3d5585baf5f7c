/* SHA-256 in pieces: whatever their lengths, it is the digest of all. */
#include "common/sha256.h"

#include "tests/unit/unit.h"

START_TEST(it_is_that_of_openssl)
{
    unsigned char bytes[300];
    char expected[SHA256_HEX_SIZE], digest[SHA256_HEX_SIZE];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7 + 1);
    for (size_t length = 0; length <= sizeof(bytes); length++) {
        size_t piece = 1 + (length * 5 + (size_t)_i * 31) % 130;
        struct sha256 sha256;

        sha256_begin(&sha256);
        for (size_t at = 0; at < length; at += piece)
            sha256_add(&sha256, bytes + at, length - at < piece ? length - at : piece);
        sha256_add(&sha256, NULL, 0);
        sha256_end(&sha256, digest);
        token_sha256(bytes, length, expected);
        ck_assert_str_eq(digest, expected);
    }
}
END_TEST

START_TEST(a_million_times_a)
{
    char block[1000], digest[SHA256_HEX_SIZE];
    struct sha256 sha256;

    memset(block, 'a', sizeof(block));
    sha256_begin(&sha256);
    for (int i = 0; i < 1000; i++)
        sha256_add(&sha256, block, sizeof(block));
    sha256_end(&sha256, digest);
    /* FIPS 180-2, B.3 */
    ck_assert_str_eq(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sha256");
    TCase *tests = unit_case(suite, "sha256");

    tcase_add_loop_test(tests, it_is_that_of_openssl, 0, 8);
    tcase_add_test(tests, a_million_times_a);
    return unit_run(suite);
}
