/* Followers, their cursors and what is on its way to them: see streamer.h.
 *
 * The loop never touches the database: the fetcher's threads read pages of the log and give them
 * back as ready frames, which all followers at the same cursor share. A follower is `hungry` while
 * the log may hold more behind its cursor. It is fed only while its own queue is short, so a slow
 * reader costs a bounded amount of memory and catches up by paging. */
#include "server/streamer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "common/arena.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/scope.h"
#include "common/wire.h"
#include "http/follow.h"
#include "server/fetcher.h"
#include "server/metrics.h"
#include "server/outbox.h"
#include "server/role.h"
#include "server/settings.h"
#include "store/bus.h"

enum {
    SESSION_BUCKETS = 4096,
    QUEUE_BYTES = 256 * 1024, /* beyond this a follower is not fed */
    HELD_BYTES = 1024 * 1024, /* deltas of one session that wait for their place */
    PING_MS = 15 * 1000,
    STALL_MS = 30 * 1000, /* a reader that took no byte for so long is dropped */
    POLL_MS = 2 * 1000,   /* a wake-up that got lost costs at most this */
    CHECK_MS = 10 * 1000, /* keys and sessions */
    RETRY_MS = 500,
};

struct follower {
    int fd;
    bool dead;
    bool hungry;
    bool writable_wanted;
    struct outbox outbox;
    int64_t cursor;
    uint64_t delta_serial; /* newest delta it was given, or has passed */
    int64_t said_ms;       /* when something was last queued */
    char key[37];          /* "" : the operator */
    struct session *session;
    struct follower *previous, *next; /* of the session */
    struct follower *next_dead;
};

struct session {
    char id[37];
    struct session *next; /* in its bucket */
    struct follower *followers;
    bool fetching;
    uint64_t wakes; /* counts wake-ups: a fetch that began before the last one is not the end */
    int64_t last_message; /* seq of the newest agent.message seen */
    int64_t retry_ms;
    struct frame *held, **held_end; /* deltas waiting for a stored event */
    size_t held_bytes;
};

struct streamer {
    int epoll, listener, bus;
    struct session *buckets[SESSION_BUCKETS];
    struct follower *dead;
    struct frame *ping;
    uint64_t delta_serial;
    int64_t now_ms, next_poll_ms, next_check_ms;
    bool heads_running, keys_running;
    struct fetcher *fetcher;
};

/* What an epoll event is about: the loop's own descriptors have these, followers their address. */
enum { TAG_LISTENER = 1, TAG_BUS, TAG_RESULTS, TAG_STOP, TAGS };

/* --- sessions
 * ------------------------------------------------------------------------------------------------------
 */

static struct session **session_slot(struct streamer *streamer, const char *id)
{
    uint32_t hash = 2166136261u;
    struct session **slot;

