/* Frames on their way to one socket: see outbox.h. */
#include "server/outbox.h"

#include <errno.h>
#include <sys/socket.h>

enum { ROOM_FIRST = 4 };

void outbox_add(struct outbox *box, struct frame *frame, int64_t now_ms)
{
    if (box->count == box->room) {
        uint32_t room = box->room ? box->room * 2 : ROOM_FIRST;
        struct frame **queue = calloc(room, sizeof(struct frame *));

        if (!queue)
            abort();
        for (uint32_t i = 0; i < box->count; i++)
            queue[i] = box->queue[(box->first + i) % box->room];
        free(box->queue);
        box->queue = queue;
        box->first = 0;
        box->room = room;
    }
    if (box->count == 0)
        box->moved_ms = now_ms;
    box->queue[(box->first + box->count) % box->room] = frame;
    box->count++;
    box->bytes += frame->length;
    frame->references++;
}

static void drop_first(struct outbox *box)
{
    frame_release(box->queue[box->first]);
    box->first = (box->first + 1) % box->room;
    box->count--;
    box->sent = 0;
}

int outbox_flush(struct outbox *box, int fd, int64_t now_ms)
{
    while (box->count > 0) {
        const struct frame *frame = box->queue[box->first];
        ssize_t sent = send(fd, frame->bytes + box->sent, frame->length - box->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN ? 1 : -1;
        box->moved_ms = now_ms;
        box->sent += (size_t)sent;
        box->bytes -= (size_t)sent;
        if (box->sent == frame->length)
            drop_first(box);
    }
    outbox_done(box);
    return 0;
}

void outbox_done(struct outbox *box)
{
    while (box->count > 0)
        drop_first(box);
    free(box->queue);
    box->queue = NULL;
    box->first = box->room = 0;
    box->bytes = 0;
}
