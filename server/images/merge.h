/* Several layers made one, for images that have more than an overlay is given. */
#ifndef SERVER_IMAGES_MERGE_H
#define SERVER_IMAGES_MERGE_H

#include <stddef.h>

#include "images/layer.h"

/* Unpack into `folder`, new and empty, what `count` layers (folders, the lowest first) make
 * together. Neither marks nor what they hide is left. */
int layer_merge(const int *layers, size_t count, int folder, struct layer *layer,
                struct error *err);

#endif
