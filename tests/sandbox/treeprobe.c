/* Run inside a sandbox, in the folder that it is started in: make a tree with everything in it that
 * files can be (`odd`), tell all of a tree in text that is the same for the same tree (`tell`), or
 * make folders in each other (`deep`). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { BLOCK = 4096, NAMES_MAX = 4096, INODES_MAX = 4096 };

static void must(bool holds, const char *what)
{
    if (holds)
        return;
    perror(what);
    exit(1);
}

/* --- making ----------------------------------------------------------------------------------- */

static int make(const char *name, const char *content, size_t length)
{
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);

    must(fd >= 0 && write(fd, content, length) == (ssize_t)length, name);
    return fd;
}

static void set_time(const char *name, time_t seconds, long nanoseconds)
{
    struct timespec times[2] = {{seconds, nanoseconds}, {seconds, nanoseconds}};

    must(utimensat(AT_FDCWD, name, times, AT_SYMLINK_NOFOLLOW) == 0, "utimensat");
}

static void make_names(void)
{
    char name[256];

    must(mkdir("names", 0755) == 0 && chdir("names") == 0, "names");
    for (int byte = 1; byte < 256; byte++) {
        snprintf(name, sizeof(name), "%c", byte);
        if (byte != '/' && byte != '.')
            close(make(name, name, 1));
    }
    memset(name, 0xff, 255);
    name[255] = '\0';
    close(make(name, "long", 4));
    close(make("...", "", 0));
    close(make("-rf *", "", 0));
    close(make("$(x)\n\t'\"", "", 0));
    must(chdir("..") == 0, "..");
}

static void make_modes(void)
{
    static const mode_t modes[] = {0, 0400, 0640, 0777, 04755, 02755, 01777, 06711};
    char name[32];

    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        uid_t uid = i % 2 ? 1000 : 65533;

        snprintf(name, sizeof(name), "file%zu", i);
        close(make(name, name, strlen(name)));
        must(chown(name, uid, (gid_t)(1000 + i)) == 0 && chmod(name, modes[i]) == 0, "chmod");
        snprintf(name, sizeof(name), "folder%zu", i);
        must(mkdir(name, 0700) == 0, "mkdir");
        snprintf(name, sizeof(name), "folder%zu/within", i);
        close(make(name, name, strlen(name)));
        snprintf(name, sizeof(name), "folder%zu", i);
        must(chown(name, uid, (gid_t)(1000 + i)) == 0 && chmod(name, modes[i]) == 0, "chmod");
    }
}

static void make_links(void)
{
    char target[1001];

    memset(target, 'x', 1000);
    target[1000] = '\0';
    must(symlink("nowhere", "dangling") == 0 && symlink("/etc/passwd", "absolute") == 0 &&
             symlink(target, "long") == 0 && symlink("\xff\x01\n", "odd") == 0 &&
             symlink(".", "self") == 0,
         "symlink");
    must(lchown("odd", 5, 6) == 0, "lchown");
    close(make("hard", "several names", 13));
    must(mkdir("one", 0755) == 0 && mkdir("one/two", 0755) == 0 && link("hard", "one/hard") == 0 &&
             link("hard", "one/two/\xfehard") == 0 && link("dangling", "one/dangling") == 0,
         "link");
    must(mkfifo("fifo", 0620) == 0 && link("fifo", "one/fifo") == 0, "fifo");
    mknod("whiteout", S_IFCHR | 0600, makedev(0, 0)); /* where that is allowed */
}

static void make_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    must(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
}

static void make_attributes(void)
{
    /* Revision 2, cap_net_bind_service: capabilities(7). */
    static const unsigned char capability[20] = {1, 0, 0, 2, 0, 4};
    int fd = make("attributes", "x", 1);

    must(mkdir("attributed", 0755) == 0, "mkdir");
    if (fsetxattr(fd, "user.text", "value", 5, 0) < 0 && errno == EOPNOTSUPP)
        return;
    must(fsetxattr(fd, "user.empty", "", 0, 0) == 0 &&
             fsetxattr(fd, "user.\xff odd", "a\0b\xff", 4, 0) == 0 &&
             setxattr("attributed", "user.of a folder", "\n", 1, 0) == 0,
         "setxattr");
    must(fsetxattr(fd, "security.capability", capability, sizeof(capability), 0) == 0,
         "security.capability");
    close(fd);
}

static void make_contents(void)
{
    static char pattern[1 << 20];
    int fd;

    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (char)(i * 31 + (i >> 12) * 7 + 1);
    close(make("large", pattern, sizeof(pattern)));
    close(make("uneven", pattern, 12345));
    close(make("empty", "", 0));
    fd = make("sparse", pattern, 5000);
    must(pwrite(fd, pattern, 100, 1 << 20) == 100 &&
             pwrite(fd, "end", 3, (INT64_C(5) << 30) - 3) == 3,
         "sparse");
    close(fd);
    fd = make("hole", "", 0);
    must(ftruncate(fd, 1 << 30) == 0, "hole");
    close(fd);
}

