/* Files as block devices: see loop_device.h. */
#include "common/loop_device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/scope.h"

enum { RACES = 64, PROBE_BYTES = 1 << 20 };

int loop_device_attach(int file, char device[LOOP_NAME], struct error *err)
{
    struct loop_config config = {
        .fd = (unsigned)file,
        .block_size = LOOP_BLOCK,
        /* Twice in the page cache would be once too often. */
        .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
    };
    auto_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (control < 0)
        return error_set_errno(err, ERR_UNAVAILABLE, "/dev/loop-control");
    for (int race = 0; race < RACES; race++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);

        if (number < 0)
            return error_set_errno(err, ERR_UNAVAILABLE, "a free loop device");
        snprintf(device, LOOP_NAME, "/dev/loop%d", number);
        auto_close int fd = open(device, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return error_set_errno(err, ERR_UNAVAILABLE, "%s", device);
        if (ioctl(fd, LOOP_CONFIGURE, &config) == 0)
            return take_fd(&fd);
        if (errno != EBUSY) /* somebody else took it */
            return error_set_errno(err, ERR_UNAVAILABLE, "%s", device);
    }
    return error_set(err, ERR_UNAVAILABLE, "no loop device was left free");
}

/* A file that nobody sees. In memory where the file system knows no such: the devices are what is
 * tried. */
int loop_device_probe(const char *folder, struct error *err)
{
    auto_close int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char device[LOOP_NAME];

    if (file < 0)
        file = memfd_create("probe", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, PROBE_BYTES) < 0)
        return error_set_errno(err, ERR_INTERNAL, "a file to try loop devices with");
    auto_close int loop = loop_device_attach(file, device, err);
    return loop < 0 ? -1 : 0;
}
