/* One JSON line per event on stderr: {"ts":…,"level":…,"event":…,"pid":…,"request_id":…,"caller":…,
 * values}.
 *
 *     LOG(INFO, "worker_started", V("pid", pid), V("address", text));
 *
 * Written with one write(2) of at most PIPE_BUF bytes, so that lines of several processes do not
 * mix: a value is cut at 2 KiB, and what does not fit the line is left out, which "cut":true tells.
 * Values are escaped (control characters, bytes that are not UTF-8). Secrets have a type of their
 * own (struct secret), which V does not take. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

struct log_value {
    const char *name;
    enum { LOG_VALUE_TEXT, LOG_VALUE_NUMBER, LOG_VALUE_REAL, LOG_VALUE_FLAG } type;
    union {
        const char *text;
        int64_t number;
        double real;
        bool flag;
    };
};

struct log_value log_text(const char *name, const char *value);
struct log_value log_number(const char *name, int64_t value);
struct log_value log_unsigned(const char *name, uint64_t value);
struct log_value log_real(const char *name, double value);
struct log_value log_flag(const char *name, bool value);

#define V(name, value) \
    _Generic((value), char *: log_text, const char *: log_text, int: log_number, long: log_number, \
        long long: log_number, unsigned: log_number, unsigned long: log_unsigned, bool: log_flag,  \
        double: log_real)(name, value)

#define LOG(level, event, ...)                                             \
    log_write(LOG_##level, event, (const struct log_value[]){__VA_ARGS__}, \
              sizeof((const struct log_value[]){__VA_ARGS__}) / sizeof(struct log_value))

/* Below `level` nothing is written. `program` names the process in each line; call again after a
 * fork. */
void log_init(const char *program, enum log_level level);
/* "debug", "info", "warning", "error", or Python's upper-case names (CRITICAL is error); -1 for
 * another. */
int log_level_of(const char *name);
/* What the lines of this thread carry from now on; NULL: nothing. The texts must live as long. */
void log_context(const char *request_id, const char *caller);
void log_write(enum log_level level, const char *event, const struct log_value *values,
               size_t count);

#endif
