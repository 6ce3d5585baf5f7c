/* Which sandboxes there are, what each is, and how that survives the supervisor.
 *
 * A sandbox is a folder `sandboxes/<id>`, 0700: `disk` what it writes (storage.h), `ctl.sock`
 * init's socket, `state` what it is. `state` is replaced by rename: that is the moment at which a
 * change counts. */
#ifndef SUPERVISOR_SANDBOX_H
#define SUPERVISOR_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/messages.h"
#include "supervisor/loop.h"
#include "supervisor/storage.h"
#include "supervisor/supervisor.h"

struct connection;
struct command;

struct sandbox {
    char id[SANDBOX_ID_LENGTH + 1];
    enum sandbox_state state;
    bool busy;       /* it is on its way to another state: what asks for one more waits */
    bool destroyed;  /* it counts as absent; its processes are on their way out */
    bool copying;    /* a snapshot is made of it: it must stay, in the state that it has */
    bool spare;      /* made ahead, for nobody yet: see pool.h */
    bool warm;       /* its init runs, but nobody has asked for that yet */
    unsigned naming; /* what has still to learn its name: see pool.c */
    struct connection
        *asker; /* whose lifecycle request is being done; NULL: nobody's, or it went away */
    struct error failure; /* of a start, told when all is cleaned up */

    struct disk disk;
    bool attached;             /* the disk can be used */
    struct error attach_error; /* why it could not be, lately */
    int64_t attach_after_ms;   /* when to try again (loop_now) */
    int64_t used_ms;           /* when somebody last looked at it */
    int64_t slot;              /* its range of ids; -1 when not running */
    int64_t memory_bytes;      /* that it may have, since its start was asked for */
    char cgroup[SANDBOX_ID_LENGTH +
                1]; /* of the boot: a name that was free before its own was known */
    char boot[BOOT_LENGTH + 1];
    uint64_t image;     /* inode of the folder of its image; 0: none, or not known yet */
    pid_t pid;          /* init's */
    uint64_t pid_inode; /* of its pidfd, and its start time: together it can't be another process */
    uint64_t pid_start;
    struct watch spawning;      /* reports of the spawner */
    struct watch process;       /* pidfd */
    struct watch control;       /* init's socket */
    struct timer deadline;      /* of a start */
    double begun;               /* when its start was asked for (statistics_now) */
    int way;                    /* enum start_way */
    int64_t oom_kills;          /* of the boot, as far as they were counted */
    struct spawn_request *made; /* what it was made ahead for; until it is asked for */
    struct teardown *teardown;  /* while it is on its way down: see lifecycle.c */
    char commit[65]; /* the image that its layers become when it has ended; empty: none */
    struct command *commands;
    struct buffer environment; /* what its image says, once it was needed: see environment.h */
    bool environment_known;
    struct sandbox *next, **link;
    struct sandbox *same_bucket;
};

/* Open the state folder, alone. Nothing is read yet. */
int sandbox_open(struct error *err);
/* The folder of all sandboxes, and of one (the caller owns that one). */
int sandbox_folder(void);
int sandbox_open_folder(const char *id, struct error *err);
/* A descriptor on the workspace, for openat2(2) beneath it, and on a folder of the same file system
 * for what is removed. */
int sandbox_open_workspace(const char *id, struct error *err);
int sandbox_open_trash(const char *id, struct error *err);
/* Another folder beside that of all sandboxes. */
int sandbox_open_place(const char *name, struct error *err);
/* The state folder as it is seen from the mount namespace of the disks; the caller's, and to stay
 * open. */
int sandbox_reopen(int state, struct error *err);

struct sandbox *sandbox_find(const char *id);
/* Enter a new one into the table; it is freed by sandbox_forget. */
struct sandbox *sandbox_add(const char *id, enum sandbox_state state);
void sandbox_forget(struct sandbox *box);
/* Give it another id, and its folder that name. ERR_CONFLICT when there is one. */
int sandbox_rename(struct sandbox *box, const char *id, struct error *err);
struct sandbox *sandbox_first(void);
size_t sandbox_count(void);

/* The lowest range of ids that nobody uses; -1 when all are taken. */
int64_t sandbox_free_slot(void);
/* Write `state`. */
int sandbox_save(const struct sandbox *box, struct error *err);
int sandbox_save_in(int own, const struct sandbox *box, struct error *err);
/* Begin to make the folder of a new sandbox, and its disk. ERR_CONFLICT when there is one. A plain
 * one is made at once. */
int sandbox_begin(struct sandbox *box, store_done *done, struct error *err);
/* The same with a snapshot in it. */
int sandbox_begin_restored(struct sandbox *box, const char *snapshot, bool whole, store_done *done,
                           struct error *err);
/* Begin to remove what could not be completed; false when that has to wait for the next start. */
bool sandbox_undo(struct sandbox *box, store_done *done);
/* It is made: write `state`, and give it its name. */
int sandbox_complete(const struct sandbox *box, struct error *err);
/* What identifies the process behind a pidfd, beyond the reuse of its pid. */
void sandbox_identify(struct sandbox *box, int pidfd);

/* Read every folder. Those that ran go to `adopt`, with a pidfd that is theirs to close, or -1 when
 * nothing of them runs any more. Folders that are half made or half gone are named to `stray`.
 * Without `adopt`, only those. */
void sandbox_load(void (*adopt)(struct sandbox *box, int pidfd), void (*stray)(const char *name));

#endif
