/* The file messages: see messages.h for what they promise. */
#include "supervisor/file_jobs.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/dispatch.h"
#include "supervisor/files.h"
#include "supervisor/job.h"

enum { LIST_SECONDS = 60, REMOVE_SECONDS = 300, STREAM_CHUNK = 32 * 1024 };

struct file_job {
    struct connection *connection; /* NULL: it went away */
    struct job *job;
    bool may_be_killed;
    const struct request *request; /* in the child only */
    int pipe;
};

static const struct nothing no_body;

/* --- quick ones ------------------------------------------------------------------------------ */

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

int operation_file_open(struct request *request, struct error *err)
{
    const struct file_open *body = request->body;
    auto_close int workspace = sandbox_open_workspace(request->sandbox, err);
    struct stat status;
    auto_close int fd = workspace < 0 ? -1 : files_open(workspace, body->path, &status, err);

    if (fd < 0)
        return -1;
    connection_answer(request->connection, &schema_file_info,
                      &(struct file_info){.size = status.st_size,
                                          .mode = status.st_mode,
                                          .modified_ns = nanoseconds(&status.st_mtim)},
                      fd);
    return 0;
}

int operation_file_create(struct request *request, struct error *err)
{
    const struct file_create *body = request->body;
    struct upload *upload = &request->connection->upload;
    auto_close int workspace = sandbox_open_workspace(request->sandbox, err);
    auto_close int fd =
        workspace < 0 ? -1 : files_create(workspace, body->path, (mode_t)body->mode, upload, err);

    if (fd < 0)
        return -1;
    memcpy(upload->sandbox, request->sandbox, sizeof(upload->sandbox));
    connection_answer(request->connection, &schema_nothing, &no_body, fd);
    return 0;
}

int operation_file_commit(struct request *request, struct error *err)
{
    struct upload *upload = &request->connection->upload;

    if (upload->file >= 0 && strcmp(upload->sandbox, request->sandbox) != 0)
        return error_set(err, ERR_CONFLICT, "the file was created in another sandbox");
    if (upload_commit(upload, err) < 0)
        return -1;
    connection_answer(request->connection, &schema_nothing, &no_body, -1);
    return 0;
}

int operation_directory_make(struct request *request, struct error *err)
{
    const struct directory_make *body = request->body;
    auto_close int workspace = sandbox_open_workspace(request->sandbox, err);

    if (workspace < 0 || files_make_directory(workspace, body->path, err) < 0)
        return -1;
    connection_answer(request->connection, &schema_nothing, &no_body, -1);
    return 0;
}

static struct file_entry describe(const char *name, const struct stat *status)
{
    return (struct file_entry){
        .name = name,
        .mode = status->st_mode,
        .size = status->st_size,
        .uid = status->st_uid,
        .gid = status->st_gid,
        .modified_ns = nanoseconds(&status->st_mtim),
    };
}

int operation_file_stat(struct request *request, struct error *err)
{
    const struct file_stat *body = request->body;
    auto_close int workspace = sandbox_open_workspace(request->sandbox, err);
    struct file_entry entry;
    struct stat status;

    if (workspace < 0 || files_stat(workspace, body->path, &status, err) < 0)
        return -1;
    entry = describe(".", &status);
    connection_answer(request->connection, &schema_file_entry, &entry, -1);
    return 0;
}

int operation_file_move(struct request *request, struct error *err)
{
    const struct file_move *body = request->body;
    auto_close int workspace = sandbox_open_workspace(request->sandbox, err);

    if (workspace < 0 || files_move(workspace, body->path, body->to, err) < 0)
        return -1;
    connection_answer(request->connection, &schema_nothing, &no_body, -1);
    return 0;
}

int operation_file_mode(struct request *request, struct error *err)
{
    const struct file_mode *body = request->body;
    auto_close int workspace = sandbox_open_workspace(request->sandbox, err);

    if (workspace < 0 || files_set_mode(workspace, body->path, (mode_t)body->mode, err) < 0)
        return -1;
    connection_answer(request->connection, &schema_nothing, &no_body, -1);
    return 0;
}

/* --- jobs ------------------------------------------------------------------------------------ */

static void finished(void *data, const struct error *result)
{
    struct file_job *job = data;
    struct connection *connection = job->connection;

    free(job);
    if (!connection)
        return;
    connection->job = NULL;
    if (result->kind == ERR_NONE)
        connection_answer(connection, &schema_nothing, &no_body, -1);
    else
        connection_refuse(connection, result);
}

void file_job_abandon(struct file_job *job)
{
    job->connection = NULL;
    if (job->may_be_killed)
        job_kill(job->job);
}

static int begin(struct request *request, const char *name, int seconds, bool may_be_killed,
                 job_work *work, struct error *err)
{
    struct file_job *job = calloc(1, sizeof(*job));

    if (!job)
        abort();
    *job = (struct file_job){.connection = request->connection,
                             .may_be_killed = may_be_killed,
                             .request = request,
                             .pipe = -1};
    if (request->connection->packet.descriptor_count)
        job->pipe = request->descriptors[0];
    job->job = job_begin(name, seconds, work, finished, job, err);
    if (!job->job) {
        free(job);
        return -1;
    }
    job->request = NULL;
    request->connection->job = job;
    /* The peer reads to the end, so the only end left is the child's. */
    wire_packet_close(&request->connection->packet);
    return 0;
}

