-- The search for idle sessions, every few seconds, looks at those that run.
CREATE INDEX sessions_running ON sessions (last_used_at) WHERE status = 'running';
