-- name: store_version returns nothing
-- The newest migration of this database.
SELECT coalesce(max(number), 0) FROM schema_migrations;
