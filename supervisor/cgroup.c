/* What a sandbox may use of memory, processors and processes, and the way to kill all of it at
 * once: see cgroup.h. */
#include "supervisor/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/cgroup_limits.h"
#include "supervisor/supervisor.h"

enum {
    MEMORY = CONTROLLER_MEMORY,
    PIDS = CONTROLLER_PIDS,
    CPU = CONTROLLER_CPU,
    HUGETLB = CONTROLLER_HUGETLB,
    NEEDED = MEMORY | PIDS | CPU,
    FREEZE_MS = 5000,
};

static const struct {
    unsigned bit;
    const char *name;
} controllers[] = {{MEMORY, "memory"}, {PIDS, "pids"}, {CPU, "cpu"}, {HUGETLB, "hugetlb"}};

struct hierarchy {
    bool unified;
    unsigned holds; /* controllers used here */
    char path[PATH_MAX - 128];
};

static struct hierarchy hierarchies[CGROUP_HIERARCHIES];
static size_t hierarchy_count;

/* --- files ----------------------------------------------------------------------------------- */

static int file_write(const char *path, const char *text)
{
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t length = strlen(text);

    return fd >= 0 && write(fd, text, length) == (ssize_t)length ? 0 : -1;
}

static bool file_read(const char *path, char *text, size_t size)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);

    text[length < 0 ? 0 : length] = '\0';
    return length >= 0;
}

/* Whether a list of words, each behind a comma or a space, has `word`. */
static bool list_has(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += length) {
        bool starts = at == list || at[-1] == ',' || at[-1] == ' ';

        if (starts && (at[length] == '\0' || strchr(", \n", at[length])))
            return true;
    }
    return false;
}

/* --- finding the hierarchies
 * ------------------------------------------------------------------------------------------- */

/* Our own path in the hierarchy of `controller` (NULL: v2), as /proc/self/cgroup has it; "" when
 * there is none. */
static void own_path(const char *controller, char *path, size_t size)
{
    auto_fclose FILE *file = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX + 128];

    path[0] = '\0';
    while (file && fgets(line, sizeof(line), file)) {
        char *list = strchr(line, ':'), *own = list ? strchr(list + 1, ':') : NULL;

        if (!own)
            continue;
        *own++ = '\0';
        own[strcspn(own, "\n")] = '\0';
        if (controller ? list_has(list + 1, controller) : list[1] == '\0')
            snprintf(path, size, "%s", own);
    }
}

/* Where `controller` (NULL: v2) is mounted. */
static bool mount_point(const char *controller, char *path, size_t size)
{
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    struct mntent *entry;
    bool found = false;

    while (mounts && !found && (entry = getmntent(mounts))) {
        if (strcmp(entry->mnt_type, controller ? "cgroup" : "cgroup2") != 0)
            continue;
        found = !controller || list_has(entry->mnt_opts, controller);
        if (found)
            snprintf(path, size, "%s", entry->mnt_dir);
    }
    if (mounts)
        endmntent(mounts);
    return found;
}

/* The folder of our own cgroup, or of the one that we were told, under which ours go. A supervisor
 * that moved itself aside has its siblings beside it. */
static bool own_folder(const char *controller, char *path, size_t size)
{
    char mount[PATH_MAX / 2], own[PATH_MAX / 2];
    size_t length;

    if (!mount_point(controller, mount, sizeof(mount)))
        return false;
    if (settings.cgroup_parent[0]) {
        snprintf(path, size, "%s%s", mount, settings.cgroup_parent);
        return access(path, W_OK) == 0;
    }
    own_path(controller, own, sizeof(own));
    length = strlen(own);
    if (length > strlen("/supervisor") &&
        strcmp(own + length - strlen("/supervisor"), "/supervisor") == 0)
        own[length - strlen("/supervisor")] = '\0';
    snprintf(path, size, "%s%s", mount, strcmp(own, "/") == 0 ? "" : own);
    if (access(path, W_OK) < 0)
        snprintf(path, size, "%s", mount); /* a container that sees only its own part of the tree */
    return true;
}

