/* What an image is built of: see recipe.h. */
#include "run/recipe.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/messages.h"
#include "common/scope.h"

enum { TEXTS_MAX = 200, ITEM_MAX = 4095, FIXED_MAX = 8 };

#define BUILD_PLACE "/workspace/.build"

/* --- packages -------------------------------------------------------------------------------- */

/* A package is an argument of its own, and never begins like an option. */
static const struct {
    const char *name;
    const char *tool;
    const char *before[FIXED_MAX]; /* a command of its own */
    const char *install[FIXED_MAX];
    const char *after[FIXED_MAX];
    bool each;          /* one at a time */
    const char *latest; /* added to one that names no version */
} managers[] = {
    [APT] = {"apt",
             "apt-get",
             {"apt-get", "-q", "update"},
             {"apt-get", "-q", "install", "-y", "--no-install-recommends", "--"},
             {"/bin/sh", "-c",
              "apt-get clean; rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin "
              "/var/log/apt/* /var/log/dpkg.log /var/log/alternatives.log /var/cache/ldconfig/*"},
             false,
             NULL},
    [CARGO] = {"cargo",
               "cargo",
               {NULL},
               {"cargo", "install", "--root", "/usr/local", "--"},
               {NULL},
               false,
               NULL},
    [GEM] = {"gem", "gem", {NULL}, {"gem", "install", "--no-document"}, {NULL}, false, NULL},
    [GO] = {"go", "go", {NULL}, {"go", "install", "--"}, {NULL}, true, "@latest"},
    [NPM] = {"npm",
             "npm",
             {NULL},
             {"npm", "install", "--global", "--no-audit", "--no-fund", "--"},
             {NULL},
             false,
             NULL},
    [PIP] = {"pip",
             "python3",
             {NULL},
             {"python3", "-m", "pip", "install", "--no-input", "--"},
             {NULL},
             false,
             NULL},
};

static const char *const environment[] = {
    "HOME=/root",
    "DEBIAN_FRONTEND=noninteractive",
    "TMPDIR=" BUILD_PLACE "/tmp",
    "CARGO_HOME=" BUILD_PLACE "/cargo",
    "GOPATH=" BUILD_PLACE "/go",
    "GOBIN=/usr/local/bin",
    "GOCACHE=" BUILD_PLACE "/go-cache",
    "npm_config_cache=" BUILD_PLACE "/npm",
    "npm_config_update_notifier=false",
    "PIP_NO_CACHE_DIR=1",
    "PIP_DISABLE_PIP_VERSION_CHECK=1",
    "PIP_ROOT_USER_ACTION=ignore",
    /* Debian's pip otherwise installs only into environments of its own; this image is one. */
    "PIP_BREAK_SYSTEM_PACKAGES=1",
    "PYTHONDONTWRITEBYTECODE=1",
};

const char *package_manager_name(enum package_manager manager)
{
    return managers[manager].name;
}

struct texts recipe_environment(void)
{
    return (struct texts){(const char **)(uintptr_t)environment, COUNT(environment)};
}

/* --- reading --------------------------------------------------------------------------------- */

struct reading {
    struct arena *arena;
    struct recipe *recipe;
    int line;
};

static int refuse(const struct reading *reading, const char *what, const char *item,
                  struct error *err)
{
    return error_set(err, ERR_INVALID, "line %d of the recipe: %s%s%.100s%s", reading->line, what,
                     item ? ": '" : "", item ? item : "", item ? "'" : "");
}

static int add(const struct reading *reading, struct texts *texts, const char *item,
               struct error *err)
{
    const char **more;

    if (texts->count == TEXTS_MAX || strlen(item) > ITEM_MAX)
        return refuse(reading, "there are too many of these, or they are too long", NULL, err);
    more = arena_alloc(reading->arena, (texts->count + 1) * sizeof(*more));
    if (texts->count)
        memcpy(more, texts->items, texts->count * sizeof(*more));
    more[texts->count++] = item;
    texts->items = more;
    return 0;
}

static int add_packages(const struct reading *reading, enum package_manager manager, char *rest,
                        struct error *err)
{
    char *item;

    while ((item = strsep(&rest, " \t")))
        if (*item == '-')
            return refuse(reading, "this is an option, not a package", item, err);
        else if (*item && add(reading, &reading->recipe->packages[manager], item, err) < 0)
            return -1;
    return 0;
}

