/* Which sandboxes there are, what each is, and how that survives the supervisor: see sandbox.h. */
#include "supervisor/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/log.h"
#include "common/scope.h"
#include "supervisor/spawn.h"

enum { BUCKETS = 4096 };

static struct sandbox *all;
static struct sandbox *buckets[BUCKETS];
static size_t count;
static int folder = -1;
static int lock = -1;

/* --- the folder ------------------------------------------------------------------------------ */

static int make_parents(const char *path, struct error *err)
{
    char part[PATH_MAX];

    if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
        return error_set(err, ERR_INVALID, "SUPERVISOR_STATE is too long");
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return error_set_errno(err, ERR_INTERNAL, "mkdir %s", part);
        *slash = '/';
    }
    if (mkdir(part, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "mkdir %s", part);
    return 0;
}

/* Files in it may be set-uid root on disk, since ids are mapped: nobody else may reach them. */
static int check_folder(int fd, struct error *err)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return error_set_errno(err, ERR_INTERNAL, "SUPERVISOR_STATE");
    if (status.st_uid != geteuid() || (status.st_mode & 077))
        return error_set(
            err, ERR_INVALID,
            "SUPERVISOR_STATE: %s must be owned by the supervisor's user with mode 0700",
            settings.state);
    return 0;
}

static int take_lock(int state, struct error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    /* Of this kind (fcntl(2)) because children do not inherit it. */
    lock = openat(state, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0)
        return error_set_errno(err, ERR_INTERNAL, "SUPERVISOR_STATE: lock");
    if (fcntl(lock, F_SETLK, &whole) < 0)
        return error_set(err, ERR_CONFLICT, "SUPERVISOR_STATE: another supervisor uses %s",
                         settings.state);
    return 0;
}

