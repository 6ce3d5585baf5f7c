-- A reference is an id or a slug: one of the two parameters is null. `model` is answered as the default's name when it is unset.

-- name: agents_get returns agent
SELECT id::text, slug, name, description, instructions, transport, coalesce(model, $4) AS model, reasoning_effort, image,
       capabilities, skills_source, workspace_source, manifest, exposed_ports, client_tools, secret_bindings, subagents,
       idle_ttl_seconds, environment_id::text, version, rfc3339(archived_at) AS archived_at,
       rfc3339(created_at) AS created_at, rfc3339(updated_at) AS updated_at
FROM agents
WHERE project_id = $1::uuid AND (id = $2::uuid OR slug = $3);

-- name: agents_list returns agent
SELECT id::text, slug, name, description, instructions, transport, coalesce(model, $2) AS model, reasoning_effort, image,
       capabilities, skills_source, workspace_source, manifest, exposed_ports, client_tools, secret_bindings, subagents,
       idle_ttl_seconds, environment_id::text, version, rfc3339(archived_at) AS archived_at,
       rfc3339(created_at) AS created_at, rfc3339(updated_at) AS updated_at
FROM agents
WHERE project_id = $1::uuid AND (archived_at IS NULL OR $3::boolean)
ORDER BY agents.created_at DESC, agents.id DESC;

-- name: agents_find returns agent_found
-- The row can't go while the transaction lasts: what is made from it may refer to it.
SELECT id::text, slug, archived_at IS NOT NULL AS archived, skills_source IS NOT NULL AS has_skills,
       workspace_source IS NOT NULL AS has_workspace
FROM agents
WHERE project_id = $1::uuid AND (id = $2::uuid OR slug = $3)
FOR KEY SHARE;

-- name: agents_insert returns nothing
-- No row: the slug is taken, by an archived agent perhaps.
INSERT INTO agents (project_id, slug, name, description, instructions, transport, model, reasoning_effort, image,
                    capabilities, skills_source, workspace_source, manifest, exposed_ports, client_tools,
                    secret_bindings, subagents, idle_ttl_seconds)
SELECT $1::uuid, slug, name, description, instructions, transport, model, reasoning_effort, image, capabilities,
       skills_source, workspace_source, manifest, exposed_ports, client_tools, secret_bindings, subagents,
       idle_ttl_seconds
FROM jsonb_populate_record(NULL::agents, $2::jsonb)
ON CONFLICT (project_id, slug) DO NOTHING
RETURNING id::text;

-- name: agents_update returns nothing
-- A key that the body lacks keeps its column, null clears it; no row: the version is another one.
UPDATE agents AS a
SET (name, description, instructions, transport, model, reasoning_effort, image, capabilities, skills_source,
     workspace_source, manifest, exposed_ports, client_tools, secret_bindings, subagents, idle_ttl_seconds,
     environment_id, version, updated_at) =
    (SELECT name, description, instructions, transport, model, reasoning_effort, image, capabilities, skills_source,
            workspace_source, coalesce(manifest, '{"entries":{},"environment":{}}'), coalesce(exposed_ports, '[]'),
            coalesce(client_tools, '[]'), coalesce(secret_bindings, '[]'), coalesce(subagents, '[]'),
            idle_ttl_seconds, environment_id, a.version + 1, now()
     FROM jsonb_populate_record(a, $3::jsonb))
WHERE id = $1::uuid AND version = $2::bigint
RETURNING id::text;

-- name: agents_archive returns nothing
UPDATE agents
SET archived_at = CASE WHEN $4::boolean THEN coalesce(archived_at, now()) END, updated_at = now()
WHERE project_id = $1::uuid AND (id = $2::uuid OR slug = $3) AND (archived_at IS NOT NULL) <> $4::boolean;

-- name: agents_missing returns nothing
-- The slugs of a list of subagents that the project does not have.
SELECT s ->> 'agent'
FROM jsonb_array_elements($2::jsonb) AS s
WHERE NOT EXISTS (SELECT FROM agents WHERE project_id = $1::uuid AND slug = s ->> 'agent')
LIMIT 1;

-- name: agents_used returns nothing
-- What keeps an agent from being deleted.
SELECT CASE WHEN EXISTS (SELECT FROM sessions WHERE agent_id = $2::uuid) THEN 'a session refers to it'
            ELSE (SELECT 'agent ''' || slug || ''' has it as a subagent' FROM agents
                  WHERE project_id = $1::uuid AND id <> $2::uuid
                    AND subagents @> jsonb_build_array(jsonb_build_object('agent', $3::text))
                  LIMIT 1) END;

-- name: agents_delete returns nothing
DELETE FROM agents WHERE id = $1::uuid;
