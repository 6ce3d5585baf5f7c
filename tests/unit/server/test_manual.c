/* server.8 says what the program says about its settings. */
#include <stdio.h>
#include <string.h>

#include "server/settings.h"
#include "tests/unit/unit.h"

static char *read_all(FILE *file)
{
    static char text[128 * 1024];
    size_t length = fread(text, 1, sizeof(text) - 1, file);

    text[length] = '\0';
    return text;
}

/* `sandbox-server --settings-manual` prints what belongs there. */
START_TEST(the_manual_has_every_setting)
{
    auto_free char *settings_text = NULL;
    size_t length;
    FILE *out = open_memstream(&settings_text, &length), *manual = fopen("server/server.8", "r");

    ck_assert_ptr_nonnull(out);
    ck_assert_msg(manual != NULL, "the tests run from the top of the checkout");
    server_settings_manual(out);
    fclose(out);
    ck_assert(strstr(read_all(manual), settings_text) != NULL);
    fclose(manual);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("manual");

    tcase_add_test(unit_case(suite, "manual"), the_manual_has_every_setting);
    return unit_run(suite);
}
