/* sandboxctl image build: from a recipe, in a sandbox, or a base from Debian packages. */
#ifndef SERVER_IMAGES_BUILD_H
#define SERVER_IMAGES_BUILD_H

#include "images/store.h"

struct image_build {
    const char *images;         /* the folder */
    const char *socket, *state; /* as of store_open */
    const char *name;
    bool fresh; /* not from the cache */
    int64_t memory_mb, step_seconds;
};

/* From the recipe at `path`; "-" is the standard input. */
int build_from_recipe(const struct image_build *build, const char *path, struct error *err);
/* By a program that is given a folder, and makes one of the name in it. */
int build_by_program(const struct image_build *build, const char *program, struct error *err);

/* Remove what builds that were cut off left, in the store and of sandboxes. */
int build_sweep(const struct image_build *build, struct error *err);

#endif
