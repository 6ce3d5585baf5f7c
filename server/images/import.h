/* Images from archives: an OCI layout, what `docker save` writes, or a root file system. */
#ifndef SERVER_IMAGES_IMPORT_H
#define SERVER_IMAGES_IMPORT_H

#include "images/store.h"

/* Make the image `name` of the folder or archive at `source`. `reference` chooses one of several
 * that are in it; NULL: there is one. Every digest is checked, and nothing stays of what fails. */
int import_image(const struct store *store, const char *source, const char *reference,
                 const char *name, char digest[SHA256_HEX_SIZE], struct error *err);

#endif