static struct hierarchy *hierarchy_at(const char *path, bool unified)
{
    for (size_t i = 0; i < hierarchy_count; i++)
        if (strcmp(hierarchies[i].path, path) == 0)
            return &hierarchies[i];
    if (hierarchy_count == CGROUP_HIERARCHIES || strlen(path) >= sizeof(hierarchies[0].path))
        return NULL;
    hierarchies[hierarchy_count] = (struct hierarchy){.unified = unified};
    snprintf(hierarchies[hierarchy_count].path, sizeof(hierarchies[0].path), "%s", path);
    return &hierarchies[hierarchy_count++];
}

/* v2 lets only a cgroup without processes hand controllers down, but for the root: so those in
 * `folder` move to a leaf, once. */
static void move_aside(const char *folder)
{
    char path[PATH_MAX], line[64];

    snprintf(path, sizeof(path), "%s/supervisor", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
    auto_fclose FILE *processes = fopen(path, "re");
    snprintf(path, sizeof(path), "%s/supervisor/cgroup.procs", folder);
    while (processes && fgets(line, sizeof(line), processes)) {
        line[strcspn(line, "\n")] = '\0';
        file_write(path, line);
    }
}

static int hand_down(const char *folder, unsigned wanted, struct error *err)
{
    char path[PATH_MAX], text[64] = "";

    for (size_t i = 0; i < COUNT(controllers); i++)
        if (wanted & controllers[i].bit)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "+%s ", controllers[i].name);
    snprintf(path, sizeof(path), "%s/cgroup.subtree_control", folder);
    if (!text[0] || file_write(path, text) == 0)
        return 0;
    if (errno == EBUSY) {
        move_aside(folder);
        if (file_write(path, text) == 0)
            return 0;
    }
    return error_set_errno(err, ERR_INTERNAL,
                           "write %s to %s (the supervisor needs a cgroup of its own)", text, path);
}

/* One that is not needed moves nobody aside. */
static bool offer(const char *folder, const char *controller)
{
    char path[PATH_MAX], text[64];

    snprintf(path, sizeof(path), "%s/cgroup.subtree_control", folder);
    snprintf(text, sizeof(text), "+%s", controller);
    return file_write(path, text) == 0;
}

