/* Files as block devices (loop(4)), and whether this machine lets us have any. */
#ifndef COMMON_LOOP_DEVICE_H
#define COMMON_LOOP_DEVICE_H

#include "common/error.h"

enum { LOOP_BLOCK = 4096, LOOP_NAME = 32 };

#define LOOP_DEVICE_CURE                                                               \
    "loop devices that can be used (modprobe loop; in a container: /dev/loop-control " \
    "and /dev/loop0 to loop63, and leave to open them)"

/* A free device with this file in it; `device` is its path. The caller owns the descriptor. The
 * device goes with its last user, however that ends. */
int loop_device_attach(int file, char device[LOOP_NAME], struct error *err);

/* Attach a file of the folder's own file system, for a moment. */
int loop_device_probe(const char *folder, struct error *err);

#endif
