/* The back ends of storage.h, in the storekeeper's hands: `folder` is the folder of a sandbox, or
 * of one to be. Each makes `folder/disk` with `ws` and `trash` in it. */
#ifndef SUPERVISOR_DISKS_H
#define SUPERVISOR_DISKS_H

#include <stdbool.h>

#include <stdbool.h>

#include "common/error.h"
#include "supervisor/storage.h"

int disk_make(const char *folder, const struct disk *disk, struct error *err);
int disk_attach(const char *folder, enum storage_kind kind, struct error *err);
/* Unmount it, and remove the folder. */
int disk_remove(const char *folder, struct error *err);

/* Unmount it; the folder stays. */
int disk_detach(const char *folder, struct error *err);

/* Attach a mount to `folder/disk`. */
int disk_mount(int mount, const char *folder, struct error *err);

/* One back end. */
struct disk_backend {
    const char *name;
    /* Whether it works in `folder`; the reason in `err`. */
    int (*probe)(const char *folder, struct error *err);
    int (*make)(const char *folder, const struct disk *disk, struct error *err);
    int (*attach)(const char *folder, struct error *err);
};

extern const struct disk_backend disk_backends[];

/* disk_reflink.c */
int reflink_probe(const char *folder, struct error *err);
int reflink_make(const char *folder, const struct disk *disk, struct error *err);
/* The disk of `folder`, as a clone of another, open at `disk_of`. */
int reflink_make_clone(int disk_of, const char *folder, const struct disk *disk, struct error *err);
/* A clone without a limit in the folder; -1 with errno. */
int reflink_clone(int disk_of, int folder, const char *name);
/* Remove the subvolume of `folder` at once, if it is one. */
void reflink_remove(const char *folder);
bool reflink_is(int at, const char *path);

/* disk_image.c */
int image_probe(const char *folder, struct error *err);
int image_make(const char *folder, const struct disk *disk, struct error *err);
int image_attach(const char *folder, struct error *err);
/* The disk of `folder`, as a clone of the image in a file. */
int image_clone(int file, const char *folder, struct error *err);
/* A detached mount of the image in a file that nobody else mounts. */
int image_mount_file(int file, struct error *err);
/* What is not yet written need not be: the disk is about to be removed. */
void image_forsake(const char *folder);

#endif
