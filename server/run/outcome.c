/* How a command ended: see outcome.h. */
#include "run/outcome.h"

#include "common/json.h"
#include "server/metrics.h"

static const struct field exec_outcome_fields[] = {
#define OUTCOME(kind, type, member, meaning) OUTCOME_FIELD(exec_outcome, kind, member, meaning)
#include "run/outcome.def"
#undef OUTCOME
};
SCHEMA(exec_outcome);

/* The values of the label of exec_total, in its order. */
enum end { EXITED, BY_SIGNAL, TIMED_OUT, OOM_KILLED, CANCELLED, REFUSED };

static enum end end_of(const struct exec_outcome *outcome)
{
    if (outcome->timed_out)
        return TIMED_OUT;
    if (outcome->oom_killed)
        return OOM_KILLED;
    return outcome->signal ? BY_SIGNAL : EXITED;
}

static void count_end(enum end end)
{
    counter_add(METRIC_exec_total, (const int[]){end}, 1);
}

static void count(const struct exec_outcome *outcome)
{
    count_end(end_of(outcome));
    counter_observe(METRIC_exec_duration_seconds, NULL, (double)outcome->duration_ms / 1000);
    counter_add(METRIC_exec_stdout_bytes_total, NULL, outcome->stdout_bytes);
    counter_add(METRIC_exec_stderr_bytes_total, NULL, outcome->stderr_bytes);
    counter_add(METRIC_exec_stdout_truncated_total, NULL, outcome->stdout_truncated);
    counter_add(METRIC_exec_stderr_truncated_total, NULL, outcome->stderr_truncated);
}

static bool is_truncated(const struct sandbox_output *output)
{
    return output->total > (int64_t)output->bytes.length;
}

int outcome_run(struct sandbox_link *link, const struct exec *exec, size_t keep, int cancel_fd,
                struct arena *arena, struct sandbox_output *out, struct sandbox_output *errors,
                struct exec_outcome *outcome, struct error *err)
{
    struct exec_result result;
    int64_t *signal = NULL;

    if (sandbox_exec(link, exec, keep, cancel_fd, out, errors, &result, err) < 0) {
        count_end(err->kind == ERR_TIMEOUT ? CANCELLED : REFUSED);
        return -1;
    }
    if (result.signal) {
        signal = arena_alloc(arena, sizeof(*signal));
        *signal = result.signal;
    }
    *outcome = (struct exec_outcome){
        .exit_code = result.exit_code,
        .signal = signal,
        .timed_out = result.timed_out,
        .oom_killed = result.oom_killed,
        .duration_ms = result.duration_ms,
        .stdout_bytes = out->total,
        .stderr_bytes = errors->total,
        .stdout_truncated = is_truncated(out),
        .stderr_truncated = is_truncated(errors),
    };
    count(outcome);
    return 0;
}

void outcome_add(struct buffer *object, const struct exec_outcome *outcome)
{
    size_t end = object->length - 1; /* its closing brace becomes the comma */

    object->length = end;
    json_encode(object, &schema_exec_outcome, outcome);
    object->data[end] = ',';
}
