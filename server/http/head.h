/* The strict reading of a request's head (RFC 9112), as a pure function: what it lets through has
 * one meaning only. */
#ifndef HTTP_HEAD_H
#define HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HEAD_BYTES_MAX = 32 * 1024, /* request line, fields and the empty line */
    HEAD_FIELDS_MAX = 64,
    /* What head_write may need: each field gains at most a blank. */
    HEAD_WRITTEN_MAX = HEAD_BYTES_MAX + HEAD_FIELDS_MAX + 64,
};

/* Bytes of the head; not NUL-terminated. */
struct span {
    const char *at;
    size_t length;
};

struct head_field {
    struct span name, value; /* value without the blanks around it */
};

/* Filled as far as the head was read; spans point into the bytes that were checked. */
struct head {
    int status;          /* HEAD_REFUSED: the answer it gets */
    const char *problem; /* HEAD_REFUSED: a sentence for `detail` */
    size_t length;       /* of the head, with its empty line */
    struct span method;
    struct span target; /* origin-form, or "*" */
    struct span host;   /* value of Host */
    bool rootless;      /* the target was an absolute URL without a path: "/" goes in front */
    bool http_1_0;
    bool chunked;
    bool keep_alive;
    bool upgrade; /* Connection names Upgrade */
    bool expect_continue;
    int64_t content_length; /* -1: none was given */
    size_t field_count;
    struct head_field fields[HEAD_FIELDS_MAX];
};

enum head_state { HEAD_PARTIAL, HEAD_COMPLETE, HEAD_REFUSED };

/* Look at what has come so far. `*scanned` is 0 for a new head, and is kept between calls, so that
 * a head that comes byte by byte costs no more than one that comes at once. What can't become a
 * head is refused before it is whole. */
enum head_state head_check(const char *bytes, size_t length, size_t *scanned, struct head *head);

/* Write a complete head for a lenient parser: one blank behind each colon, origin-form target, no
 * tabs, and without the fields that are the gate's own business (framing, connection, expectation).
 * Returns its length; `out` holds HEAD_WRITTEN_MAX. */
size_t head_write(const struct head *head, char *out);

#endif
