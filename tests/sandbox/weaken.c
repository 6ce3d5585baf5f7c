/* Preloaded into a supervisor, takes one fence away: WEAKEN names the call that does nothing any
 * more, and says that it did (ld.so(8), LD_PRELOAD). The self-test must notice. */
#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool weakens(const char *what)
{
    const char *named = getenv("WEAKEN");

    return named && strcmp(named, what) == 0;
}

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

long syscall(long number, ...)
{
    static unsigned filters;
    va_list values;
    long arguments[6];

    va_start(values, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(values, long);
    va_end(values);
    /* libseccomp asks for what there is with no filter at all. */
    if (number == SYS_seccomp && arguments[0] == SECCOMP_SET_MODE_FILTER && arguments[2]) {
        bool first = filters++ == 0;

        if (weakens("filters") || weakens(first ? "first filter" : "second filter"))
            return 0;
    }
    return call(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                arguments[5]);
}

int prctl(int option, ...)
{
    va_list values;
    long arguments[4];

    va_start(values, option);
    for (int i = 0; i < 4; i++)
        arguments[i] = va_arg(values, long);
    va_end(values);
    if ((option == PR_CAPBSET_DROP && weakens("bounding set")) ||
        (option == PR_SET_SECUREBITS && weakens("securebits")) ||
        (option == PR_SET_NO_NEW_PRIVS && weakens("no_new_privs")))
        return 0;
    return (int)call(SYS_prctl, option, arguments[0], arguments[1], arguments[2], arguments[3], 0);
}

int cap_set_proc(cap_t set)
{
    static int (*real)(cap_t);

    if (weakens("capset") && getpid() == 1) /* in a sandbox */
        return 0;
    if (!real) {
        extern void *dlsym(void *, const char *);

        real = (int (*)(cap_t))dlsym((void *)-1L /* RTLD_NEXT */, "cap_set_proc");
    }
    return real(set);
}

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
    if (weakens("limits"))
        return 0;
    return (int)call(SYS_prlimit64, 0, (long)resource, (long)limit, 0, 0, 0);
}

int move_mount(int from, const char *from_path, int to, const char *to_path, unsigned flags)
{
    /* A cover of /proc, rather than what has a place below the root. */
    if (weakens("covers") && to_path[0] && to_path[0] != '/')
        return 0;
    return (int)call(SYS_move_mount, from, (long)from_path, to, (long)to_path, flags, 0);
}

int unshare(int flags)
{
    if (weakens("cgroup namespace"))
        return 0;
    return (int)call(SYS_unshare, flags, 0, 0, 0, 0, 0);
}
