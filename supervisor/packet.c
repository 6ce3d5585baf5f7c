/* Packets with descriptors: see packet.h. */
#include "supervisor/packet.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union ancillary {
    char space[CMSG_SPACE(PACKET_DESCRIPTORS * sizeof(int))];
    struct cmsghdr align;
};

int packet_send(int socket, const void *bytes, size_t length, const int *fds, size_t count,
                int flags)
{
    union ancillary ancillary = {0};
    struct iovec vector = {.iov_base = (void *)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};

    if (count) {
        message.msg_control = &ancillary;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(part), fds, count * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | flags) == (ssize_t)length ? 0 : -1;
}

ssize_t packet_receive(int socket, void *bytes, size_t length, int *fds, size_t count)
{
    union ancillary ancillary;
    struct iovec vector = {.iov_base = bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             /* Not its whole size, whose padding may hold one more. */
                             .msg_controllen = CMSG_LEN(PACKET_DESCRIPTORS * sizeof(int))};
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    size_t taken = 0;

    for (size_t i = 0; i < count; i++)
        fds[i] = -1;
    if (got < 0)
        return got;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        size_t present = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        int received[PACKET_DESCRIPTORS];

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(received, CMSG_DATA(part), present * sizeof(int));
        for (size_t i = 0; i < present; i++)
            if (taken < count)
                fds[taken++] = received[i];
            else
                close(received[i]);
    }
    return got;
}
