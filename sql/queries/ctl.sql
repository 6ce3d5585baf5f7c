-- What sandboxctl asks. A project is named by its id or its slug.

-- name: ctl_key_insert returns nothing
-- No row: there is no such project. The key itself is stored nowhere.
INSERT INTO api_keys (project_id, name, prefix, digest, created_by)
SELECT id, $2, $3, $4, 'sandboxctl' FROM projects WHERE slug = $1 OR id::text = lower($1)
RETURNING id::text;

-- name: ctl_keys returns nothing
SELECT api_keys.id::text, projects.slug, api_keys.prefix,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'active' END,
       coalesce(rfc3339(last_used_at), 'never'), api_keys.name
FROM api_keys JOIN projects ON projects.id = project_id
WHERE $1::text IS NULL OR projects.slug = $1 OR projects.id::text = lower($1)
ORDER BY projects.slug, api_keys.created_at, api_keys.id;

-- name: ctl_key_revoke returns nothing
UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE id::text = lower($1) RETURNING id;
