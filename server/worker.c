/* A worker: the gate and CivetWeb on the inherited socket, and what their threads share. */
#include "server/worker.h"

#include "api/objects.h"
#include "http/gate.h"
#include "http/router.h"
#include "run/sandbox.h"
#include "server/listener.h"
#include "server/role.h"
#include "server/settings.h"
#include "store/database.h"

static struct sandbox_link *open_link(void)
{
    return sandbox_link_new(settings.supervisor_socket);
}

int worker_run(int stop_fd, struct error *err)
{
    static struct seat_hooks hooks = {
        .link_open = open_link, .link_close = sandbox_link_free, .find = objects_find};

    if (pool_open(&hooks.pool, settings.database_url.value, (int)settings.database_pool, err) < 0)
        return -1;
    router_init(&hooks);
    /* On failure threads still use the pool: the process ends with it. */
    if (gate_run(listener_fd(), stop_fd, role_ready, err) < 0)
        return -1;
    pool_close(hooks.pool);
    return 0;
}
