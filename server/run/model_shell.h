/* What builtin/shell finds in a prompt. */
#ifndef RUN_MODEL_SHELL_H
#define RUN_MODEL_SHELL_H

#include <stddef.h>

#include "common/arena.h"

struct shell_step {
    const char *tool;      /* "shell", or the name behind @tool */
    const char *arguments; /* JSON text; behind @tool as it was written */
    const char *command;   /* how it is shown */
};

struct shell_script {
    struct shell_step *steps;
    size_t count, room;
};

/* The commands of fenced sh blocks and @tool lines in their order, or of a text that begins with "$
 * ". */
struct shell_script model_shell_script(struct arena *arena, const char *prompt);

#endif
