/* The variables of commands: see environment.h. */
#include "supervisor/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/scope.h"

enum { VARIABLES_MAX = 128 * 1024 };

/* In the folder of the layers, which goes with the boot; of it the sandbox sees only what is below
 * `u`. */
#define PLACE "environment" /* goes with the boot: lifecycle.c */

int environment_keep(int folder, const struct buffer *variables, struct error *err)
{
    auto_close int fd = -1;

    if (!variables->length)
        return 0;
    fd = openat(folder, PLACE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, variables->data, variables->length) != (ssize_t)variables->length)
        return error_set_errno(err, ERR_INTERNAL, "variables of the image");
    return 0;
}

/* Once in a boot. */
static const struct buffer *of_image(struct sandbox *box)
{
    struct error ignored;
    ssize_t length;

    if (box->environment_known)
        return &box->environment;
    auto_close int folder = sandbox_open_folder(box->id, &ignored);
    auto_close int fd = folder < 0 ? -1 : openat(folder, PLACE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    box->environment_known = true;
    if (fd < 0)
        return &box->environment;
    length = read(fd, buffer_reserve(&box->environment, VARIABLES_MAX), VARIABLES_MAX);
    /* Cut off, it is not what the image says. */
    if (length > 0 && box->environment.data[length - 1] == '\0')
        box->environment.length = (size_t)length;
    return &box->environment;
}

static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(a, "=");

    return strncmp(a, b, length) == 0 && b[length] == '=';
}

static bool is_among(const char *text, const struct texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        if (same_name(text, texts->items[i]))
            return true;
    return false;
}

static bool is_in(const char *text, const struct buffer *variables)
{
    for (size_t at = 0; at < variables->length; at += strlen(variables->data + at) + 1)
        if (same_name(text, variables->data + at))
            return true;
    return false;
}

static void add(struct buffer *packet, const char *text, uint32_t *count)
{
    buffer_add(packet, text, strlen(text) + 1);
    ++*count;
}

uint32_t environment_add(struct sandbox *box, const struct exec *body, struct buffer *packet)
{
    const struct buffer *image = of_image(box);
    uint32_t count = 0;

    for (size_t i = 0; i < body->environment.count; i++)
        add(packet, body->environment.items[i], &count);
    for (size_t at = 0; at < image->length; at += strlen(image->data + at) + 1)
        if (!is_among(image->data + at, &body->environment))
            add(packet, image->data + at, &count);
    for (size_t i = 0; i < body->defaults.count; i++)
        if (!is_among(body->defaults.items[i], &body->environment) &&
            !is_in(body->defaults.items[i], image))
            add(packet, body->defaults.items[i], &count);
    return count;
}

void environment_forget(struct sandbox *box)
{
    buffer_done(&box->environment);
    box->environment = (struct buffer){0};
    box->environment_known = false;
}
