/* What sandboxctl does with the supervisor's sandboxes and snapshots: see operate.h. */
#include "operate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/arena.h"
#include "common/json.h"
#include "common/scope.h"
#include "common/token.h"

enum { TIME_SIZE = 32, SECOND_NS = 1000000000 };

static const char *state_name(int64_t state)
{
    switch (state) {
    case SANDBOX_CREATED:
        return "created";
    case SANDBOX_RUNNING:
        return "running";
    case SANDBOX_STOPPED:
        return "stopped";
    default:
        return "unknown";
    }
}

int operate_list(struct sandbox_link *link, bool running_only, FILE *out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_entry *entries;
    size_t count;

    if (sandbox_list(link, &arena, &entries, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (!running_only || entries[i].state == SANDBOX_RUNNING)
            fprintf(out, "%s  %s\n", entries[i].sandbox, state_name(entries[i].state));
    return 0;
}

/* The supervisor asks for lower case. */
static int check_id(const char *id, const char *what, struct error *err)
{
    if (token_is_uuid(id) && !strpbrk(id, "ABCDEF"))
        return 0;
    return error_set(err, ERR_INVALID, "the id of a %s is a UUID in lower case", what);
}

int operate_stop(struct sandbox_link *link, const char *sandbox, struct error *err)
{
    return check_id(sandbox, "sandbox", err) < 0 ? -1 : sandbox_stop(link, sandbox, err);
}

int operate_destroy(struct sandbox_link *link, const char *sandbox, struct error *err)
{
    return check_id(sandbox, "sandbox", err) < 0 ? -1 : sandbox_destroy(link, sandbox, err);
}

/* A limit of 0 is none, and what is below 0 nobody counts. */
static void print_use(FILE *out, const char *what, int64_t used, int64_t limit)
{
    fprintf(out, "%-8s", what);
    if (used < 0)
        fputs(" not counted", out);
    else
        fprintf(out, " %lld", (long long)used);
    if (limit > 0)
        fprintf(out, " of %lld", (long long)limit);
    fputc('\n', out);
}

int operate_usage(struct sandbox_link *link, const char *sandbox, bool json, FILE *out,
                  struct error *err)
{
    auto_buffer struct buffer text = {0};
    struct sandbox_usage usage;

    if (check_id(sandbox, "sandbox", err) < 0 || sandbox_usage(link, sandbox, &usage, err) < 0)
        return -1;
    if (json) {
        json_encode(&text, &schema_sandbox_usage, &usage);
        fprintf(out, "%s\n", text.data);
        return 0;
    }
    print_use(out, "bytes", usage.disk_bytes, usage.disk_bytes_limit);
    print_use(out, "files", usage.disk_inodes, usage.disk_inodes_limit);
    print_use(out, "memory", usage.memory_bytes, usage.memory_limit_bytes);
    print_use(out, "at most", usage.memory_peak_bytes, 0);
    print_use(out, "pids", usage.pids, usage.pids_limit);
    print_use(out, "cpu us", usage.cpu_us, 0);
    print_use(out, "oom", usage.oom_kills, 0);
    return 0;
}

/* --- snapshots -------------------------------------------------------------------------------- */

int operate_snapshot_make(struct sandbox_link *link, const char *sandbox, FILE *out,
                          struct error *err)
{
    char id[UUID_SIZE];

    if (check_id(sandbox, "sandbox", err) < 0)
        return -1;
    token_uuid(id);
    if (sandbox_snapshot_make(link, sandbox, id, NULL, NULL, err) < 0)
        return -1;
    fprintf(out, "%s\n", id);
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct snapshot_entry *left = a, *right = b;

    return (left->created_ns < right->created_ns) - (left->created_ns > right->created_ns);
}

static const char *time_text(int64_t created_ns, char text[TIME_SIZE])
{
    time_t seconds = (time_t)(created_ns / SECOND_NS);
    struct tm parts;

    if (!gmtime_r(&seconds, &parts) || !strftime(text, TIME_SIZE, "%Y-%m-%dT%H:%M:%SZ", &parts))
        snprintf(text, TIME_SIZE, "-");
    return text;
}

static void print_line(const struct snapshot_entry *entry, FILE *out)
{
    char when[TIME_SIZE];

    if (entry->damaged)
        fprintf(out, "%s  DAMAGED\n", entry->snapshot);
    else
        fprintf(out, "%s  %s  %s  %12lld  %8lld\n", entry->snapshot, entry->sandbox,
                time_text(entry->created_ns, when), (long long)entry->size_bytes,
                (long long)entry->entries);
}

int operate_snapshot_list(struct sandbox_link *link, const char *sandbox, bool json, FILE *out,
                          struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer text = {0};
    struct snapshot_entry *entries;
    size_t count;

    if (sandbox && check_id(sandbox, "sandbox", err) < 0)
        return -1;
    if (sandbox_snapshot_list(link, sandbox, &arena, &entries, &count, err) < 0)
        return -1;
    if (count)
        qsort(entries, count, sizeof(*entries), newest_first);
    buffer_char(&text, '[');
    if (!json)
        fprintf(out, "%-36s  %-36s  %-20s  %12s  %8s\n", "ID", "SANDBOX", "MADE", "BYTES", "FILES");
    for (size_t i = 0; i < count; i++) {
        if (i)
            buffer_char(&text, ',');
        json_encode(&text, &schema_snapshot_entry, &entries[i]);
        if (!json)
            print_line(&entries[i], out);
    }
    if (json)
        fprintf(out, "%s]\n", text.data);
    return 0;
}

int operate_snapshot_remove(struct sandbox_link *link, const char *snapshot, struct error *err)
{
    return check_id(snapshot, "snapshot", err) < 0 ? -1
                                                   : sandbox_snapshot_remove(link, snapshot, err);
}

static int replace(struct sandbox_link *link, const struct create *create, struct error *err)
{
    struct create trial = *create;
    struct error ignored;
    char id[UUID_SIZE];
    int done;

    token_uuid(id);
    trial.sandbox = id;
    if (sandbox_create_sized(link, &trial, err) < 0)
        return -1;
    done = sandbox_destroy(link, create->sandbox, err);
    if (done == 0)
        done = sandbox_create_sized(link, create, err);
    sandbox_destroy(link, id, &ignored);
    return done;
}

int operate_snapshot_restore(struct sandbox_link *link, const char *snapshot, const char *sandbox,
                             bool force, struct error *err)
{
    const struct create create = {.sandbox = sandbox, .snapshot = snapshot};
    struct sandbox_status status;
    auto_arena struct arena arena = {0};

    if (check_id(snapshot, "snapshot", err) < 0 || check_id(sandbox, "sandbox", err) < 0)
        return -1;
    if (sandbox_status(link, sandbox, &arena, &status, err) < 0)
        return -1;
    if (status.state == SANDBOX_ABSENT)
        return sandbox_create_sized(link, &create, err);
    if (!force)
        return error_set(err, ERR_CONFLICT, "the sandbox exists; --force replaces its files");
    return replace(link, &create, err);
}
