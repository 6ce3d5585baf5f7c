/* Reading the log in threads: see fetcher.h. */
#include "server/fetcher.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "common/log.h"
#include "common/scope.h"
#include "store/database.h"

enum {
    THREADS = 2,
    PAGE_ROWS = 200, /* as stream_page has them */
    PAGE_BYTES = 1024 * 1024,
    BORROW_WAIT_MS = 5000,
};

struct fetch_list {
    struct fetch *first, **end;
};

struct fetcher {
    struct pool *pool;
    int answered_fd;
    pthread_mutex_t lock; /* guards the lists and `stopping` */
    pthread_cond_t asked_any;
    struct fetch_list asked, answered;
    bool stopping;
    size_t thread_count;
    pthread_t threads[THREADS];
};

/* --- questions
 * -------------------------------------------------------------------------------------------------------
 */

static void list_add(struct fetch_list *list, struct fetch *fetch)
{
    fetch->next = NULL;
    *list->end = fetch;
    list->end = &fetch->next;
}

static struct fetch *list_take(struct fetch_list *list)
{
    struct fetch *fetch = list->first;

    if (fetch) {
        list->first = fetch->next;
        if (!list->first)
            list->end = &list->first;
    }
    return fetch;
}

struct fetch *fetch_new(enum fetch_kind kind)
{
    struct fetch *fetch = calloc(1, sizeof(*fetch));

    if (!fetch)
        abort();
    fetch->kind = kind;
    return fetch;
}

void fetch_free(struct fetch *fetch)
{
    frames_release(fetch->frames);
    free(fetch->ids);
    arena_done(&fetch->arena);
    free(fetch);
}

/* --- answers
 * ---------------------------------------------------------------------------------------------------------
 */

/* As contract and browsers have it: an id line, one data line, an empty line. */
static struct frame *frame_of_row(const struct rows *rows, size_t row)
{
    auto_buffer struct buffer text = {0};
    const char *seq = rows_text(rows, row, 0);
    const char *type = rows_text(rows, row, 3);
    struct frame *frame;

    buffer_format(&text, "id: %s\ndata: ", seq);
    rows_json(rows, row, &text);
    buffer_text(&text, "\n\n");
    frame = frame_new(text.data, text.length);
    frame->seq = strtoll(seq, NULL, 10);
    frame->message = !strcmp(type, "agent.message");
    return frame;
}

static int fetch_page(struct fetch *fetch, struct database *db, struct error *err)
{
    auto_rows struct rows *rows = NULL;
    struct frame **end = &fetch->frames;
    size_t bytes = 0;

    if (query_rows(db, QUERY_stream_page, PARAMS(fetch->session, NUM(fetch->after)), &rows, err) <
        0)
        return -1;
    for (size_t row = 0; row < rows_count(rows); row++) {
        *end = frame_of_row(rows, row);
        bytes += (*end)->length;
        end = &(*end)->next;
    }
    fetch->more = rows_count(rows) >= PAGE_ROWS || bytes >= PAGE_BYTES;
    if (rows_count(rows) == 0) {
        auto_rows struct rows *heads = NULL;
        auto_free char *ids = NULL;

        if (asprintf(&ids, "{%s}", fetch->session) < 0)
            abort();
        if (query_rows(db, QUERY_stream_heads, PARAMS(ids), &heads, err) < 0)
            return -1;
        fetch->gone = rows_count(heads) == 0;
    }
    return 0;
}

static int fetch_ids(struct fetch *fetch, struct database *db, struct error *err)
{
    enum query_id query = fetch->kind == FETCH_HEADS ? QUERY_stream_heads : QUERY_stream_keys;
    auto_rows struct rows *rows = NULL;

    if (query_rows(db, query, PARAMS(fetch->ids), &rows, err) < 0)
        return -1;
    fetch->found.count = rows_count(rows);
    fetch->found.items = arena_alloc(&fetch->arena, (fetch->found.count + 1) * sizeof(char *));
    fetch->heads = arena_alloc(&fetch->arena, (fetch->found.count + 1) * sizeof(int64_t));
    for (size_t row = 0; row < fetch->found.count; row++) {
        const char *id = rows_text(rows, row, 0);

        fetch->found.items[row] = arena_copy(&fetch->arena, id, strlen(id));
        if (fetch->kind == FETCH_HEADS)
            fetch->heads[row] = strtoll(rows_text(rows, row, 1), NULL, 10);
    }
    return 0;
}

