-- name: capacity_lock returns nothing
-- Who asks for room in a project is alone with that until the end of the transaction. No row is locked: whoever holds one
-- may ask.
SELECT pg_advisory_xact_lock(hashtextextended(coalesce($1::text, (SELECT project_id::text FROM sessions WHERE id = $2::uuid)), 1));

-- name: capacity_used returns capacity_used
-- What the other sessions of the project have: sandboxes that run or will, and disks, which a session keeps until its end.
SELECT count(*) FILTER (WHERE s.status IN ('provisioning', 'running')) AS sandboxes, count(*) AS disks
FROM sessions s
WHERE s.project_id = coalesce($1::uuid, (SELECT project_id FROM sessions WHERE id = $2::uuid))
  AND s.id IS DISTINCT FROM $2::uuid;
