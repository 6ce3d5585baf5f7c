-- Projects, keys, agents, sessions, runs, the log and the jobs.

-- RFC 3339 in UTC with microseconds, as every answer of the sessions API has it.
CREATE FUNCTION rfc3339(moment timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

CREATE TABLE projects (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    slug        text NOT NULL UNIQUE,
    name        text NOT NULL,
    description text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);

INSERT INTO projects (slug, name, description) VALUES ('default', 'Default', 'The project of a fresh server');

CREATE TABLE api_keys (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    project_id   uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
    name         text NOT NULL,
    description  text NOT NULL DEFAULT '',
    prefix       text NOT NULL,
    digest       text NOT NULL UNIQUE, -- SHA-256 of the whole key, hex
    created_by   text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz,
    expires_at   timestamptz,
    revoked_at   timestamptz
);
CREATE INDEX api_keys_project ON api_keys (project_id, created_at DESC);

CREATE TABLE agents (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    project_id       uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
    slug             text NOT NULL,
    name             text NOT NULL,
    description      text NOT NULL DEFAULT '',
    instructions     text NOT NULL DEFAULT '',
    transport        text NOT NULL DEFAULT 'proxy',
    model            text,
    reasoning_effort text,
    image            text,
    capabilities     jsonb,
    skills_source    jsonb,
    workspace_source jsonb,
    manifest         jsonb NOT NULL DEFAULT '{"entries":{},"environment":{}}',
    exposed_ports    jsonb NOT NULL DEFAULT '[]',
    client_tools     jsonb NOT NULL DEFAULT '[]',
    secret_bindings  jsonb NOT NULL DEFAULT '[]',
    subagents        jsonb NOT NULL DEFAULT '[]',
    idle_ttl_seconds bigint,
    environment_id   uuid,
    version          bigint NOT NULL DEFAULT 1,
    archived_at      timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    UNIQUE (project_id, slug)
);

CREATE TABLE sessions (
    id                 uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    project_id         uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
    agent_id           uuid NOT NULL REFERENCES agents,
    title              text NOT NULL DEFAULT '',
    metadata           jsonb NOT NULL DEFAULT '{}',
    status             text NOT NULL DEFAULT 'provisioning'
                       CHECK (status IN ('provisioning', 'running', 'stopped', 'error')),
    error              text,
    stopped_reason     text CHECK (stopped_reason IN ('requested', 'idle', 'restart')),
    backend            text NOT NULL DEFAULT 'native',
    workdir            text NOT NULL DEFAULT '/workspace',
    exposed_ports      jsonb NOT NULL DEFAULT '[]',
    model              text,
    instructions       text,
    manifest           jsonb,           -- null: the agent's
    secret_bindings    jsonb NOT NULL DEFAULT '[]',
    environment_id     uuid,
    usage              jsonb NOT NULL DEFAULT '{}',
    -- Each start and each stop adds one: a boot that ends after somebody stopped the session finds another number and throws
    -- its sandbox away.
    generation         bigint NOT NULL DEFAULT 1,
    prepared           boolean NOT NULL DEFAULT false, -- the manifest has been written: never again
    sandbox_started_at timestamptz,     -- while a sandbox is up
    sandbox_seconds    double precision NOT NULL DEFAULT 0, -- of earlier boots
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    last_event_at      timestamptz,
    last_used_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX sessions_project ON sessions (project_id, created_at DESC, id DESC);
CREATE INDEX sessions_agent ON sessions (agent_id, created_at DESC, id DESC);

CREATE TABLE runs (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    session_id   uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    prompt       text NOT NULL,
    status       text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'failed', 'cancelled')),
    stop_reason  text,
    final_output text,
    error        text,
    turns        bigint NOT NULL DEFAULT 0,
    max_turns    bigint NOT NULL,
    client_tools jsonb NOT NULL DEFAULT '[]',
    usage        jsonb NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    finished_at  timestamptz
);
CREATE INDEX runs_session ON runs (session_id, created_at, id);
-- However many ask at once, one turn runs.
CREATE UNIQUE INDEX runs_one_at_a_time ON runs (session_id) WHERE status = 'running';

-- The log. Appending locks the session's row first, so that within a session commit order is seq order.
CREATE TABLE events (
    seq        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    run_id     uuid,
    type       text NOT NULL,
    payload    json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX events_session ON events (session_id, seq);

-- What the model is sent: chat messages as they went over the wire, written in the transaction of their events.
CREATE TABLE conversation (
    id         bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    run_id     uuid NOT NULL,
    message    json NOT NULL
);
CREATE INDEX conversation_session ON conversation (session_id, id);

CREATE TABLE jobs (
    id           bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    kind         text NOT NULL,
    session_id   uuid REFERENCES sessions ON DELETE CASCADE,
    run_id       uuid REFERENCES runs ON DELETE CASCADE,
    payload      jsonb NOT NULL DEFAULT '{}',
    state        text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'leased', 'dead')),
    run_at       timestamptz NOT NULL DEFAULT now(),
    attempts     bigint NOT NULL DEFAULT 0,
    max_attempts bigint NOT NULL,
    owner        text,
    lease        uuid,
    lease_until  timestamptz,
    last_error   text,
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX jobs_due ON jobs (run_at) WHERE state = 'queued';
CREATE INDEX jobs_leased ON jobs (lease_until) WHERE state = 'leased';
