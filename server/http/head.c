/* The strict reading of a request's head: see head.h. */
#include "http/head.h"

#include <string.h>
#include <strings.h>

#include "common/scope.h"

#define MAXIMUM_LENGTH (INT64_C(1) << 62)

/* Classes of bytes, as bits. */
enum { TOKEN = 1, DIGIT = 2, HEX = 4, HOST = 8 };

static const unsigned char classes[256] = {
    ['0' ... '9'] = TOKEN | DIGIT | HEX | HOST,
    ['A' ... 'F'] = TOKEN | HEX | HOST,
    ['G' ... 'Z'] = TOKEN | HOST,
    ['a' ... 'f'] = TOKEN | HEX | HOST,
    ['g' ... 'z'] = TOKEN | HOST,
    ['!'] = TOKEN | HOST,
    ['#'] = TOKEN,
    ['$'] = TOKEN | HOST,
    ['%'] = TOKEN,
    ['&'] = TOKEN | HOST,
    ['\''] = TOKEN | HOST,
    ['('] = HOST,
    [')'] = HOST,
    ['*'] = TOKEN | HOST,
    ['+'] = TOKEN | HOST,
    [','] = HOST,
    ['-'] = TOKEN | HOST,
    ['.'] = TOKEN | HOST,
    [';'] = HOST,
    ['='] = HOST,
    ['^'] = TOKEN,
    ['_'] = TOKEN | HOST,
    ['`'] = TOKEN,
    ['|'] = TOKEN,
    ['~'] = TOKEN | HOST,
};

static bool is(char c, int class)
{
    return classes[(unsigned char)c] & class;
}

static bool all(struct span span, int class)
{
    for (size_t i = 0; i < span.length; i++)
        if (!is(span.at[i], class))
            return false;
    return span.length > 0;
}

static bool same(struct span a, struct span b)
{
    return a.length == b.length && !strncasecmp(a.at, b.at, a.length);
}

static struct span text(const char *text)
{
    return (struct span){text, strlen(text)};
}

static bool starts(struct span span, const char *prefix)
{
    size_t length = strlen(prefix);

    return span.length >= length && !strncasecmp(span.at, prefix, length);
}

static struct span from(struct span span, size_t start)
{
    return (struct span){span.at + start, span.length - start};
}

static struct span trim(struct span span)
{
    while (span.length && (span.at[0] == ' ' || span.at[0] == '\t'))
        span = from(span, 1);
    while (span.length && (span.at[span.length - 1] == ' ' || span.at[span.length - 1] == '\t'))
        span.length--;
    return span;
}

/* Up to `separator` or the end; `*rest` is what follows it. */
static struct span cut(struct span span, char separator, struct span *rest)
{
    const char *at = span.length ? memchr(span.at, separator, span.length) : NULL;
    size_t length = at ? (size_t)(at - span.at) : span.length;

    *rest = from(span, at ? length + 1 : length);
    return (struct span){span.at, length};
}

static bool refuse(struct head *head, int status, const char *problem)
{
    head->status = status;
    head->problem = problem;
    return false;
}

/* --- request line ---------------------------------------------------------------------------- */

/* A method that no route has is told by the router, with Allow. */
static bool check_method(struct head *head)
{
    static const char *const served[] = {"GET",   "HEAD",   "POST",   "PUT",
                                         "PATCH", "DELETE", "OPTIONS"};

    for (size_t i = 0; i < COUNT(served); i++)
        if (head->method.length == strlen(served[i]) &&
            !memcmp(head->method.at, served[i], head->method.length))
            return true;
    if (head->method.length == 5 && !memcmp(head->method.at, "TRACE", 5))
        return refuse(head, 405, "Method Not Allowed");
    return refuse(head, 400, "The request method is not known");
}

static bool check_version(struct head *head, struct span version)
{
    if (version.length == 8 && !memcmp(version.at, "HTTP/1.1", 8))
        return true;
    head->http_1_0 = true;
    if (version.length == 8 && !memcmp(version.at, "HTTP/1.0", 8))
        return true;
    return refuse(head, 400, "The HTTP version is neither 1.0 nor 1.1");
}

