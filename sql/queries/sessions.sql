-- name: sessions_get returns session
-- A turn that waits for its boot is busy, a parked one is not.
SELECT s.id::text, s.agent_id::text, s.title, s.status,
       CASE WHEN EXISTS (SELECT FROM runs r WHERE r.session_id = s.id AND r.status = 'running'
                           AND r.stop_reason IS DISTINCT FROM 'requires_action')
            THEN 'busy' ELSE 'idle' END AS activity,
       s.error, s.stopped_reason, s.backend, CASE WHEN s.status = 'running' THEN s.id::text END AS container_id,
       s.exposed_ports, s.workdir, s.model, s.usage, s.metadata, rfc3339(s.created_at) AS created_at,
       rfc3339(s.updated_at) AS updated_at, rfc3339(s.last_event_at) AS last_event_at
FROM sessions s
WHERE s.project_id = $1::uuid AND s.id = $2::uuid;

-- name: sessions_list returns session
-- Of one agent (an id or a slug: one of the two parameters is null) or, with both null, of all.
SELECT s.id::text, s.agent_id::text, s.title, s.status,
       CASE WHEN EXISTS (SELECT FROM runs r WHERE r.session_id = s.id AND r.status = 'running'
                           AND r.stop_reason IS DISTINCT FROM 'requires_action')
            THEN 'busy' ELSE 'idle' END AS activity,
       s.error, s.stopped_reason, s.backend, CASE WHEN s.status = 'running' THEN s.id::text END AS container_id,
       s.exposed_ports, s.workdir, s.model, s.usage, s.metadata, rfc3339(s.created_at) AS created_at,
       rfc3339(s.updated_at) AS updated_at, rfc3339(s.last_event_at) AS last_event_at
FROM sessions s
WHERE s.project_id = $1::uuid
  AND (($2::uuid IS NULL AND $3::text IS NULL)
       OR s.agent_id = (SELECT id FROM agents WHERE project_id = $1::uuid AND (id = $2::uuid OR slug = $3::text)))
  AND ($4::text IS NULL OR s.status = $4::text)
ORDER BY s.created_at DESC, s.id DESC
LIMIT $5::bigint OFFSET $6::bigint;

-- name: sessions_count returns nothing
-- How many sessions_list has behind its filter.
SELECT count(*)
FROM sessions s
WHERE s.project_id = $1::uuid
  AND (($2::uuid IS NULL AND $3::text IS NULL)
       OR s.agent_id = (SELECT id FROM agents WHERE project_id = $1::uuid AND (id = $2::uuid OR slug = $3::text)))
  AND ($4::text IS NULL OR s.status = $4::text);

-- name: sessions_detail returns session_detail
SELECT s.id::text, s.agent_id::text, s.title, s.status,
       CASE WHEN EXISTS (SELECT FROM runs r WHERE r.session_id = s.id AND r.status = 'running'
                           AND r.stop_reason IS DISTINCT FROM 'requires_action')
            THEN 'busy' ELSE 'idle' END AS activity,
       s.error, s.stopped_reason, s.backend, CASE WHEN s.status = 'running' THEN s.id::text END AS container_id,
       s.exposed_ports, s.workdir, s.model, s.usage, s.metadata, rfc3339(s.created_at) AS created_at,
       rfc3339(s.updated_at) AS updated_at, rfc3339(s.last_event_at) AS last_event_at,
       (SELECT to_json(a) FROM (
            SELECT id::text, slug, name, description, instructions, transport, coalesce(model, $3) AS model,
                   reasoning_effort, image, capabilities, skills_source, workspace_source, manifest, exposed_ports,
                   client_tools, secret_bindings, subagents, idle_ttl_seconds, environment_id::text, version,
                   rfc3339(archived_at) AS archived_at, rfc3339(created_at) AS created_at,
                   rfc3339(updated_at) AS updated_at
            FROM agents WHERE id = s.agent_id) AS a) AS agent,
       (SELECT coalesce(json_agg(r ORDER BY r.created_at, r.id), '[]') FROM (
            SELECT id::text, session_id::text, prompt, status, stop_reason, final_output, error, turns, usage,
                   rfc3339(created_at) AS created_at, rfc3339(finished_at) AS finished_at
            FROM runs WHERE session_id = s.id) AS r) AS runs,
       s.sandbox_seconds + coalesce(extract(epoch FROM clock_timestamp() - s.sandbox_started_at), 0)::double precision
           AS sandbox_seconds
FROM sessions s
WHERE s.project_id = $1::uuid AND s.id = $2::uuid;

-- name: sessions_find returns session_found
SELECT id::text, status, stopped_reason, workdir
FROM sessions
WHERE project_id = $1::uuid AND id = $2::uuid;

-- name: sessions_insert returns session_made
-- Ports are the agent's at creation; overrides that are null stay null, and the agent's are read at each boot and turn.
INSERT INTO sessions (project_id, agent_id, title, metadata, model, instructions, manifest, secret_bindings, exposed_ports)
SELECT $1::uuid, a.id, b.title, b.metadata, b.model, b.instructions, b.manifest, b.secret_bindings, a.exposed_ports
FROM agents a, jsonb_populate_record(NULL::sessions, $3::jsonb - 'agent_id') AS b
WHERE a.id = $2::uuid
RETURNING id::text, generation;

-- name: sessions_update returns nothing
-- Metadata is merged: null removes a key of the top level, and only what this body says is removed.
UPDATE sessions
SET title = coalesce($3::jsonb ->> 'title', title),
    metadata = (metadata || coalesce($3::jsonb -> 'metadata', '{}')) -
               ARRAY(SELECT key FROM jsonb_each(coalesce($3::jsonb -> 'metadata', '{}')) WHERE value = 'null'),
    updated_at = now()
WHERE project_id = $1::uuid AND id = $2::uuid;

-- name: sessions_use returns nothing
UPDATE sessions SET last_used_at = now() WHERE id = $1::uuid;

-- name: events_list returns event
SELECT seq, session_id::text, run_id::text, type, payload, rfc3339(created_at) AS created_at
FROM events
WHERE session_id = $1::uuid AND seq > $2::bigint
ORDER BY seq
LIMIT $3::bigint;
