/* The bytes of an archive on their way in: see archive_source.h. */
#include "common/archive_source.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/scope.h"

enum {
    RATIO_GRACE = 64 << 20, /* bytes; zeros at a file's end compress well, and harm nobody */
    PLAIN_SLACK = 1 << 20,
    PLAIN_PER_ENTRY = 4096, /* headers, long names, padding */
    TAR_BLOCK = 512,
};

const char *archive_source_show(const char *name, char out[128])
{
    size_t i = 0;

    for (; name && name[i] && i < 120; i++)
        out[i] = name[i] < ' ' || name[i] > '~' ? '?' : name[i];
    strcpy(out + i, name && name[i] ? "..." : "");
    return out;
}

int archive_source_error(const struct archive_source *source, struct archive *archive,
                         struct error *err)
{
    char reason[128];

    if (source->error.kind != ERR_NONE) {
        *err = source->error;
        return -1;
    }
    return error_set(err, ERR_INVALID, "the archive is damaged: %s",
                     archive_source_show(archive_error_string(archive), reason));
}

bool archive_source_is_bomb(const struct archive_source *source, int64_t bytes)
{
    return bytes > RATIO_GRACE && bytes / source->rules->ratio_max > source->in;
}

/* --- as it came ------------------------------------------------------------------------------ */

static ssize_t read_some(struct archive_source *source, unsigned char *block, size_t size)
{
    ssize_t got;

    do
        got = read(source->fd, block, size);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return error_set_errno(&source->error, ERR_INVALID, "the archive can't be read");
    source->in += got;
    EVP_DigestUpdate(source->stored, block, (size_t)got);
    return got;
}

static ssize_t read_stored(struct archive *archive, void *context, const void **bytes)
{
    struct archive_source *source = context;
    ssize_t got = (ssize_t)source->peeked;

    source->peeked = 0;
    if (got == 0)
        got = read_some(source, source->block, sizeof(source->block));
    if (got < 0)
        archive_set_error(archive, EIO, "read");
    *bytes = source->block;
    return got;
}

/* --- decompressed ---------------------------------------------------------------------------- */

static void count_zeros(struct archive_source *source, const unsigned char *bytes, size_t length)
{
    size_t zeros = 0;

    while (zeros < length && bytes[length - 1 - zeros] == 0)
        zeros++;
    source->zeros = zeros == length ? source->zeros + (int64_t)zeros : (int64_t)zeros;
}

/* Files are bounded one by one; this bounds what is between them. */
static int check_plain(struct archive_source *source)
{
    const struct archive_rules *rules = source->rules;
    int64_t most = rules->bytes_max + PLAIN_SLACK + rules->entries_max * PLAIN_PER_ENTRY;

    if (source->out > most || archive_source_is_bomb(source, source->out))
        return error_set(&source->error, ERR_TOO_LARGE,
                         "the archive grows too much when it is unpacked");
    return 0;
}

static ssize_t take_plain(struct archive_source *source, const void **bytes)
{
    size_t length = 0;
    la_int64_t offset;
    ssize_t got;
    int result;

    if (!source->unpacker) {
        got = read_stored(source->tar, source, bytes);
    } else {
        do
            result = archive_read_data_block(source->unpacker, bytes, &length, &offset);
        while (result == ARCHIVE_OK && length == 0);
        if (result != ARCHIVE_OK && result != ARCHIVE_EOF)
            return archive_source_error(source, source->unpacker, &source->error);
        got = result == ARCHIVE_EOF ? 0 : (ssize_t)length;
    }
    if (got <= 0)
        return got;
    source->out += got;
    if (check_plain(source) < 0)
        return -1;
    count_zeros(source, *bytes, (size_t)got);
    if (source->unpacker)
        EVP_DigestUpdate(source->plain, *bytes, (size_t)got);
    return got;
}

static ssize_t read_plain(struct archive *archive, void *context, const void **bytes)
{
    ssize_t got = take_plain(context, bytes);

    if (got < 0)
        archive_set_error(archive, EIO, "read");
    return got;
}

/* A zip is read from its end. */
static la_int64_t seek_stored(struct archive *archive, void *context, la_int64_t offset, int whence)
{
    struct archive_source *source = context;
    off_t at = lseek(source->fd, offset, whence);

    source->peeked = 0;
    if (at < 0)
        archive_set_error(archive, errno, "seek");
    return at < 0 ? ARCHIVE_FATAL : at;
}

/* --- open and close -------------------------------------------------------------------------- */

static const struct {
    const char *magic;
    size_t length;
    enum archive_kind kind;
} magics[] = {
    {"\x1f\x8b", 2, ARCHIVE_TAR_GZIP},
    {"\x28\xb5\x2f\xfd", 4, ARCHIVE_TAR_ZSTD},
    {"PK\x03\x04", 4, ARCHIVE_ZIP},
    {"PK\x05\x06", 4, ARCHIVE_ZIP},
};