/* An escape must be whole in the path; a NUL is in no text that we take. */
static bool check_escapes(struct head *head)
{
    struct span query, path = cut(head->target, '?', &query);

    for (size_t i = 0; i < head->target.length; i++) {
        const char *at = head->target.at + i;
        bool whole = i + 2 < head->target.length && is(at[1], HEX) && is(at[2], HEX);

        if (*at != '%')
            continue;
        if (!whole && i < path.length)
            return refuse(head, 400, "The path has a malformed percent-encoding");
        if (whole && at[1] == '0' && at[2] == '0')
            return refuse(head, 400, "The target has a NUL");
    }
    return true;
}

static bool check_host(struct span host)
{
    struct span port, name;

    if (host.length > 0 && host.at[0] == '[') {
        name = cut(from(host, 1), ']', &port);
        if (name.length < 2 || name.length == host.length - 1 ||
            memchr(name.at, ':', name.length) == NULL)
            return false;
        for (size_t i = 0; i < name.length; i++)
            if (!is(name.at[i], HEX) && name.at[i] != ':' && name.at[i] != '.')
                return false;
        if (port.length == 0)
            return true;
        if (port.at[0] != ':')
            return false;
        port = from(port, 1);
    } else {
        name = cut(host, ':', &port);
        if (name.length == 0 || name.length > 255)
            return false;
        for (size_t i = 0; i < name.length; i++)
            if (!is(name.at[i], HOST) && !(name.at[i] == '%' && i + 2 < name.length &&
                                           is(name.at[i + 1], HEX) && is(name.at[i + 2], HEX)))
                return false;
    }
    return port.length == 0 || (all(port, DIGIT) && port.length <= 5);
}

/* Without the port that the scheme implies. */
static struct span plain_authority(struct span authority, const char *port)
{
    size_t length = strlen(port);

    if (authority.length > length &&
        !memcmp(authority.at + authority.length - length, port, length))
        authority.length -= length;
    return authority;
}

/* Leaves origin-form or "*" in head->target, and the authority of an absolute URL in `*authority`.
 */
static bool check_target(struct head *head, struct span *authority, const char **port)
{
    struct span target = head->target;
    size_t end = 0;

    for (size_t i = 0; i < target.length; i++)
        if ((unsigned char)target.at[i] <= ' ' || (unsigned char)target.at[i] >= 0x7F ||
            target.at[i] == '#')
            return refuse(head, 400, "The target has a byte that must be percent-encoded");
    if (target.length == 0)
        return refuse(head, 400, "The request line has no target");
    if (target.at[0] == '/')
        return check_escapes(head);
    if (target.length == 1 && target.at[0] == '*') {
        if (head->method.length == 7 && !memcmp(head->method.at, "OPTIONS", 7))
            return true;
        return refuse(head, 400, "The target * is for OPTIONS only");
    }
    *port = starts(target, "https://") ? ":443" : ":80";
    if (!starts(target, "http://") && !starts(target, "https://"))
        return refuse(head, 400, "The target is neither a path nor an http URL");
    target = from(target, starts(target, "https://") ? 8 : 7);
    while (end < target.length && target.at[end] != '/' && target.at[end] != '?')
        end++;
    *authority = (struct span){target.at, end};
    if (!check_host(*authority))
        return refuse(head, 400, "The target's authority is not valid");
    head->target = from(target, end);
    head->rootless = head->target.length == 0 || head->target.at[0] != '/';
    return check_escapes(head);
}

static bool check_request_line(struct head *head, struct span line, struct span *authority,
                               const char **port)
{
    struct span rest, version;

    head->method = cut(line, ' ', &rest);
    if (!all(head->method, TOKEN) || head->method.length == line.length)
        return refuse(head, 400, "The request line is malformed");
    head->target = cut(rest, ' ', &version);
    if (head->target.length == rest.length)
        return refuse(head, 400, "The request line is malformed");
    return check_version(head, version) && check_method(head) &&
           check_target(head, authority, port);
}

/* --- fields ---------------------------------------------------------------------------------- */

static bool take_host(struct head *head, struct span value)
{
    head->host = value;
    return check_host(value) || refuse(head, 400, "The Host field is not valid");
}

