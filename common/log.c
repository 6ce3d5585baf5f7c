/* One JSON line per event on stderr: see log.h. */
#include "common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "common/scope.h"
#include "common/utf8.h"

/* A line of up to PIPE_BUF bytes is written whole or not at all (pipe(7)). */
enum { LINE_MAX_BYTES = PIPE_BUF, VALUE_MAX = 2048, NAME_MAX_BYTES = 64 };

static const char *const level_names[] = {"debug", "info", "warning", "error"};
static const char *program_name = "";
static enum log_level lowest = LOG_INFO;
static pid_t own_pid;
static _Thread_local const char *context_request, *context_caller;

/* A line being made. What does not fit is left out whole, so that the line stays JSON. */
struct line {
    char text[LINE_MAX_BYTES];
    size_t length;
    size_t limit;
    bool cut;
};

struct log_value log_text(const char *name, const char *value)
{
    return (struct log_value){.name = name, .type = LOG_VALUE_TEXT, .text = value};
}

struct log_value log_number(const char *name, int64_t value)
{
    return (struct log_value){.name = name, .type = LOG_VALUE_NUMBER, .number = value};
}

struct log_value log_unsigned(const char *name, uint64_t value)
{
    return log_number(name, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

struct log_value log_real(const char *name, double value)
{
    return (struct log_value){.name = name, .type = LOG_VALUE_REAL, .real = value};
}

struct log_value log_flag(const char *name, bool value)
{
    return (struct log_value){.name = name, .type = LOG_VALUE_FLAG, .flag = value};
}

void log_init(const char *program, enum log_level level)
{
    program_name = program;
    lowest = level;
    own_pid = getpid();
}

int log_level_of(const char *name)
{
    for (size_t i = 0; i < COUNT(level_names); i++)
        if (strcasecmp(name, level_names[i]) == 0)
            return (int)i;
    return strcasecmp(name, "critical") == 0 ? LOG_ERROR : -1;
}

void log_context(const char *request_id, const char *caller)
{
    context_request = request_id;
    context_caller = caller;
}

static void add(struct line *line, const char *bytes, size_t length)
{
    if (length > line->limit - line->length) {
        line->cut = true;
        return;
    }
    memcpy(line->text + line->length, bytes, length);
    line->length += length;
}

static void add_text(struct line *line, const char *text)
{
    add(line, text, strlen(text));
}

/* How a character is written: the length read, and in `out` what stands for it. */
static size_t escape(const char *at, size_t left, char out[8])
{
    size_t length = utf8_length(at, left);
    unsigned char c = (unsigned char)*at;

    if (!length)
        snprintf(out, 8, "\xEF\xBF\xBD");
    else if (c == '"' || c == '\\')
        snprintf(out, 8, "\\%c", c);
    else if (c == '\n')
        snprintf(out, 8, "\\n");
    else if (c < 0x20 || c == 0x7F)
        snprintf(out, 8, "\\u%04x", c);
    else
        snprintf(out, 8, "%.*s", (int)length, at);
    return length ? length : 1;
}

/* In quotes; at most `limit` bytes of it, then "…". */
static void add_string(struct line *line, const char *text, size_t limit)
{
    size_t left, stop = line->length + limit;

    if (!text) {
        add_text(line, "null");
        return;
    }
    left = strnlen(text, limit + 1);
    add_text(line, "\"");
    while (left) {
        char out[8];
        size_t read = escape(text, left, out);

        if (line->length + strlen(out) > stop || line->cut) {
            add_text(line, "…");
            break;
        }
        add_text(line, out);
        text += read;
        left -= read;
    }
    add_text(line, "\"");
}

static void add_value(struct line *line, const struct log_value *value)
{
    char number[48];

    switch (value->type) {
    case LOG_VALUE_TEXT:
        add_string(line, value->text, VALUE_MAX);
        return;
    case LOG_VALUE_NUMBER:
        snprintf(number, sizeof(number), "%" PRId64, value->number);
        break;
    case LOG_VALUE_REAL:
        snprintf(number, sizeof(number), isfinite(value->real) ? "%.9g" : "null", value->real);
        break;
    case LOG_VALUE_FLAG:
        snprintf(number, sizeof(number), "%s", value->flag ? "true" : "false");
        break;
    }
    add_text(line, number);
}

static void add_member(struct line *line, const struct log_value *value)
{
    size_t start = line->length;
    bool cut = line->cut;

    line->cut = false;
    add_text(line, ",");
    add_string(line, value->name, NAME_MAX_BYTES);
    add_text(line, ":");
    add_value(line, value);
    if (line->cut)
        line->length = start;
    line->cut |= cut;
}

static void add_time(struct line *line)
{
    struct timespec now;
    struct tm parts;
    char text[80];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    snprintf(text, sizeof(text), "{\"ts\":\"%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ\"",
             parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
             parts.tm_sec, now.tv_nsec / 1000);
    add_text(line, text);
}

void log_write(enum log_level level, const char *event, const struct log_value *values,
               size_t count)
{
    static const char cut_mark[] = ",\"cut\":true";
    struct line line = {.limit = LINE_MAX_BYTES - sizeof(cut_mark) - sizeof("}\n")};
    const struct log_value head[] = {
        log_text("level", level_names[level]),
        log_text("event", event),
        log_text("program", program_name),
        log_number("pid", own_pid ? own_pid : getpid()),
    };
    int saved = errno;

    if (level < lowest)
        return;
    add_time(&line);
    for (size_t i = 0; i < COUNT(head); i++)
        add_member(&line, &head[i]);
    if (context_request)
        add_member(&line, &(struct log_value){.name = "request_id", .text = context_request});
    if (context_caller)
        add_member(&line, &(struct log_value){.name = "caller", .text = context_caller});
    for (size_t i = 0; i < count; i++)
        add_member(&line, &values[i]);
    line.limit = LINE_MAX_BYTES;
    if (line.cut)
        add_text(&line, cut_mark);
    add_text(&line, "}\n");
    while (write(STDERR_FILENO, line.text, line.length) < 0 && errno == EINTR)
        continue;
    errno = saved;
}
