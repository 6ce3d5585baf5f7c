/* The system calls that a sandbox has: an allow-list (syscalls.def), and above it a small deny-list
 * for what an allow-list can't say.
 *
 * Of the answers of stacked filters the kernel takes the strictest (seccomp(2)). libseccomp
 * compares all 64 bits of an argument where the kernel looks at the low 32, so every rule on an int
 * is masked, or refuses what has high bits. */
#include "supervisor/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/scope.h"

#define LOW32 UINT64_C(0xffffffff)

enum { IOCTL_TIOCSTI = 0x5412, IOCTL_TIOCLINUX = 0x541C, IOCTL_TIOCSETD = 0x5423 };
enum { PRCTL_SCHED_CORE = 62, PRCTL_SET_MEMORY_MERGE = 67 };
enum { PROTOCOL_ICMP = 1, PROTOCOL_TCP = 6, PROTOCOL_UDP = 17, PROTOCOL_ICMPV6 = 58 };

static struct sock_fprog filters[2];

struct rule {
    const char *name;
    int number; /* -1: by name */
    uint32_t action;
};

static const struct rule calls[] = {
#define ALLOW(call) {#call, -1, SCMP_ACT_ALLOW},
#define ALLOW_NUMBER(number, call) {#call, number, SCMP_ACT_ALLOW},
#define REFUSE(call) {#call, -1, SCMP_ACT_ERRNO(EPERM)},
#include "supervisor/syscalls.def"
#undef ALLOW
#undef ALLOW_NUMBER
#undef REFUSE
};

/* Refused when (argument & mask) == value. */
struct narrowing {
    int call;
    unsigned argument;
    uint64_t mask, value;
    int error;
};

#define CLONE_NARROWING(flag)                 \
    {                                         \
        SCMP_SYS(clone), 0, flag, flag, EPERM \
    }

static const struct narrowing narrowings[] = {
    /* Typing for others (TIOCSTI, TIOCLINUX), and line disciplines, whose drivers had one hole
       after the other. */
    {SCMP_SYS(ioctl), 1, LOW32, IOCTL_TIOCSTI, EPERM},
    {SCMP_SYS(ioctl), 1, LOW32, IOCTL_TIOCLINUX, EPERM},
    {SCMP_SYS(ioctl), 1, LOW32, IOCTL_TIOCSETD, EPERM},
    CLONE_NARROWING(CLONE_NEWNS),
    CLONE_NARROWING(CLONE_NEWCGROUP),
    CLONE_NARROWING(CLONE_NEWUTS),
    CLONE_NARROWING(CLONE_NEWIPC),
    CLONE_NARROWING(CLONE_NEWUSER),
    CLONE_NARROWING(CLONE_NEWPID),
    CLONE_NARROWING(CLONE_NEWNET),
    /* A processor's other half idles while one with a cookie runs; and pages that are merged tell
       what others have in memory. */
    {SCMP_SYS(prctl), 0, LOW32, PRCTL_SCHED_CORE, EPERM},
    {SCMP_SYS(prctl), 0, LOW32, PRCTL_SET_MEMORY_MERGE, EPERM},
};

/* mknod(2) of these; the workers of the spawner make devices, so it is not for the deny-list. */
static const struct {
    mode_t type;
    uint32_t action;
} node_types[] = {
    {0, SCMP_ACT_ALLOW},        {S_IFREG, SCMP_ACT_ALLOW},        {S_IFIFO, SCMP_ACT_ALLOW},
    {S_IFSOCK, SCMP_ACT_ALLOW}, {S_IFCHR, SCMP_ACT_ERRNO(EPERM)}, {S_IFBLK, SCMP_ACT_ERRNO(EPERM)},
};

/* A set of values of one argument of a call, and what the others are answered. `bits` covers the
 * set. */
struct value_set {
    int call;
    unsigned argument;
    unsigned bits;
    bool exact; /* values beyond `bits` are refused too; else only the low bits count */
    int error;
    uint64_t allowed[5];
    size_t count;
};

/* The errors are the ones on which Go, libnl and ping fall back. */
static const struct value_set families = {
    SCMP_SYS(socket), 0, 6, true, EAFNOSUPPORT, {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK}, 4};
