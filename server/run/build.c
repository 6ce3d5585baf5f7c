/* Building an image: see build.h. */
#include "run/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/scope.h"
#include "run/environment.h"

enum { NOT_FOUND = 127 };

/* The version of a random UUID is 4, and its variant 8 to b. */
#define PREFIX "00000000-0000-0000-0b01-"

void build_sandbox(char out[UUID_SIZE])
{
    token_uuid(out);
    memcpy(out, PREFIX, strlen(PREFIX));
}

bool build_is_sandbox(const char *sandbox)
{
    return strncmp(sandbox, PREFIX, strlen(PREFIX)) == 0;
}

__attribute__((format(printf, 2, 3))) static void say(const struct build *build, const char *format,
                                                      ...)
{
    auto_buffer struct buffer line = {0};
    char text[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    buffer_format(&line, "%s\n", text);
    build->log(line.data, line.length, build->context);
}

/* --- steps ----------------------------------------------------------------------------------- */

static int judge(const struct build *build, const struct recipe_step *step,
                 const struct exec_result *result, struct error *err)
{
    if (result->exit_code == 0)
        return 0;
    if (result->timed_out)
        return error_set(err, ERR_TIMEOUT, "'%.200s' took more than %lld s", step->title,
                         (long long)build->step_ms / 1000);
    if (result->oom_killed)
        return error_set(err, ERR_CONFLICT, "'%.200s' needs more than %lld MiB of memory",
                         step->title, (long long)build->memory_bytes >> 20);
    if (step->tool && result->exit_code == NOT_FOUND)
        return error_set(err, ERR_CONFLICT, "the image '%s' has no %s, which '%.200s' needs",
                         build->recipe->base, step->tool, step->title);
    return error_set(err, ERR_CONFLICT, "'%.200s' ended with %lld", step->title,
                     (long long)result->exit_code);
}

static int run_step(const struct build *build, const struct recipe_step *step, struct error *err)
{
    const struct exec exec = {
        .sandbox = build->sandbox,
        .argv = step->argv,
        .environment = recipe_environment(),
        .directory = "/workspace",
        .timeout_ms = build->step_ms,
        .defaults = environment_defaults(),
    };
    struct exec_result result = {0};

    say(build, "+ %s", step->title);
    if (sandbox_exec_heard(build->link, &exec, build->cancel_fd, build->log, build->context,
                           &result, err) < 0)
        return -1;
    return judge(build, step, &result, err);
}

static int run_steps(const struct build *build, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct recipe_step *steps;
    size_t count = recipe_steps(build->recipe, &arena, &steps);

    for (size_t i = 0; i < count; i++)
        if (run_step(build, &steps[i], err) < 0)
            return -1;
    return 0;
}

/* --- the sandbox ----------------------------------------------------------------------------- */

static int start(const struct build *build, struct error *err)
{
    const struct start start = {
        .sandbox = build->sandbox,
        .image = build->recipe->base,
        .hostname = "build",
        .memory_bytes = build->memory_bytes,
        .pids = build->pids,
        .cpu_percent = build->cpu_percent,
        .tmp_bytes = build->tmp_bytes,
        .network = recipe_network(build->recipe),
    };

    if (sandbox_start(build->link, &start, err) == 0)
        return 0;
    if (err->kind == ERR_CONFLICT && strcmp(start.network, "egress") == 0)
        error_add_context(err, "packages come from the network, unless the recipe says "
                               "'network none'");
    return -1;
}

static int run(const struct build *build, struct error *err)
{
    if (sandbox_create(build->link, build->sandbox, err) < 0 || start(build, err) < 0)
        return -1;
    if (sandbox_directory_make(build->link, build->sandbox, ".build/tmp", err) < 0 ||
        (build->give_files && build->give_files(build, err) < 0) || run_steps(build, err) < 0)
        return -1;
    say(build, "+ making the image");
    return sandbox_image_commit(build->link, build->sandbox, build->image, err);
}

int build_run(const struct build *build, struct error *err)
{
    int result = run(build, err);
    struct error cleanup;

    if (result < 0)
        say(build, "failed: %s", err->message);
    /* The image is made, whatever becomes of this. */
    if (sandbox_destroy(build->link, build->sandbox, &cleanup) < 0)
        say(build, "the sandbox %s is left over: %s", build->sandbox, cleanup.message);
    return result;
}