    for (const char *c = id; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    slot = &streamer->buckets[hash % SESSION_BUCKETS];
    while (*slot && strcmp((*slot)->id, id))
        slot = &(*slot)->next;
    return slot;
}

static void held_clear(struct session *session)
{
    frames_release(session->held);
    session->held = NULL;
    session->held_end = &session->held;
    session->held_bytes = 0;
}

/* A session is known while somebody follows it, or a fetch for it is on its way. */
static void session_forget_unused(struct streamer *streamer, struct session *session)
{
    struct session **slot;

    if (session->followers || session->fetching)
        return;
    slot = session_slot(streamer, session->id);
    *slot = session->next;
    held_clear(session);
    free(session);
}

/* Have the log read for the follower that is furthest behind and has room. */
static void session_feed(struct streamer *streamer, struct session *session)
{
    const struct follower *furthest = NULL;
    struct fetch *fetch;

    if (session->fetching || streamer->now_ms < session->retry_ms)
        return;
    for (const struct follower *follower = session->followers; follower; follower = follower->next)
        if (follower->hungry && !follower->dead && follower->outbox.bytes < QUEUE_BYTES &&
            (!furthest || follower->cursor < furthest->cursor))
            furthest = follower;
    if (!furthest)
        return;
    fetch = fetch_new(FETCH_PAGE);
    memcpy(fetch->session, session->id, sizeof(fetch->session));
    fetch->after = furthest->cursor;
    fetch->wakes = session->wakes;
    session->fetching = true;
    fetcher_ask(streamer->fetcher, fetch);
}

static void session_wake(struct streamer *streamer, struct session *session)
{
    session->wakes++;
    for (struct follower *follower = session->followers; follower; follower = follower->next)
        follower->hungry = true;
    session_feed(streamer, session);
}

/* --- followers
 * --------------------------------------------------------------------------------------------------------
 */

/* Freed at the end of the loop's round: events for it may still be in hand. */
static void follower_drop(struct streamer *streamer, struct follower *follower)
{
    if (follower->dead)
        return;
    follower->dead = true;
    follower->next_dead = streamer->dead;
    streamer->dead = follower;
}

static void follower_free(struct streamer *streamer, struct follower *follower)
{
    struct session *session = follower->session;

    if (follower->previous)
        follower->previous->next = follower->next;
    else
        session->followers = follower->next;
    if (follower->next)
        follower->next->previous = follower->previous;
    outbox_done(&follower->outbox);
    /* The worker that handed the socket over may still hold its own descriptor of it: closing ours
     * would not end the watch, and an event would find a freed follower (epoll(7), "Will closing a
     * file descriptor …"). */
    epoll_ctl(streamer->epoll, EPOLL_CTL_DEL, follower->fd, NULL);
    close(follower->fd);
    free(follower);
    counter_add(METRIC_streams_open, NULL, -1);
    session_forget_unused(streamer, session);
}

static void follower_flush(struct streamer *streamer, struct follower *follower)
{
    int left = outbox_flush(&follower->outbox, follower->fd, streamer->now_ms);

    if (left < 0) {
        follower_drop(streamer, follower);
    } else if ((left > 0) != follower->writable_wanted) {
        struct epoll_event event = {.events = EPOLLRDHUP | (left > 0 ? EPOLLOUT : 0),
                                    .data.ptr = follower};

        follower->writable_wanted = left > 0;
        epoll_ctl(streamer->epoll, EPOLL_CTL_MOD, follower->fd, &event);
    }
}

static void follower_queue(struct streamer *streamer, struct follower *follower,
                           struct frame *frame)
{
    if (follower->dead)
        return;
    outbox_add(&follower->outbox, frame, streamer->now_ms);
    follower->said_ms = streamer->now_ms;
}

/* A delta whose message the follower has seen already tells it nothing. */
static bool delta_is_late(const struct follower *follower, const struct frame *delta)
{
    return delta->after < follower->session->last_message &&
           follower->cursor >= follower->session->last_message;
}

/* Held deltas that come before the stored event `seq`. */
static void follower_take_held(struct streamer *streamer, struct follower *follower, int64_t seq)
{
    for (struct frame *delta = follower->session->held; delta && delta->after < seq;
         delta = delta->next) {
        if (delta->serial <= follower->delta_serial)
            continue;
        follower->delta_serial = delta->serial;
        if (!delta_is_late(follower, delta))
            follower_queue(streamer, follower, delta);
    }
}

static void follower_take_page(struct streamer *streamer, struct follower *follower,
                               const struct fetch *page)
{
    for (struct frame *frame = page->frames; frame; frame = frame->next) {
        if (frame->message)
            follower_take_held(streamer, follower, frame->seq);
        follower_queue(streamer, follower, frame);
        follower->cursor = frame->seq;
    }
    if (!page->more && page->wakes == follower->session->wakes) {
        follower->hungry = false;
        follower_take_held(streamer, follower, follower->cursor + 1);
    }
}

/* --- what comes in
 * -----------------------------------------------------------------------------------------------
 */

static void on_delta(struct streamer *streamer, struct session *session,
                     const struct bus_message *message)
{
    struct frame *delta = frame_new(message->frame, message->length);
    bool hold = false;

    delta->after = message->after;
    delta->serial = ++streamer->delta_serial;
    for (struct follower *follower = session->followers; follower; follower = follower->next) {
        if (!follower->hungry && follower->cursor < delta->after) {
            follower->hungry = true; /* its wake-up got lost */
            session->wakes++;
        }
        if (follower->hungry) {
            hold = true;
            continue;
        }
        follower->delta_serial = delta->serial;
        if (!delta_is_late(follower, delta) && follower->outbox.bytes < QUEUE_BYTES) {
            follower_queue(streamer, follower, delta);
            follower_flush(streamer, follower);
        }
    }
    if (!hold) {
        frame_release(delta);
        return;
    }
    *session->held_end = delta;
    session->held_end = &delta->next;
    session->held_bytes += delta->length;
    while (session->held && session->held_bytes > HELD_BYTES) {
        struct frame *oldest = session->held;

        session->held = oldest->next;
        if (!session->held)
            session->held_end = &session->held;
        session->held_bytes -= oldest->length;
        frame_release(oldest);
    }
    session_feed(streamer, session);
}

static void on_bus(struct streamer *streamer)
{
    struct bus_message message;

    while (bus_receive(streamer->bus, &message) > 0) {
        struct session *session = *session_slot(streamer, message.session);

        if (!session)
            continue;
        if (message.kind == BUS_WAKE)
            session_wake(streamer, session);
        else if (message.kind == BUS_DELTA)
            on_delta(streamer, session, &message);
    }
}

static void drop_all(struct streamer *streamer, struct session *session)
{
    for (struct follower *follower = session->followers; follower; follower = follower->next)
        follower_drop(streamer, follower);
}

static void on_page(struct streamer *streamer, struct fetch *page)
{
    struct session *session = *session_slot(streamer, page->session);
    bool hungry = false;

    if (!session)
        return;
    session->fetching = false;
    if (page->failed)
        session->retry_ms = streamer->now_ms + RETRY_MS;
    else if (page->gone)
        drop_all(streamer, session);
    if (!page->failed) {
        for (const struct frame *frame = page->frames; frame; frame = frame->next)
            if (frame->message && frame->seq > session->last_message)
                session->last_message = frame->seq;
        for (struct follower *follower = session->followers; follower; follower = follower->next)
            if (follower->hungry && follower->cursor == page->after) {
                follower_take_page(streamer, follower, page);
                follower_flush(streamer, follower);
            }
    }
    for (const struct follower *follower = session->followers; follower; follower = follower->next)
        hungry = hungry || (follower->hungry && !follower->dead);
    if (!hungry)
        held_clear(session);
    session_feed(streamer, session);
    session_forget_unused(streamer, session);
}

static bool texts_have(const struct texts *texts, const char *text)
{
    for (size_t i = 0; i < texts->count; i++)
        if (!strcmp(texts->items[i], text))
            return true;
    return false;
}

/* Wake-ups that got lost, and sessions that are gone. */
static void on_heads(struct streamer *streamer, struct fetch *fetch)
{
    streamer->heads_running = false;
    if (fetch->failed)
        return;
    for (size_t i = 0; i < fetch->found.count; i++) {
        struct session *session = *session_slot(streamer, fetch->found.items[i]);
        bool behind = false;

        if (!session)
            continue;
        for (const struct follower *f = session->followers; f; f = f->next)
            behind = behind || (!f->hungry && f->cursor < fetch->heads[i]);
        if (behind)
            session_wake(streamer, session);
    }
}

static void on_keys(struct streamer *streamer, struct fetch *fetch)
{
    streamer->keys_running = false;
    if (fetch->failed)
        return;
    for (size_t bucket = 0; bucket < SESSION_BUCKETS; bucket++)
        for (struct session *session = streamer->buckets[bucket]; session; session = session->next)
            for (struct follower *f = session->followers; f; f = f->next)
                /* Only keys that were asked about: a follower may have come since. */
                if (f->key[0] && strstr(fetch->ids, f->key) && !texts_have(&fetch->found, f->key))
                    follower_drop(streamer, f);
}

static void on_results(struct streamer *streamer)
{
    struct fetch *fetch;

    while ((fetch = fetcher_take(streamer->fetcher))) {
        /* Deltas that were sent before these events were written are in the bus already: they come
         * first. */
        on_bus(streamer);
        if (fetch->kind == FETCH_PAGE)
            on_page(streamer, fetch);
        else if (fetch->kind == FETCH_HEADS)
            on_heads(streamer, fetch);
        else
            on_keys(streamer, fetch);
        fetch_free(fetch);
    }
}

static void follower_add(struct streamer *streamer, const struct follow *follow, int fd)
{
    struct session **slot = session_slot(streamer, follow->session);
    struct follower *follower = calloc(1, sizeof(*follower));
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = follower};
    struct frame *head;