/* Beneath the folder of the recipe, and a name that is no option of a command either. */
static bool is_path(const char *path)
{
    const char *at = path;

    if (*path == '/' || *path == '-' || strncmp(path, ".build", 6) == 0)
        return false;
    for (; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        if (*at == '\0' || *at == '/' || (at[0] == '.' && (at[1] == '\0' || at[1] == '/')) ||
            (at[0] == '.' && at[1] == '.' && (at[2] == '\0' || at[2] == '/')))
            return false;
    return true;
}

static int add_files(const struct reading *reading, char *rest, struct error *err)
{
    char *item;

    while ((item = strsep(&rest, " \t"))) {
        size_t length = strlen(item);

        if (length > 1 && item[length - 1] == '/')
            item[length - 1] = '\0';
        if (*item && !is_path(item))
            return refuse(reading, "a file is named from the folder of the recipe, within it", item,
                          err);
        if (*item && add(reading, &reading->recipe->files, item, err) < 0)
            return -1;
    }
    return 0;
}

static int set_once(const struct reading *reading, const char **place, const char *value,
                    const char *pattern, struct error *err)
{
    if (*place)
        return refuse(reading, "it is there twice", NULL, err);
    if (strlen(value) > 64 || !field_matches(pattern, value))
        return refuse(reading, "this cannot be", value, err);
    *place = value;
    return 0;
}

static int take_line(const struct reading *reading, char *line, struct error *err)
{
    char *rest = line + strcspn(line, " \t");

    if (*rest)
        *rest++ = '\0';
    rest += strspn(rest, " \t");
    if (!*rest)
        return refuse(reading, "nothing stands behind the word", line, err);
    if (strcmp(line, "from") == 0)
        return set_once(reading, &reading->recipe->base, rest, IMAGE_NAME_PATTERN, err);
    if (strcmp(line, "network") == 0)
        return set_once(reading, &reading->recipe->network, rest, "none|egress", err);
    if (strcmp(line, "run") == 0)
        return add(reading, &reading->recipe->commands, rest, err);
    if (strcmp(line, "copy") == 0)
        return add_files(reading, rest, err);
    for (enum package_manager manager = 0; manager < PACKAGE_MANAGERS; manager++)
        if (strcmp(line, managers[manager].name) == 0)
            return add_packages(reading, manager, rest, err);
    return refuse(reading, "no such word", line, err);
}

static bool is_text(const char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\n' && *text != '\t') || *text == 0x7f)
            return false;
    return true;
}

/* One that ends with a backslash goes on with the next, which a shell sees as one as well. */
static char *next_line(char **rest, int *lines)
{
    char *line = *rest, *end = line;

    if (!line)
        return NULL;
    *lines = 1;
    while ((end = strchr(end, '\n')) && end > line && end[-1] == '\\') {
        end[-1] = end[0] = ' ';
        ++*lines;
    }
    if (end)
        *end++ = '\0';
    *rest = end;
    return line;
}

int recipe_parse(const char *text, struct arena *arena, struct recipe *recipe, struct error *err)
{
    struct reading reading = {.arena = arena, .recipe = recipe, .line = 1};
    char *rest = arena_copy(arena, text, strlen(text)), *line;
    int lines = 0;

    *recipe = (struct recipe){0};
    if (!is_text(text))
        return error_set(err, ERR_INVALID, "the recipe is no text");
    for (; (line = next_line(&rest, &lines)); reading.line += lines) {
        size_t length;

        line += strspn(line, " \t");
        length = strlen(line);
        while (length && strchr(" \t", line[length - 1]))
            line[--length] = '\0';
        if (*line && *line != '#' && take_line(&reading, line, err) < 0)
            return -1;
    }
    return recipe->base ? 0
                        : error_set(err, ERR_INVALID,
                                    "the recipe does not say on which image it builds: from NAME");
}

const char *recipe_network(const struct recipe *recipe)
{
    if (recipe->network)
        return recipe->network;
    for (enum package_manager manager = 0; manager < PACKAGE_MANAGERS; manager++)
        if (recipe->packages[manager].count)
            return "egress";
    return "none";
}

/* --- steps ----------------------------------------------------------------------------------- */

struct steps {
    struct arena *arena;
    struct recipe_step *items;
    size_t count;
};

static struct recipe_step *new_step(struct steps *steps, size_t arguments)
{
    struct recipe_step *step = &steps->items[steps->count++];

    *step = (struct recipe_step){0};
    step->argv.items = arena_alloc(steps->arena, (arguments + 1) * sizeof(*step->argv.items));
    return step;
}

static void set_title(struct steps *steps, struct recipe_step *step)
{
    auto_buffer struct buffer title = {0};

    for (size_t i = 0; i < step->argv.count; i++)
        buffer_format(&title, "%s%s", i ? " " : "", step->argv.items[i]);
    step->title = arena_copy(steps->arena, title.data, title.length);
}

/* The fixed words, then `count` packages. */
static void add_step(struct steps *steps, const char *tool, const char *const *fixed,
                     const char *const *packages, size_t count)
{
    struct recipe_step *step = new_step(steps, FIXED_MAX + count);

    step->tool = tool;
    for (size_t i = 0; i < FIXED_MAX && fixed[i]; i++)
        step->argv.items[step->argv.count++] = fixed[i];
    for (size_t i = 0; i < count; i++)
        step->argv.items[step->argv.count++] = packages[i];
    set_title(steps, step);
}

static void add_each(struct steps *steps, enum package_manager manager,
                     const struct texts *packages)
{
    for (size_t i = 0; i < packages->count; i++) {
        const char *item = packages->items[i];

        if (managers[manager].latest && !strchr(item, '@'))
            item = arena_text(steps->arena, "%s%s", item, managers[manager].latest);
        add_step(steps, managers[manager].tool, managers[manager].install, &item, 1);
    }
}

static void add_manager(struct steps *steps, enum package_manager manager,
                        const struct texts *packages)
{
    if (!packages->count)
        return;
    if (managers[manager].before[0])
        add_step(steps, managers[manager].tool, managers[manager].before, NULL, 0);
    if (managers[manager].each)
        add_each(steps, manager, packages);
    else
        add_step(steps, managers[manager].tool, managers[manager].install, packages->items,
                 packages->count);
    if (managers[manager].after[0])
        add_step(steps, NULL, managers[manager].after, NULL, 0);
}

size_t recipe_steps(const struct recipe *recipe, struct arena *arena, struct recipe_step **out)
{
    struct steps steps = {.arena = arena};
    size_t room = recipe->commands.count;

    for (enum package_manager manager = 0; manager < PACKAGE_MANAGERS; manager++)
        room += recipe->packages[manager].count + 2;
    steps.items = arena_alloc(arena, room * sizeof(*steps.items));
    for (enum package_manager manager = 0; manager < PACKAGE_MANAGERS; manager++)
        add_manager(&steps, manager, &recipe->packages[manager]);
    for (size_t i = 0; i < recipe->commands.count; i++) {
        static const char *const shell[FIXED_MAX] = {"/bin/sh", "-c"};

        add_step(&steps, NULL, shell, &recipe->commands.items[i], 1);
        steps.items[steps.count - 1].title = recipe->commands.items[i];
    }
    *out = steps.items;
    return steps.count;
}

/* --- its name -------------------------------------------------------------------------------- */

/* Each text with its length, so that no two recipes look alike. */
static void add_text(struct buffer *all, const char *text)
{
    buffer_format(all, "%zu %s\n", strlen(text), text);
}

static void add_texts(struct buffer *all, const struct texts *texts)
{
    buffer_format(all, "%zu\n", texts->count);
    for (size_t i = 0; i < texts->count; i++)
        add_text(all, texts->items[i]);
}

void recipe_name(const struct recipe *recipe, const char *base_digest, const char *files,
                 char out[RECIPE_NAME_SIZE])
{
    auto_buffer struct buffer all = {0};
    char digest[SHA256_HEX_SIZE];

    buffer_text(&all, "recipe 1\n");
    add_text(&all, base_digest);
    add_text(&all, recipe_network(recipe));
    for (enum package_manager manager = 0; manager < PACKAGE_MANAGERS; manager++)
        add_texts(&all, &recipe->packages[manager]);
    add_texts(&all, &recipe->files);
    add_text(&all, files);
    add_texts(&all, &recipe->commands);
    token_sha256(all.data, all.length, digest);
    snprintf(out, RECIPE_NAME_SIZE, "built-%.40s", digest);
}
