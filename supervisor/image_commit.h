/* The message `image_commit`: what a sandbox changed becomes a layer, and with the layers that it
 * ran on a new image.
 *
 * Its processes end first, so that nobody changes the layer while it is read, or ever again. Of the
 * folder of images only what is new is written: a layer under its digest, a manifest under its own,
 * and a name that was free; a folder `.import.*` holds both until they are whole. The file `.lock`
 * keeps sandboxctl(8) away meanwhile. */
#ifndef SUPERVISOR_IMAGE_COMMIT_H
#define SUPERVISOR_IMAGE_COMMIT_H

#include <stdbool.h>

#include "supervisor/sandbox.h"
#include "supervisor/storekeeper.h"

/* Refuse what is known to fail, before the sandbox is stopped for it. */
int image_commit_check(const struct sandbox *box, const char *image, struct error *err);
/* In a sandbox that has ended: begin, if it is to become an image. `done` is called once. */
bool image_commit_due(struct sandbox *box, store_done *done, void *data);
/* Remove what one that was cut off left. */
void image_commit_sweep(void);

/* In a child of the storekeeper; `folder` is the sandbox's. */
int image_commit_make(const char *folder, const struct store_request *request, struct error *err);

#endif
