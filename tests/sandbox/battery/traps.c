/* `battery --traps` leaves in the working directory what a tenant may leave for others to step
 * into, and prints its names, with NULs between; `battery --exchange A B` goes on exchanging two
 * names. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

enum { DEPTH = 2000, CROWD = 3000, LINKS = 41 /* one more than the kernel follows */ };

static int make_link(const char *name, const char *target)
{
    return symlink(target ? target : told("BATTERY_CANARY"), name);
}

static int make_chain(const char *name, const char *target)
{
    char from[32], to[32];

    (void)target;
    for (int i = 0; i < LINKS; i++) {
        snprintf(from, sizeof(from), i ? "%s.%d" : "%s", name, i);
        snprintf(to, sizeof(to), "%s.%d", name, i + 1);
        if (symlink(to, from) < 0)
            return -1;
    }
    return 0;
}

static int make_fifo(const char *name, const char *target)
{
    (void)target;
    return mkfifo(name, 0666);
}

static int make_socket(const char *name, const char *target)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)target;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
    return bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof(address));
}

static int make_sparse(const char *name, const char *target)
{
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

    (void)target;
    return ftruncate(fd, 1L << 40);
}

static int make_deep(const char *name, const char *target)
{
    int up = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), result = 0;

    (void)target;
    for (int i = 0; i < DEPTH && result == 0; i++)
        result = mkdir(i ? "deep" : name, 0700) < 0 ? -1 : chdir(i ? "deep" : name);
    return fchdir(up) < 0 ? -1 : result;
}

static int make_locked(const char *name, const char *target)
{
    (void)target;
    return mkdir(name, 0700) < 0 || mkdirat(open(name, O_PATH), "inside", 0) < 0 ? -1
                                                                                 : chmod(name, 0);
}

static int make_secret(const char *name, const char *target)
{
    (void)target;
    return close(open(name, O_CREAT | O_WRONLY, 0));
}

static int make_setuid(const char *name, const char *target)
{
    (void)target;
    return close(open(name, O_CREAT | O_WRONLY, 0644)) | chmod(name, 06755);
}

static int make_crowd(const char *name, const char *target)
{
    char path[64];

    (void)target;
    if (mkdir(name, 0755) < 0)
        return -1;
    for (int i = 0; i < CROWD; i++) {
        snprintf(path, sizeof(path), "%s/%d", name, i);
        if (mknod(path, S_IFREG | 0644, 0) < 0)
            return -1;
    }
    return 0;
}

static int make_folder(const char *name, const char *target)
{
    (void)target;
    return mkdir(name, 0755);
}

/* Names that are hard to print. */
static const char *const names[] = {
    "new\nline",
    "\033[2J\033]0;escape\007",
    "\xff\xfe\xc3(",
    "-rf",
    " ",
    "...",
    "a\\b\"c'd`e$f",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123"
    "4567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
    "8901234567890123456789012345678901234567890123456789012345678901234"};

static const struct {
    const char *name;
    int (*make)(const char *name, const char *target);
    const char *target;
} traps[] = {
#define TRAP(name, make, target) {#name, make, target},
#include "tests/sandbox/battery/traps.def"
#undef TRAP
};

int traps_main(void)
{
    for (size_t i = 0; i < COUNT(traps); i++) {
        if (traps[i].make(traps[i].name, traps[i].target) < 0)
            return broken("%s: %s", traps[i].name, strerror(errno));
        printf("%s%c", traps[i].name, '\0');
    }
    for (size_t i = 0; i < COUNT(names); i++) {
        if (make_secret(names[i], NULL) < 0)
            return broken("a name: %s", strerror(errno));
        printf("%s%c", names[i], '\0');
    }
    return 0;
}

int exchange_main(const char *one, const char *other)
{
    for (;;)
        syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, 2 /* EXCHANGE */);
}