static bool take_content_length(struct head *head, struct span value)
{
    int64_t length = 0;

    if (!all(value, DIGIT) || value.length > 19)
        return refuse(head, 400, "Content-Length is not a number of bytes");
    for (size_t i = 0; i < value.length; i++) {
        if (length > (MAXIMUM_LENGTH - 9) / 10)
            return refuse(head, 400, "Content-Length is not a number of bytes");
        length = length * 10 + (value.at[i] - '0');
    }
    head->content_length = length;
    return true;
}

static bool take_transfer_encoding(struct head *head, struct span value)
{
    if (!same(value, text("chunked")))
        return refuse(head, 400, "Transfer-Encoding is not exactly `chunked`");
    if (head->http_1_0)
        return refuse(head, 400, "Transfer-Encoding is not part of HTTP/1.0");
    head->chunked = true;
    return true;
}

static bool take_connection(struct head *head, struct span value)
{
    struct span option, rest = value;
    bool closes = false;

    while (rest.length) {
        option = trim(cut(rest, ',', &rest));
        if (option.length == 0)
            continue;
        if (!all(option, TOKEN))
            return refuse(head, 400, "The Connection field is malformed");
        closes |= same(option, text("close"));
        head->upgrade |= same(option, text("upgrade"));
        if (same(option, text("keep-alive")))
            head->keep_alive = true;
    }
    if (closes)
        head->keep_alive = false;
    return true;
}

static bool take_expect(struct head *head, struct span value)
{
    if (!same(value, text("100-continue")))
        return refuse(head, 417, "The expectation is not known");
    head->expect_continue = !head->http_1_0;
    return true;
}

static bool take_upgrade(struct head *head, struct span value)
{
    struct span rest = value;

    while (rest.length) {
        struct span version, protocol = cut(trim(cut(rest, ',', &rest)), '/', &version);

        if (!all(protocol, TOKEN) || (version.length && !all(version, TOKEN)))
            return refuse(head, 400, "The Upgrade field is malformed");
    }
    return true;
}

/* Fields that mean something to the gate, or that must not be there twice: what one reader takes
 * from the first and another from the second is how requests are smuggled. */
struct known_field {
    const char *name;
    bool (*take)(struct head *head, struct span value);
    bool kept; /* the parser behind the gate sees it */
};

enum { FIELD_HOST, FIELD_CONTENT_LENGTH, FIELD_TRANSFER_ENCODING };

static const struct known_field known[] = {
    [FIELD_HOST] = {"host", take_host, true},
    [FIELD_CONTENT_LENGTH] = {"content-length", take_content_length, false},
    [FIELD_TRANSFER_ENCODING] = {"transfer-encoding", take_transfer_encoding, false},
    {"connection", take_connection, false},
    {"keep-alive", NULL, false},
    {"expect", take_expect, false},
    {"upgrade", take_upgrade, true},
    {"authorization", NULL, true},
    {"content-type", NULL, true},
    {"idempotency-key", NULL, true},
    {"last-event-id", NULL, true},
    {"origin", NULL, true},
    {"x-project", NULL, true},
};

static int known_index(struct span name)
{
    for (size_t i = 0; i < COUNT(known); i++)
        if (same(name, text(known[i].name)))
            return (int)i;
    return -1;
}

/* `line` is without its CRLF. */
static bool check_field(struct head *head, struct span line, unsigned *seen)
{
    struct span rest;
    struct head_field *field;
    int index;

    if (head->field_count == HEAD_FIELDS_MAX)
        return refuse(head, 431, "The request has more than 64 header fields");
    field = &head->fields[head->field_count++];
    field->name = cut(line, ':', &rest);
    if (field->name.length == line.length)
        return refuse(head, 400, "A header line has no colon");
    if (!all(field->name, TOKEN))
        return refuse(head, 400, "A header field's name is malformed");
    field->value = trim(rest);
    index = known_index(field->name);
    if (index < 0)
        return true;
    /* Connection is a list, and may come in several lines. */
    if (*seen & (1u << index) && known[index].take != take_connection)
        return refuse(head, 400, "A header field that may come once came twice");
    *seen |= 1u << index;
    return !known[index].take || known[index].take(head, field->value);
}