static int probe_unified(const char *name, unsigned missing, struct error *err)
{
    char folder[PATH_MAX - 256], path[PATH_MAX], available[512];
    struct hierarchy *unified;
    unsigned holds = 0;

    if (!own_folder(NULL, folder, sizeof(folder)))
        return 0;
    snprintf(path, sizeof(path), "%s/cgroup.controllers", folder);
    file_read(path, available, sizeof(available));
    for (size_t i = 0; i < COUNT(controllers); i++)
        if ((missing & NEEDED & controllers[i].bit) && list_has(available, controllers[i].name))
            holds |= controllers[i].bit;
    bool huge_pages = (missing & HUGETLB) && list_has(available, "hugetlb");
    if (hand_down(folder, holds, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "mkdir %s", path);
    /* One limit for all: it need not go further down. */
    huge_pages = huge_pages && offer(folder, "hugetlb");
    if (huge_pages && cgroup_limits_forbid_huge_pages(path, true, err) < 0)
        return -1;
    unified = hierarchy_at(path, true);
    if (unified)
        unified->holds = holds | (huge_pages ? HUGETLB : 0);
    return hand_down(path, holds, err);
}

static int probe(const char *state, struct error *err)
{
    char folder[PATH_MAX - 256], path[PATH_MAX], name[64];
    struct stat status;
    unsigned missing = NEEDED | HUGETLB;

    if (stat(state, &status) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", state);
    snprintf(name, sizeof(name), "agent-sandbox-%lx-%lx", (unsigned long)status.st_dev,
             (unsigned long)status.st_ino);
    for (size_t i = 0; i < COUNT(controllers); i++) {
        struct hierarchy *found;

        if (!own_folder(controllers[i].name, folder, sizeof(folder)))
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            continue; /* perhaps v2 has it */
        found = hierarchy_at(path, false);
        if (!found)
            continue;
        if (controllers[i].bit == HUGETLB && cgroup_limits_forbid_huge_pages(path, false, err) < 0)
            return -1;
        found->holds |= controllers[i].bit;
        missing &= ~controllers[i].bit;
    }
    return probe_unified(name, missing, err);
}

bool cgroup_can_use(const char *controller)
{
    char folder[PATH_MAX - 256], path[PATH_MAX], available[512];

    if (own_folder(controller, folder, sizeof(folder)) && access(folder, W_OK) == 0)
        return true;
    if (!own_folder(NULL, folder, sizeof(folder)) || access(folder, W_OK) < 0)
        return false;
    snprintf(path, sizeof(path), "%s/cgroup.controllers", folder);
    return file_read(path, available, sizeof(available)) && list_has(available, controller);
}

/* --- remembering them, so that a supervisor started elsewhere finds what an earlier one left
 * ------------------------------- */

static void memory_path(const char *state, const char *suffix, char *path, size_t size)
{
    snprintf(path, size, "%s/cgroups%s", state, suffix);
}

static bool recall(const char *state)
{
    char path[PATH_MAX], line[PATH_MAX + 32];

    memory_path(state, "", path, sizeof(path));
    auto_fclose FILE *file = fopen(path, "re");
    hierarchy_count = 0;
    while (file && fgets(line, sizeof(line), file)) {
        struct hierarchy *at;
        unsigned holds;
        int unified, used = 0;

        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%u %d %n", &holds, &unified, &used) != 2 || !used ||
            access(line + used, W_OK) < 0 || !(at = hierarchy_at(line + used, unified))) {
            hierarchy_count = 0;
            return false;
        }
        at->holds = holds;
    }
    return hierarchy_count > 0;
}

static int remember(const char *state, struct error *err)
{
    char path[PATH_MAX], next[PATH_MAX];
    bool failed;

    memory_path(state, "", path, sizeof(path));
    memory_path(state, ".new", next, sizeof(next));
    FILE *file = fopen(next, "we");
    if (!file)
        return error_set_errno(err, ERR_INTERNAL, "%s", next);
    for (size_t i = 0; i < hierarchy_count; i++)
        fprintf(file, "%u %d %s\n", hierarchies[i].holds, hierarchies[i].unified,
                hierarchies[i].path);
    failed = ferror(file);
    if (fclose(file) != 0 || failed || rename(next, path) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", path);
    return 0;
}

int cgroup_open(const char *state, bool required, struct error *err)
{
    unsigned held = 0;

    if (!recall(state) && (probe(state, err) < 0 || remember(state, err) < 0))
        return -1;
    for (size_t i = 0; i < hierarchy_count; i++)
        held |= hierarchies[i].holds;
    for (size_t i = 0; i < COUNT(controllers); i++)
        if (required && !(held & controllers[i].bit) && (controllers[i].bit & NEEDED))
            return error_set(
                err, ERR_INTERNAL,
                "no cgroup controller '%s'%s%s: CGROUPS_REQUIRED=0 would run without its limit",
                controllers[i].name, settings.cgroup_parent[0] ? " in CGROUP_PARENT " : "",
                settings.cgroup_parent);
    return 0;
}

void cgroup_close(const char *state)
{
    char path[PATH_MAX];
    bool empty =
        hierarchy_count > 0; /* else it was not opened, and another's file is not ours to remove */

    for (size_t i = 0; i < hierarchy_count; i++)
        if (rmdir(hierarchies[i].path) < 0 && errno != ENOENT)
            empty = false;
    memory_path(state, "", path, sizeof(path));
    if (empty)
        unlink(path);
    hierarchy_count = 0;
}

bool cgroup_memory_is_unified(void)
{
    for (size_t i = 0; i < hierarchy_count; i++)
        if (hierarchies[i].holds & MEMORY)
            return hierarchies[i].unified;
    return false;
}

const char *cgroup_describe(void)
{
    static char text[256];

    text[0] = '\0';
    for (size_t i = 0; i < hierarchy_count; i++)
        for (size_t k = 0; k < COUNT(controllers); k++)
            if (hierarchies[i].holds & controllers[k].bit)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s:%s ",
                         controllers[k].name, hierarchies[i].unified ? "v2" : "v1");
    for (size_t i = 0; i < hierarchy_count; i++)
        if (hierarchies[i].unified)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "kill:v2");
    return text;
}

