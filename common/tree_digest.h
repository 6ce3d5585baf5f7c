/* What is beneath a folder, as one digest: the same for the same names, kinds, modes, owners,
 * contents, links and extended attributes. Times are left out. */
#ifndef COMMON_TREE_DIGEST_H
#define COMMON_TREE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Whoever has a digest of his own. */
struct tree_hash {
    void (*add)(void *state, const void *bytes, size_t length);
    void *state;
};

struct tree_content {
    int64_t entries;
    int64_t bytes; /* of all files */
};

int tree_digest(int folder, const struct tree_hash *hash, struct tree_content *content,
                struct error *err);

/* Whether an extended attribute is part of a layer. Others are the bookkeeping of the overlay that
 * wrote it, and would be wrong in another. */
bool tree_keeps_attribute(const char *name);
/* Calls `call` for each attribute of `fd` that is kept, in the order of names. */
int tree_each_attribute(int fd,
                        int (*call)(int fd, const char *name, const void *value, size_t length,
                                    void *context, struct error *err),
                        void *context, struct error *err);

#endif
