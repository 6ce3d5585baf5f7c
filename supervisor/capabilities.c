/* Capabilities: ten for a sandbox's root, five for the main loop. */
#include "supervisor/capabilities.h"

#include <errno.h>
#include <linux/securebits.h>
#include <sys/capability.h>
#include <sys/prctl.h>

#include "common/scope.h"
#include "supervisor/steps.h"

/* What apt, dpkg, pip and su need; all of it counts within the sandbox's user namespace only. */
static const cap_value_t inside[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,  CAP_FSETID,           CAP_KILL,
    CAP_SETGID, CAP_SETUID,       CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_SETFCAP,
};

static const cap_value_t main_loop[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID,
                                        CAP_KILL};

int capabilities_keep(const cap_value_t *kept, int count, struct error *err)
{
    cap_t set = cap_init();
    int result = 0;

    if (!set || cap_set_flag(set, CAP_PERMITTED, count, kept, CAP_SET) < 0 ||
        cap_set_flag(set, CAP_EFFECTIVE, count, kept, CAP_SET) < 0)
        result = error_set_errno(err, ERR_INTERNAL, "capability set");
    for (cap_value_t cap = 0; result == 0 && cap < cap_max_bits(); cap++) {
        cap_flag_value_t wanted = CAP_CLEAR;

        cap_get_flag(set, cap, CAP_PERMITTED, &wanted);
        if (wanted == CAP_CLEAR && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            result = error_set_errno(err, ERR_INTERNAL, "bounding set");
    }
    if (result == 0 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        result = error_set_errno(err, ERR_INTERNAL, "ambient set");
    if (result == 0 && cap_set_proc(set) < 0)
        result = error_set_errno(err, ERR_INTERNAL, "capset");
    if (set)
        cap_free(set);
    return result;
}

int capabilities_raise(struct error *err)
{
    cap_t set = cap_get_proc();
    int result = 0;

    for (cap_value_t cap = 0; set && cap < cap_max_bits(); cap++) {
        cap_flag_value_t permitted = CAP_CLEAR;

        cap_get_flag(set, cap, CAP_PERMITTED, &permitted);
        cap_set_flag(set, CAP_EFFECTIVE, 1, &cap, permitted);
    }
    if (!set || cap_set_proc(set) < 0)
        result = error_set_errno(err, ERR_INTERNAL, "capset");
    if (set)
        cap_free(set);
    return result;
}

void capabilities_check(struct refusals *refusals)
{
    static const struct {
        cap_value_t cap;
        const char *name;
    } needed[] = {
        {CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
        {CAP_SYS_CHROOT, "CAP_SYS_CHROOT"}, /* setns(2) to a mount namespace */
        {CAP_CHOWN, "CAP_CHOWN"},
        {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
        {CAP_FOWNER, "CAP_FOWNER"},
        {CAP_FSETID, "CAP_FSETID"},
        {CAP_KILL, "CAP_KILL"},
        {CAP_SETUID, "CAP_SETUID"},
        {CAP_SETGID, "CAP_SETGID"},
        {CAP_SETPCAP, "CAP_SETPCAP"},
    };
    cap_t set = cap_get_proc();

    for (size_t i = 0; i < COUNT(needed); i++) {
        cap_flag_value_t value = CAP_CLEAR;

        if (set)
            cap_get_flag(set, needed[i].cap, CAP_PERMITTED, &value);
        if (value != CAP_SET)
            refusal_add(refusals, "%s is missing, with which sandboxes are made (capabilities(7))",
                        needed[i].name);
    }
    if (set)
        cap_free(set);
}

bool capabilities_have(int capability)
{
    cap_flag_value_t value = CAP_CLEAR;
    cap_t set = cap_get_proc();

    if (set) {
        cap_get_flag(set, capability, CAP_EFFECTIVE, &value);
        cap_free(set);
    }
    return value == CAP_SET;
}

int capabilities_keep_main(struct error *err)
{
    if (capabilities_keep(main_loop, COUNT(main_loop), err) < 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "no_new_privs");
    return 0;
}

/* What uid 0 means can't be changed inside, and no capability outlasts a change of id and an exec.
 * KEEP_CAPS stays free: daemons that drop root set it, and an exec clears it. */
int capabilities_drop(struct containment *containment, struct error *err)
{
    static const unsigned long bits = SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
                                      SECBIT_NO_CAP_AMBIENT_RAISE |
                                      SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

    (void)containment;
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "securebits");
    return capabilities_keep(inside, COUNT(inside), err);
}

int privileges_lock(struct containment *containment, struct error *err)
{
    (void)containment;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "no_new_privs");
    return 0;
}
