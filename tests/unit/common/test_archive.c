/* Archives from hostile hands, and honest ones there and back. Each is made here, unpacked into a
 * folder with a canary beside it, and the folder looked at. */
#include "common/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/arena.h"
#include "tests/unit/unit.h"

enum { BLOCK = 512 };

static const struct archive_rules rules = {
    .entries_max = 100, .bytes_max = 1 << 20, .ratio_max = 100};

/* --- making archives ------------------------------------------------------------------------- */

static void add_header(struct buffer *tar, char type, const char *name, const char *link,
                       const char *size, unsigned mode, unsigned owner)
{
    char block[BLOCK] = {0};
    unsigned sum = 0;

    memcpy(block, name, strnlen(name, 100));
    snprintf(block + 100, 8, "%07o", mode);
    snprintf(block + 108, 8, "%07o", owner);
    snprintf(block + 116, 8, "%07o", owner);
    memcpy(block + 124, size, strnlen(size, 12));
    snprintf(block + 136, 12, "%011o", 1000000000);
    memset(block + 148, ' ', 8);
    block[156] = type;
    memcpy(block + 157, link, strnlen(link, 100));
    memcpy(block + 257, "ustar\00000", 8);
    snprintf(block + 329, 8, "%07o", 1);
    snprintf(block + 337, 8, "%07o", 3);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    buffer_add(tar, block, BLOCK);
}

static void add_data(struct buffer *tar, const char *bytes, size_t length)
{
    static const char zeros[BLOCK];

    buffer_add(tar, bytes, length);
    if (length % BLOCK)
        buffer_add(tar, zeros, BLOCK - length % BLOCK);
}

static void add_sized(struct buffer *tar, char type, const char *name, const char *bytes,
                      size_t length, unsigned mode, unsigned owner)
{
    char size[16];

    snprintf(size, sizeof(size), "%011zo", length);
    add_header(tar, type, name, "", size, mode, owner);
    add_data(tar, bytes, length);
}

/* One entry: KIND|NAME|TEXT|MODE|OWNER. What follows KIND may be left out. KIND is f(ile), d(ir),
 * s(ymlink to TEXT), h(ard link to TEXT), c(har device), b(lock device), p(ipe), x (a pax record
 * NAME=TEXT for the next entry), L (a long name of TEXT letters), S (a file whose size field says
 * TEXT). */
static void add_entry(struct buffer *tar, const char *line, size_t length)
{
    char copy[1024], record[1100],
        *part[5] = {(char *)"", (char *)"", (char *)"", (char *)"644", (char *)"0"}, *rest = copy;
    unsigned mode, owner;

    ck_assert_uint_lt(length, sizeof(copy));
    memcpy(copy, line, length);
    copy[length] = '\0';
    for (size_t i = 0; i < 5 && rest; i++)
        part[i] = strsep(&rest, "|");
    mode = (unsigned)strtoul(part[3], NULL, 8);
    owner = (unsigned)strtoul(part[4], NULL, 10);
    switch (*part[0]) {
    case 'f':
        add_sized(tar, '0', part[1], part[2], strlen(part[2]), mode, owner);
        break;
    case 'S':
        add_header(tar, '0', part[1], "", part[2], mode, owner);
        break;
    case 'd':
        add_header(tar, '5', part[1], "", "0", mode, owner);
        break;
    case 's':
    case 'h':
        add_header(tar, *part[0] == 's' ? '2' : '1', part[1], part[2], "0", mode, owner);
        break;
    case 'c':
    case 'b':
    case 'p':
        add_header(tar,
                   *part[0] == 'c'   ? '3'
                   : *part[0] == 'b' ? '4'
                                     : '6',
                   part[1], "", "0", mode, owner);
        break;
    case 'x': {
        size_t body = strlen(part[1]) + strlen(part[2]) + 3, digits = body > 97 ? 3 : 2;

        snprintf(record, sizeof(record), "%zu %s=%s\n", body + digits, part[1], part[2]);
        add_sized(tar, 'x', "pax", record, strlen(record), 0644, 0);
        break;
    }
    case 'L': {
        size_t letters = strtoul(part[2], NULL, 10);
        auto_buffer struct buffer name = {0};

        for (size_t i = 0; i < letters; i++)
            buffer_char(&name, *part[1] ? part[1][i % strlen(part[1])] : 'n');
        add_sized(tar, 'L', "././@LongLink", name.data, letters + 1, 0644, 0);
        add_sized(tar, '0', "short", "x", 1, 0644, 0);
        break;
    }
    default:
        ck_abort_msg("bad line %s", line);
    }
}

