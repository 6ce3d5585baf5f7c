/* The handlers, declared by the table that names them. */
#ifndef API_HANDLERS_H
#define API_HANDLERS_H

#include "http/router.h"

#define ROOM(title)
#define ROUTE(method, path, handler_name, ...) handler handler_name;
#include "server/routes.def"
#undef ROOM
#undef ROUTE

#endif
