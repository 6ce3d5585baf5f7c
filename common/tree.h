/* A walk over all that is beneath a folder, in the order of names, following no link. */
#ifndef COMMON_TREE_H
#define COMMON_TREE_H

#include <sys/stat.h>

#include "common/error.h"

/* `directory` holds `name`; `path` is from the top. The walk ends with -1, and goes on with 0. The
 * entry may be removed, others beside it must not appear. */
typedef int tree_call(int directory, const char *path, const char *name, const struct stat *status,
                      void *context, struct error *err);

int tree_each(int folder, tree_call *call, void *context, struct error *err);
/* Remove `name` in `folder` with all that is in it; what is not there is fine. */
int tree_remove(int folder, const char *name, struct error *err);

#endif