static void make_tar(struct buffer *tar, const char *script, bool end)
{
    static const char zeros[2 * BLOCK];

    while (*script) {
        size_t length = strcspn(script, "\n");

        add_entry(tar, script, length);
        script += length + (script[length] != '\0');
    }
    if (end)
        buffer_add(tar, zeros, sizeof(zeros));
}

static void compress(const struct buffer *in, struct buffer *out, int filter)
{
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    size_t room = in->length + 65536, used = 0;

    archive_write_set_format_raw(archive);
    archive_write_add_filter(archive, filter);
    archive_write_set_bytes_in_last_block(archive, 1);
    ck_assert_int_eq(archive_write_open_memory(archive, buffer_reserve(out, room), room, &used),
                     ARCHIVE_OK);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_write_header(archive, entry);
    archive_write_data(archive, in->data, in->length);
    archive_write_close(archive);
    archive_write_free(archive);
    archive_entry_free(entry);
    out->length = used;
}

static unsigned crc32_of(const char *bytes, size_t length)
{
    unsigned crc = ~0u;

    for (size_t i = 0; i < length; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void add_number(struct buffer *zip, unsigned long value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        buffer_char(zip, (char)(value >> (8 * i)));
}

/* Lines as above, f and s only; MODE 1 marks an entry as encrypted, OWNER adds to its size. */
static void make_zip(struct buffer *zip, const char *script)
{
    auto_buffer struct buffer central = {0};
    unsigned entries = 0;

    for (; *script; entries++) {
        char copy[1024], *part[5] = {(char *)"", (char *)"", (char *)"", (char *)"0", (char *)"0"},
                         *rest = copy;
        unsigned at = (unsigned)zip->length, length, size, flags;

        snprintf(copy, sizeof(copy), "%.*s", (int)strcspn(script, "\n"), script);
        script += strlen(copy) + (script[strlen(copy)] != '\0');
        for (size_t i = 0; i < 5 && rest; i++)
            part[i] = strsep(&rest, "|");
        length = (unsigned)strlen(part[2]);
        size = length + (unsigned)strtoul(part[4], NULL, 10);
        flags = (unsigned)strtoul(part[3], NULL, 10);
        add_number(&central, 0x02014b50, 4);
        add_number(zip, 0x04034b50, 4);
        add_number(&central, 3 << 8 | 20, 2); /* made on Unix: has modes */
        for (int i = 0; i < 2; i++) {
            struct buffer *out = i ? &central : zip;

            add_number(out, 20, 2);
            add_number(out, flags, 2);
            add_number(out, 0, 6); /* stored; time, date */
            add_number(out, crc32_of(part[2], length), 4);
            add_number(out, length, 4);
            add_number(out, size, 4);
            add_number(out, (unsigned)strlen(part[1]), 2);
            add_number(out, 0, 2);
        }
        add_number(&central, 0, 6); /* comment, disk, inner attributes */
        add_number(&central, (*part[0] == 's' ? S_IFLNK | 0777u : S_IFREG | 0644u) << 16, 4);
        add_number(&central, at, 4);
        buffer_text(&central, part[1]);
        buffer_text(zip, part[1]);
        buffer_text(zip, part[2]);
    }
    unsigned start = (unsigned)zip->length;
    buffer_add(zip, central.data, central.length);
    add_number(zip, 0x06054b50, 4);
    add_number(zip, 0, 4);
    add_number(zip, entries, 2);
    add_number(zip, entries, 2);
    add_number(zip, (unsigned)central.length, 4);
    add_number(zip, start, 4);
    add_number(zip, 0, 2);
}

static int file_of(const struct buffer *bytes)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes->data, bytes->length), (ssize_t)bytes->length);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

