/* Images that are mere folders, as base-image.sh makes them, brought into the store: with a digest
 * they can be verified, and built upon. */
#ifndef SERVER_IMAGES_ADOPT_H
#define SERVER_IMAGES_ADOPT_H

#include "images/store.h"

/* Its digest; an image that is in the store already is left as it is. The files stay where they
 * are on the disk, with one more name each, and so do the sandboxes that run on the folder. */
int adopt_image(const struct store *store, const char *name, char digest[SHA256_HEX_SIZE],
                struct error *err);

/* Give `name` to the files of `folder`, a descriptor, of the same file system. */
int adopt_folder(const struct store *store, int folder, const char *name,
                 char digest[SHA256_HEX_SIZE], struct error *err);

#endif
