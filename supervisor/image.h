/* Images: from a name to the layers that a root file system is made of.
 *
 * In IMAGES_DIR a name is a folder, which is the one layer of its image, or a link to
 * `.store/DIGEST`, where DIGEST is 64 hexadecimal digits. There the file `manifest` names the
 * layers, which lie in `.layers`. Neither is ever changed, and a new version of an image is another
 * folder in the store: what runs keeps what it began with. */
#ifndef SUPERVISOR_IMAGE_H
#define SUPERVISOR_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"

enum { IMAGE_LAYERS_MAX = 32, IMAGE_DIGEST_LENGTH = 64 };

struct image {
    int layers[IMAGE_LAYERS_MAX]; /* folders, the lowest first */
    size_t count;
    uint64_t inode;          /* of the image's folder: tells its versions apart */
    struct buffer variables; /* "NAME=value" of its commands, each with its NUL */
};

/* Open the image `name` in the folder `images` (a descriptor). ERR_NOT_FOUND: there is none;
 * ERR_INTERNAL: it is damaged. Beneath the folder, whatever a manifest says. */
int image_open(int images, const char *name, struct image *image, struct error *err);
void image_close(struct image *image);
#define auto_image __attribute__((cleanup(image_close)))

#endif