/* --- one sandbox ----------------------------------------------------------------------------- */

static char spare[64];
static struct limits spare_limits;
static bool spare_is_whole;

void cgroup_remove_spare(void)
{
    if (spare[0])
        cgroup_remove(spare);
    spare[0] = '\0';
}

void cgroup_make_spare(const struct limits *limits)
{
    static unsigned serial;
    struct timespec now;
    struct error error;

    if (spare[0] && memcmp(&spare_limits, limits, sizeof(*limits)) == 0)
        return;
    cgroup_remove_spare();
    /* Unlike any of an earlier supervisor, of which one may be in use. */
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(spare, sizeof(spare), "box-%llx-%x", (unsigned long long)now.tv_sec, ++serial);
    spare_limits = *limits;
    /* What is missing is made, or fails, when it is used. */
    spare_is_whole = cgroup_make(spare, limits, &error) == 0;
}

bool cgroup_take_spare(char *name, size_t size, const struct limits *limits)
{
    /* Limits are not changed: memory's two of v1 go up and down in different orders. */
    if (!spare[0] || memcmp(&spare_limits, limits, sizeof(*limits)) != 0)
        return false;
    snprintf(name, size, "%s", spare);
    spare[0] = '\0';
    return spare_is_whole;
}

int cgroup_make(const char *sandbox, const struct limits *limits, struct error *err)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < hierarchy_count; i++) {
        snprintf(path, sizeof(path), "%s/%s", hierarchies[i].path, sandbox);
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return error_set_errno(err, ERR_INTERNAL, "mkdir %s", path);
        if (cgroup_limits_write(path, hierarchies[i].holds, hierarchies[i].unified, limits, err) <
            0)
            return -1;
    }
    return 0;
}

void cgroup_entry_close(struct cgroup_entry *entry)
{
    if (entry->unified >= 0)
        close(entry->unified);
    for (size_t i = 0; i < entry->count; i++)
        close(entry->tasks[i]);
    *entry = (struct cgroup_entry){.unified = -1};
}

int cgroup_enter(const char *sandbox, struct cgroup_entry *entry, struct error *err)
{
    char path[PATH_MAX];

    *entry = (struct cgroup_entry){.unified = -1};
    for (size_t i = 0; i < hierarchy_count; i++) {
        bool unified = hierarchies[i].unified;
        int fd;

        snprintf(path, sizeof(path), "%s/%s%s", hierarchies[i].path, sandbox,
                 unified ? "" : "/tasks");
        fd = open(path, unified ? O_RDONLY | O_DIRECTORY | O_CLOEXEC : O_WRONLY | O_CLOEXEC);
        if (fd < 0) {
            error_set_errno(err, ERR_INTERNAL, "%s", path);
            cgroup_entry_close(entry);
            return -1;
        }
        if (unified)
            entry->unified = fd;
        else
            entry->tasks[entry->count++] = fd;
    }
    return 0;
}

static void kill_listed(const char *path)
{
    auto_fclose FILE *processes = fopen(path, "re");
    char line[64];

    while (processes && fgets(line, sizeof(line), processes)) {
        long pid = strtol(line, NULL, 10);

        if (pid > 1)
            kill((pid_t)pid, SIGKILL);
    }
}

/* Limits that hold up an end: a process that is to die, but waits inside the kernel for memory or
 * its turn, would look for the one for minutes, and for the other as long as its quota is small. */
static const struct {
    bool unified;
    unsigned holds;
    const char *file, *lifted;
} holdups[] = {
    {false, MEMORY, "memory.memsw.limit_in_bytes", "-1"}, /* never below the next */
    {false, MEMORY, "memory.limit_in_bytes", "-1"},
    {false, CPU, "cpu.cfs_quota_us", "-1"},
    {true, MEMORY, "memory.max", "max"},
    {true, CPU, "cpu.max", "max"},
};

/* Safe: none of the processes returns to its program, and the limit of their number stays. */
static void limits_lift(const struct hierarchy *at, const char *sandbox)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < COUNT(holdups); i++) {
        if (holdups[i].unified != at->unified || !(holdups[i].holds & at->holds))
            continue;
        snprintf(path, sizeof(path), "%s/%s/%s", at->path, sandbox, holdups[i].file);
        file_write(path, holdups[i].lifted); /* what is missing holds up nothing */
    }
}