static int check_pipe(const struct request *request, struct error *err)
{
    struct stat status;
    int flags = fcntl(request->descriptors[0], F_GETFL);

    if (flags < 0 || fstat(request->descriptors[0], &status) < 0 || !S_ISFIFO(status.st_mode) ||
        (flags & (O_ACCMODE | O_PATH)) != O_WRONLY)
        return error_set(err, ERR_BAD_REQUEST, "the descriptor must be a pipe to write to");
    return 0;
}

/* --- streams of bodies ----------------------------------------------------------------------- */

struct stream {
    int fd;
    struct buffer pending;
};

static int stream_flush(struct stream *stream, struct error *err)
{
    size_t done = 0;

    while (done < stream->pending.length) {
        ssize_t written =
            write(stream->fd, stream->pending.data + done, stream->pending.length - done);

        if (written < 0 && errno != EINTR)
            return error_set_errno(err, ERR_UNAVAILABLE, "write the list");
        done += written > 0 ? (size_t)written : 0;
    }
    stream->pending.length = 0;
    return 0;
}

int stream_add(struct stream *stream, const struct schema *schema, const void *value,
               struct error *err)
{
    size_t start = stream->pending.length;
    uint32_t length = 0;

    buffer_add(&stream->pending, &length, sizeof(length));
    if (wire_encode(schema, value, &stream->pending, err) < 0)
        return -1;
    length = htole32((uint32_t)(stream->pending.length - start - sizeof(length)));
    memcpy(stream->pending.data + start, &length, sizeof(length));
    return stream->pending.length < STREAM_CHUNK ? 0 : stream_flush(stream, err);
}

/* The child's own description might be non-blocking by the peer's choice. */
static void stream_begin(struct stream *stream, int fd)
{
    int flags = fcntl(fd, F_GETFL);

    signal(SIGPIPE, SIG_IGN);
    *stream = (struct stream){.fd = fd};
    if (flags >= 0)
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

static int list_one(const char *name, const struct stat *status, void *data, struct error *err)
{
    const struct file_entry entry = describe(name, status);

    return stream_add(data, &schema_file_entry, &entry, err);
}

static int list_files(void *data, struct error *err)
{
    struct file_job *job = data;
    const struct file_list *body = job->request->body;
    auto_close int workspace = sandbox_open_workspace(body->sandbox, err);
    struct stream stream;

    stream_begin(&stream, job->pipe);
    if (workspace < 0 || files_each(workspace, body->path, list_one, &stream, err) < 0)
        return -1;
    return stream_flush(&stream, err);
}

int operation_file_list(struct request *request, struct error *err)
{
    if (check_pipe(request, err) < 0)
        return -1;
    return begin(request, "file_list", LIST_SECONDS, true, list_files, err);
}

/* The child has a copy of the table as it was when it was forked. */
static int list_sandboxes(void *data, struct error *err)
{
    struct file_job *job = data;
    struct stream stream;

    stream_begin(&stream, job->pipe);
    for (struct sandbox *box = sandbox_first(); box; box = box->next) {
        const struct sandbox_entry entry = {.sandbox = box->id,
                                            .state = box->state,
                                            .image = box->slot < 0 ? 0
                                                     : box->image  ? (int64_t)box->image
                                                                   : SANDBOX_STARTING};

        if (!box->destroyed && !box->spare &&
            stream_add(&stream, &schema_sandbox_entry, &entry, err) < 0)
            return -1;
    }
    return stream_flush(&stream, err);
}

int operation_list(struct request *request, struct error *err)
{
    if (check_pipe(request, err) < 0)
        return -1;
    return begin(request, "list", LIST_SECONDS, true, list_sandboxes, err);
}

static int list_snapshots(void *data, struct error *err)
{
    struct file_job *job = data;
    struct stream stream;

    stream_begin(&stream, job->pipe);
    if (snapshots_list(job->request->sandbox, &stream, err) < 0)
        return -1;
    return stream_flush(&stream, err);
}

int operation_snapshot_list(struct request *request, struct error *err)
{
    if (check_pipe(request, err) < 0)
        return -1;
    return begin(request, "snapshot_list", LIST_SECONDS, true, list_snapshots, err);
}

static int remove_file(void *data, struct error *err)
{
    struct file_job *job = data;
    const struct file_remove *body = job->request->body;
    auto_close int workspace = sandbox_open_workspace(body->sandbox, err);
    auto_close int trash = workspace < 0 ? -1 : sandbox_open_trash(body->sandbox, err);

    if (trash < 0)
        return -1;
    return files_remove(workspace, trash, body->path, body->recursive, err);
}

int operation_file_remove(struct request *request, struct error *err)
{
    return begin(request, "file_remove", REMOVE_SECONDS, false, remove_file, err);
}
