/* Which images sandboxes stand on: a lower layer that loses its files breaks who runs on it. */
#ifndef SERVER_IMAGES_USE_H
#define SERVER_IMAGES_USE_H

#include "images/store.h"

struct use {
    struct arena arena;
    int64_t *inodes; /* of the folders of images, one for each sandbox that runs */
    size_t count;
};

/* Ask the supervisor, and wait for what is on its way up. Without one, sandboxes may run on all the
 * same: then read what it wrote down. */
int use_read(const struct store *store, struct use *use, struct error *err);
/* How many stand on the folder with this inode, or may: of some it is not known. */
size_t use_count(const struct use *use, int64_t inode);
void use_done(struct use *use);
#define auto_use __attribute__((cleanup(use_done)))

#endif