static bool kill_unified(const struct hierarchy *at, const char *sandbox)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s/cgroup.kill", at->path, sandbox);
    return at->unified && file_write(path, "1") == 0;
}

static void kill_in(const struct hierarchy *at, const char *sandbox)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s/cgroup.procs", at->path, sandbox);
    kill_listed(path);
}

/* Where there is a unified hierarchy every process of a sandbox began in it. */
void cgroup_signal(const char *sandbox)
{
    for (size_t i = 0; i < hierarchy_count; i++)
        if (kill_unified(&hierarchies[i], sandbox))
            return;
    for (size_t i = 0; i < hierarchy_count; i++)
        kill_in(&hierarchies[i], sandbox);
}

void cgroup_kill(const char *sandbox)
{
    for (size_t i = 0; i < hierarchy_count; i++)
        if (!kill_unified(&hierarchies[i], sandbox))
            kill_in(&hierarchies[i], sandbox);
    for (size_t i = 0; i < hierarchy_count; i++)
        limits_lift(&hierarchies[i], sandbox);
}

/* The kernel says so, by a line of cgroup.events. */
static bool is_frozen(const char *folder)
{
    char path[PATH_MAX], text[256];

    snprintf(path, sizeof(path), "%s/cgroup.events", folder);
    return file_read(path, text, sizeof(text)) && strstr(text, "frozen 1");
}

static int freeze_in(const char *folder, bool frozen, struct error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/cgroup.freeze", folder);
    if (file_write(path, frozen ? "1" : "0") < 0)
        return error_set_errno(err, errno == ENOENT ? ERR_CONFLICT : ERR_INTERNAL,
                               "cgroup.freeze of the sandbox");
    for (int waited = 0; frozen && !is_frozen(folder); waited++) {
        if (waited == FREEZE_MS)
            return error_set(err, ERR_TIMEOUT, "the sandbox can't be frozen");
        poll(NULL, 0, 1);
    }
    return 0;
}

int cgroup_freeze(const char *sandbox, bool frozen, struct error *err)
{
    char folder[PATH_MAX - 32];

    for (size_t i = 0; i < hierarchy_count; i++) {
        if (!hierarchies[i].unified)
            continue;
        snprintf(folder, sizeof(folder), "%s/%s", hierarchies[i].path, sandbox);
        return freeze_in(folder, frozen, err);
    }
    return error_set(err, ERR_CONFLICT,
                     "without cgroups of version 2 a sandbox that runs can't be frozen");
}

bool cgroup_remove(const char *sandbox)
{
    char path[PATH_MAX];
    bool gone = true;

    for (size_t i = 0; i < hierarchy_count; i++) {
        snprintf(path, sizeof(path), "%s/%s", hierarchies[i].path, sandbox);
        if (rmdir(path) < 0 && errno != ENOENT)
            gone = false;
    }
    return gone;
}

int64_t cgroup_oom_kills(const char *sandbox)
{
    char text[512];
    const char *found =
        cgroup_read(sandbox, MEMORY, "memory.events", "memory.oom_control", text, sizeof(text))
            ? strstr(text, "oom_kill ")
            : NULL;

    return found ? strtoll(found + strlen("oom_kill "), NULL, 10) : 0;
}

bool cgroup_read(const char *sandbox, unsigned controller, const char *unified, const char *old,
                 char *text, size_t size)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < hierarchy_count; i++) {
        const struct hierarchy *at = &hierarchies[i];

        if (controller ? !(at->holds & controller) : !at->unified)
            continue;
        snprintf(path, sizeof(path), "%s/%s/%s", at->path, sandbox, at->unified ? unified : old);
        return file_read(path, text, size);
    }
    return false;
}

void cgroup_each(void (*call)(const char *sandbox, void *data), void *data)
{
    for (size_t i = 0; i < hierarchy_count; i++) {
        DIR *directory = opendir(hierarchies[i].path);
        struct dirent *entry;

        while (directory && (entry = readdir(directory)))
            if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
                call(entry->d_name, data);
        if (directory)
            closedir(directory);
    }
}
