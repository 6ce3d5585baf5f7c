/* Recipes: what they say, the commands that come of it, and the name by which they are found. */
#include "run/recipe.h"

#include "run/build.h"
#include "tests/unit/unit.h"

static struct arena arena;
static struct error error;

static struct recipe parsed(const char *text)
{
    struct recipe recipe;

    ck_assert_msg(recipe_parse(text, &arena, &recipe, &error) == 0, "%s", error.message);
    return recipe;
}

/* The arguments of all steps: those of one apart by |, steps by newlines. */
static const char *steps_of(const char *text)
{
    struct recipe recipe = parsed(text);
    struct buffer all = {0};
    struct recipe_step *steps;
    size_t count = recipe_steps(&recipe, &arena, &steps);

    buffer_text(&all, "");
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < steps[i].argv.count; j++)
            buffer_format(&all, "%s%s", j ? "|" : "", steps[i].argv.items[j]);
        buffer_char(&all, '\n');
    }
    const char *copy = arena_copy(&arena, all.data, all.length);
    buffer_done(&all);
    return copy;
}

static const struct {
    const char *recipe, *steps;
} installs[] = {
    {"from base", ""},
    {"from base\ncargo ripgrep fd-find@10.1.0",
     "cargo|install|--root|/usr/local|--|ripgrep|fd-find@10.1.0\n"},
    {"from base\ngem rake:13.0 rack", "gem|install|--no-document|rake:13.0|rack\n"},
    {"from base\ngo example.org/a@v1.2 example.org/b",
     "go|install|--|example.org/a@v1.2\ngo|install|--|example.org/b@latest\n"},
    {"from base\nnpm typescript@5 @scope/x",
     "npm|install|--global|--no-audit|--no-fund|--|typescript@5|@scope/x\n"},
    {"from base\npip requests==2.32 'flask",
     "python3|-m|pip|install|--no-input|--|requests==2.32|'flask\n"},
    {"from base\nrun echo  \"a b\"  ", "/bin/sh|-c|echo  \"a b\"\n"},
    {"from base\nrun a && \\\n  b\nrun c", "/bin/sh|-c|a &&     b\n/bin/sh|-c|c\n"},
    /* Whatever the order of the lines: packages first, in theirs. */
    {"# c\n  run last\npip p\npip q\n\nnpm n\nfrom base\n\trun very",
     "npm|install|--global|--no-audit|--no-fund|--|n\npython3|-m|pip|install|--no-input|--|p|q\n"
     "/bin/sh|-c|last\n/bin/sh|-c|very\n"},
};

START_TEST(packages_become_commands)
{
    ck_assert_str_eq(steps_of(installs[_i].recipe), installs[_i].steps);
}
END_TEST

START_TEST(apt_asks_first_and_cleans_up)
{
    const char *steps = steps_of("from base\napt curl git=1:2.39");

    ck_assert_ptr_eq(
        strstr(steps, "apt-get|-q|update\napt-get|-q|install|-y|--no-install-recommends|--|curl|"
                      "git=1:2.39\n/bin/sh|-c|"),
        steps);
    ck_assert_ptr_nonnull(strstr(steps, "/var/lib/apt/lists"));
}
END_TEST

static const struct {
    const char *recipe, *network;
} networks[] = {
    {"from base\nrun curl", "none"},
    {"from base\npip x", "egress"},
    {"from base\npip x\nnetwork none", "none"},
    {"network egress\nfrom base\nrun curl", "egress"},
};

START_TEST(packages_need_the_network)
{
    struct recipe recipe = parsed(networks[_i].recipe);

    ck_assert_str_eq(recipe_network(&recipe), networks[_i].network);
}
END_TEST

static const char *const refused[] = {
    "",
    "run x",
    "from",
    "from Base",
    "from base\nfrom other",
    "from base\npip -r x",
    "from base\napt a -y",
    "from base\ncopy a/../b",
    "from base\ncopy a//b",
    "from base\ncopy ./a",
    "from base\ncopy .",
    "from base\ncopy .build/x",
    "from base\ncopy -x",
    "from base\nnetwork all",
    "from base\nRUN x",
    "from base\nrun a\x01"
    "b",
};

START_TEST(what_means_nothing_is_refused)
{
    struct recipe recipe;

    ck_assert_int_eq(recipe_parse(refused[_i], &arena, &recipe, &error), -1);
    ck_assert_int_eq(error.kind, ERR_INVALID);
}
END_TEST

START_TEST(there_are_not_too_many)
{
    struct buffer text = {0};
    struct recipe recipe;

    buffer_text(&text, "from base\npip");
    for (int i = 0; i < 5000; i++)
        buffer_format(&text, " p%d", i);
    ck_assert_int_eq(recipe_parse(text.data, &arena, &recipe, &error), -1);
    buffer_done(&text);
}
END_TEST

static const char *name_of(const char *text, const char *base, const char *files)
{
    struct recipe recipe = parsed(text);
    char *name = arena_alloc(&arena, RECIPE_NAME_SIZE);

    recipe_name(&recipe, base, files, name);
    ck_assert_uint_le(strlen(name), 64);
    ck_assert(field_matches(IMAGE_NAME_PATTERN, name));
    return name;
}

START_TEST(the_same_recipe_has_the_same_name)
{
    const char *name = name_of("from base\npip a b\nrun c", "0", "1");

    ck_assert_str_eq(name_of("# other words\nrun c\nfrom base\npip a\npip b", "0", "1"), name);
    /* The base counts by its digest alone. */
    ck_assert_str_eq(name_of("from alias\npip a b\nrun c", "0", "1"), name);
    ck_assert_str_ne(name_of("from base\npip a b\nrun c", "2", "1"), name);
    ck_assert_str_ne(name_of("from base\npip a b\nrun c", "0", "2"), name);
    ck_assert_str_ne(name_of("from base\npip b a\nrun c", "0", "1"), name);
    ck_assert_str_ne(name_of("from base\nnpm a b\nrun c", "0", "1"), name);
    ck_assert_str_ne(name_of("from base\npip a b\nrun c\nrun d", "0", "1"), name);
    ck_assert_str_ne(name_of("from base\npip a b\nrun c\nnetwork none", "0", "1"), name);
}
END_TEST

START_TEST(builds_have_sandboxes_of_their_own_kind)
{
    char id[UUID_SIZE], session[UUID_SIZE];

    build_sandbox(id);
    token_uuid(session);
    ck_assert(field_matches(SANDBOX_ID_PATTERN, id));
    ck_assert(build_is_sandbox(id));
    ck_assert(!build_is_sandbox(session));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recipe");
    TCase *tests = unit_case(suite, "recipe");
    int result;

    unit_table(tests, packages_become_commands, installs);
    tcase_add_test(tests, apt_asks_first_and_cleans_up);
    unit_table(tests, packages_need_the_network, networks);
    unit_table(tests, what_means_nothing_is_refused, refused);
    tcase_add_test(tests, there_are_not_too_many);
    tcase_add_test(tests, the_same_recipe_has_the_same_name);
    tcase_add_test(tests, builds_have_sandboxes_of_their_own_kind);
    result = unit_run(suite);
    arena_done(&arena);
    return result;
}
