/* A missing thing is missing whatever else was wrong with the request (DECISION 85): who looks for
 * what. */
#include "api/objects.h"

#include <string.h>

#include "api/control/agents.h"
#include "api/control/sessions.h"
#include "http/router.h"

static int find_agent(struct request *req, struct error *err)
{
    struct agent_found found;

    return agent_find(req, req->path_values[0], &found, err);
}

static int find_session(struct request *req, struct error *err)
{
    struct session_found found;

    return session_find(req, &found, err);
}

static int find_project(struct request *req, struct error *err)
{
    const char *ref = req->path_values[0];
    int found = query_run(req->db, QUERY_projects_get,
                          PARAMS(REFERENCE(ref), req->caller.key_project), err);

    if (found < 0)
        return -1;
    return found ? 0 : error_set(err, ERR_NOT_FOUND, "project not found");
}

static const struct {
    const char *path;
    int (*find)(struct request *req, struct error *err);
} kinds[] = {
    {"/api/agents/{", find_agent},
    {"/api/sessions/{", find_session},
    {"/api/projects/{", find_project},
};

int objects_find(struct request *req, struct error *err)
{
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (strncmp(req->route->path, kinds[i].path, strlen(kinds[i].path)) == 0)
            return kinds[i].find(req, err);
    return 0;
}
