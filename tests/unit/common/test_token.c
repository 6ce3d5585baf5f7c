/* Ids and secrets. */
#include "common/token.h"

#include <signal.h>
#include <string.h>

#include "tests/unit/unit.h"

START_TEST(random_bytes_differ)
{
    unsigned char a[64] = {0}, b[64] = {0}, zero[64] = {0};

    token_random(a, sizeof(a));
    token_random(b, sizeof(b));
    ck_assert_mem_ne(a, b, sizeof(a));
    ck_assert_mem_ne(a, zero, sizeof(a));
    token_random(a, 0);
}
END_TEST

START_TEST(random_bytes_may_be_many)
{
    static unsigned char bytes[1 << 20];
    size_t zeros = 0;

    token_random(bytes, sizeof(bytes));
    for (size_t i = sizeof(bytes) - 4096; i < sizeof(bytes); i++)
        zeros += bytes[i] == 0;
    ck_assert_uint_lt(zeros, 100);
}
END_TEST

START_TEST(a_uuid_is_of_version_4)
{
    char a[UUID_SIZE], b[UUID_SIZE];

    for (int i = 0; i < 100; i++) {
        token_uuid(a);
        token_uuid(b);
        ck_assert_uint_eq(strlen(a), UUID_SIZE - 1);
        ck_assert(token_is_uuid(a));
        ck_assert_int_eq(a[14], '4');
        ck_assert_ptr_nonnull(strchr("89ab", a[19]));
        ck_assert_uint_eq(strcspn(a, "ABCDEF"), UUID_SIZE - 1);
        ck_assert_str_ne(a, b);
    }
}
END_TEST

static const struct {
    const char *text;
    bool is_uuid;
} uuids[] = {
    {"00000000-0000-0000-0000-000000000000", true},
    {"ABCDEF01-2345-6789-abcd-ef0123456789", true},
    {"", false},
    {"ABCDEF01-2345-6789-abcd-ef012345678", false},
    {"ABCDEF01-2345-6789-abcd-ef01234567890", false},
    {"ABCDEF01-2345-6789-abcd-ef012345678g", false},
    {"ABCDEF0123456789abcdef0123456789", false},
    {"ABCDEF01-2345-6789-abcde-f0123456789", false},
    {"{00000000-0000-0000-0000-00000000000", false},
};

START_TEST(a_uuid_is_recognised)
{
    ck_assert_int_eq(token_is_uuid(uuids[_i].text), uuids[_i].is_uuid);
}
END_TEST

static const struct {
    size_t bytes, characters;
} lengths[] = {{0, 0}, {1, 2}, {2, 3}, {3, 4}, {16, 22}, {32, 43}, {64, 86}};

START_TEST(a_token_is_its_prefix_and_base64url)
{
    char token[128];
    size_t length = lengths[_i].characters;

    memset(token, '!', sizeof(token));
    token_make("ak_", lengths[_i].bytes, token, length + 4);
    ck_assert_int_eq(strncmp(token, "ak_", 3), 0);
    ck_assert_uint_eq(strlen(token), length + 3);
    ck_assert_uint_eq(strspn(token + 3, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                        "0123456789-_"),
                      length);
    ck_assert_int_eq(token[length + 4], '!');
}
END_TEST

START_TEST(tokens_differ)
{
    char a[64], b[64];

    token_make("", 32, a, sizeof(a));
    token_make("", 32, b, sizeof(b));
    ck_assert_str_ne(a, b);
}
END_TEST

START_TEST(a_token_is_never_cut)
{
    char token[46];

    token_make("ak_", 32, token, sizeof(token));
}
END_TEST

static const struct {
    const char *bytes, *digest;
} digests[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
};

START_TEST(a_digest_is_sha256_in_lower_case)
{
    char digest[SHA256_HEX_SIZE];

    token_sha256(digests[_i].bytes, strlen(digests[_i].bytes), digest);
    ck_assert_str_eq(digest, digests[_i].digest);
}
END_TEST

static const struct {
    const char *a, *b;
    bool equal;
} pairs[] = {
    {"", "", true},
    {"secret", "secret", true},
    {"secret", "secres", false},
    {"secret", "secre", false},
    {"", "a", false},
    {"a", "", false},
};

START_TEST(equal_texts_are_equal)
{
    ck_assert_int_eq(token_equal(pairs[_i].a, pairs[_i].b), pairs[_i].equal);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("token");
    TCase *tests = unit_case(suite, "token");

    tcase_add_test(tests, random_bytes_differ);
    tcase_add_test(tests, random_bytes_may_be_many);
    tcase_add_test(tests, a_uuid_is_of_version_4);
    unit_table(tests, a_uuid_is_recognised, uuids);
    unit_table(tests, a_token_is_its_prefix_and_base64url, lengths);
    tcase_add_test(tests, tokens_differ);
    tcase_add_test_raise_signal(tests, a_token_is_never_cut, SIGABRT);
    unit_table(tests, a_digest_is_sha256_in_lower_case, digests);
    unit_table(tests, equal_texts_are_equal, pairs);
    return unit_run(suite);
}
