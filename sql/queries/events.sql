-- name: events_insert returns nothing
-- The update takes the row's lock before the insert draws its number, so that within a session commit order is seq order.
WITH session AS (
    UPDATE sessions SET last_event_at = clock_timestamp() WHERE id = $1::uuid RETURNING id)
INSERT INTO events (session_id, run_id, type, payload)
SELECT id, $2::uuid, $3::text, $4::json FROM session
RETURNING seq;
