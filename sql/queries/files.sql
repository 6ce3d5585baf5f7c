-- name: exec_target returns exec_target
-- Where a command runs, and with which variables: those of the session's last boot.
SELECT id::text, status, workdir, environment
FROM sessions
WHERE project_id = $1::uuid AND id = $2::uuid;

-- name: exec_use returns nothing
-- In use for so many seconds to come, in a transaction of its own that a crash of the database may lose: nobody waits
-- for the disk.
UPDATE sessions SET last_used_at = now() + $2::double precision * interval '1 second'
FROM (SELECT set_config('synchronous_commit', 'off', true)) AS quick
WHERE id = $1::uuid;