static void answer(struct fetcher *fetcher, struct fetch *fetch)
{
    auto_database struct database *db = NULL;
    struct error err;

    if (database_borrow(fetcher->pool, BORROW_WAIT_MS, &db, &err) < 0 ||
        (fetch->kind == FETCH_PAGE ? fetch_page(fetch, db, &err) : fetch_ids(fetch, db, &err)) <
            0) {
        LOG(WARNING, "stream_fetch_failed", V("reason", err.message));
        fetch->failed = true;
    }
}

static void *answer_all(void *argument)
{
    struct fetcher *fetcher = argument;
    const uint64_t one = 1;

    pthread_mutex_lock(&fetcher->lock);
    while (!fetcher->stopping) {
        struct fetch *fetch = list_take(&fetcher->asked);

        if (!fetch) {
            pthread_cond_wait(&fetcher->asked_any, &fetcher->lock);
            continue;
        }
        pthread_mutex_unlock(&fetcher->lock);
        answer(fetcher, fetch);
        pthread_mutex_lock(&fetcher->lock);
        list_add(&fetcher->answered, fetch);
        if (write(fetcher->answered_fd, &one, sizeof(one)) < 0)
            LOG(ERROR, "stream_wake_failed", V("errno", errno));
    }
    pthread_mutex_unlock(&fetcher->lock);
    return NULL;
}

int fetcher_fd(const struct fetcher *fetcher)
{
    return fetcher->answered_fd;
}

void fetcher_ask(struct fetcher *fetcher, struct fetch *fetch)
{
    pthread_mutex_lock(&fetcher->lock);
    list_add(&fetcher->asked, fetch);
    pthread_cond_signal(&fetcher->asked_any);
    pthread_mutex_unlock(&fetcher->lock);
}

struct fetch *fetcher_take(struct fetcher *fetcher)
{
    struct fetch *fetch;
    uint64_t count;

    pthread_mutex_lock(&fetcher->lock);
    fetch = list_take(&fetcher->answered);
    /* Under the lock: an answer that comes now writes after this read. */
    if (!fetch && read(fetcher->answered_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        LOG(ERROR, "stream_results_failed", V("errno", errno));
    pthread_mutex_unlock(&fetcher->lock);
    return fetch;
}

/* --- threads
 * ---------------------------------------------------------------------------------------------------------
 */

int fetcher_open(struct fetcher **opened, const char *url, struct error *err)
{
    struct fetcher *fetcher = calloc(1, sizeof(*fetcher));

    if (!fetcher)
        abort();
    fetcher->asked.end = &fetcher->asked.first;
    fetcher->answered.end = &fetcher->answered.first;
    pthread_mutex_init(&fetcher->lock, NULL);
    pthread_cond_init(&fetcher->asked_any, NULL);
    fetcher->answered_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fetcher->answered_fd < 0) {
        error_set_errno(err, ERR_INTERNAL, "eventfd");
        fetcher_close(fetcher);
        return -1;
    }
    if (pool_open(&fetcher->pool, url, THREADS, err) < 0) {
        fetcher_close(fetcher);
        return -1;
    }
    for (; fetcher->thread_count < THREADS; fetcher->thread_count++)
        if (pthread_create(&fetcher->threads[fetcher->thread_count], NULL, answer_all, fetcher) !=
            0) {
            fetcher_close(fetcher);
            return error_set(err, ERR_INTERNAL, "pthread_create failed");
        }
    *opened = fetcher;
    return 0;
}

void fetcher_close(struct fetcher *fetcher)
{
    struct fetch *fetch;

    pthread_mutex_lock(&fetcher->lock);
    fetcher->stopping = true;
    pthread_cond_broadcast(&fetcher->asked_any);
    pthread_mutex_unlock(&fetcher->lock);
    for (size_t i = 0; i < fetcher->thread_count; i++)
        pthread_join(fetcher->threads[i], NULL);
    while ((fetch = list_take(&fetcher->asked)) || (fetch = list_take(&fetcher->answered)))
        fetch_free(fetch);
    if (fetcher->pool)
        pool_close(fetcher->pool);
    if (fetcher->answered_fd >= 0)
        close(fetcher->answered_fd);
    pthread_cond_destroy(&fetcher->asked_any);
    pthread_mutex_destroy(&fetcher->lock);
    free(fetcher);
}
