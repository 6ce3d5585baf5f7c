/* Programs that test disks run once for each back end that this machine can have. */
#ifndef TESTS_SANDBOX_DISKS_H
#define TESTS_SANDBOX_DISKS_H

#include <sched.h>
#include <sys/mount.h>

#include "tests/sandbox/fixture.h"

/* What the host has of disks: loop devices in use, and mounts in the keeper's namespace. */
static inline int count_of(const char *command)
{
    FILE *pipe = popen(command, "r");
    int number = -1;

    if (pipe && fscanf(pipe, "%d", &number) != 1)
        number = -1;
    if (pipe)
        pclose(pipe);
    return number;
}

/* By the last folder: the path is another one where the mount has none any more. */
static inline int loops(void)
{
    char command[256];

    snprintf(command, sizeof(command),
             "cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -c '%s/state/'",
             strrchr(fixture_root, '/'));
    return count_of(command);
}

/* Or subvolumes, where a disk is one: their roots have this number. */
static inline int mounts(void)
{
    const char *storage = getenv("STORAGE");
    char command[512];

    if (storage && strcmp(storage, "reflink") == 0)
        snprintf(command, sizeof(command), "find %s/state -inum 256 -type d | wc -l", fixture_root);
    else
        snprintf(command, sizeof(command),
                 "grep -c ' %s/state/' /proc/$(sed -n 's/^pid //p' %s/state/keeper)/mounts",
                 fixture_root, fixture_root);
    return count_of(command);
}

/* Disks of nobody: those that are made ahead, which come and go. */
static inline int spares(void)
{
    char command[512];

    snprintf(command, sizeof(command),
             "(cd %s/state && ls spares && ls sandboxes | grep '^warm-') | wc -l", fixture_root);
    return count_of(command);
}

/* What is there, for whoever has to find out why it is too much. */
static inline void disks_show(void)
{
    fixture_shell("cd %s/state; ls -A spares sandboxes snapshots; "
                  "grep ' %s/state/' /proc/$(sed -n 's/^pid //p' keeper)/mounts; "
                  "cat /sys/block/loop*/loop/backing_file | grep '^%s/'; tail -20 %s/log",
                  fixture_root, fixture_root, fixture_root, fixture_root);
}

/* The disks that are mounted, and the devices, are those of the spares. */
static inline bool disks_are_spares(int patience_ms)
{
    int64_t end = fixture_now_ms() + patience_ms;

    while (mounts() != spares() || (loops() != 0 && loops() != spares())) {
        if (fixture_now_ms() >= end) {
            disks_show();
            return false;
        }
        usleep(20000);
    }
    return true;
}

static inline bool nothing_is_left(void)
{
    return fixture_shell("test -z \"$(ls -A %s/state/sandboxes | grep -v '^.arm-')\"",
                         fixture_root) == 0;
}

static const struct disk_round {
    const char *name;
    const char *storage;
    const char *folder;  /* NULL: as the other tests */
    const char *make;    /* a file system of its own, from the file $f */
    bool limits;         /* of bytes */
    bool files;          /* of files */
    bool devices;        /* each disk is on one */
    const char *content; /* of a snapshot: a file in it; NULL: "pack" */
} disk_rounds[] = {
    {"tmpfs", "tmpfs", "/dev/shm", NULL, true, true, false, NULL},
    {"image", "image", NULL, NULL, true, true, true, NULL},
    {"image on xfs", "image", NULL, "mkfs.xfs -q $f", true, true, true, "disk.img"},
    {"reflink", "reflink", NULL, "mkfs.btrfs -q $f", true, false, false, "disk/ws/large"},
    {"plain", "plain", NULL, NULL, false, false, false, NULL},
};

/* As the supervisor itself finds out. */
static inline bool can_have(const char *name)
{
    char path[PATH_MAX] = "", *slash;

    if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0)
        return false;
    for (int up = 0; up < 3; up++)
        if ((slash = strrchr(path, '/')))
            *slash = '\0';
    return fixture_shell("SUPERVISOR_STATE=%s STORAGE=%s %.3000s/sandbox-supervisor --check-config "
                         "2>&1 | grep 'STORAGE='",
                         getenv("SANDBOX_TEST_FOLDER"), name, path) != 0;
}

/* In a mount namespace of this program's own, so that nothing of it stays. */
static inline bool disk_round_mount(const struct disk_round *round, char folder[64])
{
    char usual[32];

    snprintf(usual, sizeof(usual), "%.16s", folder);
    snprintf(folder, 64, "%.16s/disks-XXXXXX", usual);
    if (!mkdtemp(folder))
        return false;
    if (fixture_shell(
            "f=%s.img; truncate -s 4G $f && (%s) >/dev/null 2>&1 && "
            "mount -o loop,nosuid,nodev $f %s && rm $f && "
            "{ ! command -v btrfs >/dev/null || btrfs quota enable %s 2>/dev/null || :; }",
            folder, round->make, folder, folder) == 0)
        return true;
    fixture_shell("rm -f %s.img; rmdir %s", folder, folder);
    return false;
}

static inline int disk_round_run(const struct disk_round *round, const char *usual,
                                 Suite *(*suite_of)(const struct disk_round *round), int *ran)
{
    char folder[64];
    int failed = 0;

    snprintf(folder, sizeof(folder), "%.60s", round->folder ? round->folder : usual);
    if (round->make && !disk_round_mount(round, folder)) {
        printf("not on this machine: %s\n", round->name);
        return 0;
    }
    setenv("SANDBOX_TEST_FOLDER", folder, 1);
    setenv("STORAGE", round->storage, 1);
    setenv("QUOTA_REQUIRED", round->limits ? "1" : "0", 1);
    if (can_have(round->storage)) {
        failed = fixture_main(suite_of(round));
        (*ran)++;
    } else {
        printf("not on this machine: %s\n", round->name);
    }
    if (round->make)
        failed |= fixture_shell("umount %s && rmdir %s", folder, folder) != 0;
    fflush(stdout);
    return failed;
}

/* One suite for each; the status of the program. DISK_ROUND chooses one. */
static inline int disk_rounds_run(Suite *(*suite_of)(const struct disk_round *round))
{
    const char *usual = getenv("SANDBOX_TEST_FOLDER"), *chosen = getenv("DISK_ROUND");
    int failed = 0, ran = 0;

    setenv("CK_FORK", "no", 1);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        fixture_skip("no mount namespace of its own");
    for (size_t i = 0; i < COUNT(disk_rounds); i++)
        if (!chosen || strcmp(chosen, disk_rounds[i].name) == 0)
            failed |= disk_round_run(&disk_rounds[i], usual ? usual : "/tmp", suite_of, &ran);
    return ran ? failed : SKIPPED;
}

#endif