/* --- the place ------------------------------------------------------------------------------- */

static char place[64];

static int open_place(void)
{
    char path[128];

    snprintf(place, sizeof(place), "/tmp/archive-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(place));
    snprintf(path, sizeof(path), "%s/canary", place);
    auto_close int canary = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ck_assert_int_eq(write(canary, "untouched", 9), 9);
    snprintf(path, sizeof(path), "%s/in", place);
    ck_assert_int_eq(mkdir(path, 0755), 0);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count - 2;
}

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...)
{
    char command[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(command, sizeof(command), format, values);
    va_end(values);
    return system(command);
}

/* Nothing was made beside the folder, and the canary is as it was, alone. */
static void close_place(int folder)
{
    char path[128], text[32] = "";
    struct stat status;

    snprintf(path, sizeof(path), "%s/canary", place);
    auto_close int canary = open(path, O_RDONLY);
    ck_assert_int_eq(read(canary, text, sizeof(text) - 1), 9);
    ck_assert_str_eq(text, "untouched");
    ck_assert_int_eq(fstat(canary, &status), 0);
    ck_assert_int_eq((int)status.st_nlink, 1);
    ck_assert_uint_eq(status.st_mode & 07777, 0600);
    ck_assert_int_eq(count_entries(place), 2);
    close(folder);
    ck_assert_int_eq(shell("rm -rf %s", place), 0);
}

/* --- the corpus ------------------------------------------------------------------------------ */

enum shape { TAR, NO_END, HALF, GZIP, ZSTD, GZIP_TWICE, GZIP_CUT, ZIP, RAW };

static const struct {
    const char *name;
    enum shape shape;
    const char *script;
    enum error_kind outcome;
    const char *path, *content; /* a file that is there then */
} corpus[] = {
    {"a file", TAR, "f|a|hello", ERR_NONE, "a", "hello"},
    {"gzip", GZIP, "f|a|hello", ERR_NONE, "a", "hello"},
    {"zstd", ZSTD, "f|a|hello", ERR_NONE, "a", "hello"},
    {"zip", ZIP, "f|d/a|hello", ERR_NONE, "d/a", "hello"},
    {"parents are made", TAR, "f|./x//y/./z|deep", ERR_NONE, "x/y/z", "deep"},
    {"the later one counts", TAR, "f|a|one\nf|a|two", ERR_NONE, "a", "two"},
    {"a link is replaced, not followed", TAR, "s|a|../canary\nf|a|mine", ERR_NONE, "a", "mine"},
    {"a hard link within", TAR, "f|a|same\nh|b|a", ERR_NONE, "b", "same"},
    {"a hard link to itself", TAR, "f|a|same\nh|a|a", ERR_NONE, "a", "same"},
    {"a hard link to a link is a link", TAR, "f|a|x\ns|l|../canary\nh|m|l\nf|m|y", ERR_NONE, "m",
     "y"},
    {"set-id bits go", TAR, "f|a|x|6755", ERR_NONE, "a", "x"},
    {"nothing but an end", TAR, "", ERR_NONE, NULL, NULL},
    {"a name by pax", TAR, "x|path|p/q\nf|short|x", ERR_NONE, "p/q", "x"},
    {"a name in UTF-8 by pax", TAR, "x|path|\xc3\xa4/\xe2\x82\xac\nf|short|x", ERR_NONE,
     "\xc3\xa4/\xe2\x82\xac", "x"},
    {"a name that is not UTF-8", TAR, "f|\xff\xfe|x", ERR_NONE, "\xff\xfe", "x"},
    {"an absolute name", TAR, "f|/tmp/evil|x", ERR_INVALID, NULL, NULL},
    {"an absolute name by pax", TAR, "x|path|/tmp/evil\nf|a|x", ERR_INVALID, NULL, NULL},
    {"up", TAR, "f|../evil|x", ERR_INVALID, NULL, NULL},
    {"up from within", TAR, "d|a\nf|a/../../evil|x", ERR_INVALID, NULL, NULL},
    {"up by pax", TAR, "x|path|../evil\nf|a|x", ERR_INVALID, NULL, NULL},
    {"up at the end", TAR, "d|a/..", ERR_INVALID, NULL, NULL},
    {"a folder up", TAR, "d|../evil", ERR_INVALID, NULL, NULL},
    {"no name", TAR, "f||x", ERR_INVALID, NULL, NULL},
    {"a file in the folder's place", TAR, "f|.|x", ERR_INVALID, NULL, NULL},
    {"a link in the folder's place", TAR, "s|./|..", ERR_INVALID, NULL, NULL},
    {"written through a link", TAR, "s|a|..\nf|a/evil|x", ERR_INVALID, NULL, NULL},
    {"written through an absolute link", TAR, "s|a|/tmp\nf|a/evil|x", ERR_INVALID, NULL, NULL},
    {"written through a link within", TAR, "d|b\ns|a|b\nf|a/c|x", ERR_INVALID, NULL, NULL},
    {"a folder over a link", TAR, "s|a|..\nd|a\nf|a/evil|x", ERR_INVALID, NULL, NULL},
    {"a link over a folder", TAR, "d|a\nf|a/b|x\ns|a|..\nf|a/evil|x", ERR_INVALID, NULL, NULL},
    {"a link over an empty folder", TAR, "d|a\ns|a|..", ERR_INVALID, NULL, NULL},
    {"a file as a folder", TAR, "f|a|x\nf|a/b|x", ERR_INVALID, NULL, NULL},
    {"a hard link out", TAR, "h|a|../canary\nf|a|evil", ERR_INVALID, NULL, NULL},
    {"an absolute hard link", TAR, "h|a|/etc/passwd", ERR_INVALID, NULL, NULL},
    {"a hard link through a link", TAR, "s|l|..\nh|a|l/canary", ERR_INVALID, NULL, NULL},
    {"a hard link to nothing", TAR, "h|a|b", ERR_INVALID, NULL, NULL},
    {"a hard link to a folder", TAR, "d|b\nh|a|b", ERR_INVALID, NULL, NULL},
    {"a hard link to the folder", TAR, "h|a|.", ERR_INVALID, NULL, NULL},
    {"a hard link out by pax", TAR, "x|linkpath|../canary\nh|a|b", ERR_INVALID, NULL, NULL},
    {"a link to nothing", TAR, "s|a|", ERR_INVALID, NULL, NULL},
    {"a character device", TAR, "c|null", ERR_INVALID, NULL, NULL},
    {"a block device", TAR, "b|sda", ERR_INVALID, NULL, NULL},
    {"a FIFO", TAR, "p|pipe", ERR_INVALID, NULL, NULL},
    {"a name of 300 letters", TAR, "L|n|300", ERR_INVALID, NULL, NULL},
    {"a path of 5000 letters", TAR, "L|a/|5000", ERR_INVALID, NULL, NULL},
    {"600 folders deep", TAR, "L|a/|1201", ERR_INVALID, NULL, NULL},
    {"a file larger than all", TAR, "S|a|77777777777", ERR_TOO_LARGE, NULL, NULL},
    {"a negative size", TAR, "S|a|-1", ERR_INVALID, NULL, NULL},
    {"a size of 2^63", TAR, "x|size|9223372036854775807\nf|a|x", ERR_INVALID, NULL, NULL},
    {"a sparse file of 8 EiB", TAR,
     "x|GNU.sparse.realsize|9223372036854775806\nx|GNU.sparse.map|0,1\nf|a|x", ERR_NONE, "a", "x"},
    {"cut before its end mark", NO_END, "f|a|hello", ERR_INVALID, NULL, NULL},
    {"cut within a file", HALF, "f|a|hello", ERR_INVALID, NULL, NULL},
    {"cut gzip", GZIP_CUT, "f|a|hello", ERR_INVALID, NULL, NULL},
    {"gzip in gzip", GZIP_TWICE, "f|a|hello", ERR_INVALID, NULL, NULL},
    {"nothing", RAW, "", ERR_INVALID, NULL, NULL},
    {"no archive", RAW, "what is this", ERR_INVALID, NULL, NULL},
    {"an absolute name in a zip", ZIP, "f|/tmp/evil|x", ERR_INVALID, NULL, NULL},
    {"up in a zip", ZIP, "f|../evil|x", ERR_INVALID, NULL, NULL},
    {"through a link in a zip", ZIP, "s|a|..\nf|a/evil|x", ERR_INVALID, NULL, NULL},
    {"an encrypted zip", ZIP, "f|a|x|1", ERR_INVALID, NULL, NULL},
    {"a zip that lies about a size", ZIP, "f|a|x|0|1000", ERR_INVALID, NULL, NULL},
};

static void make_archive(struct buffer *out, enum shape shape, const char *script)
{
    auto_buffer struct buffer tar = {0}, once = {0};

    if (shape == ZIP || shape == RAW) {
        shape == ZIP ? make_zip(out, script) : buffer_text(out, script);
        return;
    }
    make_tar(&tar, script, shape != NO_END);
    if (shape == HALF)
        tar.length = BLOCK + 3;
    if (shape <= HALF) {
        buffer_add(out, tar.data, tar.length);
        return;
    }
    compress(&tar, shape == GZIP_TWICE ? &once : out,
             shape == ZSTD ? ARCHIVE_FILTER_ZSTD : ARCHIVE_FILTER_GZIP);
    if (shape == GZIP_TWICE)
        compress(&once, out, ARCHIVE_FILTER_GZIP);
    if (shape == GZIP_CUT)
        out->length -= 12;
}

START_TEST(an_archive_has_its_outcome)
{
    auto_buffer struct buffer bytes = {0};
    struct archive_result result;
    struct error err = {0};
    int folder = open_place(), status;

    buffer_reserve(&bytes, 1);
    make_archive(&bytes, corpus[_i].shape, corpus[_i].script);
    auto_close int fd = file_of(&bytes);
    status = archive_unpack(fd, folder, &rules, &result, &err);
    ck_assert_msg(err.kind == corpus[_i].outcome, "%s: %s: %s", corpus[_i].name,
                  error_name(err.kind), err.message);
    ck_assert_int_eq(status, err.kind == ERR_NONE ? 0 : -1);
    if (corpus[_i].path) {
        char text[64] = "";
        struct stat seen;
        auto_close int file = openat(folder, corpus[_i].path, O_RDONLY | O_NOFOLLOW);

        ck_assert_msg(file >= 0 && read(file, text, sizeof(text) - 1) >= 0, "%s", corpus[_i].name);
        ck_assert_str_eq(text, corpus[_i].content);
        ck_assert_int_eq(fstat(file, &seen), 0);
        ck_assert_uint_eq(seen.st_mode & 07000, 0);
    }
    ck_assert_msg(shell("test -z \"$(find %s -name '.unpack-*')\"", place) == 0, "%s",
                  corpus[_i].name);
    close_place(folder);
}
END_TEST

/* --- bounds ---------------------------------------------------------------------------------- */

static enum error_kind unpack_bytes(const struct buffer *bytes, const struct archive_rules *bounds,
                                    struct archive_result *result)
{
    struct error err = {0};
    int folder = open_place();
    auto_close int fd = file_of(bytes);

    if (archive_unpack(fd, folder, bounds, result, &err) == 0)
        ck_assert_int_eq(err.kind, ERR_NONE);
    close_place(folder);
    return err.kind;
}

START_TEST(entries_are_bounded)
{
    auto_buffer struct buffer tar = {0};
    struct archive_result result;

    for (int i = 0; i < 101; i++) {
        char name[16];

        snprintf(name, sizeof(name), "%d", i);
        add_sized(&tar, '0', name, "", 0, 0644, 0);
    }
    make_tar(&tar, "", true);
    ck_assert_int_eq(unpack_bytes(&tar, &rules, &result), ERR_TOO_LARGE);
}
END_TEST

START_TEST(what_one_byte_becomes_is_bounded)
{
    static const struct archive_rules bounds = {
        .entries_max = 100, .bytes_max = INT64_C(1) << 40, .ratio_max = 100};
    static char zeros[1 << 20];
    auto_buffer struct buffer tar = {0}, packed = {0};
    struct archive_result result;

    /* 100 MiB of zeros, which zstd makes some 10 KiB of. */
    add_header(&tar, '0', "zeros", "", "620000000", 0644, 0);
    for (int i = 0; i < 100; i++)
        buffer_add(&tar, zeros, sizeof(zeros));
    make_tar(&tar, "", true);
    compress(&tar, &packed, ARCHIVE_FILTER_ZSTD);
    ck_assert_uint_lt(packed.length, 100 << 10);
    ck_assert_int_eq(unpack_bytes(&packed, &bounds, &result), ERR_TOO_LARGE);
}
END_TEST

START_TEST(bytes_are_bounded_over_all_files)
{
    static char letters[300 << 10];
    auto_buffer struct buffer tar = {0};
    struct archive_result result;

    memset(letters, 'x', sizeof(letters));
    for (int i = 0; i < 4; i++)
        add_sized(&tar, '0', (const char *[]){"a", "b", "c", "d"}[i], letters, sizeof(letters),
                  0644, 0);
    make_tar(&tar, "", true);
    ck_assert_int_eq(unpack_bytes(&tar, &rules, &result), ERR_TOO_LARGE);
}
END_TEST

/* --- what rules and results say -------------------------------------------------------------- */

START_TEST(digests_are_of_the_bytes)
{
    auto_buffer struct buffer tar = {0}, packed = {0};
    char plain[SHA256_HEX_SIZE], stored[SHA256_HEX_SIZE];
    struct archive_result result;

    make_tar(&tar, "f|a|hello", true);
    token_sha256(tar.data, tar.length, plain);
    ck_assert_int_eq(unpack_bytes(&tar, &rules, &result), ERR_NONE);
    ck_assert_str_eq(result.plain_sha256, plain);
    ck_assert_str_eq(result.stored_sha256, plain);
    for (int i = 0; i < 2; i++) {
        compress(&tar, &packed, i ? ARCHIVE_FILTER_ZSTD : ARCHIVE_FILTER_GZIP);
        token_sha256(packed.data, packed.length, stored);
        ck_assert_int_eq(unpack_bytes(&packed, &rules, &result), ERR_NONE);
        ck_assert_str_eq(result.plain_sha256, plain);
        ck_assert_str_eq(result.stored_sha256, stored);
        buffer_done(&packed);
        packed = (struct buffer){0};
    }
    ck_assert_int_eq(result.entries, 1);
    ck_assert_int_eq(result.bytes, 5);
}
END_TEST

START_TEST(special_files_are_left_out_where_the_rules_say)
{
    static const struct archive_rules lenient = {
        .flags = ARCHIVE_SKIP_SPECIAL, .entries_max = 100, .bytes_max = 1000, .ratio_max = 100};
    auto_buffer struct buffer tar = {0};
    struct archive_result result;

    make_tar(&tar, "c|null\nb|sda\np|pipe\nf|a|x", true);
    ck_assert_int_eq(unpack_bytes(&tar, &lenient, &result), ERR_NONE);
    ck_assert_int_eq(result.skipped, 3);
    ck_assert_int_eq(result.entries, 4);
}
END_TEST

START_TEST(owners_and_modes_are_kept_where_the_rules_say)
{
    static const struct archive_rules whole = {.flags = ARCHIVE_OWNERS | ARCHIVE_SET_ID,
                                               .entries_max = 100,
                                               .bytes_max = 1000,
                                               .ratio_max = 100};
    auto_buffer struct buffer tar = {0}, foreign = {0};
    struct archive_result result;
    struct error err = {0};
    struct stat seen;

    if (geteuid() != 0)
        return; /* only root gives files away */
    make_tar(&tar, "d|d||2555|7\nf|d/a|x|4755|1000\ns|l|a|777|5", true);
    int folder = open_place();
    auto_close int fd = file_of(&tar);
    ck_assert_msg(archive_unpack(fd, folder, &whole, &result, &err) == 0, "%s", err.message);
    ck_assert_int_eq(fstatat(folder, "d/a", &seen, 0), 0);
    ck_assert_uint_eq(seen.st_mode, S_IFREG | 04755);
    ck_assert_uint_eq(seen.st_uid, 1000);
    ck_assert_int_eq(seen.st_mtime, 1000000000);
    ck_assert_int_eq(fstatat(folder, "d", &seen, 0), 0);
    ck_assert_uint_eq(seen.st_mode, S_IFDIR | 02555);
    ck_assert_int_eq(seen.st_mtime, 1000000000);
    ck_assert_int_eq(fstatat(folder, "l", &seen, AT_SYMLINK_NOFOLLOW), 0);
    ck_assert_uint_eq(seen.st_gid, 5);
    close_place(folder);
    make_tar(&foreign, "f|a|x|644|65536", true);
    ck_assert_int_eq(unpack_bytes(&foreign, &whole, &result), ERR_INVALID);
}
END_TEST

/* A link that was in the folder before is no way out either. */
START_TEST(what_was_there_before_is_not_followed)
{
    auto_buffer struct buffer tar = {0}, over = {0};
    struct archive_result result;
    struct error err = {0};
    int folder = open_place();

    ck_assert_int_eq(symlinkat("..", folder, "out"), 0);
    make_tar(&tar, "f|out/canary|evil", true);
    auto_close int fd = file_of(&tar);
    ck_assert_int_eq(archive_unpack(fd, folder, &rules, &result, &err), -1);
    ck_assert_int_eq(err.kind, ERR_INVALID);
    ck_assert_int_eq(symlinkat("../canary", folder, "direct"), 0);
    make_tar(&over, "f|direct|mine", true);
    auto_close int second = file_of(&over);
    ck_assert_int_eq(archive_unpack(second, folder, &rules, &result, &err), 0);
    close_place(folder);
}
END_TEST

START_TEST(a_name_in_an_error_harms_no_terminal)
{
    auto_buffer struct buffer tar = {0};
    struct archive_result result;
    struct error err = {0};
    int folder = open_place();

    make_tar(&tar, "f|../\x1b[2J\xff.\x07|x", true);
    auto_close int fd = file_of(&tar);
    ck_assert_int_eq(archive_unpack(fd, folder, &rules, &result, &err), -1);
    ck_assert_str_eq(err.message, "'../?[2J?.?': the name has '..'");
    close_place(folder);
}
END_TEST

/* --- there and back -------------------------------------------------------------------------- */

static const enum archive_kind kinds[] = {ARCHIVE_TAR, ARCHIVE_TAR_GZIP, ARCHIVE_TAR_ZSTD,
                                          ARCHIVE_ZIP};

START_TEST(a_folder_comes_back_as_it_was)
{
    static const struct archive_rules large = {
        .entries_max = 1000, .bytes_max = INT64_C(1) << 31, .ratio_max = 1000000};
    bool zip = kinds[_i] == ARCHIVE_ZIP;
    struct archive_result packed, unpacked;
    struct error err = {0};
    int folder = open_place();

    ck_assert_int_eq(
        shell("cd %s/in && mkdir -p a/b.d empty && echo hello >a/b.d/f && chmod 640 a/b.d/f && "
              "ln -s ../../canary out && touch -d @1234567890 a && printf x >$(printf 'odd\\tname')"
              "&& for i in $(seq 200); do echo $i >a/$i; done && mkdir ../back",
              place),
        0);
    if (!zip)
        ck_assert_int_eq(shell("cd %s/in && ln a/b.d/f hard && mkfifo pipe && printf x "
                               ">$(printf '\\377bytes') && truncate -s 1G a/sparse && "
                               "printf end >>a/sparse",
                               place),
                         0);
    auto_close int out = memfd_create("packed", MFD_CLOEXEC),
                   again = memfd_create("p", MFD_CLOEXEC);
    ck_assert_msg(archive_pack(folder, out, kinds[_i], &large, &packed, &err) == 0, "%s",
                  err.message);
    ck_assert_int_eq(archive_pack(folder, again, kinds[_i], &large, &packed, &err), 0);
    ck_assert_int_eq(lseek(out, 0, SEEK_END), lseek(again, 0, SEEK_END));
    ck_assert_int_lt(lseek(out, 0, SEEK_END), 2 << 20);
    if (!zip)
        ck_assert_int_eq(unlinkat(folder, "pipe", 0), 0);
    lseek(out, 0, SEEK_SET);
    char path[128];
    snprintf(path, sizeof(path), "%s/back", place);
    auto_close int back = open(path, O_RDONLY | O_DIRECTORY);
    struct archive_rules lenient = large;
    lenient.flags = ARCHIVE_SKIP_SPECIAL;
    ck_assert_msg(archive_unpack(out, back, &lenient, &unpacked, &err) == 0, "%s", err.message);
    ck_assert_int_eq(unpacked.entries, packed.entries);
    ck_assert_int_eq(shell("cd %s && diff -r --no-dereference in back", place), 0);
    /* Names, kinds, modes, sizes, links, times; and how much of the disk they take. */
    ck_assert_int_eq(shell("cd %s && f='%%P %%y %%m %%l %%T@ '; for d in in back; do (cd $d && "
                           "find . -mindepth 1 -type d -printf \"$f\\n\" -o -printf \"$f%%n "
                           "%%s\\n\" | %s sort >../$d.list); "
                           "done; cmp in.list back.list",
                           place, zip ? "sed 's/\\.[0-9]* / /g; s/ [12] / /g' |" : ""),
                     0);
    ck_assert_int_eq(
        shell("cd %s && test $(du -s back | cut -f1) -lt 4000 && rm -rf *.list back", place), 0);
    close_place(folder);
}
END_TEST

START_TEST(packing_is_bounded)
{
    static const struct archive_rules few = {.entries_max = 3, .bytes_max = 10, .ratio_max = 1};
    struct archive_result result;
    struct error err = {0};
    int folder = open_place();
    auto_close int out = memfd_create("packed", MFD_CLOEXEC);

    shell("cd %s/in && touch a b c d", place);
    ck_assert_int_eq(archive_pack(folder, out, ARCHIVE_TAR, &few, &result, &err), -1);
    ck_assert_int_eq(err.kind, ERR_TOO_LARGE);
    shell("cd %s/in && rm * && echo more than ten >a", place);
    ck_assert_int_eq(archive_pack(folder, out, ARCHIVE_TAR, &few, &result, &err), -1);
    ck_assert_int_eq(err.kind, ERR_TOO_LARGE);
    close_place(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("archive");
    TCase *tests = unit_case(suite, "archive");

    tcase_set_timeout(tests, 60);
    unit_table(tests, an_archive_has_its_outcome, corpus);
    tcase_add_test(tests, entries_are_bounded);
    tcase_add_test(tests, what_one_byte_becomes_is_bounded);
    tcase_add_test(tests, bytes_are_bounded_over_all_files);
    tcase_add_test(tests, digests_are_of_the_bytes);
    tcase_add_test(tests, special_files_are_left_out_where_the_rules_say);
    tcase_add_test(tests, owners_and_modes_are_kept_where_the_rules_say);
    tcase_add_test(tests, what_was_there_before_is_not_followed);
    tcase_add_test(tests, a_name_in_an_error_harms_no_terminal);
    unit_table(tests, a_folder_comes_back_as_it_was, kinds);
    tcase_add_test(tests, packing_is_bounded);
    return unit_run(suite);
}
