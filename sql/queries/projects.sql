-- A reference is an id or a slug: one of the two parameters is null. A key reaches its own project alone; the operator's
-- `reach` is null.

-- name: projects_list returns project
SELECT id::text, slug, name, description, rfc3339(created_at) AS created_at, rfc3339(updated_at) AS updated_at,
       NULL::text AS role
FROM projects
WHERE $1::uuid IS NULL OR id = $1::uuid
ORDER BY projects.created_at, projects.id;

-- name: projects_get returns project
SELECT id::text, slug, name, description, rfc3339(created_at) AS created_at, rfc3339(updated_at) AS updated_at,
       NULL::text AS role
FROM projects
WHERE (id = $1::uuid OR slug = $2) AND ($3::uuid IS NULL OR id = $3::uuid);

-- name: projects_free_slug returns nothing
-- The slug itself, or with -2, -3 … behind it. One more candidate than projects, so one is free.
SELECT candidate
FROM (SELECT n, CASE WHEN n = 1 THEN $1::text
                     ELSE rtrim(left($1::text, 62 - length(n::text)), '-') || '-' || n END AS candidate
      FROM generate_series(1, (SELECT count(*) + 1 FROM projects)) AS n) AS candidates
WHERE NOT EXISTS (SELECT FROM projects WHERE slug = candidate)
ORDER BY n LIMIT 1;

-- name: projects_insert returns nothing
-- No row: the slug is taken.
INSERT INTO projects (slug, name, description) VALUES ($1, $2, $3)
ON CONFLICT (slug) DO NOTHING
RETURNING id::text;

-- name: projects_update returns nothing
UPDATE projects
SET name = coalesce($3::jsonb ->> 'name', name), description = coalesce($3::jsonb ->> 'description', description),
    updated_at = now()
WHERE id = $1::uuid OR slug = $2
RETURNING id::text;

-- name: projects_lock returns nothing
-- While it is locked nothing new comes into it.
SELECT id::text FROM projects WHERE id = $1::uuid OR slug = $2 FOR UPDATE;

-- name: projects_sessions returns nothing
SELECT id::text, status IN ('provisioning', 'running') FROM sessions WHERE project_id = $1::uuid;

-- name: projects_delete returns nothing
DELETE FROM projects WHERE id = $1::uuid;
