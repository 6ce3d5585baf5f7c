/* Layers of images: unpacked where nothing else is in reach, then made what an overlay takes. */
#ifndef SERVER_IMAGES_LAYER_H
#define SERVER_IMAGES_LAYER_H

#include "common/archive.h"
#include "common/error.h"

struct layer {
    char stored_sha256[SHA256_HEX_SIZE]; /* of the archive as it came */
    char plain_sha256[SHA256_HEX_SIZE];  /* of its tar: what the layer is called */
    char tree_sha256[SHA256_HEX_SIZE];   /* of what is in it now */
    int64_t entries;
    int64_t bytes;
};

/* Unpack the archive `fd` into `folder`, new and empty, which belongs to nobody else yet. It is
 * done by a process with namespaces of its own whose root is the folder, and which may do nothing
 * but give files away: whatever an archive makes of the reader, it is kept there. */
int layer_unpack(int fd, int folder, struct layer *layer, struct error *err);
/* Turn the marks of archives for what a layer hides (.wh.NAME, .wh..wh..opq) into those of
 * overlays. 1 when it hides all of the layers below. */
int layer_convert(int folder, struct error *err);
/* Fill in what `folder` holds: the digest, the entries, the bytes. */
int layer_measure(int folder, struct layer *layer, struct error *err);

#endif
