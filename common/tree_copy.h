/* A copy of all that is beneath a folder, as it is on the disk: modes, owners, times, holes, hard
 * and symbolic links, FIFOs, the extended attributes that tree_digest.h keeps, and the marks by
 * which an overlay hides what lies below. Sockets and devices are left out. */
#ifndef COMMON_TREE_COPY_H
#define COMMON_TREE_COPY_H

#include "common/error.h"

enum tree_copy_way {
    TREE_COPY,
    TREE_LINK, /* only folders are new: all else has one more name, and must never be changed */
};

/* From folder to folder (descriptors), the second one empty. No link is followed. What may change
 * meanwhile is the caller's to prevent. */
int tree_copy(int from, int to, enum tree_copy_way way, struct error *err);

#endif
