/* Images: see image.h. They are made by sandboxctl, from archives of strangers, so that a manifest
 * is taken for nothing but what it says line by line. */
#include "supervisor/image.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/scope.h"

enum { MANIFEST_MAX = 128 * 1024 };

#define STORE ".store/"
#define LAYERS ".layers/"

/* No link is followed, not even one to beside. */
static int open_strictly(int folder, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS,
    };

    return (int)syscall(SYS_openat2, folder, path, &how, sizeof(how));
}

static int damaged(const char *name, const char *what, struct error *err)
{
    return error_set(err, ERR_INTERNAL, "the image '%s' is damaged: %s", name, what);
}

static bool is_digest(const char *text, size_t length)
{
    return length == IMAGE_DIGEST_LENGTH && strspn(text, "0123456789abcdef") >= length;
}

/* --- the manifest ---------------------------------------------------------------------------- */

/* The lines that a manifest has: those the supervisor does not need are checked all the same. */
static const char *const words[] = {"layer", "tree", "size", "env", "user", "workdir"};

static bool is_known(const char *line, size_t length)
{
    for (size_t i = 0; i < COUNT(words); i++) {
        size_t word = strlen(words[i]);

        if (length > word && line[word] == ' ' && memcmp(line, words[i], word) == 0)
            return true;
    }
    return false;
}

static int open_layer(int images, const char *name, const char *digest, struct image *image,
                      struct error *err)
{
    char path[sizeof(LAYERS) + IMAGE_DIGEST_LENGTH];
    int layer;

    if (image->count == IMAGE_LAYERS_MAX)
        return damaged(name, "it has too many layers", err);
    snprintf(path, sizeof(path), LAYERS "%.*s", IMAGE_DIGEST_LENGTH, digest);
    layer = open_strictly(images, path, O_PATH | O_DIRECTORY);
    if (layer < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return error_set_errno(err, ERR_UNAVAILABLE, "image '%s'", name);
    if (layer < 0)
        return damaged(name, "a layer is missing", err);
    image->layers[image->count++] = layer;
    return 0;
}

/* "image 1", lines of a word and a value, "end": what was cut off is noticed. */
static int read_lines(int images, const char *name, const char *text, size_t length,
                      struct image *image, struct error *err)
{
    static const char first[] = "image 1\n", last[] = "end\n";
    const char *end = text + length - strlen(last), *line = text + strlen(first);

    if (length < strlen(first) + strlen(last) || memcmp(text, first, strlen(first)) != 0 ||
        memcmp(end, last, strlen(last)) != 0 || end[-1] != '\n')
        return damaged(name, "its manifest is not whole", err);
    while (line < end) {
        size_t size = (size_t)((const char *)memchr(line, '\n', (size_t)(end - line)) - line);

        if (!is_known(line, size) || memchr(line, '\0', size))
            return damaged(name, "its manifest has a line that means nothing", err);
        if (strncmp(line, "layer ", 6) == 0 &&
            (!is_digest(line + 6, size - 6) || open_layer(images, name, line + 6, image, err) < 0))
            return err->kind == ERR_NONE ? damaged(name, "a layer has no digest", err) : -1;
        if (strncmp(line, "env ", 4) == 0) {
            if (!memchr(line + 5, '=', size < 5 ? 0 : size - 5) || line[4] == '=')
                return damaged(name, "a variable has no name", err);
            buffer_add(&image->variables, line + 4, size - 4);
            buffer_char(&image->variables, '\0');
        }
        line += size + 1;
    }
    return image->count ? 0 : damaged(name, "it has no layer", err);
}

static int open_stored(int images, const char *name, const char *target, struct image *image,
                       struct error *err)
{
    static char text[MANIFEST_MAX];
    auto_close int folder = open_strictly(images, target, O_PATH | O_DIRECTORY);
    auto_close int manifest =
        folder < 0 ? -1 : open_strictly(folder, "manifest", O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat status;
    ssize_t length;

    if (manifest < 0 || fstat(folder, &status) < 0)
        return damaged(name, "its manifest is missing", err);
    image->inode = status.st_ino;
    if (fstat(manifest, &status) < 0 || !S_ISREG(status.st_mode) ||
        status.st_size >= MANIFEST_MAX ||
        (length = pread(manifest, text, sizeof(text), 0)) != status.st_size)
        return damaged(name, "its manifest can't be read", err);
    err->kind = ERR_NONE;
    return read_lines(images, name, text, (size_t)length, image, err);
}

/* --- names ----------------------------------------------------------------------------------- */

static int open_plain(int folder, struct image *image, struct error *err)
{
    struct stat status;

    if (fstat(folder, &status) < 0)
        return error_set_errno(err, ERR_INTERNAL, "image");
    image->layers[image->count++] = folder;
    image->inode = status.st_ino;
    return 0;
}

/* A link to a version beside it, made by hand. */
static int open_linked(int images, const char *name, struct image *image, struct error *err)
{
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    int folder = (int)syscall(SYS_openat2, images, name, &how, sizeof(how));

    if (folder < 0)
        return damaged(name, "it is a link to no folder beside it", err);
    return open_plain(folder, image, err);
}

int image_open(int images, const char *name, struct image *image, struct error *err)
{
    char target[sizeof(STORE) + IMAGE_DIGEST_LENGTH];
    struct stat status;
    ssize_t length;
    int result;

    *image = (struct image){0};
    auto_close int found = strchr(name, '/') ? -1 : open_strictly(images, name, O_PATH);
    if (found < 0 || fstat(found, &status) < 0)
        return error_set(err, ERR_NOT_FOUND, "there is no image '%s'", name);
    if (S_ISDIR(status.st_mode))
        return open_plain(take_fd(&found), image, err);
    if (!S_ISLNK(status.st_mode))
        return error_set(err, ERR_NOT_FOUND, "there is no image '%s'", name);
    /* Read once: the name may be given to another version meanwhile. */
    length = readlinkat(found, "", target, sizeof(target));
    if (length == (ssize_t)sizeof(target) - 1 && memcmp(target, STORE, strlen(STORE)) == 0 &&
        is_digest(target + strlen(STORE), (size_t)length - strlen(STORE))) {
        target[length] = '\0';
        result = open_stored(images, name, target, image, err);
    } else {
        result = open_linked(images, name, image, err);
    }
    if (result < 0)
        image_close(image);
    return result;
}

void image_close(struct image *image)
{
    while (image->count)
        close(image->layers[--image->count]);
    buffer_done(&image->variables);
    image->variables = (struct buffer){0};
}
