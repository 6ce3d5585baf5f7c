/* Programs that test disks run once for each back end that this machine can have. */
#ifndef TESTS_SANDBOX_DISKS_H
#define TESTS_SANDBOX_DISKS_H

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

static inline int loops(void)
{
    char command[256];

    snprintf(command, sizeof(command),
             "cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -c '^%s/'", fixture_root);
    return count_of(command);
}

static inline int mounts(void)
{
    char command[512];

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
    const char *folder; /* NULL: as the other tests */
    bool limits, devices;
} disk_rounds[] = {
    {"tmpfs", "/dev/shm", true, false},
    {"image", NULL, true, true},
    {"plain", NULL, false, false},
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

/* One suite for each; the status of the program. */
static inline int disk_rounds_run(Suite *(*suite_of)(const struct disk_round *round))
{
    const char *usual = getenv("SANDBOX_TEST_FOLDER");
    char folder[64];
    int failed = 0, ran = 0;

    setenv("CK_FORK", "no", 1);
    snprintf(folder, sizeof(folder), "%.60s", usual ? usual : "/tmp");
    for (size_t i = 0; i < COUNT(disk_rounds); i++) {
        const struct disk_round *round = &disk_rounds[i];

        setenv("SANDBOX_TEST_FOLDER", round->folder ? round->folder : folder, 1);
        setenv("STORAGE", round->name, 1);
        setenv("QUOTA_REQUIRED", round->limits ? "1" : "0", 1);
        if (!can_have(round->name)) {
            printf("not on this machine: %s\n", round->name);
            continue;
        }
        failed |= fixture_main(suite_of(round));
        ran++;
        fflush(stdout);
    }
    return ran ? failed : SKIPPED;
}

#endif