static int make_odd(void)
{
    umask(0);
    make_names();
    make_modes();
    make_links();
    make_socket();
    make_attributes();
    make_contents();
    set_time("large", 1, 1);
    set_time("uneven", 4102444800, 999999999);
    set_time("dangling", 1234567890, 5);
    set_time("fifo", 1234567890, 6);
    set_time("folder3", 1234567890, 123456789);
    set_time(".", 1000000000, 7);
    return 0;
}

static int make_deep(long depth)
{
    for (long i = 0; i < depth; i++)
        must(mkdir("a", 0755) == 0 && chdir("a") == 0, "deep");
    close(make("bottom", "", 0));
    return 0;
}

/* --- telling ---------------------------------------------------------------------------------- */

static ino_t inodes[INODES_MAX];
static int inode_count;

/* Files with several names have the number of the first one. */
static int number_of(const struct stat *status)
{
    for (int i = 0; i < inode_count; i++)
        if (inodes[i] == status->st_ino)
            return i;
    must(inode_count < INODES_MAX, "too many files");
    inodes[inode_count] = status->st_ino;
    return inode_count++;
}

static void print_bytes(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        printf("%02x", (unsigned char)bytes[i]);
}

/* Of the blocks that are not zero: where holes are is the file system's affair. */
static uint64_t content_of(int fd)
{
    uint64_t hash = 14695981039346656037u;
    off_t at = 0;

    while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
        unsigned char block[BLOCK];
        ssize_t got;
        bool zero = true;

        at -= at % BLOCK;
        got = pread(fd, block, sizeof(block), at);
        must(got > 0, "read");
        for (ssize_t i = 0; i < got; i++)
            zero = zero && !block[i];
        for (ssize_t i = 0; i < got && !zero; i++)
            hash = (hash ^ block[i] ^ (uint64_t)(at + i)) * 1099511628211u;
        at += got;
    }
    return hash;
}

static void tell_attributes(const char *path)
{
    static char list[65536], value[65536];
    ssize_t length = listxattr(path, list, sizeof(list));
    const char *names[64];
    int count = 0;

    for (char *name = list; length > 0 && name < list + length; name += strlen(name) + 1)
        names[count++] = name;
    for (int i = 0; i < count; i++) /* in order */
        for (int k = i + 1; k < count; k++)
            if (strcmp(names[k], names[i]) < 0) {
                const char *other = names[i];

                names[i] = names[k];
                names[k] = other;
            }
    for (int i = 0; i < count; i++) {
        ssize_t size = getxattr(path, names[i], value, sizeof(value));

        printf(" ");
        print_bytes(names[i], strlen(names[i]));
        printf("=");
        print_bytes(value, size > 0 ? (size_t)size : 0);
    }
}

static void tell_one(const char *name, const struct stat *status)
{
    char target[4096];

    print_bytes(name, strlen(name));
    printf(" %o %u:%u %ld.%09ld links %d", (unsigned)status->st_mode, status->st_uid,
           status->st_gid, (long)status->st_mtim.tv_sec, status->st_mtim.tv_nsec,
           S_ISDIR(status->st_mode) ? 0 : (int)status->st_nlink);
    if (!S_ISDIR(status->st_mode) && status->st_nlink > 1)
        printf(" number %d", number_of(status));
    if (S_ISLNK(status->st_mode)) {
        ssize_t length = readlink(name, target, sizeof(target));

        printf(" -> ");
        print_bytes(target, length > 0 ? (size_t)length : 0);
    } else if (S_ISCHR(status->st_mode)) {
        printf(" device %lu", (unsigned long)status->st_rdev);
    } else if (S_ISREG(status->st_mode)) {
        int fd = open(name, O_RDONLY);

        must(fd >= 0, name);
        printf(" size %lld%s content %llx", (long long)status->st_size,
               status->st_blocks * 512 < status->st_size / 2 ? " sparse" : "",
               (unsigned long long)content_of(fd));
        close(fd);
    }
    if (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode))
        tell_attributes(name);
    printf("\n");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void tell_folder(void)
{
    DIR *directory = opendir(".");
    struct dirent *entry;
    char *names[NAMES_MAX];
    int count = 0;

    must(directory != NULL, "opendir");
    while ((entry = readdir(directory))) {
        must(count < NAMES_MAX, "too many names");
        if (strcmp(entry->d_name, "..") != 0)
            names[count++] = strdup(entry->d_name);
    }
    closedir(directory);
    qsort(names, (size_t)count, sizeof(*names), by_name);
    for (int i = 0; i < count; i++) {
        struct stat status;

        must(lstat(names[i], &status) == 0, names[i]);
        tell_one(names[i], &status);
        if (S_ISDIR(status.st_mode) && strcmp(names[i], ".") != 0) {
            must(chdir(names[i]) == 0, names[i]);
            tell_folder();
            must(chdir("..") == 0, "..");
        }
        free(names[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "odd") == 0)
        return make_odd();
    if (argc == 3 && strcmp(argv[1], "deep") == 0)
        return make_deep(strtol(argv[2], NULL, 10));
    if (argc == 2 && strcmp(argv[1], "tell") == 0) {
        tell_folder();
        return 0;
    }
    return 2;
}
