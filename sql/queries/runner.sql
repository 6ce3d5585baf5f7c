-- name: runner_ensure returns nothing
-- The one row of a job that repeats. Runners that ask at the same time wait for each other.
WITH alone AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext('jobs that repeat')))
INSERT INTO jobs (kind, max_attempts)
SELECT $1::text, 1000000 FROM alone
WHERE NOT EXISTS (SELECT FROM jobs WHERE kind = $1::text AND state <> 'dead');

-- name: runner_hasten returns nothing
-- A job that repeats is due now: something may have happened while nobody looked.
WITH due AS (
    UPDATE jobs SET run_at = now() WHERE kind = $1::text AND state = 'queued' AND run_at > now() RETURNING kind)
SELECT pg_notify('jobs', kind) FROM due;

-- name: runner_again returns nothing
UPDATE jobs
SET state = 'queued', attempts = 0, run_at = now() + $3::bigint * interval '1 second', owner = NULL, lease = NULL,
    lease_until = NULL, last_error = NULL
WHERE id = $1::bigint AND lease = $2::uuid AND state = 'leased';

-- name: runner_give_back returns nothing
-- For another runner to take up at once; that was no failed attempt.
WITH given AS (
    UPDATE jobs
    SET state = 'queued', attempts = greatest(0, attempts - 1), run_at = now(), owner = NULL, lease = NULL,
        lease_until = NULL
    WHERE id = $1::bigint AND lease = $2::uuid AND state = 'leased'
    RETURNING kind)
SELECT pg_notify('jobs', kind) FROM given;

-- name: runner_give_back_all returns nothing
WITH given AS (
    UPDATE jobs
    SET state = 'queued', attempts = greatest(0, attempts - 1), run_at = now(), owner = NULL, lease = NULL,
        lease_until = NULL
    WHERE owner = $1::text AND state = 'leased'
    RETURNING kind)
SELECT pg_notify('jobs', kind) FROM given;

-- name: runner_expire returns nothing
-- The leases of a runner that is known to be dead: taken up as if their time had run out.
WITH expired AS (
    UPDATE jobs SET lease_until = now() - interval '1 millisecond' WHERE owner = $1::text AND state = 'leased'
    RETURNING kind)
SELECT pg_notify('jobs', kind) FROM expired;

-- name: runner_over returns nothing
-- Those of these runs that this runner should not work on any more.
SELECT wanted.id::text
FROM unnest($2::uuid[]) AS wanted (id)
WHERE NOT EXISTS (SELECT FROM runs r WHERE r.id = wanted.id AND r.status = 'running')
   OR NOT EXISTS (SELECT FROM jobs j WHERE j.run_id = wanted.id AND j.state = 'leased' AND j.owner = $1::text);
