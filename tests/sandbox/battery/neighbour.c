/* neighbour.*: what `battery --stay` has in another sandbox, by names that both know. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sandbox/battery/battery.h"

enum { PORT = 4321, KEY = 0x4321 };

#define WORD "a-neighbour"
static const char *const files[] = {"/tmp/" WORD,  "/dev/shm/" WORD, "/workspace/" WORD,
                                    "/root/" WORD, "/etc/" WORD,     "/usr/" WORD};

static struct sockaddr_in port_of(int family)
{
    return (struct sockaddr_in){.sin_family = (sa_family_t)family,
                                .sin_port = htons(PORT),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static struct sockaddr_un hidden_name(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    memcpy(name.sun_path + 1, WORD, sizeof(WORD));
    return name;
}

int stay_main(void)
{
    struct sockaddr_in here = port_of(AF_INET);
    struct sockaddr_un hidden = hidden_name();
    int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0),
        name = socket(AF_UNIX, SOCK_STREAM, 0), failed = 0;

    for (size_t i = 0; i < COUNT(files); i++) {
        int fd = open(files[i], O_CREAT | O_RDWR, 0666);

        failed |= mkdir("/usr", 0755) < 0 && errno != EEXIST;
        failed |= fd >= 0 && (write(fd, WORD, strlen(WORD)) < 0 || flock(fd, LOCK_EX) < 0);
    }
    failed |= bind(tcp, (struct sockaddr *)&here, sizeof(here)) < 0 || listen(tcp, 8) < 0 ||
              bind(udp, (struct sockaddr *)&here, sizeof(here)) < 0 ||
              bind(name, (struct sockaddr *)&hidden, sizeof(hidden)) < 0 || listen(name, 8) < 0 ||
              shmget(KEY, 4096, IPC_CREAT | 0666) < 0 || semget(KEY, 1, IPC_CREAT | 0666) < 0 ||
              msgget(KEY, IPC_CREAT | 0666) < 0 ||
              mq_open("/" WORD, O_CREAT | O_RDWR, 0666, NULL) < 0 ||
              sem_open(WORD, O_CREAT, 0666, 1) == SEM_FAILED || prctl(PR_SET_NAME, WORD) < 0;
    puts(failed ? "failed" : "stays");
    fflush(stdout);
    for (;;)
        pause();
}

static bool alone(void)
{
    return !told("BATTERY_NEIGHBOUR");
}

static int no_files(const void *row)
{
    (void)row;
    if (alone())
        return SKIPPED_CHECK;
    for (size_t i = 0; i < COUNT(files); i++)
        if (access(files[i], F_OK) == 0)
            return broken("%s is there", files[i]);
    return HOLDS;
}

static int no_processes(const void *row)
{
    DIR *all = opendir("/proc");
    struct dirent *process;

    (void)row;
    if (alone())
        return SKIPPED_CHECK;
    while (all && (process = readdir(all))) {
        char path[300], name[64] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%s/comm", process->d_name);
        if (process->d_name[0] < '1' || process->d_name[0] > '9' || !(file = fopen(path, "r")))
            continue;
        if (fgets(name, sizeof(name), file) && strncmp(name, WORD, strlen(WORD)) == 0)
            return broken("process %s", process->d_name);
        fclose(file);
    }
    return HOLDS;
}

static int no_sockets(const void *row)
{
    struct sockaddr_in there = port_of(AF_INET);
    struct sockaddr_un hidden = hidden_name();

    (void)row;
    if (alone())
        return SKIPPED_CHECK;
    return REFUSED_WITH(ECONNREFUSED, connect(socket(AF_INET, SOCK_STREAM, 0),
                                              (struct sockaddr *)&there, sizeof(there))) |
           REFUSED_WITH(ECONNREFUSED, connect(socket(AF_UNIX, SOCK_STREAM, 0),
                                              (struct sockaddr *)&hidden, sizeof(hidden))) |
           /* Both are free here. */
           WORKS_FINE(
               bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&there, sizeof(there))) |
           WORKS_FINE(
               bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&hidden, sizeof(hidden)));
}

static int no_memory(const void *row)
{
    (void)row;
    if (alone())
        return SKIPPED_CHECK;
    return REFUSED_WITH(ENOENT, shmget(KEY, 0, 0)) | REFUSED_WITH(ENOENT, semget(KEY, 0, 0)) |
           REFUSED_WITH(ENOENT, msgget(KEY, 0)) | REFUSED_WITH(ENOENT, mq_open("/" WORD, O_RDWR)) |
           (sem_open(WORD, 0) != SEM_FAILED ? broken("a semaphore of its") : HOLDS) |
           REFUSED(shm_open("/" WORD, O_RDWR, 0)) | REFUSED(shmctl(0, SHM_STAT, page_of_zeroes()));
}

static int no_users(const void *row)
{
    FILE *file = fopen("/proc/self/uid_map", "r");
    const char *other = told("BATTERY_NEIGHBOUR"); /* where its ids begin outside */
    long inside, outside = 0;

    (void)row;
    if (alone())
        return SKIPPED_CHECK;
    if (!file || fscanf(file, "%ld %ld", &inside, &outside) != 2 || outside == atol(other))
        return broken("ids from %ld on are shared", outside);
    return HOLDS;
}

static const struct check checks[] = {
    {"no_files", no_files, NULL, EVERYBODY},     {"no_processes", no_processes, NULL, EVERYBODY},
    {"no_sockets", no_sockets, NULL, EVERYBODY}, {"no_memory", no_memory, NULL, EVERYBODY},
    {"no_users", no_users, NULL, EVERYBODY},
};

const struct battery battery_neighbour = {"neighbour", checks, COUNT(checks)};
