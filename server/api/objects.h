/* Whether the thing that a path names exists: asked by the router when the rest of a request did
 * not validate. */
#ifndef API_OBJECTS_H
#define API_OBJECTS_H

#include "http/request.h"

/* ERR_NOT_FOUND when the first {name} of the route's path names nothing in the caller's reach; 0
 * also where that is not known. */
int objects_find(struct request *req, struct error *err);

#endif
