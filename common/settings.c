/* Environment → struct, by a table: see settings.h. */
#include "common/settings.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/scope.h"

enum { FILE_MAX = 1024 * 1024 };

/* The texts live as long as the process. */
static struct arena kept;

/* NAME=value lines of a file, as they came. */
struct pair {
    const char *name;
    const char *value;
    mode_t mode;             /* of the file that it stands in */
    const struct pair *next; /* the one before it in the file: the last of a name wins */
};

/* --- files ----------------------------------------------------------------------------- */

/* Who may read it besides its owner: permission bits. Where a list gives rights to users by name,
 * as systemd does for a service's user (acl(5)), the mode's bits for the group are a mask, and the
 * list says what its group may. */
static mode_t readers(int fd)
{
    struct {
        uint32_t version;
        struct {
            uint16_t tag, rights;
            uint32_t id;
        } entries[64];
    } list;
    enum { OWNING_GROUP = 0x04, NAMED_GROUP = 0x08 };
    struct stat status;
    mode_t others;
    ssize_t size;

    if (fstat(fd, &status) < 0)
        return 0;
    others = status.st_mode & 077;
    size = fgetxattr(fd, "system.posix_acl_access", &list, sizeof(list));
    if (size < (ssize_t)sizeof(list.version))
        return others;
    others &= 07;
    for (size_t i = 0; i < ((size_t)size - sizeof(list.version)) / sizeof(list.entries[0]); i++)
        if (list.entries[i].tag == OWNING_GROUP || list.entries[i].tag == NAMED_GROUP)
            others |= (mode_t)(list.entries[i].rights & 07) << 3;
    return others;
}

/* The whole of a small file in the arena, and who else may read it. Returns 1, or 0 when there is
 * none. */
