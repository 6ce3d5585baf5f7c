/* A disk in a file: ext4 on a loop device, which counts bytes and files whatever the host's own
 * file system is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/loop_device.h"
#include "common/scope.h"
#include "supervisor/disks.h"
#include "supervisor/supervisor.h"

enum {
    BLOCK = 4096,
    GROUP_BYTES = BLOCK * 8 * BLOCK, /* what one block of its bitmap counts (ext4(5)) */
    BYTES_EACH_LEAST = 8192,
    INODES_STEP = 16, /* as many as fit a block, of 256 bytes each */
    FIND_RACES = 100,
    FIND_PAUSE_US = 10000,
};

#define IMAGE "disk.img"
#define SHUTDOWN _IOR('X', 125, uint32_t) /* EXT4_IOC_SHUTDOWN; no header has it */
#define SHUTDOWN_NOLOGFLUSH 2u

/* --- making one ------------------------------------------------------------------------------ */

static const char *mkfs(void)
{
    static const char *const paths[] = {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4",
                                        "/usr/bin/mkfs.ext4", "/bin/mkfs.ext4"};

    for (size_t i = 0; i < COUNT(paths); i++)
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    errno = ENOENT;
    return NULL;
}

static int run(char *const arguments[], struct error *err)
{
    char *const environment[] = {(char[]){"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, NULL};
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);

        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it would go on writing where nobody looks */
        for (int fd = 0; fd < 3; fd++)
            dup2(null, fd);
        close_range(3, ~0U, 0);
        execve(arguments[0], arguments, environment);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "%s", arguments[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error_set(err, ERR_INTERNAL, "%s failed (%d)", arguments[0], status);
    return 0;
}

/* Never more inodes than were asked for: each group has as many, in steps. Nor more than leave the
 * disk to what is in them. */
static int64_t inodes_of(const struct disk *disk)
{
    int64_t groups = (disk->bytes + GROUP_BYTES - 1) / GROUP_BYTES;
    int64_t most = disk->bytes / BYTES_EACH_LEAST;
    int64_t wanted = disk->inodes < most ? disk->inodes : most;
    int64_t each = wanted / groups / INODES_STEP * INODES_STEP;

    return (each < INODES_STEP ? INODES_STEP : each) * groups;
}

/* Metadata that is zero stays a hole: noinit_itable, when it is mounted. The journal is small,
 * since it takes its place in the end; the reserve for root would be nobody's. */
static int format(const char *path, const struct disk *disk, struct error *err)
{
    char inodes[32];
    char *arguments[] = {(char *)(uintptr_t)mkfs(),
                         (char[]){"-q"},
                         (char[]){"-F"},
                         (char[]){"-b"},
                         (char[]){"4096"},
                         (char[]){"-I"},
                         (char[]){"256"},
                         (char[]){"-m"},
                         (char[]){"0"},
                         (char[]){"-J"},
                         (char[]){"size=4"},
                         (char[]){"-O"},
                         (char[]){"^resize_inode"},
                         (char[]){"-E"},
                         (char[]){"lazy_itable_init=1,lazy_journal_init=1,nodiscard"},
                         (char[]){"-N"},
                         inodes,
                         (char *)(uintptr_t)path,
                         NULL};

    if (!arguments[0])
        return error_set_errno(err, ERR_UNAVAILABLE, "mkfs.ext4");
    snprintf(inodes, sizeof(inodes), "%lld", (long long)inodes_of(disk));
    return run(arguments, err);
}

static int make_file(const char *path, const struct disk *disk, struct error *err)
{
    auto_close int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, disk->bytes) < 0)
        return error_set_errno(err, ERR_INTERNAL, "%s", path);
    return format(path, disk, err);
}

/* What is not a hole. */
static int copy_data(int from, int to, struct error *err)
{
    off_t data = 0, end;

    while ((data = lseek(from, data, SEEK_DATA)) >= 0) {
        end = lseek(from, data, SEEK_HOLE);
        if (end < 0)
            break;
        for (off_t in = data, out = data; in < end;)
            if (copy_file_range(from, &in, to, &out, (size_t)(end - in), 0) <= 0)
                return error_set_errno(err, ERR_INTERNAL, "copy a disk");
        data = end;
    }
    return errno == ENXIO ? 0 : error_set_errno(err, ERR_INTERNAL, "copy a disk");
}

