/* The root file system: the overlay takes the place of the host's, and gets the sandbox's name. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/names.h"
#include "supervisor/steps.h"

/* The new root goes over the old one and the two change places (pivot_root(2), "."), so no folder
 * of the host is needed. Only once the host is out of reach are mount points looked up in the
 * image. */
int rootfs_pivot(struct containment *containment, struct error *err)
{
    if (move_mount(containment->root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return error_set_errno(err, ERR_INTERNAL, "attach root");
    if (fchdir(containment->root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return error_set_errno(err, ERR_INTERNAL, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0)
        return error_set_errno(err, ERR_INTERNAL, "detach the host");
    if (chdir("/") < 0)
        return error_set_errno(err, ERR_INTERNAL, "chdir");
    return 0;
}

/* Make the file, or replace the image's; whatever that name was before, a link perhaps, is not
 * followed. */
static int file_replace(int directory, const char *name, const char *text, struct error *err)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    size_t length = strlen(text);
    auto_close int fd = openat(directory, name, flags, 0644);

    if (fd < 0 && errno == EEXIST) {
        if (unlinkat(directory, name, 0) < 0)
            return error_set_errno(err, ERR_INTERNAL, "/etc/%s", name);
        fd = openat(directory, name, flags, 0644);
    }
    if (fd < 0 || write(fd, text, length) != (ssize_t)length)
        return error_set_errno(err, ERR_INTERNAL, "/etc/%s", name);
    return 0;
}

int rootfs_name(struct containment *containment, struct error *err)
{
    /* An image of a single program has none. */
    int made = mkdir("/etc", 0755);
    auto_close int etc = open("/etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char hosts[NAMES_LENGTH], hostname[NAMES_LENGTH];

    (void)made;
    if (etc < 0)
        return error_set_errno(err, ERR_INTERNAL, "the image's /etc must be a directory");
    names_hostname(hostname, containment->hostname);
    names_hosts(hosts, containment->hostname);
    if (file_replace(etc, "hostname", hostname, err) < 0 ||
        file_replace(etc, "hosts", hosts, err) < 0)
        return -1;
    return file_replace(etc, "resolv.conf",
                        containment->names ? containment->names
                                           : "# no network\noptions timeout:1 attempts:1\n",
                        err);
}