static int read_file(const char *path, char **text, mode_t *others, struct error *err)
{
    auto_buffer struct buffer content = {0};
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return error_set_errno(err, ERR_INVALID, "%s", path);
    do {
        got = read(fd, buffer_reserve(&content, 4096), 4096);
        if (got < 0)
            return error_set_errno(err, ERR_INVALID, "%s", path);
        content.length += (size_t)got;
        if (content.length > FILE_MAX)
            return error_set(err, ERR_INVALID, "%s: too large", path);
    } while (got > 0);
    if (memchr(content.data, '\0', content.length))
        return error_set(err, ERR_INVALID, "%s: holds a NUL", path);
    *text = arena_copy(&kept, content.data, content.length);
    *others = readers(fd);
    return 1;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static char *skip_blanks(char *at)
{
    while (is_blank(*at))
        at++;
    return at;
}

static void trim_end(char *text)
{
    size_t length = strlen(text);

    while (length && is_blank(text[length - 1]))
        text[--length] = '\0';
}

/* Take the quotes off, in place. NULL: nothing wrong. */
static const char *unquote(char *value)
{
    char quote = *value;
    char *out = value, *at = value + 1;

    for (; *at && *at != quote; at++) {
        if (quote == '"' && *at == '\\' && at[1]) {
            at++;
            *out++ = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at;
        } else {
            *out++ = *at;
        }
    }
    if (!*at)
        return "the quote is not closed";
    at = skip_blanks(at + 1);
    *out = '\0';
    return *at && *at != '#' ? "something follows the closing quote" : NULL;
}

/* An unquoted value ends at a comment, which has a blank in front. */
static void cut_comment(char *value)
{
    for (char *at = value; *at; at++) {
        if (*at == '#' && (at == value || is_blank(at[-1]))) {
            *at = '\0';
            break;
        }
    }
    trim_end(value);
}

/* Parse one line in place. Returns what is wrong, or NULL; *name is NULL for a line that says
 * nothing. */
static const char *parse_line(char *line, const char **name, const char **value)
{
    char *at = skip_blanks(line), *start, *end;

    *name = NULL;
    if (!*at || *at == '#')
        return NULL;
    if (strncmp(at, "export", 6) == 0 && is_blank(at[6]))
        at = skip_blanks(at + 6);
    start = at;
    while (isalnum((unsigned char)*at) || *at == '_')
        at++;
    end = at;
    at = skip_blanks(at);
    if (end == start || *at != '=')
        return "expected NAME=value";
    *end = '\0';
    at = skip_blanks(at + 1);
    *name = start;
    *value = at;
    if (*at == '"' || *at == '\'')
        return unquote(at);
    cut_comment(at);
    return NULL;
}

static int parse_file(const char *path, const struct pair **pairs, struct error *err)
{
    char *text, *line;
    int number = 0;
    mode_t others;
    int there = read_file(path, &text, &others, err);

    if (there <= 0)
        return there;
    while ((line = strsep(&text, "\n"))) {
        struct pair pair = {.mode = others, .next = *pairs};
        const char *wrong = parse_line(line, &pair.name, &pair.value);

        number++;
        if (wrong)
            return error_set(err, ERR_INVALID, "%s: line %d: %s", path, number, wrong);
        if (pair.name)
            *pairs = memcpy(arena_alloc(&kept, sizeof(pair)), &pair, sizeof(pair));
    }
    return 0;
}

/* --- where a value comes from ---------------------------------------------------------- */

/* The exact name counts before other spellings of it. */
static const char *find_environment(const char *name)
{
    size_t length = strlen(name);
    const char *exact = getenv(name);

    if (exact)
        return exact;
    for (char **at = environ; at && *at; at++)
        if (strncasecmp(*at, name, length) == 0 && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

/* Whoever may look at the environment of a process (proc(5)), and every program that it starts,
 * would see it there as long as the process lives. */
static void forget_in_environment(const char *name)
{
    size_t length = strlen(name);

    for (char **at = environ; at && *at;) {
        if (strncasecmp(*at, name, length) == 0 && (*at)[length] == '=') {
            char *value = *at + length + 1, spelt[64];

            snprintf(spelt, sizeof(spelt), "%.*s", (int)length, *at);
            explicit_bzero(value, strlen(value));
            unsetenv(spelt);
        } else {
            at++;
        }
    }
}

static const struct pair *find_pair(const struct pair *pairs, const char *name)
{
    while (pairs && strcasecmp(pairs->name, name) != 0)
        pairs = pairs->next;
    return pairs;
}

/* A credential's file may end in a newline that is not part of it. */
static int find_credential(const char *name, const char **value, struct error *err)
{
    auto_buffer struct buffer path = {0};
    const char *directory = getenv("CREDENTIALS_DIRECTORY");
    size_t length;
    mode_t others;
    char *text;
    int there;

    if (!directory || !*directory)
        return 0;
    buffer_format(&path, "%s/%s", directory, name);
    for (char *at = path.data + strlen(directory); *at; at++)
        *at = (char)tolower((unsigned char)*at);
    there = read_file(path.data, &text, &others, err);
    if (there <= 0)
        return there;
    if (others)
        return error_set(err, ERR_INVALID, "%s: others than its owner may read %s; chmod 0600",
                         name, path.data);
    length = strlen(text);
    if (length && text[length - 1] == '\n')
        text[length - 1] = '\0';
    *value = text;
    return 1;
}

static int find_value(const struct setting *setting, const struct pair *pairs, const char **value,
                      struct error *err)
{
    const struct pair *pair;

    *value = NULL;
    if (setting->type == SETTING_SECRET && find_credential(setting->variable, value, err) < 0)
        return -1;
    if (!*value)
        *value = find_environment(setting->variable);
    pair = *value ? NULL : find_pair(pairs, setting->variable);
    if (pair && setting->type == SETTING_SECRET && pair->value[0] && pair->mode)
        return error_set(err, ERR_INVALID,
                         "%s: others than its owner may read the file .env, where it stands; "
                         "chmod 0600",
                         setting->variable);
    if (pair)
        *value = pair->value;
    if (!*value)
        *value = setting->fallback;
    return 0;
}

/* --- into the struct ------------------------------------------------------------------- */

static bool is_bounded(const struct setting *setting)
{
    return setting->min || setting->max;
}

static int refuse_number(const struct setting *setting, struct error *err)
{
    if (is_bounded(setting))
        return error_set(err, ERR_INVALID,
                         "%s: must be a whole number from %" PRId64 " to %" PRId64,
                         setting->variable, setting->min, setting->max);
    return error_set(err, ERR_INVALID, "%s: must be a whole number", setting->variable);
}

static int set_number(const struct setting *setting, const char *text, int64_t *into,
                      struct error *err)
{
    const char *digits = text + (*text == '-' || *text == '+');
    int64_t value;

    if (!*digits || strspn(digits, "0123456789") != strlen(digits))
        return refuse_number(setting, err);
    errno = 0;
    value = strtoll(text, NULL, 10);
    if (errno || (is_bounded(setting) && (value < setting->min || value > setting->max)))
        return refuse_number(setting, err);
    *into = value;
    return 0;
}

static int set_flag(const struct setting *setting, const char *text, bool *into, struct error *err)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {{"1", true},  {"true", true},   {"yes", true}, {"on", true},
                 {"0", false}, {"false", false}, {"no", false}, {"off", false}};

    for (size_t i = 0; i < COUNT(words); i++) {
        if (strcasecmp(text, words[i].word) == 0) {
            *into = words[i].value;
            return 0;
        }
    }
    return error_set(err, ERR_INVALID, "%s: must be true or false", setting->variable);
}

static int set(const struct setting *setting, const char *text, void *member, struct error *err)
{
    switch (setting->type) {
    case SETTING_NUMBER:
        return set_number(setting, text ? text : "0", member, err);
    case SETTING_FLAG:
        return set_flag(setting, text ? text : "0", member, err);
    default:
        /* struct secret has one member, a text. */
        text = arena_copy(&kept, text ? text : "", text ? strlen(text) : 0);
        memcpy(member, &text, sizeof(text));
        return 0;
    }
}

void settings_read(const struct setting *settings, size_t count, const char *file, void *into,
                   struct refusals *refusals)
{
    const struct pair *pairs = NULL;
    struct error error;

    if (file && parse_file(file, &pairs, &error) < 0)
        refusal_add(refusals, "%s", error.message);
    for (size_t i = 0; i < count; i++) {
        void *member = (char *)into + settings[i].offset;
        const char *text;

        if (find_value(&settings[i], pairs, &text, &error) == 0 &&
            set(&settings[i], text, member, &error) == 0) {
            if (settings[i].type == SETTING_SECRET)
                forget_in_environment(settings[i].variable);
            continue;
        }
        refusal_add(refusals, "%s", error.message);
        /* What depends on it is looked at as well. */
        set(&settings[i], settings[i].fallback, member, &error);
    }
}

int settings_load(const struct setting *settings, size_t count, const char *file, void *into,
                  struct error *err)
{
    struct refusals refusals = {0};

    settings_read(settings, count, file, into, &refusals);
    return refusals_result(&refusals, err);
}

/* --- for people ------------------------------------------------------------------------ */

static void describe(const struct setting *setting, struct buffer *out)
{
    static const char *const types[] = {[SETTING_TEXT] = "text",
                                        [SETTING_SECRET] = "secret",
                                        [SETTING_NUMBER] = "number",
                                        [SETTING_FLAG] = "flag"};

    buffer_text(out, types[setting->type]);
    if (setting->type == SETTING_NUMBER && is_bounded(setting))
        buffer_format(out, ", %" PRId64 " to %" PRId64, setting->min, setting->max);
    if (setting->fallback && *setting->fallback)
        buffer_format(out, ", default %s", setting->fallback);
}

void settings_help(const struct setting *settings, size_t count, FILE *out)
{
    for (size_t i = 0; i < count; i++) {
        auto_buffer struct buffer kind = {0};

        describe(&settings[i], &kind);
        fprintf(out, "  %s (%s)\n      %s\n", settings[i].variable, kind.data, settings[i].about);
    }
}

/* roff(7): a backslash starts an escape, a dot or apostrophe at the start of a line a request. */
static void print_roff(const char *text, FILE *out)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
    }
}

void settings_manual(const struct setting *settings, size_t count, FILE *out)
{
    for (size_t i = 0; i < count; i++) {
        auto_buffer struct buffer kind = {0};

        describe(&settings[i], &kind);
        fprintf(out, ".It Ev %s\n(", settings[i].variable);
        print_roff(kind.data, out);
        fputs(")\n", out);
        print_roff(settings[i].about, out);
        fputc('\n', out);
    }
}
