-- name: stream_page returns event
-- What follows a cursor, until a page is full: 200 events, or about 1 MiB of payload.
SELECT seq, session_id::text, run_id::text, type, payload, rfc3339(created_at) AS created_at
FROM (SELECT *, sum(octet_length(payload::text)) OVER (ORDER BY seq) - octet_length(payload::text) AS bytes_before
      FROM (SELECT * FROM events WHERE session_id = $1::uuid AND seq > $2::bigint ORDER BY seq LIMIT 200) AS page) AS sized
WHERE bytes_before < 1048576
ORDER BY seq;

-- name: stream_heads returns nothing
-- For each of these sessions its newest event; a session that is gone has no row.
SELECT s.id::text, coalesce((SELECT max(e.seq) FROM events e WHERE e.session_id = s.id), 0)
FROM sessions s WHERE s.id = ANY ($1::uuid[]);

-- name: stream_keys returns nothing
-- Those of these keys that still authenticate.
SELECT id::text FROM api_keys
WHERE id = ANY ($1::uuid[]) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- name: stream_session returns nothing
SELECT id::text FROM sessions WHERE id = $1::uuid AND project_id = $2::uuid;
