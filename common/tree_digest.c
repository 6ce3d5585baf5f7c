/* What is beneath a folder, as one digest: see tree_digest.h. */
#include "common/tree_digest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/scope.h"
#include "common/tree.h"

enum { READ_BLOCK = 64 * 1024 };

#define OPAQUE "trusted.overlay.opaque"

/* --- extended attributes --------------------------------------------------------------------- */

/* With a dot at its end: all that begin so. */
static const char *const kept[] = {
    "user.", "security.capability",      "system.posix_acl_access", "system.posix_acl_default",
    OPAQUE,  "trusted.overlay.redirect",
};

bool tree_keeps_attribute(const char *name)
{
    for (size_t i = 0; i < COUNT(kept); i++) {
        size_t length = strlen(kept[i]);

        if (kept[i][length - 1] == '.' ? strncmp(name, kept[i], length) == 0
                                       : strcmp(name, kept[i]) == 0)
            return true;
    }
    return false;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int take_attribute(int fd, const char *name,
                          int (*call)(int, const char *, const void *, size_t, void *,
                                      struct error *),
                          void *context, struct error *err)
{
    static char value[XATTR_SIZE_MAX];
    ssize_t length = fgetxattr(fd, name, value, sizeof(value));

    if (length < 0)
        return errno == ENODATA ? 0 : error_set_errno(err, ERR_INTERNAL, "read %s", name);
    return call(fd, name, value, (size_t)length, context, err);
}

int tree_each_attribute(int fd,
                        int (*call)(int fd, const char *name, const void *value, size_t length,
                                    void *context, struct error *err),
                        void *context, struct error *err)
{
    static char names[XATTR_LIST_MAX];
    ssize_t length = flistxattr(fd, names, sizeof(names));
    char **sorted;
    size_t count = 0;
    int result = 0;

    if (length < 0)
        return errno == ENOTSUP ? 0 : error_set_errno(err, ERR_INTERNAL, "list attributes");
    if (length == 0)
        return 0;
    sorted = malloc((size_t)length * sizeof(*sorted));
    if (!sorted)
        abort();
    for (char *name = names; name < names + length; name += strlen(name) + 1)
        if (tree_keeps_attribute(name))
            sorted[count++] = name;
    qsort(sorted, count, sizeof(*sorted), compare);
    for (size_t i = 0; i < count && result == 0; i++)
        result = take_attribute(fd, sorted[i], call, context, err);
    free(sorted);
    return result;
}

/* --- the digest ------------------------------------------------------------------------------ */

struct measure {
    const struct tree_hash *hash;
    struct tree_content *content;
};

static void add(const struct measure *measure, const void *bytes, size_t length)
{
    measure->hash->add(measure->hash->state, bytes, length);
}

static int add_attribute(int fd, const char *name, const void *value, size_t length, void *context,
                         struct error *err)
{
    const struct measure *measure = context;
    char text[XATTR_NAME_MAX + 32];
    int used;

    (void)fd, (void)err;
    /* The first one that layers had. */
    if (strcmp(name, OPAQUE) == 0) {
        add(measure, value, length ? 1 : 0);
        return 0;
    }
    used = snprintf(text, sizeof(text), "%s %zu ", name, length);
    add(measure, text, (size_t)used + 1);
    add(measure, value, length);
    return 0;
}

static int add_content(const struct measure *measure, int fd, struct error *err)
{
    char block[READ_BLOCK];
    ssize_t got;

    while ((got = read(fd, block, sizeof(block))) > 0)
        add(measure, block, (size_t)got);
    return got < 0 ? error_set_errno(err, ERR_INTERNAL, "read a file") : 0;
}

static int add_entry(int directory, const char *path, const char *name, const struct stat *status,
                     void *context, struct error *err)
{
    const struct measure *measure = context;
    char text[PATH_MAX + 128];
    bool sized = S_ISREG(status->st_mode);
    int length = snprintf(text, sizeof(text), "%o %u %u %llx %lld %zu ", status->st_mode,
                          status->st_uid, status->st_gid, (unsigned long long)status->st_rdev,
                          sized ? (long long)status->st_size : 0LL, strlen(path));

    add(measure, text, (size_t)length);
    add(measure, path, strlen(path) + 1);
    measure->content->entries++;
    if (S_ISLNK(status->st_mode)) {
        ssize_t target = readlinkat(directory, name, text, sizeof(text));

        if (target < 0)
            return error_set_errno(err, ERR_INTERNAL, "read a link");
        add(measure, text, (size_t)target);
        return 0;
    }
    if (!sized && !S_ISDIR(status->st_mode))
        return 0;
    auto_close int fd =
        openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "open a file");
    measure->content->bytes += sized ? status->st_size : 0;
    if (sized && add_content(measure, fd, err) < 0)
        return -1;
    return tree_each_attribute(fd, add_attribute, context, err);
}

int tree_digest(int folder, const struct tree_hash *hash, struct tree_content *content,
                struct error *err)
{
    struct measure measure = {hash, content};

    *content = (struct tree_content){0};
    return tree_each(folder, add_entry, &measure, err);
}