static const struct value_set inet_types = {SCMP_SYS(socket),          1, 4, false, EPERM,
                                            {SOCK_STREAM, SOCK_DGRAM}, 2};
static const struct value_set inet_protocols = {
    SCMP_SYS(socket),
    2,
    6,
    true,
    EPROTONOSUPPORT,
    {0, PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP, PROTOCOL_ICMPV6},
    5};
static const struct value_set netlink_protocols = {SCMP_SYS(socket), 2, 6, true, EPROTONOSUPPORT,
                                                   {0 /* ROUTE */},  1};
/* Others change how memory is laid out and mapped (ADDR_NO_RANDOMIZE, MMAP_PAGE_ZERO). */
static const struct value_set personalities = {
    SCMP_SYS(personality),
    0,
    32,
    false,
    EPERM,
    {0, 8 /* LINUX32 */, 0x20000 /* UNAME26 */, 0x20008, LOW32 /* query */},
    5};

static int failed(struct error *err, int code, const char *what)
{
    errno = -code;
    return error_set_errno(err, ERR_INTERNAL, "seccomp: %s", what);
}

/* What else must be so for a rule on a set to count. */
struct conditions {
    struct scmp_arg_cmp compare[2];
    unsigned count;
};

static int refuse_where(scmp_filter_ctx context, const struct value_set *set,
                        const struct conditions *given, struct scmp_arg_cmp value)
{
    struct scmp_arg_cmp compare[COUNT(given->compare) + 1] = {value};

    for (unsigned i = 0; i < given->count; i++)
        compare[i + 1] = given->compare[i];
    return seccomp_rule_add_array(context, SCMP_ACT_ERRNO((uint32_t)set->error), set->call,
                                  given->count + 1, compare);
}

/* Refuse the call where `argument` is one of the 2^k values from `low` on that the set does not
 * have: an allow-list within libseccomp's means, which has no "not one of". */
static int refuse_range(scmp_filter_ctx context, const struct value_set *set,
                        const struct conditions *given, uint64_t low, unsigned k)
{
    uint64_t size = UINT64_C(1) << k, within = (UINT64_C(1) << set->bits) - 1;
    size_t inside = 0;
    int code;

    for (size_t i = 0; i < set->count; i++)
        inside += set->allowed[i] >= low && set->allowed[i] < low + size;
    if (inside == size)
        return 0;
    if (inside == 0)
        return refuse_where(context, set, given,
                            SCMP_CMP64(set->argument, SCMP_CMP_MASKED_EQ,
                                       (set->exact ? LOW32 : within) & ~(size - 1), low));
    code = refuse_range(context, set, given, low, k - 1);
    return code < 0 ? code : refuse_range(context, set, given, low + size / 2, k - 1);
}

static int refuse_outside(scmp_filter_ctx context, const struct value_set *set,
                          const struct conditions *given)
{
    static const struct conditions none = {.count = 0};
    int code;

    if (!given)
        given = &none;
    code = refuse_range(context, set, given, 0, set->bits);
    if (code < 0 || !set->exact)
        return code;
    return refuse_where(context, set, given,
                        SCMP_CMP64(set->argument, SCMP_CMP_GT, (UINT64_C(1) << set->bits) - 1));
}

static struct scmp_arg_cmp family_is(uint64_t family)
{
    return SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, LOW32, family);
}

/* The protocol is looked at where the type is fine, so that no two rules meet: which of their
 * errors counts would be libseccomp's choice. */
static int refuse_inet(scmp_filter_ctx context, uint64_t family)
{
    const struct conditions any_type = {{family_is(family)}, 1};
    int code = refuse_outside(context, &inet_types, &any_type);

    for (size_t i = 0; i < inet_types.count && code == 0; i++) {
        const struct conditions one_type = {
            {family_is(family),
             SCMP_CMP64(1, SCMP_CMP_MASKED_EQ, (UINT64_C(1) << inet_types.bits) - 1,
                        inet_types.allowed[i])},
            2};

        code = refuse_outside(context, &inet_protocols, &one_type);
    }
    return code;
}

/* A foreign ABI has other numbers, and i386's socketcall(2) hides the family: a process that tries
 * one is killed. */
