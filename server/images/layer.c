/* Layers of images: see layer.h. */
#include "images/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/scope.h"
#include "common/tree.h"
#include "common/tree_digest.h"

/* Of address space, of which a sanitizer takes as much as there is. */
#ifdef __SANITIZE_ADDRESS__
#define READER_MEMORY RLIM_INFINITY
#else
#define READER_MEMORY ((rlim_t)2 << 30)
#endif

#define OPAQUE "trusted.overlay.opaque"
#define MARK ".wh."
#define MARK_OPAQUE ".wh..wh..opq"
#define MARK_PRIVATE ".wh..wh."

static const struct archive_rules rules = {
    .flags = ARCHIVE_OWNERS | ARCHIVE_SET_ID | ARCHIVE_SKIP_SPECIAL,
    .entries_max = 2000000,
    .bytes_max = INT64_C(64) << 30,
    .ratio_max = 1000,
};

/* --- the reader ------------------------------------------------------------------------------ */

struct verdict {
    int status;
    struct archive_result result;
    struct error error;
};

/* What it may still do: own, change and give away what it makes. */
static const int capabilities[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID};

static int drop_privileges(struct error *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    const struct rlimit none = {0, 0}, memory = {READER_MEMORY, READER_MEMORY};
    unsigned kept = 0;

    for (size_t i = 0; i < COUNT(capabilities); i++)
        kept |= 1u << capabilities[i];
    for (int i = 0; i <= 63; i++)
        if (!(i < 32 && kept >> i & 1) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) < 0 && errno != EINVAL)
            return error_set_errno(err, ERR_INTERNAL, "capabilities");
    data[0].effective = data[0].permitted = kept;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &header, data) < 0)
        return error_set_errno(err, ERR_INTERNAL, "capabilities");
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_AS, &memory);
    return 0;
}

/* The folder is all there is: its root, and nothing open but the archive and the way to answer. */
static int confine(int folder, struct error *err)
{
    if (fchdir(folder) < 0 || chroot(".") < 0)
        return error_set_errno(err, ERR_INTERNAL, "chroot");
    return drop_privileges(err);
}

static _Noreturn void read_archive(int fd, int folder, int answer)
{
    struct verdict verdict = {.status = -1};
    int numbers[] = {fd, folder, answer}, moved[COUNT(numbers)];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    /* In this order, above what stays open. */
    for (size_t i = 0; i < COUNT(numbers); i++)
        moved[i] = fcntl(numbers[i], F_DUPFD_CLOEXEC, 100);
    for (int i = 0; i < (int)COUNT(numbers); i++)
        if (moved[i] < 0 || dup2(moved[i], 3 + i) < 0)
            _exit(1);
    syscall(SYS_close_range, 6, ~0U, 0);
    if (confine(4, &verdict.error) == 0)
        verdict.status = archive_unpack(3, 4, &rules, &verdict.result, &verdict.error);
    verdict.error.fields = NULL;
    _exit(write(5, &verdict, sizeof(verdict)) != sizeof(verdict));
}

static bool is_hex_digest(const char *text)
{
    return strnlen(text, SHA256_HEX_SIZE) == SHA256_HEX_SIZE - 1 &&
           strspn(text, "0123456789abcdef") == SHA256_HEX_SIZE - 1;
}

int layer_unpack(int fd, int folder, struct layer *layer, struct error *err)
{
    struct clone_args args = {.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC,
                              .exit_signal = SIGCHLD};
    struct verdict verdict;
    int answer[2];
    ssize_t got;
    pid_t pid;

    if (pipe2(answer, O_CLOEXEC) < 0)
        return error_set_errno(err, ERR_INTERNAL, "pipe");
    auto_close int in = answer[0], out = answer[1];
    fflush(NULL);
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        read_archive(fd, folder, out);
    close(take_fd(&out));
    if (pid < 0)
        return error_set_errno(err, ERR_INTERNAL, "the reader of the archive");
    got = read(in, &verdict, sizeof(verdict));
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    /* It may have said anything. */
    verdict.error.message[sizeof(verdict.error.message) - 1] = '\0';
    if (got != sizeof(verdict) ||
        (verdict.status == 0 && (!is_hex_digest(verdict.result.plain_sha256) ||
                                 !is_hex_digest(verdict.result.stored_sha256))))
        return error_set(err, ERR_INVALID, "the archive can't be read (a zip, or its reader died)");
    if (verdict.status != 0)
        return error_set(err, verdict.error.kind == ERR_TOO_LARGE ? ERR_TOO_LARGE : ERR_INVALID,
                         "%s", verdict.error.message);
    memcpy(layer->plain_sha256, verdict.result.plain_sha256, SHA256_HEX_SIZE);
    memcpy(layer->stored_sha256, verdict.result.stored_sha256, SHA256_HEX_SIZE);
    return 0;
}

/* --- what it hides --------------------------------------------------------------------------- */

static int set_opaque(int directory, const char *name, struct error *err)
{
    auto_close int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fsetxattr(fd, OPAQUE, "y", 1, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "mark a folder");
    return 0;
}

/* A folder that the layer has as well replaces the one below; a file does so anyway. */
static int hide(int directory, const char *name, struct error *err)
{
    struct stat status;

    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return error_set(err, ERR_INVALID, "a mark of the layer hides nothing that has a name");
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
        return S_ISDIR(status.st_mode) ? set_opaque(directory, name, err) : 0;
    if (mknodat(directory, name, S_IFCHR, makedev(0, 0)) < 0)
        return error_set_errno(err, ERR_INTERNAL, "hide a file");
    return 0;
}

static int convert_entry(int directory, const char *path, const char *name,
                         const struct stat *status, void *context, struct error *err)
{
    bool *hides_all = context;

    if (strncmp(name, MARK, strlen(MARK)) != 0 || S_ISDIR(status->st_mode))
        return 0;
    if (unlinkat(directory, name, 0) < 0)
        return error_set_errno(err, ERR_INTERNAL, "take a mark away");
    if (strcmp(name, MARK_OPAQUE) == 0) {
        if (strcmp(path, name) == 0)
            *hides_all = true;
        return set_opaque(directory, ".", err);
    }
    /* Others of this kind were for the bookkeeping of another file system. */
    return strncmp(name, MARK_PRIVATE, strlen(MARK_PRIVATE)) == 0
               ? 0
               : hide(directory, name + strlen(MARK), err);
}

int layer_convert(int folder, struct error *err)
{
    bool hides_all = false;

    return tree_each(folder, convert_entry, &hides_all, err) < 0 ? -1 : hides_all;
}

/* --- what it holds --------------------------------------------------------------------------- */

static void digest_add(void *digest, const void *bytes, size_t length)
{
    EVP_DigestUpdate(digest, bytes, length);
}

int layer_measure(int folder, struct layer *layer, struct error *err)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const struct tree_hash hash = {digest_add, context};
    struct tree_content content;
    unsigned char digest[EVP_MAX_MD_SIZE];
    int result;

    if (!context || !EVP_DigestInit_ex(context, EVP_sha256(), NULL))
        abort();
    result = tree_digest(folder, &hash, &content, err);
    if (!EVP_DigestFinal_ex(context, digest, NULL))
        abort();
    EVP_MD_CTX_free(context);
    layer->entries = content.entries;
    layer->bytes = content.bytes;
    for (size_t i = 0; i < (SHA256_HEX_SIZE - 1) / 2; i++)
        snprintf(layer->tree_sha256 + i * 2, 3, "%02x", digest[i]);
    return result;
}
