/* Manifest entries → files and folders of a workspace. */
#include "run/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/scope.h"

enum { FILE_MODE = 0644 };

struct entry {
    const char *path;
    const char *json;
};

struct entries {
    struct arena *arena;
    struct entry *items;
    size_t count;
};

static int write_all(int fd, const char *text, size_t length, struct error *err)
{
    while (length) {
        ssize_t done = write(fd, text, length);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return error_set_errno(err, ERR_INTERNAL, "write");
        text += done;
        length -= (size_t)done;
    }
    return 0;
}

static int stage_file(struct sandbox_link *link, const char *session_id, const struct entry *entry,
                      struct arena *arena, struct error *err)
{
    auto_close int fd = -1;
    const char *content = json_member_text(arena, entry->json, "content");

    if (!content)
        content = "";
    if (sandbox_file_create(link, session_id, entry->path, FILE_MODE, &fd, err) < 0 ||
        write_all(fd, content, strlen(content), err) < 0)
        return -1;
    return sandbox_file_commit(link, session_id, err);
}

static int stage_dir(struct sandbox_link *link, const char *session_id, const struct entry *entry,
                     struct arena *arena, struct error *err)
{
    (void)arena;
    return sandbox_directory_make(link, session_id, entry->path, err);
}

static int stage_git_repo(struct sandbox_link *link, const char *session_id,
                          const struct entry *entry, struct arena *arena, struct error *err)
{
    const char *host = json_member_text(arena, entry->json, "host");
    const char *repo = json_member_text(arena, entry->json, "repo");

    (void)link, (void)session_id;
    return error_set(err, ERR_FORBIDDEN,
                     "cloning %s/%s: this server's sandboxes have no network to clone over",
                     host ? host : "github.com", repo ? repo : "");
}

static int stage_local_dir(struct sandbox_link *link, const char *session_id,
                           const struct entry *entry, struct arena *arena, struct error *err)
{
    (void)link, (void)session_id, (void)entry, (void)arena;
    return error_set(err, ERR_FORBIDDEN, "this server gives no directory of its host away");
}

static int stage_s3_mount(struct sandbox_link *link, const char *session_id,
                          const struct entry *entry, struct arena *arena, struct error *err)
{
    (void)link, (void)session_id, (void)entry, (void)arena;
    return error_set(err, ERR_FORBIDDEN, "this server mounts no buckets");
}

static const struct kind {
    const char *name;
    int (*stage)(struct sandbox_link *link, const char *session_id, const struct entry *entry,
                 struct arena *arena, struct error *err);
} kinds[] = {
    {"file", stage_file},           {"dir", stage_dir},           {"git_repo", stage_git_repo},
    {"local_dir", stage_local_dir}, {"s3_mount", stage_s3_mount},
};

static int stage(struct sandbox_link *link, const char *session_id, const struct entry *entry,
                 struct error *err)
{
    auto_arena struct arena arena = {0};
    const char *name = json_member_text(&arena, entry->json, "kind");

    for (size_t i = 0; name && i < COUNT(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].stage(link, session_id, entry, &arena, err) < 0
                       ? error_add_context(err, "manifest entry '%s'", entry->path)
                       : 0;
    return error_set(err, ERR_INTERNAL, "manifest entry '%s' has a kind that is not known",
                     entry->path);
}

static int count_entry(const char *key, const char *value, void *context)
{
    (void)key, (void)value;
    ((struct entries *)context)->count++;
    return 0;
}

static int add_entry(const char *key, const char *value, void *context)
{
    struct entries *entries = context;

    entries->items[entries->count++] =
        (struct entry){arena_copy(entries->arena, key, strlen(key)),
                       arena_copy(entries->arena, value, strlen(value))};
    return 0;
}

/* A folder comes before what is in it. */
static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

int manifest_write(struct sandbox_link *link, const char *session_id, const char *entries,
                   bool (*go_on)(void *context), void *context, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct entries list = {.arena = &arena};

    json_each(&arena, entries, count_entry, &list);
    list.items = arena_alloc(&arena, (list.count + 1) * sizeof(*list.items));
    list.count = 0;
    json_each(&arena, entries, add_entry, &list);
    if (list.count)
        qsort(list.items, list.count, sizeof(*list.items), by_path);
    for (size_t i = 0; i < list.count; i++) {
        if (!go_on(context))
            return 1;
        if (stage(link, session_id, &list.items[i], err) < 0)
            return -1;
    }
    return 0;
}
