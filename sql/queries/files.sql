-- name: exec_target returns exec_target
-- Where a command runs, and with which variables: the session's manifest replaces the agent's.
SELECT s.id::text, s.status, s.workdir,
       coalesce(coalesce(s.manifest, a.manifest) -> 'environment', '{}') AS environment
FROM sessions s JOIN agents a ON a.id = s.agent_id
WHERE s.project_id = $1::uuid AND s.id = $2::uuid;