static int peek(struct archive_source *source, struct error *err)
{
    while (source->peeked < TAR_BLOCK) {
        ssize_t got = read_some(source, source->block + source->peeked,
                                sizeof(source->block) - source->peeked);

        if (got < 0) {
            *err = source->error;
            return -1;
        }
        if (got == 0)
            break;
        source->peeked += (size_t)got;
    }
    source->kind = ARCHIVE_TAR;
    for (size_t i = 0; i < COUNT(magics); i++)
        if (source->peeked >= magics[i].length &&
            memcmp(source->block, magics[i].magic, magics[i].length) == 0)
            source->kind = magics[i].kind;
    if (source->kind == ARCHIVE_TAR && source->peeked < TAR_BLOCK)
        return error_set(err, ERR_INVALID,
                         source->peeked ? "this is no tar, gzip, zstd or zip archive"
                                        : "the archive is empty");
    return 0;
}

/* One layer of compression, and the one that was seen: libarchive would go on through as many as it
 * finds, each a bomb for the next. */
static int open_unpacker(struct archive_source *source, struct error *err)
{
    struct archive_entry *entry;

    source->unpacker = archive_read_new();
    if (!source->unpacker)
        abort();
    if (archive_read_support_format_raw(source->unpacker) != ARCHIVE_OK ||
        archive_read_append_filter(source->unpacker, source->kind == ARCHIVE_TAR_GZIP
                                                         ? ARCHIVE_FILTER_GZIP
                                                         : ARCHIVE_FILTER_ZSTD) != ARCHIVE_OK ||
        archive_read_open2(source->unpacker, source, NULL, read_stored, NULL, NULL) != ARCHIVE_OK ||
        archive_read_next_header(source->unpacker, &entry) != ARCHIVE_OK)
        return archive_source_error(source, source->unpacker, err);
    return 0;
}

static int open_zip(struct archive_source *source, struct error *err)
{
    off_t size = lseek(source->fd, 0, SEEK_END);

    if (size < 0 || lseek(source->fd, 0, SEEK_SET) < 0)
        return error_set(err, ERR_INVALID, "a zip archive is read from a file");
    source->peeked = 0;
    archive_read_set_seek_callback(source->tar, seek_stored);
    if (archive_read_support_format_zip_seekable(source->tar) != ARCHIVE_OK ||
        archive_read_set_callback_data(source->tar, source) != ARCHIVE_OK ||
        archive_read_set_read_callback(source->tar, read_stored) != ARCHIVE_OK ||
        archive_read_open1(source->tar) != ARCHIVE_OK)
        return archive_source_error(source, source->tar, err);
    source->in = size;
    return 0;
}

int archive_source_open(struct archive_source *source, int fd, const struct archive_rules *rules,
                        struct error *err)
{
    *source = (struct archive_source){.fd = fd, .rules = rules};
    source->tar = archive_read_new();
    source->stored = EVP_MD_CTX_new();
    source->plain = EVP_MD_CTX_new();
    if (!source->tar || !source->stored || !source->plain ||
        !EVP_DigestInit_ex(source->stored, EVP_sha256(), NULL) ||
        !EVP_DigestInit_ex(source->plain, EVP_sha256(), NULL))
        abort();
    if (peek(source, err) < 0)
        return -1;
    if (source->kind == ARCHIVE_ZIP)
        return open_zip(source, err);
    if (source->kind != ARCHIVE_TAR && open_unpacker(source, err) < 0)
        return -1;
    if (archive_read_support_format_tar(source->tar) != ARCHIVE_OK ||
        archive_read_open2(source->tar, source, NULL, read_plain, NULL, NULL) != ARCHIVE_OK)
        return archive_source_error(source, source->tar, err);
    return 0;
}

static void print_digest(EVP_MD_CTX *context, char out[SHA256_HEX_SIZE])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;

    if (!EVP_DigestFinal_ex(context, digest, &length) || length * 2 + 1 != SHA256_HEX_SIZE)
        abort();
    for (unsigned i = 0; i < length; i++)
        snprintf(out + (size_t)i * 2, 3, "%02x", digest[i]);
}

int archive_source_finish(struct archive_source *source, struct archive_result *result,
                          struct error *err)
{
    const void *bytes;
    ssize_t got;

    result->stored_sha256[0] = result->plain_sha256[0] = '\0';
    if (source->kind == ARCHIVE_ZIP)
        return 0;
    do
        got = take_plain(source, &bytes);
    while (got > 0);
    /* Behind the compressed part, which is as much a part of the digest. */
    while (got == 0 && source->unpacker &&
           (got = read_stored(source->unpacker, source, &bytes)) > 0)
        got = 0;
    if (got < 0) {
        *err = source->error;
        return -1;
    }
    /* Cut off between two entries it would look whole. */
    if (source->zeros < TAR_BLOCK)
        return error_set(err, ERR_INVALID, "the archive is cut off: its end mark is missing");
    print_digest(source->stored, result->stored_sha256);
    if (source->unpacker)
        print_digest(source->plain, result->plain_sha256);
    else
        memcpy(result->plain_sha256, result->stored_sha256, SHA256_HEX_SIZE);
    return 0;
}

void archive_source_close(struct archive_source *source)
{
    archive_read_free(source->tar);
    archive_read_free(source->unpacker);
    EVP_MD_CTX_free(source->stored);
    EVP_MD_CTX_free(source->plain);
    source->tar = source->unpacker = NULL;
    source->stored = source->plain = NULL;
}
