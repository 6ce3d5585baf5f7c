/* One file out of a multipart body, however it is cut into pieces. */
#include "http/multipart.h"

#include <fcntl.h>
#include <string.h>

#include "http/router.h"
#include "tests/unit/unit.h"

const struct route routes[] = {{.room = "none"}};
const size_t route_count = COUNT(routes);

#define TYPE "multipart/form-data; boundary=xYx"
#define FILE_HEAD "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n"

/* A body that comes `step` bytes at a time. */
struct source {
    const char *bytes;
    size_t length, at, step;
};

static int take(void *context, void *into, size_t size, struct error *err)
{
    struct source *source = context;
    size_t left = source->length - source->at;

    (void)err;
    if (size > left)
        size = left;
    if (size > source->step)
        size = source->step;
    memcpy(into, source->bytes + source->at, size);
    source->at += size;
    return (int)size;
}

static int receive(const char *type, const char *body, size_t length, size_t step, int64_t limit,
                   struct arena *arena, struct upload *upload, struct error *err)
{
    struct source source = {body, length, 0, step};
    int result;

    *upload =
        (struct upload){.fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), .file_name = ""};
    ck_assert_int_ge(upload->fd, 0);
    result = multipart_receive(type, take, &source, limit, arena, upload, err);
    if (result == 0)
        ck_assert_uint_eq(source.at, length);
    return result;
}

static const size_t steps[] = {1, 2, 3, 7, 64, 100000};

static const struct {
    const char *type, *body, *name, *content;
} good[] = {
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\nhello\r\n--xYx--\r\n", "a.txt", "hello"},
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\nhello\r\n--xYx--", "a.txt", "hello"},
    {TYPE,
     "preamble\r\n--xYx \t\r\n" FILE_HEAD
     "Content-Type: text/plain\r\n\r\n\r\n--xYx--\r\nepilogue\r\n--xYx\r\n",
     "a.txt", ""},
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\n\r\n\r\n--xY\r\n--x\r\n\r\n--xYx--\r\n", "a.txt",
     "\r\n\r\n--xY\r\n--x\r\n"},
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\n\r\r\n--xYx--\r\n", "a.txt", "\r"},
    {TYPE,
     "--xYx\r\nContent-Disposition: form-data; name=other\r\n\r\nskip\r\n--xYx\r\n" FILE_HEAD
     "\r\nb\r\n--xYx--",
     "a.txt", "b"},
    {TYPE,
     "--xYx\r\n" FILE_HEAD "\r\nb\r\n--xYx\r\nContent-Disposition: form-data; name=\"z\"; "
     "filename=\"q\"\r\n\r\nskip\r\n--xYx--",
     "a.txt", "b"},
    {TYPE, "--xYx\r\ncontent-disposition:FORM-DATA; NAME=file\r\n\r\nb\r\n--xYx--", "", "b"},
    {TYPE,
     "--xYx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%22%25 "
     "%0A%1B%1b%0a\\\\\"\r\n\r\nb\r\n--xYx--",
     "\"%25 \n%1B%1b%0a\\", "b"},
    {TYPE,
     "--xYx\r\nContent-Disposition: form-data; name=\"file\"; "
     "filename=\"C:\\dir\\\\a\\\"b\"\r\n\r\nb\r\n--xYx--",
     "C:\\dir\\a\"b", "b"},
    {TYPE,
     "--xYx\r\nContent-Disposition: form-data; filename=\"\xC3\xA9;=\"; "
     "name=\"file\";\r\n\r\nb\r\n--xYx--",
     "\xC3\xA9;=", "b"},
    {TYPE, "--xYx\r\n" FILE_HEAD "Content-Transfer-Encoding: BINARY\r\n\r\nb\r\n--xYx--", "a.txt",
     "b"},
    {"Multipart/Form-Data ; charset=utf-8; boundary=\"a b\"",
     "--a b\r\n" FILE_HEAD "\r\nb\r\n--a b--", "a.txt", "b"},
};

