/* The client half of messages.def: sandboxes, as the server asks the supervisor for them.
 *
 * Every call waits for its answer, with a deadline. Errors are the supervisor's own kind and
 * sentence; ERR_UNAVAILABLE with retry_after_s when it can't be reached. What the calls mean is
 * written in common/messages.h. */
#ifndef RUN_SANDBOX_H
#define RUN_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/messages.h"

/* One connection, for one thread: opened when it is needed, and anew after the supervisor was
 * restarted. */
struct sandbox_link;

/* `path` is copied. Nothing is opened yet. */
struct sandbox_link *sandbox_link_new(const char *path);
void sandbox_link_free(struct sandbox_link *link);

int sandbox_create(struct sandbox_link *link, const char *sandbox, struct error *err);
/* The same with sizes of its disk. */
int sandbox_create_sized(struct sandbox_link *link, const struct create *create, struct error *err);
int sandbox_start(struct sandbox_link *link, const struct start *start, struct error *err);
int sandbox_stop(struct sandbox_link *link, const char *sandbox, struct error *err);
int sandbox_destroy(struct sandbox_link *link, const char *sandbox, struct error *err);
/* Stop it, and make an image of it that starts under a new name. */
int sandbox_image_commit(struct sandbox_link *link, const char *sandbox, const char *image,
                         struct error *err);
/* `boot` (in the arena) is NULL when it does not run. */
int sandbox_status(struct sandbox_link *link, const char *sandbox, struct arena *arena,
                   struct sandbox_status *status, struct error *err);
/* All there are; names in the arena. */
int sandbox_list(struct sandbox_link *link, struct arena *arena, struct sandbox_entry **entries,
                 size_t *count, struct error *err);

/* What it uses of its disk, and of memory, processes and processors. */
int sandbox_usage(struct sandbox_link *link, const char *sandbox, struct sandbox_usage *usage,
                  struct error *err);

/* A snapshot of a sandbox's workspace under an id of the caller's; `made` (texts in the arena) may
 * be NULL. Sandboxes are created from one by the member `snapshot` of struct create. */
int sandbox_snapshot_make(struct sandbox_link *link, const char *sandbox, const char *snapshot,
                          struct arena *arena, struct snapshot_entry *made, struct error *err);
int sandbox_snapshot_remove(struct sandbox_link *link, const char *snapshot, struct error *err);
/* Those of one sandbox, or of all (NULL); in no order, texts in the arena. */
int sandbox_snapshot_list(struct sandbox_link *link, const char *sandbox, struct arena *arena,
                          struct snapshot_entry **entries, size_t *count, struct error *err);

/* What a command wrote to one stream. Zero-initialised is empty; buffer_done(&output.bytes)
 * releases it. */
struct sandbox_output {
    struct buffer bytes; /* the first ones, up to `keep` */
    int64_t total;       /* before the cut */
};

/* Run a command with an empty standard input, and collect its output. It is never blocked by the
 * cut: what is beyond `keep` is counted and dropped. Answered when the command itself has ended;
 * children that hold its streams live on.
 *
 * `cancel_fd` (-1: none) ends the command and its whole tree when it hangs up, or, unless it is a
 * socket, becomes readable; then the call fails with ERR_TIMEOUT. The outputs hold what came so far
 * also when the call fails. */
int sandbox_exec(struct sandbox_link *link, const struct exec *exec, size_t keep, int cancel_fd,
                 struct sandbox_output *out, struct sandbox_output *errors,
                 struct exec_result *result, struct error *err);

/* The same, with both outputs told as they come, in no bounds. */
typedef void sandbox_hear(const char *bytes, size_t length, void *context);
int sandbox_exec_heard(struct sandbox_link *link, const struct exec *exec, int cancel_fd,
                       sandbox_hear *hear, void *context, struct exec_result *result,
                       struct error *err);

/* Call with each entry of a directory, in the order of their names' bytes, or with the one that
 * `path` is otherwise (its name is "."). An entry is there for its call alone; a call that fails
 * ends the list. */
int sandbox_file_each(struct sandbox_link *link, const char *sandbox, const char *path,
                      int (*each)(const struct file_entry *entry, void *data, struct error *err),
                      void *data, struct error *err);
/* The same, all in the arena. */
int sandbox_file_list(struct sandbox_link *link, const char *sandbox, const char *path,
                      struct arena *arena, struct file_entry **entries, size_t *count,
                      struct error *err);
/* *fd is the caller's. */
int sandbox_file_open(struct sandbox_link *link, const char *sandbox, const char *path,
                      struct file_info *info, int *fd, struct error *err);
/* *fd is the caller's, to write to. The file appears at sandbox_file_commit on the same link, with
 * no other call between; a failed write needs nothing: the next file_create forgets it. */
int sandbox_file_create(struct sandbox_link *link, const char *sandbox, const char *path,
                        int64_t mode, int *fd, struct error *err);
int sandbox_file_commit(struct sandbox_link *link, const char *sandbox, struct error *err);
int sandbox_file_remove(struct sandbox_link *link, const char *sandbox, const char *path,
                        bool recursive, struct error *err);
/* What the path is itself; its name is ".", and lies in the arena. */
int sandbox_file_stat(struct sandbox_link *link, const char *sandbox, const char *path,
                      struct arena *arena, struct file_entry *entry, struct error *err);
int sandbox_file_move(struct sandbox_link *link, const char *sandbox, const char *path,
                      const char *to, struct error *err);
int sandbox_file_mode(struct sandbox_link *link, const char *sandbox, const char *path,
                      int64_t mode, struct error *err);
int sandbox_directory_make(struct sandbox_link *link, const char *sandbox, const char *path,
                           struct error *err);

/* A connection to what listens at `port` of the sandbox's own loopback, IPv4 or else IPv6. *fd is
 * the caller's, non-blocking. ERR_UPSTREAM when nothing listens, or does not accept within
 * `timeout_ms`. */
int sandbox_port_open(struct sandbox_link *link, const char *sandbox, int64_t port,
                      int64_t timeout_ms, int *fd, struct error *err);

/* Append what the supervisor counts, in the Prometheus text format. Asked for while somebody
 * scrapes, so it is given 2 s. */
int sandbox_statistics(struct sandbox_link *link, struct buffer *text, struct error *err);

/* Read `fd` to nowhere until its end, in a thread of this process's own, so that who writes to it
 * never meets a closed pipe. Takes the descriptor. There is room for some thousands; beyond that
 * the oldest is closed. */
void sandbox_drain(int fd);

#endif
