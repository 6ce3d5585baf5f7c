/* The settings, once for the whole program. */
#include "supervisor/supervisor.h"

struct supervisor_settings settings;