    if (!follower)
        abort();
    if (!*slot) {
        struct session *session = calloc(1, sizeof(*session));

        if (!session)
            abort();
        memcpy(session->id, follow->session, sizeof(session->id));
        session->held_end = &session->held;
        *slot = session;
    }
    follower->fd = fd;
    follower->session = *slot;
    follower->cursor = follow->after;
    follower->delta_serial = streamer->delta_serial;
    follower->hungry = true;
    if (follow->key)
        memcpy(follower->key, follow->key, sizeof(follower->key));
    follower->next = (*slot)->followers;
    if (follower->next)
        follower->next->previous = follower;
    (*slot)->followers = follower;
    counter_add(METRIC_streams_open, NULL, 1);
    counter_add(METRIC_streams_total, NULL, 1);
    if (epoll_ctl(streamer->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        follower_drop(streamer, follower);
    head = frame_new(follow->head, strlen(follow->head));
    follower_queue(streamer, follower, head);
    frame_release(head);
    follower_flush(streamer, follower);
    /* Not counted as a wake-up: an answer on its way for others stays good. */
    session_feed(streamer, *slot);
}

/* Each hand-over is a connection of its own: one packet in, one byte back. The worker waits, so it
 * is read at once. */
static void on_hand_over(struct streamer *streamer)
{
    auto_close int fd = accept4(streamer->listener, NULL, NULL, SOCK_CLOEXEC);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    auto_arena struct arena arena = {0};
    struct wire_packet packet = {0};
    struct follow follow;
    struct error err;
    int client;

    if (fd < 0)
        return;
    if (poll(&readable, 1, 200) <= 0)
        return;
    if (wire_receive(fd, 1, &packet, &arena, &err) <= 0)
        return;
    if (packet.header.type != FOLLOW_MESSAGE || packet.descriptor_count != 1 ||
        wire_decode(&schema_follow, packet.body, packet.length, &follow, &arena, &err) < 0) {
        wire_packet_close(&packet);
        LOG(WARNING, "stream_hand_over_refused", V("type", packet.header.type));
        return;
    }
    client = packet.descriptors[0];
    follower_add(streamer, &follow, client);
    if (send(fd, "+", 1, MSG_NOSIGNAL) != 1)
        LOG(WARNING, "stream_hand_over_unacknowledged", V("errno", errno));
}

/* --- time
 * -------------------------------------------------------------------------------------------------------------
 */

static void ids_add(struct buffer *ids, const char *id)
{
    buffer_text(ids, ids->length > 1 ? "," : "");
    buffer_text(ids, id);
}

static void check_sessions(struct streamer *streamer)
{
    struct buffer ids = {0};
    struct fetch *fetch;

    buffer_text(&ids, "{");
    for (size_t bucket = 0; bucket < SESSION_BUCKETS; bucket++)
        for (struct session *session = streamer->buckets[bucket]; session; session = session->next)
            if (session->followers)
                ids_add(&ids, session->id);
    if (ids.length == 1 || streamer->heads_running) {
        buffer_done(&ids);
        return;
    }
    buffer_text(&ids, "}");
    fetch = fetch_new(FETCH_HEADS);
    fetch->ids = ids.data;
    streamer->heads_running = true;
    fetcher_ask(streamer->fetcher, fetch);
}

static void check_keys(struct streamer *streamer)
{
    struct buffer ids = {0};
    struct fetch *fetch;
    char last[37] = "";

    buffer_text(&ids, "{");
    for (size_t bucket = 0; bucket < SESSION_BUCKETS; bucket++)
        for (struct session *session = streamer->buckets[bucket]; session; session = session->next)
            for (struct follower *f = session->followers; f; f = f->next)
                if (f->key[0] && strcmp(f->key, last) && !strstr(ids.data, f->key)) {
                    memcpy(last, f->key, sizeof(last));
                    ids_add(&ids, f->key);
                }
    if (ids.length == 1 || streamer->keys_running) {
        buffer_done(&ids);
        return;
    }
    buffer_text(&ids, "}");
    fetch = fetch_new(FETCH_KEYS);
    fetch->ids = ids.data;
    streamer->keys_running = true;
    fetcher_ask(streamer->fetcher, fetch);
}

static void on_tick(struct streamer *streamer)
{
    for (size_t bucket = 0; bucket < SESSION_BUCKETS; bucket++)
        for (struct session *session = streamer->buckets[bucket]; session;
             session = session->next) {
            for (struct follower *f = session->followers; f; f = f->next) {
                if (f->outbox.count > 0 && streamer->now_ms - f->outbox.moved_ms >= STALL_MS) {
                    counter_add(METRIC_streams_dropped_total, NULL, 1);
                    follower_drop(streamer, f);
                } else if (f->outbox.count == 0 && streamer->now_ms - f->said_ms >= PING_MS) {
                    follower_queue(streamer, f, streamer->ping);
                    follower_flush(streamer, f);
                }
            }
            session_feed(streamer, session);
        }
    if (streamer->now_ms >= streamer->next_poll_ms) {
        streamer->next_poll_ms = streamer->now_ms + POLL_MS;
        check_sessions(streamer);
    }
    if (streamer->now_ms >= streamer->next_check_ms) {
        streamer->next_check_ms = streamer->now_ms + CHECK_MS;
        check_keys(streamer);
    }
}

/* --- start and end
 * -------------------------------------------------------------------------------------------------
 */

static int listen_open_socket(struct error *err)
{
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = follow_socket_path();

    if (fd < 0)
        return error_set_errno(err, ERR_INTERNAL, "socket");
    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, ERR_INTERNAL, "socket path is too long: %s", path);
    memcpy(address.sun_path, path, strlen(path));
    /* A streamer that is being replaced keeps its own socket; new hand-overs come to this one. */
    unlink(path);
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 || chmod(path, 0600) < 0 ||
        listen(fd, 1024) < 0)
        return error_set_errno(err, ERR_INTERNAL, "listen on %s", path);
    return take_fd(&fd);
}

