/* multipart/form-data, strictly: see multipart.h. */
#include "http/multipart.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/scope.h"
#include "common/utf8.h"

enum {
    BOUNDARY_MAX = 70,
    WINDOW_BYTES = 64 * 1024,
    PART_HEAD_MAX = 8 * 1024,
    PADDING_MAX = 64, /* blanks behind a delimiter */
};

/* --- header fields
 * -------------------------------------------------------------------------------------------------------
 */

static bool is_token(char c)
{
    return c && ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                 strchr("!#$%&'*+-.^_`|~", c));
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

/* The value at `at`, a token or in quotes: its text in the arena, and `*end` behind it. NULL when
 * it is neither. A backslash is doubled in quotes, and a quote may have one in front; in front of
 * anything else it is itself. */
static char *read_value(const char *at, struct arena *arena, const char **end)
{
    char *value = arena_alloc(arena, strlen(at) + 1);
    size_t used = 0;

    if (*at != '"') {
        while (is_token(*at))
            value[used++] = *at++;
        *end = at;
        return used ? value : NULL;
    }
    for (at++; *at && *at != '"'; at++) {
        if (*at == '\\' && (at[1] == '\\' || at[1] == '"'))
            at++;
        value[used++] = *at;
    }
    if (*at != '"')
        return NULL;
    *end = at + 1;
    return value;
}

/* Parameter `name` of a field whose parameters begin at `at` ("; a=b; c=\"d\""): 1 with *value, 0
 * when it is not there, -1 when the field is malformed or has it twice. */
static int find_parameter(const char *at, const char *name, struct arena *arena, char **value)
{
    int found = 0;

    for (at = skip_blanks(at); *at; at = skip_blanks(at)) {
        const char *begin;
        size_t length;
        char *text;

        if (*at++ != ';')
            return -1;
        begin = at = skip_blanks(at);
        if (!*at)
            break;
        while (is_token(*at))
            at++;
        length = (size_t)(at - begin);
        if (!length || *at++ != '=' || !(text = read_value(at, arena, &at)))
            return -1;
        if (strlen(name) != length || strncasecmp(begin, name, length) != 0)
            continue;
        if (found++)
            return -1;
        *value = text;
    }
    return found;
}

