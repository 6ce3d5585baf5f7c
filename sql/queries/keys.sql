-- name: keys_list returns key
SELECT id::text, name, description, project_id::text, prefix, created_by, rfc3339(created_at) AS created_at,
       rfc3339(last_used_at) AS last_used_at, rfc3339(expires_at) AS expires_at, rfc3339(revoked_at) AS revoked_at
FROM api_keys
WHERE project_id = $1::uuid
ORDER BY api_keys.created_at DESC, api_keys.id DESC;

-- name: keys_insert returns key_created
-- The key is answered here and stored nowhere.
INSERT INTO api_keys (project_id, name, description, prefix, digest, created_by, expires_at)
VALUES ($1::uuid, $2, $3, left($4::text, 11), $5, $6, $7::timestamptz)
RETURNING id::text, name, description, project_id::text, prefix, created_by, rfc3339(created_at) AS created_at,
          rfc3339(last_used_at) AS last_used_at, rfc3339(expires_at) AS expires_at,
          rfc3339(revoked_at) AS revoked_at, $4::text AS key;

-- name: keys_revoke returns key
UPDATE api_keys SET revoked_at = coalesce(revoked_at, now())
WHERE project_id = $1::uuid AND id = $2::uuid
RETURNING id::text, name, description, project_id::text, prefix, created_by, rfc3339(created_at) AS created_at,
          rfc3339(last_used_at) AS last_used_at, rfc3339(expires_at) AS expires_at,
          rfc3339(revoked_at) AS revoked_at;

-- name: keys_delete returns nothing
DELETE FROM api_keys WHERE project_id = $1::uuid AND id = $2::uuid RETURNING id;
