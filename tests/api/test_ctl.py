"""sandboxctl and what make run leaves for scripts."""
import json
import re
import stat
import subprocess
from pathlib import Path

import httpx


def ctl(server, *words):
    return subprocess.run([server.state / "sandboxctl", *words], text=True, capture_output=True, timeout=60, check=False)


def me(server, key):
    return httpx.get(f"{server.url}/api/me", headers={"Authorization": f"Bearer {key}"}, timeout=10).json()


def test_a_key_is_made_listed_and_revoked(server):
    made = ctl(server, "key", "create", "--name", "of a test")
    assert made.returncode == 0 and re.fullmatch(r"ak_[A-Za-z0-9_-]{43}\n", made.stdout), made
    key = made.stdout.strip()
    assert me(server, key)["authenticated"] is True
    row = next(line for line in ctl(server, "key", "list", "--project", "default").stdout.splitlines() if line.endswith("of a test"))
    assert key[:11] in row and key not in row and "active" in row
    assert ctl(server, "key", "revoke", row.split()[0]).returncode == 0
    assert me(server, key)["authenticated"] is False
    assert "revoked" in next(line for line in ctl(server, "key", "list").stdout.splitlines() if line.endswith("of a test"))


def test_what_does_not_exist_is_refused_with_a_sentence(server):
    for words in (("key", "create", "--project", "no-such"), ("key", "revoke", "00000000-0000-4000-8000-000000000000"),
                  ("key", "revoke", "x'; DROP TABLE api_keys; --"), ("image", "remove", "no-such"), ("image", "remove", "../secrets")):
        done = ctl(server, *words)
        assert done.returncode == 1 and done.stdout == "" and re.fullmatch(r"sandboxctl: .+\n", done.stderr), done
    for words in ((), ("key",), ("key", "revoke"), ("key", "list", "x"), ("frob",), ("key", "list", "--frob")):
        assert ctl(server, *words).returncode == 2, words


def test_migrations_are_done(server):
    done = ctl(server, "migrate")
    assert done.returncode == 0 and done.stdout.startswith("0 applied"), done


def test_sandboxes_are_listed(server, session, client):
    assert f"{session.id}  running\n" in ctl(server, "sandbox", "list").stdout
    client.sessions.stop(session.id)
    assert f"{session.id}  stopped\n" in ctl(server, "sandbox", "list").stdout
    assert session.id not in ctl(server, "sandbox", "list", "--running").stdout


def test_a_snapshot_is_made_listed_restored_and_removed(server, session, client):
    client.sessions.upload_file(session.id, b"as it was", path="kept.txt")
    made = ctl(server, "snapshot", "make", session.id)
    assert made.returncode == 0 and re.fullmatch(r"[0-9a-f-]{36}\n", made.stdout), made
    snapshot = made.stdout.strip()
    listed = json.loads(ctl(server, "snapshot", "list", "--json", session.id).stdout)
    assert [(row["snapshot"], row["sandbox"], row["damaged"]) for row in listed] == [(snapshot, session.id, False)]
    assert snapshot in ctl(server, "snapshot", "list").stdout
    client.sessions.upload_file(session.id, b"otherwise", path="kept.txt")
    refused = ctl(server, "snapshot", "restore", snapshot, session.id)
    assert refused.returncode == 1 and "--force" in refused.stderr
    assert ctl(server, "snapshot", "restore", "--force", snapshot, session.id).returncode == 0
    assert client.sessions.read_file(session.id, "kept.txt") == b"as it was"
    assert ctl(server, "snapshot", "remove", snapshot).returncode == 0
    assert ctl(server, "snapshot", "list", "--json").stdout == "[]\n"
    assert ctl(server, "snapshot", "restore", snapshot, session.id).returncode == 1


def test_what_a_sandbox_uses_is_told(server, session, client):
    client.sessions.exec(session.id, "head -c 3000000 /dev/zero > f").check()
    used = json.loads(ctl(server, "sandbox", "usage", "--json", session.id).stdout)
    assert used["memory_peak_bytes"] >= used["memory_bytes"] > 0 and used["pids"] >= 1 and used["cpu_us"] > 0
    assert used["disk_bytes"] == -1 or 3000000 <= used["disk_bytes"] <= used["disk_bytes_limit"]
    assert "memory " in ctl(server, "sandbox", "usage", session.id).stdout
    assert ctl(server, "sandbox", "usage", "no-such").returncode == 1


def test_a_used_image_stays(server, session):
    assert ctl(server, "image", "list").stdout == "base\n"
    done = ctl(server, "image", "remove", "base")
    assert done.returncode == 1 and "--force" in done.stderr
    assert ctl(server, "image", "list").stdout == "base\n"


def test_the_doctor_finds_this_machine_well(server):
    done = ctl(server, "doctor")
    assert done.returncode == 0 and "MISSING" not in done.stdout, done.stdout


def test_the_doctor_speaks_json(server):
    done = ctl(server, "doctor", "--json")
    found = {row["name"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 0 and {row["finding"] for row in found.values()} <= {"ok", "advice"}, done.stdout
    assert found["PostgreSQL"]["finding"] == found["supervisor"]["finding"] == found["state folder"]["finding"] == "ok"
    assert all((row["cure"] is None) == (row["finding"] == "ok") for row in found.values())


def test_secrets_are_for_root_alone(server):
    for file in [server.state / "run.env", server.state / "sandboxctl", *(server.state / "secrets").iterdir()]:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
    names = {f.name for f in (server.state / "secrets").iterdir()}
    assert names >= {"OPERATOR_TOKEN", "METRICS_API_KEY", "JWT_SECRET", "ADMIN_API_KEY", "SEALING_KEY", "API_KEY"}
    assert len({(server.state / "secrets" / n).read_text() for n in names}) == len(names)


def test_no_secret_stays_in_an_environment(server):
    secrets = [(server.state / "secrets" / name).read_text() for name in ("OPERATOR_TOKEN", "METRICS_API_KEY")] + ["the-key-of-the-model"]
    for role in ("server", "worker", "streamer", "runner", "supervisor"):
        for pid in server.pids(role):
            text = Path(f"/proc/{pid}/environ").read_text(errors="replace")
            assert "STATE_DIR=" in text or "SUPERVISOR_STATE=" in text
            assert not any(secret in text for secret in secrets) and "DATABASE_URL=postgresql" not in text, role


def test_the_server_is_nobody_special(server):
    for role in ("server", "worker", "streamer", "runner"):
        for pid in server.pids(role):
            status = (server.state.__class__(f"/proc/{pid}/status")).read_text()
            assert not re.search(r"^Uid:\t0\t", status, re.M) and re.search(r"^CapEff:\t0+$", status, re.M), role
            assert re.search(r"^NoNewPrivs:\t1$", status, re.M)