int sandbox_open(struct error *err)
{
    if (make_parents(settings.state, err) < 0)
        return -1;
    auto_close int state = open(settings.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state < 0)
        return error_set_errno(err, ERR_INTERNAL, "SUPERVISOR_STATE %s", settings.state);
    if (check_folder(state, err) < 0 || take_lock(state, err) < 0)
        return -1;
    if (mkdirat(state, "sandboxes", 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, ERR_INTERNAL, "mkdir sandboxes");
    return storage_open(state, err) < 0 ? -1 : sandbox_reopen(state, err);
}

int sandbox_reopen(int state, struct error *err)
{
    scope_close(&folder);
    folder = openat(state, "sandboxes", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return folder < 0 ? error_set_errno(err, ERR_INTERNAL, "sandboxes") : 0;
}

int sandbox_open_place(const char *name, struct error *err)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "../%s", name);
    fd = openat(folder, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? error_set_errno(err, ERR_INTERNAL, "%s", name) : fd;
}

int sandbox_folder(void)
{
    return folder;
}

/* A job may find that the sandbox was destroyed since the job was forked. */
static int missing(struct error *err, const char *what)
{
    if (errno == ENOENT)
        return error_set(err, ERR_NOT_FOUND, "there is no such sandbox");
    return error_set_errno(err, ERR_INTERNAL, "%s", what);
}

int sandbox_open_folder(const char *id, struct error *err)
{
    int fd = openat(folder, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? missing(err, "folder of the sandbox") : fd;
}

static int open_on_disk(const char *id, const char *name, struct error *err)
{
    char path[SANDBOX_ID_LENGTH + 16];
    int fd;

    snprintf(path, sizeof(path), "%s/disk/%s", id, name);
    fd = openat(folder, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? missing(err, name) : fd;
}

int sandbox_open_workspace(const char *id, struct error *err)
{
    return open_on_disk(id, "ws", err);
}

int sandbox_open_trash(const char *id, struct error *err)
{
    return open_on_disk(id, "trash", err);
}

/* --- the table ------------------------------------------------------------------------------- */

static struct sandbox **bucket_of(const char *id)
{
    uint32_t hash = 2166136261u; /* FNV-1a; ids are random, so nobody gains by choosing them */

    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return &buckets[hash % BUCKETS];
}

struct sandbox *sandbox_find(const char *id)
{
    struct sandbox *box = *bucket_of(id);

    while (box && strcmp(box->id, id) != 0)
        box = box->same_bucket;
    return box;
}

struct sandbox *sandbox_add(const char *id, enum sandbox_state state)
{
    struct sandbox *box = calloc(1, sizeof(*box));

    if (!box)
        abort();
    snprintf(box->id, sizeof(box->id), "%s", id);
    snprintf(box->cgroup, sizeof(box->cgroup), "%s", id);
    box->state = state;
    box->slot = -1;
    box->spawning.fd = box->process.fd = box->control.fd = -1;
    box->next = all;
    if (all)
        all->link = &box->next;
    box->link = &all;
    all = box;
    box->same_bucket = *bucket_of(id);
    *bucket_of(id) = box;
    count++;
    return box;
}

static void leave_bucket(const struct sandbox *box)
{
    struct sandbox **at = bucket_of(box->id);

    while (*at != box)
        at = &(*at)->same_bucket;
    *at = box->same_bucket;
}

int sandbox_rename(struct sandbox *box, const char *id, struct error *err)
{
    if (renameat2(folder, box->id, folder, id, RENAME_NOREPLACE) < 0)
        return error_set_errno(err, errno == EEXIST ? ERR_CONFLICT : ERR_INTERNAL, "rename");
    leave_bucket(box);
    snprintf(box->id, sizeof(box->id), "%s", id);
    box->same_bucket = *bucket_of(id);
    *bucket_of(id) = box;
    return 0;
}

void sandbox_forget(struct sandbox *box)
{
    leave_bucket(box);
    *box->link = box->next;
    if (box->next)
        box->next->link = box->link;
    count--;
    free(box->made);
    loop_clear(&box->deadline);
    spawn_end(&box->spawning);
    loop_close_watch(&box->process);
    loop_close_watch(&box->control);
    buffer_done(&box->environment);
    free(box);
}

struct sandbox *sandbox_first(void)
{
    return all;
}

size_t sandbox_count(void)
{
    return count;
}

int64_t sandbox_free_slot(void)
{
    auto_free unsigned char *taken = calloc(1, (size_t)settings.sandboxes_max);

    if (!taken)
        abort();
    for (struct sandbox *box = all; box; box = box->next)
        if (box->slot >= 0 && box->slot < settings.sandboxes_max)
            taken[box->slot] = 1;
    for (int64_t slot = 0; slot < settings.sandboxes_max; slot++)
        if (!taken[slot])
            return slot;
    return -1;
}

/* --- the state file -------------------------------------------------------------------------- */

static const struct {
    enum sandbox_state state;
    const char *name;
} names[] = {
    {SANDBOX_CREATED, "created"}, {SANDBOX_RUNNING, "running"}, {SANDBOX_STOPPED, "stopped"}};

static const char *state_name(enum sandbox_state state)
{
    for (size_t i = 0; i < COUNT(names); i++)
        if (names[i].state == state)
            return names[i].name;
    return "absent";
}

static const char *system_boot(void)
{
    static char text[64];

    if (!text[0]) {
        auto_fclose FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

        if (!file || fscanf(file, "%63s", text) != 1)
            snprintf(text, sizeof(text), "unknown");
    }
    return text;
}

int sandbox_save_in(int own, const struct sandbox *box, struct error *err)
{
    char text[512];
    int length = snprintf(
        text, sizeof(text),
        "state %s\nslot %lld\nboot %s\npid %d\ninode %llu\nstart %llu\nsystem %s\nimage %llu\n"
        "cgroup %s\ndisk %s %lld %lld\nmemory %lld\n",
        state_name(box->state), (long long)box->slot, box->boot[0] ? box->boot : "-", box->pid,
        (unsigned long long)box->pid_inode, (unsigned long long)box->pid_start, system_boot(),
        (unsigned long long)box->image, box->cgroup[0] ? box->cgroup : "-",
        storage_name(box->disk.kind), (long long)box->disk.bytes, (long long)box->disk.inodes,
        (long long)box->memory_bytes);
    auto_close int fd =
        openat(own, "state.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, text, (size_t)length) != length ||
        renameat(own, "state.new", own, "state") < 0)
        return error_set_errno(err, ERR_INTERNAL, "state of the sandbox");
    return 0;
}

int sandbox_save(const struct sandbox *box, struct error *err)
{
    auto_close int own = sandbox_open_folder(box->id, err);

    return own < 0 ? -1 : sandbox_save_in(own, box, err);
}

/* False when it was never written whole: the machine lost power. */
static bool read_state(struct sandbox *box, char system[64])
{
    char path[SANDBOX_ID_LENGTH + 8], text[512], state[16], boot[BOOT_LENGTH + 1], kind[16];
    long long slot, bytes, inodes, memory = 0;
    unsigned long long inode, start, image;

    snprintf(path, sizeof(path), "%s/state", box->id);
    auto_close int fd = openat(folder, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (length <= 0)
        return false;
    text[length] = '\0';
    if (sscanf(text,
               "state %15s slot %lld boot %36s pid %d inode %llu start %llu system %63s image %llu "
               "cgroup %36s disk %15s %lld %lld memory %lld",
               state, &slot, boot, &box->pid, &inode, &start, system, &image, box->cgroup, kind,
               &bytes, &inodes, &memory) < 12) /* the last is not in those of earlier versions */
        return false;
    box->disk = (struct disk){storage_kind_of(kind), bytes, inodes};
    for (size_t i = 0; i < COUNT(names); i++)
        if (strcmp(names[i].name, state) == 0)
            box->state = names[i].state;
    box->slot = slot;
    box->memory_bytes = memory;
    box->pid_inode = inode;
    box->pid_start = start;
    box->image = image;
    snprintf(box->boot, sizeof(box->boot), "%s", boot);
    return true;
}

/* A name that the next start takes for half-made. */
static void half_made(char name[SANDBOX_ID_LENGTH + 1], const char *id)
{
    snprintf(name, SANDBOX_ID_LENGTH + 1, ".%s", id + 1);
}

static int make_way(const struct sandbox *box, char name[SANDBOX_ID_LENGTH + 1], struct error *err)
{
    struct stat status;

    half_made(name, box->id);
    if (fstatat(folder, box->id, &status, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, ERR_CONFLICT, "there is a folder of the sandbox");
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        storage_remove("sandboxes", name, err) < 0)
        return -1;
    return 0;
}

int sandbox_begin(struct sandbox *box, store_done *done, struct error *err)
{
    char name[SANDBOX_ID_LENGTH + 1];

    if (make_way(box, name, err) < 0)
        return -1;
    if (box->disk.kind == STORAGE_PLAIN)
        return storage_make("sandboxes", name, &box->disk, err);
    return storage_make_begin("sandboxes", name, &box->disk, done, box, err);
}

int sandbox_begin_restored(struct sandbox *box, const char *snapshot, bool whole, store_done *done,
                           struct error *err)
{
    char name[SANDBOX_ID_LENGTH + 1];

    if (make_way(box, name, err) < 0)
        return -1;
    return storage_restore_begin("sandboxes", name, &box->disk, snapshot, whole, done, box, err);
}

bool sandbox_undo(struct sandbox *box, store_done *done)
{
    char name[SANDBOX_ID_LENGTH + 1];

    half_made(name, box->id);
    return storage_clear_begin("sandboxes", name, done, box);
}

int sandbox_complete(const struct sandbox *box, struct error *err)
{
    char name[SANDBOX_ID_LENGTH + 1];

    half_made(name, box->id);
    auto_close int own = sandbox_open_folder(name, err);
    if (own < 0 || sandbox_save_in(own, box, err) < 0)
        return -1;
    if (renameat2(folder, name, folder, box->id, RENAME_NOREPLACE) < 0)
        return error_set_errno(err, errno == EEXIST ? ERR_CONFLICT : ERR_INTERNAL, "create");
    return 0;
}

/* --- finding them again ---------------------------------------------------------------------- */

static uint64_t start_time(pid_t pid)
{
    char path[64], text[1024];
    const char *at;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

void sandbox_identify(struct sandbox *box, int pidfd)
{
    struct stat status;

    box->pid_inode = fstat(pidfd, &status) == 0 ? status.st_ino : 0;
    box->pid_start = start_time(box->pid);
}

static int find_process(const struct sandbox *box, const char *system)
{
    struct sandbox now = {.pid = box->pid};
    auto_close int pidfd = -1;

    if (strcmp(system, system_boot()) != 0 || box->pid <= 1)
        return -1;
    pidfd = (int)syscall(SYS_pidfd_open, box->pid, 0);
    if (pidfd < 0)
        return -1;
    fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    sandbox_identify(&now, pidfd);
    if (now.pid_inode != box->pid_inode || now.pid_start != box->pid_start)
        return -1;
    return take_fd(&pidfd);
}

static void load_one(const char *id, void (*adopt)(struct sandbox *, int))
{
    struct sandbox *box = sandbox_add(id, SANDBOX_STOPPED);
    char system[64] = "";
    bool known = read_state(box, system);

    if (!known)
        box->disk.kind = storage_guess("sandboxes", id);
    box->attached = storage_attached("sandboxes", id, box->disk.kind);
    if (!known) {
        LOG(WARNING, "sandbox_state_lost", V("sandbox", box->id));
        box->state = SANDBOX_STOPPED;
        adopt(box, -1);
        return;
    }
    if (box->state == SANDBOX_RUNNING)
        adopt(box, find_process(box, system));
    else
        box->slot = -1;
}

void sandbox_load(void (*adopt)(struct sandbox *box, int pidfd), void (*stray)(const char *name))
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;

    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (entry->d_name[0] == '.' || strlen(entry->d_name) != SANDBOX_ID_LENGTH)
            stray(entry->d_name);
        else if (adopt)
            load_one(entry->d_name, adopt);
    }
    if (directory)
        closedir(directory);
}
