/* Every name has a text of its own, in UTF-8, and is found again by it. */
#include <stdio.h>
#include <string.h>

#include "common/file_name.h"
#include "common/utf8.h"
#include "tests/unit/unit.h"

static const struct {
    const char *name, *text;
} names[] = {
    {"", ""},
    {"plain", "plain"},
    {"a/b c\n\x1b", "a/b c\n\x1b"},
    {"\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80"},
    {"a\xFF"
     "b",
     "a\xEF\xBF\xBD"
     "FFb"},
    {"\x80", "\xEF\xBF\xBD"
             "80"},
    {"\xC3", "\xEF\xBF\xBD"
             "C3"},
    {"\xC3/\xBC", "\xEF\xBF\xBD"
                  "C3/\xEF\xBF\xBD"
                  "BC"},
    /* Over-long, and a surrogate. */
    {"\xC0\xAF", "\xEF\xBF\xBD"
                 "C0\xEF\xBF\xBD"
                 "AF"},
    {"\xED\xA0\x80", "\xEF\xBF\xBD"
                     "ED\xEF\xBF\xBD"
                     "A0\xEF\xBF\xBD"
                     "80"},
    /* The mark itself, alone and as if it meant a byte. */
    {"\xEF\xBF\xBD", "\xEF\xBF\xBD"},
    {"\xEF\xBF\xBD"
     "2F",
     "\xEF\xBF\xBD"
     "2F"},
    {"\xEF\xBF\xBD"
     "ff",
     "\xEF\xBF\xBD"
     "ff"},
    {"\xEF\xBF\xBD\xFF", "\xEF\xBF\xBD\xEF\xBF\xBD"
                         "FF"},
    {"\xEF\xBF\xBD"
     "FF",
     "\xEF\xBF\xBD"
     "EF\xEF\xBF\xBD"
     "BF\xEF\xBF\xBD"
     "BDFF"},
};

START_TEST(a_name_and_its_text)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer text = {0};

    file_name_show(&text, names[_i].name);
    ck_assert_str_eq(text.data ? text.data : "", names[_i].text);
    ck_assert_str_eq(file_name_read(&arena, names[_i].text), names[_i].name);
}
END_TEST

static const char pieces[] = "\xEF\xBF\xBD\xFF\x80"
                             "F8fa/";

/* All names of up to five bytes out of those that matter. */
START_TEST(no_two_names_have_one_text)
{
    enum { KINDS = sizeof(pieces) - 1, LENGTH = 5 };
    size_t all = 1;

    for (int i = 0; i < LENGTH; i++)
        all *= KINDS + 1;
    for (size_t which = 0; which < all; which++) {
        auto_arena struct arena arena = {0};
        auto_buffer struct buffer text = {0};
        char name[LENGTH + 1];
        size_t rest = which, length = 0;

        for (int i = 0; i < LENGTH; i++, rest /= KINDS + 1)
            if (rest % (KINDS + 1))
                name[length++] = pieces[rest % (KINDS + 1) - 1];
        name[length] = '\0';
        file_name_show(&text, name);
        for (size_t at = 0; at < text.length;) {
            size_t step = utf8_length(text.data + at, text.length - at);

            ck_assert_uint_gt(step, 0);
            at += step;
        }
        ck_assert_str_eq(file_name_read(&arena, text.data ? text.data : ""), name);
    }
}
END_TEST

START_TEST(no_text_means_a_way_out)
{
    auto_arena struct arena arena = {0};
    char text[16];

    for (int byte = 0; byte < 0x80; byte++) {
        snprintf(text, sizeof(text), "\xEF\xBF\xBD%02X", byte);
        ck_assert_str_eq(file_name_read(&arena, text), text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("file_name");
    TCase *tests = unit_case(suite, "file_name");

    unit_table(tests, a_name_and_its_text, names);
    tcase_add_test(tests, no_two_names_have_one_text);
    tcase_add_test(tests, no_text_means_a_way_out);
    return unit_run(suite);
}
