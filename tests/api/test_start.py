"""What the server refuses to start with, and the open deployment."""
import os
import re
import signal
import socket
import subprocess
import uuid
from pathlib import Path

import httpx
import pytest
from programs import BUILD, TOP, wait_for

PROGRAM = TOP / BUILD / "sandbox-server"


@pytest.fixture
def database(server):
    """An empty database of the private PostgreSQL: no key has ever been made in it."""
    name = f"t{uuid.uuid4().hex}"
    psql = ["psql", "-X", "-q", "-h", f"{server.runtime}/postgres", "-U", "postgres", "-d", "postgres", "-c"]
    subprocess.run([*psql, f"CREATE DATABASE {name} OWNER sandbox"], check=True)
    yield f"postgresql://sandbox@/{name}?host={server.runtime}/postgres"
    subprocess.run([*psql, f"DROP DATABASE {name} WITH (FORCE)"], check=True)


def environment(tmp_path, database, **settings):
    kept = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS") or k in ("PATH", "HOME")}
    return {**kept, "DATABASE_URL": database, "STATE_DIR": str(tmp_path / "state"), "HOST": "127.0.0.1", **settings}


BAD = [
    ({"PORT": "0"}, "PORT"),
    ({"PORT": "http"}, "PORT"),
    ({"LOG_LEVEL": "loud"}, "LOG_LEVEL"),
    ({"MAX_REQUEST_BYTES": "10"}, "MAX_REQUEST_BYTES"),
    ({"OPERATOR_TOKEN": "short"}, "OPERATOR_TOKEN"),
    ({"METRICS_API_KEY": "change-me-" + "x" * 40}, "METRICS_API_KEY"),
    ({"OPERATOR_TOKEN": "x" * 40, "METRICS_API_KEY": "x" * 40}, "METRICS_API_KEY"),
    ({"DATABASE_URL": ""}, "DATABASE_URL"),
]


@pytest.mark.parametrize("settings,named", BAD, ids=lambda v: str(v)[:40])
def test_a_bad_setting_is_named(tmp_path, settings, named):
    for command in ("serve", "--check-config"):
        ended = subprocess.run([PROGRAM, command], env=environment(tmp_path, "postgresql:///unused", **settings), cwd=tmp_path,
                               capture_output=True, text=True, timeout=60)
        assert ended.returncode == os.EX_CONFIG and named in ended.stderr and ended.stderr.count("\n") == 1
        assert not any(len(v) >= 32 and v in ended.stderr for v in settings.values()), "a secret was shown"


def test_production_without_any_credential_is_refused(tmp_path, database):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ended = subprocess.run([PROGRAM], env=environment(tmp_path, database, PORT=str(port)), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == os.EX_CONFIG and "OPERATOR_TOKEN" in ended.stderr


def test_an_open_deployment_says_so_and_closes_with_the_first_key(tmp_path, database):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    program = subprocess.Popen([PROGRAM], env=environment(tmp_path, database, PORT=str(port), ENV="dev", RUNNERS="1", WORKERS="1"), cwd=tmp_path,
                               stderr=open(tmp_path / "log", "wb"))
    try:
        def up():
            try:
                return httpx.get(f"{url}/api/health").status_code == 200
            except httpx.HTTPError:
                return program.poll() is not None
        wait_for("the server", up)
        assert program.poll() is None, Path(tmp_path / "log").read_text()[-2000:]
        assert httpx.get(f"{url}/api/me").json()["auth_required"] is False
        assert httpx.get(f"{url}/api/agents").json() == []
        made = httpx.post(f"{url}/api/api-keys", json={"name": "first"})
        assert made.status_code == 201 and re.match("ak_", made.json()["key"])
        assert httpx.get(f"{url}/api/agents").status_code == 401
        assert httpx.get(f"{url}/api/agents", headers={"Authorization": f"Bearer {made.json()['key']}"}).json() == []
    finally:
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
