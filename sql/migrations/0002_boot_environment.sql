-- The variables of a session's commands are those of its last boot: an edit of the agent reaches the next one.
ALTER TABLE sessions ADD COLUMN environment jsonb NOT NULL DEFAULT '{}';
UPDATE sessions s SET environment = coalesce(coalesce(s.manifest, a.manifest) -> 'environment', '{}')
FROM agents a WHERE a.id = s.agent_id;
