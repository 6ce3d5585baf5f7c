/* Where the files of a recipe are, and how they come into the sandbox that builds. */
#ifndef SERVER_IMAGES_CONTEXT_H
#define SERVER_IMAGES_CONTEXT_H

#include "common/field.h"
#include "common/token.h"
#include "run/sandbox.h"

/* One digest of the files and folders `paths` beneath `folder`: names, modes, contents. Links are
 * refused, and so is all that is neither file nor folder. */
int context_digest(int folder, const struct texts *paths, char digest[SHA256_HEX_SIZE],
                   struct error *err);
/* Write them into the workspace of a sandbox, under the same paths. */
int context_give(int folder, const struct texts *paths, struct sandbox_link *link,
                 const char *sandbox, struct error *err);

#endif
