/* The syntax of JSON: see json_scan.h. */
#include "common/json_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/scope.h"
#include "common/utf8.h"

/* A key of an object that is still open. Only a hash and a place are kept: a body may have a
 * million of them. */
struct key {
    uint32_t hash;
    uint32_t at;
};

struct scanner {
    const char *text, *at, *end;
    struct json_fault *fault;
    struct key *keys; /* of all open objects, the innermost last */
    size_t key_count, key_capacity;
    struct {
        bool object;
        size_t first_key;
    } levels[JSON_DEPTH_MAX];
    int depth;
};

static void scanner_done(struct scanner *s)
{
    free(s->keys);
}

static int refuse(struct scanner *s, const char *at, const char *reason)
{
    s->fault->reason = reason;
    s->fault->position = utf8_count(s->text, (size_t)(at - s->text));
    return -1;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_space(struct scanner *s)
{
    while (s->at < s->end && is_space(*s->at))
        s->at++;
}

static bool accept(struct scanner *s, char c)
{
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* --- strings --------------------------------------------------------------------------- */

/* The value of four hexadecimal digits, or -1. Stops at the first byte that is none. */
static int32_t hex4(const char *at, const char *end)
{
    int32_t code = 0;

    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

static bool is_high(int32_t code)
{
    return code >= 0xD800 && code <= 0xDBFF;
}

static bool is_low(int32_t code)
{
    return code >= 0xDC00 && code <= 0xDFFF;
}

static int32_t pair(int32_t high, int32_t low)
{
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* At a backslash with something behind it. */
static int scan_escape(struct scanner *s)
{
    const char *at = s->at;
    int32_t code;

    if (at[1] != 'u') {
        if (!at[1] || !strchr("\"\\/bfnrt", at[1]))
            return refuse(s, at, "Invalid \\escape");
        s->at += 2;
        return 0;
    }
    code = hex4(at + 2, s->end);
    if (code < 0)
        return refuse(s, at + 1, "Invalid \\uXXXX escape");
    if (code == 0)
        return refuse(s, at, "U+0000 is not allowed");
    if (is_low(code))
        return refuse(s, at, "Lone surrogate");
    s->at += 6;
    if (is_high(code)) {
        if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u' ||
            !is_low(hex4(s->at + 2, s->end)))
            return refuse(s, at, "Lone surrogate");
        s->at += 6;
    }
    return 0;
}

/* At a quote. */
static int scan_string(struct scanner *s)
{
    const char *start = s->at++;

    while (s->at < s->end) {
        unsigned char c = (unsigned char)*s->at;

        if (c == '"') {
            s->at++;
            return 0;
        }
        if (c == '\\') {
            if (s->end - s->at < 2)
                break;
            if (scan_escape(s) < 0)
                return -1;
        } else if (c < 0x20) {
            return refuse(s, s->at, "Invalid control character at");
        } else if (c < 0x80) {
            s->at++;
        } else {
            size_t length = utf8_length(s->at, (size_t)(s->end - s->at));

            if (!length)
                return refuse(s, s->at, "Invalid UTF-8");
            s->at += length;
        }
    }
    return refuse(s, start, "Unterminated string starting at");
}

/* The first byte and what continues it, at most four; looks no further than the quote that must
 * follow. */
static size_t multibyte(const unsigned char *bytes)
{
    size_t length = 1;

    while (length < 4 && (bytes[length] & 0xC0) == 0x80)
        length++;
    return length;
}

/* The next character of a checked string, raw or escaped; -1 at its closing quote (or a NUL). */
static int32_t next_character(const char **at)
{
    static const char escapes[] = "b\bf\fn\nr\rt\t";
    const unsigned char *b = (const unsigned char *)*at;
    const char *escape;
    int32_t code;

    if (*b == '"' || !*b)
        return -1;
    if (*b == '\\' && b[1] == 'u') {
        int32_t low;

        code = hex4(*at + 2, *at + 2 + strnlen(*at + 2, 4));
        if (code < 0) {
            *at += 2;
            return '?';
        }
        *at += 6;
        if (!is_high(code) || (*at)[0] != '\\' || (*at)[1] != 'u')
            return code;
        low = hex4(*at + 2, *at + 2 + strnlen(*at + 2, 4));
        if (!is_low(low))
            return code;
        *at += 6;
        return pair(code, low);
    }
    if (*b == '\\' && b[1]) {
        *at += 2;
        for (escape = escapes; *escape; escape += 2)
            if (*escape == (char)b[1])
                return escape[1];
        return b[1];
    }
    if (*b < 0x80) {
        ++*at;
        return *b;
    }
    switch (utf8_length(b, multibyte(b))) {
    case 2:
        *at += 2;
        return (b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    case 3:
        *at += 3;
        return (b[0] & 0x0F) << 12 | (b[1] & 0x3F) << 6 | (b[2] & 0x3F);
    case 4:
        *at += 4;
        return (b[0] & 0x07) << 18 | (b[1] & 0x3F) << 12 | (b[2] & 0x3F) << 6 | (b[3] & 0x3F);
    default:
        ++*at;
        return '?'; /* never in a checked text; one byte, so that decoding never makes a text longer
                     */
    }
}

/* --- keys ------------------------------------------------------------------------------ */

static void push_key(struct scanner *s, const char *quoted)
{
    const char *at = quoted + 1;
    uint32_t hash = 2166136261u;

    for (int32_t c = next_character(&at); c >= 0; c = next_character(&at))
        hash = (hash ^ (uint32_t)c) * 16777619u;
    if (s->key_count == s->key_capacity) {
        s->key_capacity = s->key_capacity ? s->key_capacity * 2 : 64;
        s->keys = realloc(s->keys, s->key_capacity * sizeof(*s->keys));
        if (!s->keys)
            abort();
    }
    s->keys[s->key_count++] = (struct key){hash, (uint32_t)(quoted - s->text)};
}

static int compare_quoted(const char *a, const char *b)
{
    int32_t left, right;

    a++;
    b++;
    do {
        left = next_character(&a);
        right = next_character(&b);
    } while (left == right && left >= 0);
    return (left > right) - (left < right);
}

/* A total order, so that keys made to collide cost no more than a sort. */
static int compare_keys(const void *left, const void *right, void *text)
{
    const struct key *a = left, *b = right;

    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return compare_quoted((char *)text + a->at, (char *)text + b->at);
}

/* The keys of an object are all known: find a pair that is equal. */
static int close_object(struct scanner *s, size_t first)
{
    enum { FEW = 8 };
    struct key *keys = s->keys + first;
    size_t count = s->key_count - first;

    s->key_count = first;
    if (count > FEW)
        qsort_r(keys, count, sizeof(*keys), compare_keys, (void *)s->text);
    for (size_t i = 1; i < count; i++) {
        for (size_t j = count > FEW ? i - 1 : 0; j < i; j++) {
            uint32_t later = keys[i].at > keys[j].at ? keys[i].at : keys[j].at;

            if (compare_keys(&keys[i], &keys[j], (void *)s->text) == 0)
                return refuse(s, s->text + later, "Duplicate key");
        }
    }
    return 0;
}

/* --- numbers --------------------------------------------------------------------------- */

struct decimal {
    bool negative;
    const char *whole, *whole_end;
    const char *fraction, *fraction_end; /* equal when there is none */
    int64_t exponent;                    /* saturated */
};

static const char *digits(const char *at, const char *end)
{
    while (at < end && is_digit(*at))
        at++;
    return at;
}

/* Read a number by RFC 8259's grammar; returns its end, or NULL. */
static const char *decimal_read(const char *at, const char *end, struct decimal *out)
{
    static const int64_t saturated = INT64_C(1000000000000);
    const char *exponent;
    bool down = false;

    *out = (struct decimal){0};
    if (at < end && *at == '-') {
        out->negative = true;
        at++;
    }
    out->whole = at;
    out->whole_end = out->fraction = out->fraction_end = at = digits(at, end);
    if (at == out->whole || (*out->whole == '0' && at > out->whole + 1))
        return NULL;
    if (at + 1 < end && *at == '.' && is_digit(at[1])) {
        out->fraction = at + 1;
        out->fraction_end = at = digits(at + 1, end);
    }
    if (at == end || (*at != 'e' && *at != 'E'))
        return at;
    exponent = at + 1;
    if (exponent < end && (*exponent == '+' || *exponent == '-'))
        down = *exponent++ == '-';
    at = digits(exponent, end);
    if (at == exponent)
        return NULL;
    for (; exponent < at; exponent++)
        if (out->exponent < saturated)
            out->exponent = out->exponent * 10 + (*exponent - '0');
    if (down)
        out->exponent = -out->exponent;
    return at;
}

/* The first digit that is not 0, or NULL. The number is 0.D × 10^*point, D the digits from there
 * on. */
static const char *significant(const struct decimal *number, int64_t *point)
{
    for (const char *at = number->whole; at < number->whole_end; at++) {
        if (*at != '0') {
            *point = number->whole_end - at + number->exponent;
            return at;
        }
    }
    for (const char *at = number->fraction; at < number->fraction_end; at++) {
        if (*at != '0') {
            *point = number->fraction - at + number->exponent;
            return at;
        }
    }
    return NULL;
}

static bool overflows_double(const struct decimal *number, const char *start, const char *end)
{
    enum { DECIMAL_POINT_MAX = 309 }; /* DBL_MAX is 0.179… × 10^309 */
    auto_free char *copy = NULL;
    int64_t point;

    if (!significant(number, &point) || point < DECIMAL_POINT_MAX)
        return false;
    if (point > DECIMAL_POINT_MAX)
        return true;
    copy = strndup(start, (size_t)(end - start));
    if (!copy)
        abort();
    return !isfinite(strtod(copy, NULL));
}

static int scan_number(struct scanner *s)
{
    struct decimal number;
    const char *start = s->at;
    const char *end = decimal_read(start, s->end, &number);

    if (!end)
        return refuse(s, start, "Expecting value");
    if (overflows_double(&number, start, end))
        return refuse(s, start, "Number out of range");
    s->at = end;
    return 0;
}

enum json_integer json_integer(const char *at, int64_t *value)
{
    enum { DIGITS_MAX = 19 };
    struct decimal number;
    uint64_t sum = 0;
    int64_t point;
    const char *digit;

    if (!decimal_read(at, json_skip(at), &number))
        return INTEGER_FRACTION;
    digit = significant(&number, &point);
    if (!digit) {
        *value = 0;
        return INTEGER_EXACT;
    }
    if (point > DIGITS_MAX)
        return INTEGER_TOO_LARGE;
    if (point <= 0)
        return INTEGER_FRACTION;
    for (; point > 0; point--) {
        if (digit == number.whole_end)
            digit = number.fraction;
        sum = sum * 10;
        if (digit < number.fraction_end)
            sum += (uint64_t)(*digit++ - '0');
    }
    for (; digit < number.fraction_end; digit++)
        if (is_digit(*digit) && *digit != '0')
            return INTEGER_FRACTION;
    if (sum > (uint64_t)INT64_MAX + number.negative)
        return INTEGER_TOO_LARGE;
    *value = number.negative ? (int64_t)(0 - sum) : (int64_t)sum;
    return INTEGER_EXACT;
}

double json_double(const char *at)
{
    return strtod(at,
                  NULL); /* something that is no digit follows: a bracket, a comma, space or NUL */
}

/* --- values ---------------------------------------------------------------------------- */

static int scan_key(struct scanner *s)
{
    const char *start;

    skip_space(s);
    start = s->at;
    if (start == s->end || *start != '"')
        return refuse(s, start, "Expecting property name enclosed in double quotes");
    if (scan_string(s) < 0)
        return -1;
    push_key(s, start);
    skip_space(s);
    if (!accept(s, ':'))
        return refuse(s, s->at, "Expecting ':' delimiter");
    return 0;
}

/* Behind an opening bracket. Returns as scan_value does. */
static int scan_open(struct scanner *s, bool object)
{
    if (s->depth == JSON_DEPTH_MAX)
        return refuse(s, s->at - 1, "Nested too deeply");
    skip_space(s);
    if (accept(s, object ? '}' : ']'))
        return 0;
    s->levels[s->depth].object = object;
    s->levels[s->depth].first_key = s->key_count;
    s->depth++;
    if (object && scan_key(s) < 0)
        return -1;
    return 1;
}

static int scan_word(struct scanner *s, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0)
        return refuse(s, s->at, "Expecting value");
    s->at += length;
    return 0;
}

/* Returns 0 behind a whole value, 1 where the first value of a container is due. */
static int scan_value(struct scanner *s)
{
    skip_space(s);
    if (s->at == s->end)
        return refuse(s, s->at, "Expecting value");
    switch (*s->at) {
    case '{':
    case '[':
        return scan_open(s, *s->at++ == '{');
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        return scan_number(s);
    }
}

/* Behind a value. Returns 0 at the end of the text, 1 where another value is due. */
static int scan_rest(struct scanner *s)
{
    for (; s->depth > 0; s->depth--) {
        bool object = s->levels[s->depth - 1].object;

        skip_space(s);
        if (accept(s, ','))
            return object && scan_key(s) < 0 ? -1 : 1;
        if (!accept(s, object ? '}' : ']'))
            return refuse(s, s->at, "Expecting ',' delimiter");
        if (object && close_object(s, s->levels[s->depth - 1].first_key) < 0)
            return -1;
    }
    skip_space(s);
    return s->at == s->end ? 0 : refuse(s, s->at, "Extra data");
}

int json_scan(const char *text, size_t length, struct json_fault *fault)
{
    __attribute__((cleanup(scanner_done))) struct scanner s = {
        .text = text, .at = text, .end = text + length, .fault = fault};
    int due = 1;

    if (length >= UINT32_MAX)
        return refuse(&s, text, "Too long");
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        return refuse(&s, text, "Unexpected byte order mark");
    while (due > 0) {
        due = scan_value(&s);
        if (due == 0)
            due = scan_rest(&s);
    }
    return due;
}

/* --- walking --------------------------------------------------------------------------- */

const char *json_space(const char *at)
{
    while (is_space(*at))
        at++;
    return at;
}

static const char *skip_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at + 1 : at;
}

const char *json_skip(const char *at)
{
    int depth = 0;

    if (*at == '"')
        return skip_string(at);
    if (*at != '{' && *at != '[') {
        while (*at && !is_space(*at) && *at != ',' && *at != '}' && *at != ']')
            at++;
        return at;
    }
    do {
        if (*at == '"') {
            at = skip_string(at);
        } else {
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
            at++;
        }
    } while (depth > 0 && *at);
    return at;
}

char *json_unquote(struct arena *arena, const char *at, size_t *length)
{
    const char *end = skip_string(at) - 1;
    size_t room = (size_t)(end - ++at);
    char *text, *out;

    if (end < at)
        room = 0;
    if (!memchr(at, '\\', room)) {
        if (length)
            *length = room;
        return arena_copy(arena, at, room);
    }
    /* An escape is never shorter than its character: six bytes for at most three, twelve for four.
     */
    text = out = arena_alloc(arena, room + 4);
    for (int32_t c = next_character(&at); c >= 0; c = next_character(&at))
        out += utf8_put(out, (uint32_t)c);
    if (length)
        *length = (size_t)(out - text);
    return text;
}

bool json_quoted_is(const char *at, const char *text)
{
    size_t length = strlen(text);

    at++;
    if (strncmp(at, text, length) == 0 && at[length] == '"')
        return true;
    for (size_t i = 0; *at != '"' || text[i];) {
        int32_t c = next_character(&at);
        char bytes[4];
        size_t count;

        if (c <= 0)
            return false;
        count = utf8_put(bytes, (uint32_t)c);
        if (strncmp(bytes, text + i, count) != 0)
            return false;
        i += count;
    }
    return true;
}

void json_compact(struct buffer *out, const char *at)
{
    const char *end = json_skip(at);

    while (at < end) {
        const char *run = at;

        while (at < end && !is_space(*at))
            at = *at == '"' ? skip_string(at) : at + 1;
        buffer_add(out, run, (size_t)(at - run));
        while (at < end && is_space(*at))
            at++;
    }
}

bool json_walk(struct json_walk *walk)
{
    bool object = *walk->at == '{';
    const char *at;

    if (!object && *walk->at != '[')
        return false;
    at = json_space(walk->value ? json_skip(walk->value) : walk->at + 1);
    if (walk->value) {
        if (*at != ',')
            return false;
        at = json_space(at + 1);
    }
    if (!*at || *at == '}' || *at == ']')
        return false;
    if (object) {
        if (*at != '"')
            return false;
        walk->key = at;
        at = json_space(skip_string(at));
        if (*at != ':')
            return false;
        at = json_space(at + 1);
    }
    walk->value = at;
    return true;
}
