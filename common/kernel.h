/* What sandboxes need of the kernel, each thing found out by trying it. Nothing stays. */
#ifndef COMMON_KERNEL_H
#define COMMON_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

struct kernel_feature {
    const char *name;
    /* Try it; false with errno set. `folder` is on the file system of the sandboxes. */
    bool (*works)(const char *folder);
    const char *cure; /* in a line */
};

extern const struct kernel_feature kernel_features[];
extern const size_t kernel_feature_count;

/* The version of the running kernel, as 615 for 6.15; 0 when it can't be told. */
int kernel_version(void);
enum { KERNEL_VERSION_NEEDED = 6 * 100 + 15 };

/* Run `inside` (NULL: nothing) in a child with these namespaces. Returns its exit status, 0 to 255,
 * or -1 with errno when there is no such child. */
int kernel_try(unsigned long flags, int (*inside)(void));

#endif
