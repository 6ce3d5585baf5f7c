-- name: jobs_insert returns nothing
-- A job that is due later wakes the runners as well: they sleep until the next one that they know of.
WITH added AS (
    INSERT INTO jobs (kind, session_id, run_id, payload, run_at, max_attempts)
    VALUES ($1::text, $2::uuid, $3::uuid, $4::jsonb, now() + $5::bigint * interval '1 second', $6::bigint)
    RETURNING kind)
SELECT pg_notify('jobs', kind) FROM added;

-- name: jobs_take returns job
-- Expired leases first: their sessions have waited longest. Each CTE is one probe of a partial index.
WITH expired AS MATERIALIZED (
    SELECT id FROM jobs WHERE state = 'leased' AND lease_until < now()
    ORDER BY lease_until LIMIT 1 FOR UPDATE SKIP LOCKED),
due AS MATERIALIZED (
    SELECT id FROM jobs WHERE state = 'queued' AND run_at <= now()
    ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED),
chosen AS MATERIALIZED (
    SELECT id FROM expired UNION ALL SELECT id FROM due LIMIT 1)
UPDATE jobs
SET state = CASE WHEN attempts < max_attempts + $2::bigint THEN 'leased' ELSE 'dead' END,
    attempts = attempts + 1,
    owner = $1::text,
    lease = gen_random_uuid(),
    lease_until = now() + $3::bigint * interval '1 second',
    last_error = CASE WHEN state = 'leased' THEN 'its runner died' ELSE last_error END
FROM chosen
WHERE jobs.id = chosen.id
RETURNING jobs.id, kind, session_id::text, run_id::text, payload, attempts, max_attempts, lease::text;

-- name: jobs_renew returns nothing
-- A row that its own runner is writing about (jobs_lock) is passed over rather than waited for, so that the other leases are renewed in
-- time; nobody can take it meanwhile.
UPDATE jobs SET lease_until = now() + $2::bigint * interval '1 second'
WHERE id IN (SELECT id FROM jobs WHERE state = 'leased' AND lease = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED);

-- name: jobs_lock returns nothing
SELECT id FROM jobs WHERE id = $1::bigint AND lease = $2::uuid AND state = 'leased' FOR UPDATE;

-- name: jobs_delete returns nothing
DELETE FROM jobs WHERE id = $1::bigint AND lease = $2::uuid AND state = 'leased';

-- name: jobs_return returns nothing
-- After the last attempt it comes back at once, for its kind to write the end; after that it is dead.
WITH returned AS (
    UPDATE jobs
    SET state = CASE WHEN attempts > max_attempts THEN 'dead' ELSE 'queued' END,
        run_at = now() + interval '1 second' *
                 CASE WHEN attempts >= max_attempts THEN 0
                      ELSE least(300, power(2, least(attempts, 10))) * (0.8 + 0.4 * random()) END,
        owner = NULL,
        lease = NULL,
        lease_until = NULL,
        last_error = left($3::text, 2000)
    WHERE id = $1::bigint AND lease = $2::uuid AND state = 'leased'
    RETURNING kind)
SELECT pg_notify('jobs', kind) FROM returned;

-- name: jobs_due returns nothing
-- Seconds until a job can be leased, rounded up; NULL when there is none.
SELECT ceil(extract(epoch FROM least(
    (SELECT min(run_at) FROM jobs WHERE state = 'queued'),
    (SELECT min(lease_until) FROM jobs WHERE state = 'leased')) - clock_timestamp()))::bigint;