static int watch(struct streamer *streamer, int fd, uint64_t tag, struct error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag};

    if (epoll_ctl(streamer->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        return error_set_errno(err, ERR_INTERNAL, "epoll_ctl");
    return 0;
}

static int streamer_open(struct streamer *streamer, int stop_fd, struct error *err)
{
    static const char ping[] = ": ping\n\n";

    streamer->ping = frame_new(ping, sizeof(ping) - 1);
    streamer->epoll = epoll_create1(EPOLL_CLOEXEC);
    streamer->listener = streamer->bus = -1;
    if (streamer->epoll < 0)
        return error_set_errno(err, ERR_INTERNAL, "epoll_create1");
    if (fetcher_open(&streamer->fetcher, settings.database_url.value, err) < 0 ||
        (streamer->bus = bus_receive_open(err)) < 0 ||
        (streamer->listener = listen_open_socket(err)) < 0)
        return -1;
    if (watch(streamer, streamer->listener, TAG_LISTENER, err) < 0 ||
        watch(streamer, streamer->bus, TAG_BUS, err) < 0 ||
        watch(streamer, fetcher_fd(streamer->fetcher), TAG_RESULTS, err) < 0 ||
        watch(streamer, stop_fd, TAG_STOP, err) < 0)
        return -1;
    return 0;
}

static void bury(struct streamer *streamer)
{
    while (streamer->dead) {
        struct follower *follower = streamer->dead;

        streamer->dead = follower->next_dead;
        follower_free(streamer, follower);
    }
}

static void streamer_close(struct streamer *streamer)
{
    fetcher_close(streamer->fetcher);
    for (size_t bucket = 0; bucket < SESSION_BUCKETS; bucket++)
        while (streamer->buckets[bucket]) {
            struct session *session = streamer->buckets[bucket];

            session->fetching = false;
            drop_all(streamer, session);
            if (session->followers)
                bury(streamer);
            else
                session_forget_unused(streamer, session);
        }
    frame_release(streamer->ping);
    close(streamer->epoll);
    close(streamer->bus);
    close(streamer->listener);
}

static void on_event(struct streamer *streamer, const struct epoll_event *event, bool *stop)
{
    struct follower *follower = event->data.ptr;

    switch (event->data.u64) {
    case TAG_LISTENER:
        on_hand_over(streamer);
        return;
    case TAG_BUS:
        on_bus(streamer);
        return;
    case TAG_RESULTS:
        on_results(streamer);
        return;
    case TAG_STOP:
        *stop = true;
        return;
    }
    if (follower->dead)
        return;
    if (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        follower_drop(streamer, follower);
        return;
    }
    follower_flush(streamer, follower);
    if (follower->hungry && follower->outbox.bytes < QUEUE_BYTES)
        session_feed(streamer, follower->session);
}

int streamer_run(int stop_fd, struct error *err)
{
    struct streamer *streamer = calloc(1, sizeof(*streamer));
    struct epoll_event events[256];
    int64_t next_tick_ms;
    bool stop = false;

    if (!streamer)
        abort();
    if (streamer_open(streamer, stop_fd, err) < 0)
        return -1; /* the process ends, and with it everything that was opened */
    role_ready();
    next_tick_ms = clock_ms() + 1000;
    while (!stop) {
        int wait_ms = (int)(next_tick_ms - clock_ms());
        int count = epoll_wait(streamer->epoll, events, COUNT(events), wait_ms > 0 ? wait_ms : 0);

        if (count < 0 && errno != EINTR)
            return error_set_errno(err, ERR_INTERNAL, "epoll_wait");
        streamer->now_ms = clock_ms();
        for (int i = 0; i < count; i++)
            on_event(streamer, &events[i], &stop);
        if (streamer->now_ms >= next_tick_ms) {
            next_tick_ms = streamer->now_ms + 1000;
            on_tick(streamer);
        }
        bury(streamer);
    }
    streamer_close(streamer);
    free(streamer);
    return 0;
}
