-- name: lifecycle_boot_plan returns boot_plan
-- What a boot needs. The session's manifest replaces the agent's.
SELECT s.status, s.generation, s.prepared, s.workdir, s.backend, s.exposed_ports, a.image,
       coalesce(coalesce(s.manifest, a.manifest) -> 'entries', '{}') AS entries
FROM sessions s JOIN agents a ON a.id = s.agent_id
WHERE s.id = $1::uuid;

-- name: lifecycle_look returns session_lock
-- As turns_lock, without the lock.
SELECT status, stopped_reason, generation, prepared FROM sessions WHERE id = $1::uuid;

-- name: lifecycle_booted returns nothing
-- The variables are fixed here: an edit of the agent reaches the next boot.
UPDATE sessions s
SET status = 'running', error = NULL, stopped_reason = NULL, prepared = true, sandbox_started_at = clock_timestamp(),
    environment = coalesce(coalesce(s.manifest, a.manifest) -> 'environment', '{}'), last_used_at = now(),
    updated_at = now()
FROM agents a
WHERE s.id = $1::uuid AND a.id = s.agent_id;

-- name: lifecycle_failed returns nothing
UPDATE sessions SET status = 'error', error = $2::text, sandbox_started_at = NULL, updated_at = now() WHERE id = $1::uuid;

-- name: lifecycle_starting returns nothing
UPDATE sessions
SET status = 'provisioning', error = NULL, stopped_reason = NULL, generation = generation + 1, last_used_at = now(),
    updated_at = now()
WHERE id = $1::uuid
RETURNING generation;

-- name: lifecycle_stopped returns nothing
-- A stop counts what the sandbox was up, and lets no boot that is on its way end in `running`.
UPDATE sessions
SET status = 'stopped', error = NULL, stopped_reason = $2::text, generation = generation + 1,
    sandbox_seconds = sandbox_seconds + coalesce(extract(epoch FROM clock_timestamp() - sandbox_started_at), 0),
    sandbox_started_at = NULL, updated_at = now()
WHERE id = $1::uuid
RETURNING generation;

-- name: lifecycle_account returns turn_state
-- The figures of a boot's end where there is no run.
SELECT 'failed' AS status, 0::bigint AS turns, '{}'::jsonb AS usage, s.usage AS session_usage, a.slug AS agent,
       s.sandbox_seconds, 0::double precision AS active_seconds
FROM sessions s JOIN agents a ON a.id = s.agent_id
WHERE s.id = $1::uuid;

-- name: lifecycle_waiting returns nothing
-- Runs of a session that nobody works on, or will.
SELECT r.id::text
FROM runs r
WHERE r.session_id = $1::uuid AND r.status = 'running' AND r.stop_reason IS DISTINCT FROM 'requires_action'
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.run_id = r.id AND j.state <> 'dead');

-- name: lifecycle_is_idle returns nothing
-- Whether it may be released now: nobody used it for its time, and no turn is busy.
SELECT s.id::text
FROM sessions s JOIN agents a ON a.id = s.agent_id
WHERE s.id = $1::uuid AND s.status = 'running' AND coalesce(a.idle_ttl_seconds, $2::bigint) > 0
  AND s.last_used_at + coalesce(a.idle_ttl_seconds, $2::bigint) * interval '1 second' <= clock_timestamp()
  AND NOT EXISTS (SELECT FROM runs r WHERE r.session_id = s.id AND r.status = 'running'
                    AND r.stop_reason IS DISTINCT FROM 'requires_action');

-- name: lifecycle_idle returns nothing
SELECT s.id::text
FROM sessions s JOIN agents a ON a.id = s.agent_id
WHERE s.status = 'running' AND coalesce(a.idle_ttl_seconds, $1::bigint) > 0
  AND s.last_used_at + coalesce(a.idle_ttl_seconds, $1::bigint) * interval '1 second' <= clock_timestamp()
  AND NOT EXISTS (SELECT FROM runs r WHERE r.session_id = s.id AND r.status = 'running'
                    AND r.stop_reason IS DISTINCT FROM 'requires_action')
ORDER BY s.last_used_at;

-- name: lifecycle_delete returns nothing
DELETE FROM sessions WHERE id = $1::uuid;

-- name: lifecycle_all returns session_known
-- What the rows say, to be compared with the sandboxes that there are.
SELECT id::text, status, generation FROM sessions WHERE status = 'running' OR id = ANY ($1::uuid[]);

-- name: lifecycle_orphans returns session_known
-- Boots that nobody works on, or will.
SELECT s.id::text, s.status, s.generation FROM sessions s
WHERE s.status = 'provisioning' AND NOT EXISTS (
    SELECT FROM jobs j WHERE j.session_id = s.id AND j.kind = 'boot' AND j.state <> 'dead');

-- name: lifecycle_orphan_runs returns nothing
-- Turns of running sessions that nobody works on, or will.
SELECT r.session_id::text, r.id::text
FROM runs r JOIN sessions s ON s.id = r.session_id
WHERE r.status = 'running' AND r.stop_reason IS DISTINCT FROM 'requires_action' AND s.status = 'running'
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.run_id = r.id AND j.state <> 'dead');
