-- name: messages_run returns run
SELECT id::text, session_id::text, prompt, status, stop_reason, final_output, error, turns, usage,
       rfc3339(created_at) AS created_at, rfc3339(finished_at) AS finished_at
FROM runs
WHERE id = $1::uuid;

-- name: messages_wake returns nothing
-- A session that sleeps boots again for a message; one that somebody stopped does not.
UPDATE sessions
SET status = 'provisioning', stopped_reason = NULL, generation = generation + 1, last_used_at = now(), updated_at = now()
WHERE id = $1::uuid AND status = 'stopped' AND stopped_reason = 'idle'
RETURNING generation;
