/* The folder of images: what sandboxctl does to it, one command at a time. The supervisor only
 * reads it (supervisor/image.h says how it is laid out). */
#ifndef SERVER_IMAGES_STORE_H
#define SERVER_IMAGES_STORE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/token.h"

enum { IMAGE_NAME_MAX = 64, IMAGE_LAYERS_MAX = 32, MANIFEST_MAX = 128 * 1024 };

#define IMAGES_STORE ".store"
#define IMAGES_LAYERS ".layers"
#define IMAGES_WORK ".import."
#define IMAGES_REPLACED ".old."

struct store {
    int fd;
    int lock;           /* held for as long as it is open: one command at a time */
    const char *socket; /* the supervisor's */
    const char *state;  /* the supervisor's folder, read when it does not answer */
};

/* Where the images are and who uses them; what an import that was cut off left is removed. */
int store_open(const char *folder, const char *socket, const char *state, struct store *store,
               struct error *err);
void store_close(struct store *store);
#define auto_store __attribute__((cleanup(store_close)))

/* Calls `call` for every name in a folder, in order, until it is not 0. */
int store_each(int folder, const char *path,
               int (*call)(const char *name, void *context, struct error *err), void *context,
               struct error *err);

struct image_entry {
    char digest[SHA256_HEX_SIZE]; /* empty: it is a folder */
    struct stat status;           /* of its folder: tells its versions apart */
};

/* ERR_NOT_FOUND: there is none. */
int store_find(const struct store *store, const char *name, struct image_entry *image,
               struct error *err);

bool store_is_name(const char *name);
/* Whether `text` is 64 hexadecimal digits. */
bool store_is_digest(const char *text);
/* Give `name` to the image with this manifest; a version that had it before stays until it is
 * pruned. `work` is a folder of the store to make things in. */
int store_commit(const struct store *store, int work, const char *manifest, const char *name,
                 char digest[SHA256_HEX_SIZE], struct error *err);
/* Give `name` to a version that is there, in one step, whatever the name was before. */
int store_name(const struct store *store, const char *digest, const char *name, struct error *err);
/* A folder of the store to make things in, with a name that store_work_close removes. */
int store_work_open(const struct store *store, char name[32], struct error *err);
int store_work_close(const struct store *store, const char *name, struct error *err);
/* Move the folder `from` of `work` to its place among the layers, under its digest. One that is
 * there is the same. All of it must be on the disk. */
int store_keep_layer(const struct store *store, int work, const char *from, const char *digest,
                     struct error *err);
/* Calls `each` with every word and value of a manifest, until it is not 0. */
int store_read_manifest(const struct store *store, const char *digest, struct arena *arena,
                        int (*each)(const char *word, const char *value, void *context),
                        void *context, struct error *err);

enum store_style { STORE_NAMES, STORE_TABLE, STORE_JSON };
int store_list(const struct store *store, enum store_style style, FILE *out, struct error *err);
/* With `force` also what sandboxes stand on. */
int store_remove(const struct store *store, const char *name, bool force, struct error *err);
/* Remove versions and layers that no name leads to. */
int store_prune(const struct store *store, bool force, struct error *err);
/* Read all of an image, or of all images, and compare. */
int store_verify(const struct store *store, const char *name, FILE *out, struct error *err);

#endif
