-- name: identity_key returns nothing
-- The key of this digest, if it still authenticates: id, name, project's id and slug, and whether its use is to be noted.
SELECT k.id::text, k.name, p.id::text, p.slug,
       k.last_used_at IS NULL OR k.last_used_at < now() - interval '1 minute'
FROM api_keys k JOIN projects p ON p.id = k.project_id
WHERE k.digest = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now());

-- name: identity_used returns nothing
-- At most once a minute, by one of those who use it at the same time, and never waiting for the others.
UPDATE api_keys SET last_used_at = now()
WHERE id IN (SELECT id FROM api_keys
             WHERE id = $1::uuid AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
             FOR UPDATE SKIP LOCKED);

-- name: identity_any_key returns nothing
SELECT EXISTS (SELECT FROM api_keys);

-- name: identity_project returns nothing
SELECT id::text FROM projects WHERE id = $1::uuid OR slug = $2;

-- name: identity_projects returns nothing
-- Two tell as much as all.
SELECT id::text FROM projects ORDER BY created_at LIMIT 2;
