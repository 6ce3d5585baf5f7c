/* One way to fail, for both programs: a kind and a sentence on the stack of whoever decides. */
#ifndef COMMON_ERROR_H
#define COMMON_ERROR_H

enum error_kind {
    ERR_NONE,
#define ERROR(kind, status) ERR_##kind,
#include "common/error.def"
#undef ERROR
    ERR_KINDS
};

/* Nothing in it is to be freed. A function that fails returns -1 and fills it; on success it is
 * left alone. */
struct error {
    enum error_kind kind;
    int retry_after_s;  /* 0: no Retry-After */
    const char *fields; /* JSON list of field errors (422), in the request's arena; NULL: `message`
                           is the detail */
    char message[480];  /* UTF-8, cut at a character's edge */
};

/* Fill `err` and return -1, so that a caller can write `return error_set(…)`. */
int error_set(struct error *err, enum error_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with ": " and the text of errno behind it (strerror(3)). */
int error_set_errno(struct error *err, enum error_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Put "step: " in front of the sentence; returns -1. */
int error_add_context(struct error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* So that the compiler sees the -1 as well, and knows that what success would have set is not read.
 */
static inline int error_failed(int minus_one)
{
    (void)minus_one;
    return -1;
}
#define error_set(...) error_failed((error_set)(__VA_ARGS__))
#define error_set_errno(...) error_failed((error_set_errno)(__VA_ARGS__))
#define error_add_context(...) error_failed((error_add_context)(__VA_ARGS__))
/* The HTTP status of a kind; 500 for what it does not know. */
int error_status(enum error_kind kind);
/* The kind's name, as error.def spells it. */
const char *error_name(enum error_kind kind);

#endif
