/* Tell the service manager how we are: see notify.h. */
#include "common/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/scope.h"

void notify_send(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;

    if (length < 2 || length >= sizeof(address.sun_path) || (*path != '/' && *path != '@'))
        return;
    memcpy(address.sun_path, path, length);
    if (*path == '@')
        address.sun_path[0] = '\0'; /* an abstract name */
    auto_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
}

int64_t notify_watchdog_ms(void)
{
    const char *period = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    long long microseconds = period ? strtoll(period, NULL, 10) : 0;

    if (microseconds <= 0 || (pid && strtoll(pid, NULL, 10) != getpid()))
        return 0;
    return microseconds / 2000 > 0 ? microseconds / 2000 : 1;
}