static bool check_fields(struct head *head, struct span lines, struct span authority,
                         const char *port)
{
    unsigned seen = 0;

    head->keep_alive = !head->http_1_0;
    while (lines.length) {
        struct span line = cut(lines, '\n', &lines);

        line.length--; /* CR: head_scan saw it before each LF */
        if (!check_field(head, line, &seen))
            return false;
    }
    if (!(seen & (1u << FIELD_HOST)) && !head->http_1_0)
        return refuse(head, 400, "The Host field is missing");
    if (seen & (1u << FIELD_CONTENT_LENGTH) && seen & (1u << FIELD_TRANSFER_ENCODING))
        return refuse(head, 400, "The request has both Content-Length and Transfer-Encoding");
    if (authority.length && head->host.length &&
        !same(plain_authority(authority, port), plain_authority(head->host, port)))
        return refuse(head, 400, "The target's authority is not the Host field's");
    return true;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Every byte is looked at once: line ends are CRLF, and there are no other controls. True when the
 * empty line was found, `*scanned` behind it. */
static bool scan(struct head *head, const char *bytes, size_t length, size_t *scanned)
{
    for (size_t i = *scanned; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];

        if (c >= ' ' && c != 0x7F) {
            if (i > 0 && bytes[i - 1] == '\r')
                return refuse(head, 400, "A line ends in CR alone");
            continue;
        }
        if (c == '\n' && (i == 0 || bytes[i - 1] != '\r'))
            return refuse(head, 400, "A line ends in LF alone");
        if (c != '\n' && i > 0 && bytes[i - 1] == '\r')
            return refuse(head, 400, "A line ends in CR alone");
        if (c != '\n' && c != '\r' && c != '\t')
            return refuse(head, 400, "The head has a control character");
        if (c == '\n' && i >= 3 && bytes[i - 2] == '\n') {
            *scanned = i + 1;
            return true;
        }
    }
    *scanned = length;
    return false;
}

enum head_state head_check(const char *bytes, size_t length, size_t *scanned, struct head *head)
{
    size_t before = *scanned;
    struct span authority = {0}, line, lines;
    const char *port = "";
    bool complete;

    head->status = 0;
    head->problem = NULL;
    head->rootless = head->http_1_0 = head->chunked = head->upgrade = head->expect_continue = false;
    head->content_length = -1;
    head->host = (struct span){0};
    head->field_count = 0;
    complete = scan(head, bytes, length < HEAD_BYTES_MAX ? length : HEAD_BYTES_MAX, scanned);
    if (head->status)
        return HEAD_REFUSED;
    if (!complete) {
        const char *end = memchr(bytes, '\n', *scanned);

        if (length >= HEAD_BYTES_MAX) {
            refuse(head, 431, "The request's head is larger than 32 KiB");
            return HEAD_REFUSED;
        }
        /* The first line is looked at as soon as it is there: what is no HTTP will never send the
         * rest. */
        if (end && (size_t)(end - bytes) >= before &&
            !check_request_line(head, (struct span){bytes, (size_t)(end - bytes) - 1}, &authority,
                                &port))
            return HEAD_REFUSED;
        return HEAD_PARTIAL;
    }
    head->length = *scanned;
    line = cut((struct span){bytes, head->length - 2}, '\n', &lines);
    line.length--;
    if (!check_request_line(head, line, &authority, &port) ||
        !check_fields(head, lines, authority, port))
        return HEAD_REFUSED;
    return HEAD_COMPLETE;
}

static char *put(char *out, struct span span)
{
    memcpy(out, span.at, span.length);
    return out + span.length;
}

size_t head_write(const struct head *head, char *out)
{
    char *at = put(out, head->method);

    *at++ = ' ';
    /* "*" is no path, and a path of that name is no route. */
    if (head->rootless || head->target.at[0] == '*')
        *at++ = '/';
    at = put(at, head->target);
    at = put(at, text(head->http_1_0 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n"));
    for (size_t i = 0; i < head->field_count; i++) {
        const struct head_field *field = &head->fields[i];
        int index = known_index(field->name);

        if (index >= 0 &&
            (!known[index].kept || (known[index].take == take_upgrade && !head->upgrade)))
            continue;
        at = put(at, field->name);
        at = put(at, text(": "));
        for (size_t j = 0; j < field->value.length; j++)
            *at++ = field->value.at[j] == '\t' ? ' ' : field->value.at[j];
        at = put(at, text("\r\n"));
    }
    at = put(at, text("\r\n"));
    return (size_t)(at - out);
}