static int image_copy(const char *from, const char *to, struct error *err)
{
    auto_close int source = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int target = open(to, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status;

    if (source < 0 || fstat(source, &status) < 0 || target < 0)
        return error_set_errno(err, ERR_INTERNAL, "copy a disk");
    if (ioctl(target, FICLONE, source) == 0)
        return 0;
    if (ftruncate(target, status.st_size) < 0)
        return error_set_errno(err, ERR_INTERNAL, "copy a disk");
    return copy_data(source, target, err);
}

/* One of the usual size is copied from one that was formatted once: a tenth of the time. */
static int make_image(const char *path, const struct disk *disk, struct error *err)
{
    char master[PATH_MAX], draft[PATH_MAX + 16];
    struct stat status;

    if (disk->bytes != settings.sandbox_disk_mb << 20 ||
        disk->inodes != settings.sandbox_disk_inodes)
        return make_file(path, disk, err);
    /* Where each start sweeps. */
    snprintf(master, sizeof(master), "%.3900s/spares/.template-%lld-%lld", settings.state,
             (long long)disk->bytes, (long long)disk->inodes);
    if (stat(master, &status) < 0) {
        snprintf(draft, sizeof(draft), "%s.%d", master, (int)getpid());
        unlink(draft);
        if (make_file(draft, disk, err) < 0)
            return -1;
        if (rename(draft, master) < 0)
            return error_set_errno(err, ERR_INTERNAL, "%s", master);
    }
    return image_copy(master, path, err);
}

/* --- mounting it ----------------------------------------------------------------------------- */

/* A device that has this file as its own; what a supervisor before us attached and a sandbox still
 * uses must not be attached twice, or two file systems would write to one disk. */
static int find_device(int file, char device[LOOP_NAME])
{
    DIR *directory = opendir("/sys/block");
    struct dirent *entry;
    struct stat status;
    int found = -1;

    if (fstat(file, &status) < 0)
        status.st_ino = 0;
    while (directory && found < 0 && (entry = readdir(directory))) {
        struct loop_info64 info;

        if (strncmp(entry->d_name, "loop", 4) != 0)
            continue;
        snprintf(device, LOOP_NAME, "/dev/%.20s", entry->d_name);
        auto_close int fd = open(device, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == status.st_ino &&
            info.lo_device == status.st_dev)
            found = take_fd(&fd);
    }
    if (directory)
        closedir(directory);
    return found;
}

/* The lock belongs to the open file, which the device keeps: who can't have it finds the device. */
static int open_device(const char *path, char device[LOOP_NAME], struct error *err)
{
    for (int race = 0; race < FIND_RACES; race++) {
        auto_close int file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        int fd;

        if (file < 0)
            return error_set_errno(err, ERR_UNAVAILABLE, "the sandbox's disk");
        if (flock(file, LOCK_EX | LOCK_NB) == 0)
            return loop_device_attach(file, device, err);
        if (errno != EWOULDBLOCK)
            return error_set_errno(err, ERR_INTERNAL, "lock a disk");
        if ((fd = find_device(file, device)) >= 0)
            return fd;
        usleep(FIND_PAUSE_US); /* it is being taken down */
    }
    return error_set(err, ERR_UNAVAILABLE, "the sandbox's disk is in use elsewhere");
}

/* What a tenant writes are files in it; the file system itself only the kernel has written. */
static int mount_device(const char device[LOOP_NAME], struct error *err)
{
    auto_close int filesystem = fsopen("ext4", FSOPEN_CLOEXEC);

    if (filesystem < 0 || fsconfig(filesystem, FSCONFIG_SET_STRING, "source", device, 0) < 0 ||
        fsconfig(filesystem, FSCONFIG_SET_FLAG, "noinit_itable", NULL, 0) < 0 ||
        fsconfig(filesystem, FSCONFIG_SET_FLAG, "discard", NULL, 0) < 0 ||
        fsconfig(filesystem, FSCONFIG_SET_STRING, "errors", "remount-ro", 0) < 0 ||
        fsconfig(filesystem, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mount the image of a disk");
    int mount = fsmount(filesystem, FSMOUNT_CLOEXEC,
                        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    return mount < 0 ? error_set_errno(err, ERR_INTERNAL, "mount the image of a disk") : mount;
}

int image_attach(const char *folder, struct error *err)
{
    char path[PATH_MAX], device[LOOP_NAME];

    snprintf(path, sizeof(path), "%s/" IMAGE, folder);
    auto_close int open_until_mounted = open_device(path, device, err);
    auto_close int mount = open_until_mounted < 0 ? -1 : mount_device(device, err);
    return mount < 0 ? -1 : disk_mount(mount, folder, err);
}

int image_mount_file(int file, struct error *err)
{
    char device[LOOP_NAME];
    auto_close int open_until_mounted = loop_device_attach(file, device, err);

    return open_until_mounted < 0 ? -1 : mount_device(device, err);
}

int image_make(const char *folder, const struct disk *disk, struct error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/" IMAGE, folder);
    if (make_image(path, disk, err) < 0 || image_attach(folder, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/disk/lost+found", folder);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/disk", folder);
    if (chmod(path, 0700) < 0)
        return error_set_errno(err, ERR_INTERNAL, "root of a disk");
    return 0;
}

int image_clone(int file, const char *folder, struct error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/disk", folder);
    if (mkdir(path, 0700) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mkdir of a disk");
    snprintf(path, sizeof(path), "%s/" IMAGE, folder);
    auto_close int own = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (own < 0 || ioctl(own, FICLONE, file) < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "clone a disk");
    return image_attach(folder, err);
}

void image_forsake(const char *folder)
{
    char path[PATH_MAX];
    uint32_t how = SHUTDOWN_NOLOGFLUSH;
    struct stat inner, outer;

    snprintf(path, sizeof(path), "%s/disk", folder);
    auto_close int root = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    /* Never the host's own file system, should it not be mounted. */
    if (root >= 0 && fstat(root, &inner) == 0 && stat(folder, &outer) == 0 &&
        inner.st_dev != outer.st_dev)
        ioctl(root, SHUTDOWN, &how);
}

/* --- whether there can be any ---------------------------------------------------------------- */

int image_probe(const char *folder, struct error *err)
{
    struct error reason;

    if (!mkfs())
        return error_set(err, ERR_INVALID, "image: no mkfs.ext4; needed: e2fsprogs installed");
    auto_close int filesystem = fsopen("ext4", FSOPEN_CLOEXEC);
    if (filesystem < 0)
        return error_set(err, ERR_INVALID, "image: %s; needed: ext4 in the kernel (modprobe ext4)",
                         strerror(errno));
    if (loop_device_probe(folder, &reason) == 0)
        return 0;
    return error_set(err, ERR_INVALID, "image: %s; needed: " LOOP_DEVICE_CURE, reason.message);
}