static bool is_boundary(const char *text)
{
    static const char letters[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'()+_,-./:=? ";
    size_t length = strlen(text);

    return length >= 1 && length <= BOUNDARY_MAX && strspn(text, letters) == length &&
           text[length - 1] != ' ';
}

static int refuse_missing(struct arena *arena, const char *message, const char *type,
                          struct error *err)
{
    error_set(err, ERR_INVALID, "the part 'file': %s", message);
    err->fields = arena_text(
        arena, "[{\"loc\":[\"body\",\"file\"],\"msg\":\"%s\",\"type\":\"%s\"}]", message, type);
    return -1;
}

static int read_boundary(const char *content_type, struct arena *arena, char **boundary,
                         struct error *err)
{
    static const char type[] = "multipart/form-data";
    const char *rest = content_type ? content_type + strcspn(content_type, "; \t") : NULL;

    if (!rest || (size_t)(rest - content_type) != strlen(type) ||
        strncasecmp(content_type, type, strlen(type)) != 0)
        return refuse_missing(arena, "Field required", "missing", err);
    if (find_parameter(rest, "boundary", arena, boundary) != 1 || !is_boundary(*boundary))
        return error_set(err, ERR_BAD_REQUEST,
                         "the multipart body has no boundary of 1 to 70 characters");
    return 0;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Undo what clients do to a file name: %22 for a quote, % and two upper-case digits for a control
 * character but ESC. False when that gives a NUL. */
static bool undo_escapes(char *name)
{
    char *out = name;

    for (const char *at = name; *at; at++) {
        int code =
            *at == '%' && hex(at[1]) >= 0 && hex(at[2]) >= 0 ? hex(at[1]) * 16 + hex(at[2]) : -1;

        if (code == 0)
            return false;
        if (code == '"' || (code > 0 && code < 0x20 && code != 0x1B)) {
            *out++ = (char)code;
            at += 2;
        } else {
            *out++ = *at;
        }
    }
    *out = '\0';
    return true;
}

/* --- the stream
 * ----------------------------------------------------------------------------------------------------------
 */

struct stream {
    body_source *source;
    void *context;
    struct arena *arena;
    struct upload *upload;
    int64_t limit;
    char delimiter[4 + BOUNDARY_MAX + 1]; /* CR LF - - boundary */
    size_t delimiter_length;
    bool ended;
    bool has_file;
    size_t begin, end; /* of what is left in the window */
    char window[WINDOW_BYTES];
};

/* More bytes into the window, which must have room. ERR_BAD_REQUEST at the end of the body. */
static int more(struct stream *stream, struct error *err)
{
    int got;

    if (stream->begin) {
        memmove(stream->window, stream->window + stream->begin, stream->end - stream->begin);
        stream->end -= stream->begin;
        stream->begin = 0;
    }
    got = stream->source(stream->context, stream->window + stream->end, WINDOW_BYTES - stream->end,
                         err);
    if (got < 0)
        return -1;
    if (got == 0)
        return error_set(err, ERR_BAD_REQUEST, "the multipart body ends too early");
    stream->end += (size_t)got;
    return 0;
}

static int write_file(struct stream *stream, const char *bytes, size_t length, struct error *err)
{
    struct upload *upload = stream->upload;

    if (upload->size + (int64_t)length > stream->limit)
        return error_set(err, ERR_TOO_LARGE, "a file has at most %ld bytes", (long)stream->limit);
    upload->size += (int64_t)length;
    while (length) {
        ssize_t wrote = write(upload->fd, bytes, length);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return error_set_errno(err, ERR_UNAVAILABLE, "there is no room for the upload");
        bytes += wrote;
        length -= (size_t)wrote;
    }
    return 0;
}

/* Move on behind the next delimiter; what lies in front of it goes to the file, or nowhere. */
static int pass_delimiter(struct stream *stream, bool keep, struct error *err)
{
    for (;;) {
        size_t left = stream->end - stream->begin, passed;
        const char *at = stream->window + stream->begin;
        const char *found = memmem(at, left, stream->delimiter, stream->delimiter_length);

        if (found)
            passed = (size_t)(found - at);
        else
            passed = left >= stream->delimiter_length ? left - stream->delimiter_length + 1 : 0;
        if (keep && write_file(stream, at, passed, err) < 0)
            return -1;
        stream->begin += passed;
        if (found) {
            stream->begin += stream->delimiter_length;
            return 0;
        }
        if (more(stream, err) < 0)
            return -1;
    }
}

/* Behind a delimiter: 1 when another part follows, 0 when it was the last. */
static int after_delimiter(struct stream *stream, struct error *err)
{
    for (;;) {
        const char *at = stream->window + stream->begin;
        size_t left = stream->end - stream->begin, blanks = 0;

        if (left >= 2 && at[0] == '-' && at[1] == '-') {
            stream->begin += 2;
            return 0;
        }
        while (blanks < left && (at[blanks] == ' ' || at[blanks] == '\t'))
            blanks++;
        if (blanks <= PADDING_MAX && left >= blanks + 2 && at[blanks] == '\r' &&
            at[blanks + 1] == '\n') {
            stream->begin += blanks + 2;
            return 1;
        }
        if (blanks > PADDING_MAX || left >= blanks + 2)
            return error_set(err, ERR_BAD_REQUEST,
                             "a boundary of the multipart body does not end its line");
        if (more(stream, err) < 0)
            return -1;
    }
}

/* --- parts
 * ---------------------------------------------------------------------------------------------------------------
 */

struct part {
    char *disposition;
    bool encoded; /* a transfer encoding that changes bytes */
};

static int read_field(char *line, struct part *part, struct error *err)
{
    char *colon = line;

    while (is_token(*colon))
        colon++;
    if (colon == line || *colon != ':')
        return error_set(err, ERR_BAD_REQUEST,
                         "a part of the multipart body has a malformed header");
    *colon = '\0';
    if (strcasecmp(line, "Content-Disposition") == 0) {
        if (part->disposition)
            return error_set(err, ERR_BAD_REQUEST,
                             "a part of the multipart body has two Content-Dispositions");
        part->disposition = colon + 1 + strspn(colon + 1, " \t");
    } else if (strcasecmp(line, "Content-Transfer-Encoding") == 0) {
        const char *encoding = skip_blanks(colon + 1);

        part->encoded = strcasecmp(encoding, "binary") != 0 && strcasecmp(encoding, "8bit") != 0 &&
                        strcasecmp(encoding, "7bit") != 0;
    }
    return 0;
}

/* Take the part's head out of the window, as lines that end in NUL. */
static int read_part_head(struct stream *stream, struct part *part, struct error *err)
{
    const char *at, *stop;
    char *head, *line, *next;

    for (;;) {
        size_t left = stream->end - stream->begin;

        at = stream->window + stream->begin;
        /* A part may have no header at all. */
        stop = left >= 2 && at[0] == '\r' && at[1] == '\n' ? at : memmem(at, left, "\r\n\r\n", 4);
        /* Without an end in sight: at the least it begins at the last three bytes. */
        if (stop ? stop - at > PART_HEAD_MAX : left > PART_HEAD_MAX + 3)
            return error_set(err, ERR_BAD_REQUEST,
                             "a part of the multipart body has more than 8 KiB of headers");
        if (stop)
            break;
        if (more(stream, err) < 0)
            return -1;
    }
    head = arena_copy(stream->arena, at, (size_t)(stop - at));
    if (strlen(head) != (size_t)(stop - at))
        return error_set(err, ERR_BAD_REQUEST,
                         "a part of the multipart body has NUL in its headers");
    stream->begin += (size_t)(stop - at) + (stop == at ? 2 : 4);
    for (line = head; line && *line; line = next) {
        next = strstr(line, "\r\n");
        if (next) {
            *next = '\0';
            next += 2;
        }
        if (strpbrk(line, "\r\n") || read_field(line, part, err) < 0)
            return error_set(err, ERR_BAD_REQUEST,
                             "a part of the multipart body has a malformed header");
    }
    return 0;
}

/* What the part's head says: 1 for the file, 0 for another. */
static int judge_part(struct stream *stream, const struct part *part, struct error *err)
{
    static const char form_data[] = "form-data";
    char *name = NULL, *file_name = NULL;
    const char *parameters;

    if (!part->disposition || strncasecmp(part->disposition, form_data, strlen(form_data)) != 0 ||
        is_token(part->disposition[strlen(form_data)]))
        return error_set(err, ERR_BAD_REQUEST, "a part of the multipart body is no form-data");
    parameters = part->disposition + strlen(form_data);
    if (find_parameter(parameters, "name", stream->arena, &name) != 1 ||
        find_parameter(parameters, "filename", stream->arena, &file_name) < 0)
        return error_set(err, ERR_BAD_REQUEST,
                         "a part of the multipart body has a malformed Content-Disposition");
    if (strcmp(name, "file") != 0)
        return 0;
    if (stream->has_file)
        return refuse_missing(stream->arena, "One file at a time", "value_error", err);
    if (part->encoded)
        return error_set(err, ERR_BAD_REQUEST,
                         "the file has a Content-Transfer-Encoding, which form-data never has");
    if (file_name && !undo_escapes(file_name))
        return error_set(err, ERR_BAD_REQUEST, "the file's name holds NUL");
    for (const char *at = file_name; at && *at; at += utf8_length(at, strlen(at)))
        if (!utf8_length(at, strlen(at)))
            return error_set(err, ERR_BAD_REQUEST, "the file's name is not UTF-8");
    stream->upload->file_name = file_name ? file_name : "";
    stream->has_file = true;
    return 1;
}

/* What follows the last delimiter is of no meaning, but belongs to the request. */
static int read_rest(struct stream *stream, struct error *err)
{
    int got;

    do
        got = stream->source(stream->context, stream->window, WINDOW_BYTES, err);
    while (got > 0);
    return got;
}

static int read_parts(struct stream *stream, struct error *err)
{
    bool keep = false; /* the preamble goes nowhere */

    for (;;) {
        struct part part = {0};
        int follows, is_file;

        if (pass_delimiter(stream, keep, err) < 0 || (follows = after_delimiter(stream, err)) < 0)
            return -1;
        if (!follows)
            return 0;
        if (read_part_head(stream, &part, err) < 0 ||
            (is_file = judge_part(stream, &part, err)) < 0)
            return -1;
        keep = is_file > 0;
    }
}

int multipart_receive(const char *content_type, body_source *source, void *context, int64_t limit,
                      struct arena *arena, struct upload *upload, struct error *err)
{
    struct stream *stream = arena_alloc(arena, sizeof(*stream));
    char *boundary = NULL;

    stream->source = source;
    stream->context = context;
    stream->arena = arena;
    stream->upload = upload;
    stream->limit = limit;
    upload->size = 0;
    if (read_boundary(content_type, arena, &boundary, err) < 0)
        return -1;
    stream->delimiter_length =
        (size_t)(stpcpy(stpcpy(stream->delimiter, "\r\n--"), boundary) - stream->delimiter);
    /* As if a line ended in front of the body: its first delimiter may be the very beginning. */
    memcpy(stream->window, "\r\n", 2);
    stream->end = 2;
    if (read_parts(stream, err) < 0 || read_rest(stream, err) < 0)
        return -1;
    if (!stream->has_file)
        return refuse_missing(arena, "Field required", "missing", err);
    return lseek(upload->fd, 0, SEEK_SET) < 0 ? error_set_errno(err, ERR_INTERNAL, "lseek") : 0;
}
