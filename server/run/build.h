/* Building an image: a sandbox of its own runs the steps of a recipe, and becomes the image. */
#ifndef RUN_BUILD_H
#define RUN_BUILD_H

#include <stdbool.h>

#include "run/recipe.h"
#include "run/sandbox.h"

struct build {
    struct sandbox_link *link;
    const struct recipe *recipe;
    const char *sandbox; /* from build_sandbox */
    const char *image;   /* the name that it gets, which must be free */
    /* What the sandbox is given. */
    int64_t memory_bytes, pids, cpu_percent, tmp_bytes;
    int64_t step_ms; /* each step has so long */
    /* Put the files of the recipe into the workspace; NULL: it has none. */
    int (*give_files)(const struct build *build, struct error *err);
    void *context; /* of both calls */
    sandbox_hear *log;
    int cancel_fd; /* ends it, as that of sandbox_exec does; -1 */
};

/* Ids of build sandboxes are told from those of sessions, which are random: no session's row knows
 * them, and whoever looks for strays leaves them to their builder. */
void build_sandbox(char out[UUID_SIZE]);
bool build_is_sandbox(const char *sandbox);

/* Run it. However that ends, the sandbox is gone then, and of what failed there is no image. */
int build_run(const struct build *build, struct error *err);

#endif
