-- name: turns_lock returns session_lock
-- Whatever changes a session or its run locks the session's row first.
SELECT status, stopped_reason, generation, prepared FROM sessions WHERE id = $1::uuid FOR UPDATE;

-- name: turns_insert returns nothing
-- No row: there is a turn already.
WITH used AS (
    UPDATE sessions SET last_used_at = now() WHERE id = $1::uuid)
INSERT INTO runs (session_id, prompt, max_turns, client_tools)
SELECT $1::uuid, $2::text, $3::bigint, $4::jsonb
WHERE NOT EXISTS (SELECT FROM runs WHERE session_id = $1::uuid AND status = 'running')
RETURNING id::text;

-- name: turns_state returns turn_state
-- A run and its session after turns_lock. A turn that waited for its boot has been active since then only.
SELECT r.status, r.turns, r.usage, s.usage AS session_usage, a.slug AS agent,
       s.sandbox_seconds + coalesce(extract(epoch FROM clock_timestamp() - s.sandbox_started_at), 0)::double precision
           AS sandbox_seconds,
       CASE WHEN s.sandbox_started_at IS NULL THEN 0
            ELSE greatest(0, extract(epoch FROM clock_timestamp() - greatest(r.created_at, s.sandbox_started_at)))
       END::double precision AS active_seconds
FROM runs r JOIN sessions s ON s.id = r.session_id JOIN agents a ON a.id = s.agent_id
WHERE r.id = $2::uuid AND r.session_id = $1::uuid;

-- name: turns_context returns turn_context
-- All that a turn reads at its start: instructions and model of the session, else the agent's.
SELECT r.status, r.turns, r.max_turns, s.workdir, coalesce(s.model, a.model) AS model, a.transport,
       coalesce(s.instructions, a.instructions) AS instructions, a.reasoning_effort, a.capabilities, a.slug AS agent,
       s.environment,
       coalesce((SELECT e.seq FROM events e WHERE e.session_id = s.id AND e.run_id = r.id ORDER BY e.seq DESC LIMIT 1), 0)
           AS last_seq
FROM runs r JOIN sessions s ON s.id = r.session_id JOIN agents a ON a.id = s.agent_id
WHERE r.id = $2::uuid AND r.session_id = $1::uuid;

-- name: turns_charge returns nothing
WITH run AS (
    UPDATE runs SET usage = $2::jsonb, turns = $3::bigint WHERE id = $1::uuid RETURNING session_id)
UPDATE sessions SET usage = $4::jsonb, last_used_at = now() FROM run WHERE sessions.id = run.session_id;

-- name: turns_finish returns nothing
-- What the run said last is its output. Whoever works on a run that somebody else ends hears of it.
WITH ended AS (
    UPDATE runs
    SET status = $3::text, stop_reason = $4::text, error = $6::text, finished_at = clock_timestamp(),
        final_output = coalesce($5::text, (
            SELECT e.payload ->> 'text' FROM events e
            WHERE e.session_id = $1::uuid AND e.run_id = $2::uuid AND e.type = 'agent.message'
            ORDER BY e.seq DESC LIMIT 1))
    WHERE id = $2::uuid AND session_id = $1::uuid AND status = 'running'
    RETURNING final_output)
SELECT final_output, CASE WHEN $3::text <> 'completed' THEN pg_notify('cancel', $2::text) END FROM ended;

-- name: turns_running returns nothing
-- The run in flight, also when it waits.
SELECT id::text FROM runs WHERE session_id = $1::uuid AND status = 'running';

-- name: turns_called returns nothing
-- Whether a call was begun.
SELECT seq FROM events
WHERE session_id = $1::uuid AND run_id = $2::uuid AND type = 'agent.tool_use' AND payload ->> 'call_id' = $3::text
LIMIT 1;

-- name: conversation_list returns nothing
SELECT message FROM conversation WHERE session_id = $1::uuid ORDER BY id;

-- name: conversation_insert returns nothing
INSERT INTO conversation (session_id, run_id, message) VALUES ($1::uuid, $2::uuid, $3::json);

-- name: conversation_insert_last returns nothing
-- What was said before a turn was cut off, unless the conversation has gone on since.
INSERT INTO conversation (session_id, run_id, message)
SELECT $1::uuid, $2::uuid, $3::json
WHERE (SELECT run_id FROM conversation WHERE session_id = $1::uuid ORDER BY id DESC LIMIT 1) = $2::uuid;