static int add_killing(scmp_filter_ctx context)
{
    return seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
}

static int add_allowed(scmp_filter_ctx context)
{
    int code = add_killing(context);

    /* A binary tree loads in a third of the time of a chain. */
    if (code == 0)
        code = seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    for (size_t i = 0; i < COUNT(calls) && code == 0; i++) {
        int number =
            calls[i].number >= 0 ? calls[i].number : seccomp_syscall_resolve_name(calls[i].name);

        code = number < 0 ? -EINVAL : seccomp_rule_add(context, calls[i].action, number, 0);
    }
    for (size_t i = 0; i < COUNT(node_types) && code == 0; i++) {
        code = seccomp_rule_add(context, node_types[i].action, SCMP_SYS(mknod), 1,
                                SCMP_A1_64(SCMP_CMP_MASKED_EQ, S_IFMT, node_types[i].type));
        if (code == 0)
            code = seccomp_rule_add(context, node_types[i].action, SCMP_SYS(mknodat), 1,
                                    SCMP_A2_64(SCMP_CMP_MASKED_EQ, S_IFMT, node_types[i].type));
    }
    return code;
}

static int add_refused(scmp_filter_ctx context)
{
    int code = add_killing(context);

    for (size_t i = 0; i < COUNT(narrowings) && code == 0; i++) {
        const struct narrowing *row = &narrowings[i];
        struct scmp_arg_cmp compare =
            SCMP_CMP64(row->argument, SCMP_CMP_MASKED_EQ, row->mask, row->value);

        code = seccomp_rule_add_array(context, SCMP_ACT_ERRNO((uint32_t)row->error), row->call, 1,
                                      &compare);
    }
    if (code == 0)
        code = seccomp_rule_add(context, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socketpair), 1,
                                SCMP_A0_64(SCMP_CMP_NE, AF_UNIX));
    if (code == 0)
        code = refuse_outside(context, &personalities, NULL);
    if (code == 0)
        code = refuse_outside(context, &families, NULL);
    if (code == 0)
        code = refuse_inet(context, AF_INET);
    if (code == 0)
        code = refuse_inet(context, AF_INET6);
    if (code == 0)
        code = refuse_outside(context, &netlink_protocols,
                              &(struct conditions){{family_is(AF_NETLINK)}, 1});
    return code;
}

static int export(scmp_filter_ctx context, struct sock_fprog *filter, struct error *err)
{
    auto_close int fd = memfd_create("filter", MFD_CLOEXEC);
    struct sock_filter *code;
    struct stat status;
    int result;

    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "memfd_create");
    result = seccomp_export_bpf(context, fd);
    if (result < 0)
        return failed(err, result, "export");
    if (fstat(fd, &status) < 0 || !(code = malloc((size_t)status.st_size)))
        return error_set_errno(err, ERR_INTERNAL, "seccomp: filter");
    if (pread(fd, code, (size_t)status.st_size, 0) != status.st_size) {
        free(code);
        return error_set_errno(err, ERR_INTERNAL, "seccomp: read the filter");
    }
    free(filter->filter);
    filter->filter = code;
    filter->len = (unsigned short)((size_t)status.st_size / sizeof(*code));
    return 0;
}

static int compile(uint32_t otherwise, int (*add)(scmp_filter_ctx), struct sock_fprog *filter,
                   struct error *err)
{
    scmp_filter_ctx context = seccomp_init(otherwise);
    int code, result;

    if (!context)
        return error_set(err, ERR_INTERNAL, "seccomp: no filter");
    code = add(context);
    result = code < 0 ? failed(err, code, "rule") : export(context, filter, err);
    seccomp_release(context);
    return result;
}

int seccomp_prepare(struct error *err)
{
    if (compile(SCMP_ACT_ERRNO(ENOSYS), add_allowed, &filters[0], err) < 0)
        return -1;
    return compile(SCMP_ACT_ALLOW, add_refused, &filters[1], err);
}

static int load(const struct sock_fprog *filter)
{
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter);
}

int seccomp_refuse(void)
{
    return load(&filters[1]);
}

int seccomp_allow(void)
{
    return load(&filters[0]);
}