START_TEST(a_file_is_taken_whatever_the_pieces)
{
    for (size_t i = 0; i < COUNT(steps); i++) {
        auto_arena struct arena arena = {0};
        struct upload upload;
        struct error err;
        char content[64];
        ssize_t length;

        ck_assert_msg(receive(good[_i].type, good[_i].body, strlen(good[_i].body), steps[i],
                              1 << 20, &arena, &upload, &err) == 0,
                      "steps of %zu: %s", steps[i], err.message);
        length = read(upload.fd, content, sizeof(content));
        ck_assert_int_eq(length, (ssize_t)strlen(good[_i].content));
        ck_assert_mem_eq(content, good[_i].content, strlen(good[_i].content));
        ck_assert_int_eq(upload.size, length);
        ck_assert_str_eq(upload.file_name, good[_i].name);
        close(upload.fd);
    }
}
END_TEST

static const struct {
    const char *type, *body;
    enum error_kind kind;
} bad[] = {
    {NULL, "--xYx--", ERR_INVALID},
    {"application/json", "{}", ERR_INVALID},
    {"multipart/form-datax; boundary=xYx", "--xYx--", ERR_INVALID},
    {"multipart/form-data", "--xYx--", ERR_BAD_REQUEST},
    {"multipart/form-data; boundary=", "--xYx--", ERR_BAD_REQUEST},
    {"multipart/form-data; boundary=\"xYx", "--xYx--", ERR_BAD_REQUEST},
    {"multipart/form-data; boundary=\"a \"", "--a --", ERR_BAD_REQUEST},
    {"multipart/form-data; boundary=a; boundary=b", "--a--", ERR_BAD_REQUEST},
    {"multipart/form-data; "
     "boundary=1234567890123456789012345678901234567890123456789012345678901234567890x",
     "", ERR_BAD_REQUEST},
    {TYPE, "", ERR_BAD_REQUEST},
    {TYPE, "--xYx--", ERR_INVALID},
    {TYPE, "--xYx\r\nContent-Disposition: form-data; name=other\r\n\r\nskip\r\n--xYx--",
     ERR_INVALID},
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\nhello", ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\nhello\r\n--xYx", ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\nhello\r\n--xYx-", ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\nhello\r\n--xYxx\r\n", ERR_BAD_REQUEST},
    {TYPE, "--xYx\n" FILE_HEAD "\r\nhello\r\n--xYx--", ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\n" FILE_HEAD, ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\n\r\nhello\r\n--xYx--", ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\nContent-Type: text/plain\r\n\r\nhello\r\n--xYx--", ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\nContent-Disposition: attachment; name=file\r\n\r\nhello\r\n--xYx--",
     ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\nContent-Disposition: form-data; filename=a\r\n\r\nhello\r\n--xYx--",
     ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\nContent-Disposition: form-data; name=file; name=file\r\n\r\nhello\r\n--xYx--",
     ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\nContent-Disposition: form-data; name=\"file\r\n\r\nhello\r\n--xYx--",
     ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\n" FILE_HEAD FILE_HEAD "\r\nhello\r\n--xYx--", ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\n" FILE_HEAD " folded\r\n\r\nhello\r\n--xYx--", ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\nContent-Disposition : form-data; name=file\r\n\r\nhello\r\n--xYx--",
     ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\n" FILE_HEAD "Content-Transfer-Encoding: base64\r\n\r\naGk=\r\n--xYx--",
     ERR_BAD_REQUEST},
    {TYPE,
     "--xYx\r\nContent-Disposition: form-data; name=file; filename=\"a%00b\"\r\n\r\nb\r\n--xYx--",
     ERR_BAD_REQUEST},
    {TYPE,
     "--xYx\r\nContent-Disposition: form-data; name=file; filename=\"\xFF\"\r\n\r\nb\r\n--xYx--",
     ERR_BAD_REQUEST},
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\na\r\n--xYx\r\n" FILE_HEAD "\r\nb\r\n--xYx--", ERR_INVALID},
    {TYPE, "--xYx\r\n" FILE_HEAD "\r\n01234567890123456789x\r\n--xYx--", ERR_TOO_LARGE},
};

START_TEST(a_malformed_body_is_refused)
{
    for (size_t i = 0; i < COUNT(steps); i++) {
        auto_arena struct arena arena = {0};
        struct upload upload;
        struct error err = {0};

        ck_assert_int_eq(receive(bad[_i].type, bad[_i].body, strlen(bad[_i].body), steps[i], 20,
                                 &arena, &upload, &err),
                         -1);
        ck_assert_msg(err.kind == bad[_i].kind, "%s: %s", error_name(err.kind), err.message);
        ck_assert_int_eq(err.fields != NULL, bad[_i].kind == ERR_INVALID);
        close(upload.fd);
    }
}
END_TEST

START_TEST(a_missing_part_is_a_field_error)
{
    auto_arena struct arena arena = {0};
    struct upload upload;
    struct error err;

    ck_assert_int_eq(receive(TYPE, "--xYx--", 7, 7, 1, &arena, &upload, &err), -1);
    ck_assert_str_eq(
        err.fields,
        "[{\"loc\":[\"body\",\"file\"],\"msg\":\"Field required\",\"type\":\"missing\"}]");
    close(upload.fd);
}
END_TEST

START_TEST(headers_of_a_part_have_a_bound)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer body = {0};
    struct upload upload;
    struct error err;

    buffer_text(&body, "--xYx\r\nX: ");
    for (int i = 0; i < 9000; i++)
        buffer_char(&body, 'x');
    buffer_text(&body, "\r\n" FILE_HEAD "\r\nb\r\n--xYx--");
    ck_assert_int_eq(receive(TYPE, body.data, body.length, 1000, 1, &arena, &upload, &err), -1);
    ck_assert_int_eq(err.kind, ERR_BAD_REQUEST);
    close(upload.fd);
}
END_TEST

/* Larger than the window, full of what almost is the boundary, and of NULs. */
START_TEST(a_large_file_arrives_byte_for_byte)
{
    auto_arena struct arena arena = {0};
    auto_buffer struct buffer body = {0}, content = {0};
    auto_free char *got = NULL;
    struct upload upload;
    struct error err;

    for (int i = 0; content.length < 300000; i++) {
        buffer_text(&content, i % 3 ? "\r\n--xY" : "\r\n--xY\r\n--");
        buffer_char(&content, (char)(i % 100)); /* never the x that would complete it */
    }
    buffer_text(&body, "--xYx\r\n" FILE_HEAD "\r\n");
    buffer_add(&body, content.data, content.length);
    buffer_text(&body, "\r\n--xYx--\r\n");
    for (size_t step = 60000; step < 70000; step += 1777) {
        ck_assert_int_eq(
            receive(TYPE, body.data, body.length, step, 1 << 20, &arena, &upload, &err), 0);
        ck_assert_int_eq(upload.size, (int64_t)content.length);
        free(got);
        got = malloc(content.length);
        ck_assert_int_eq(pread(upload.fd, got, content.length, 0), (ssize_t)content.length);
        ck_assert_mem_eq(got, content.data, content.length);
        close(upload.fd);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("multipart");
    TCase *tests = unit_case(suite, "receive");

    unit_table(tests, a_file_is_taken_whatever_the_pieces, good);
    unit_table(tests, a_malformed_body_is_refused, bad);
    tcase_add_test(tests, a_missing_part_is_a_field_error);
    tcase_add_test(tests, headers_of_a_part_have_a_bound);
    tcase_add_test(tests, a_large_file_arrives_byte_for_byte);
    return unit_run(suite);
}
