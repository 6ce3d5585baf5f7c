"""API keys: shown once, stopped at once."""
import uuid
from datetime import UTC, datetime, timedelta

import httpx
import pytest


@pytest.fixture
def scope(operator):
    made = operator.post("/api/projects", json={"name": f"keys {uuid.uuid4().hex}"}).json()
    yield {"X-Project": made["slug"]}
    operator.delete(f"/api/projects/{made['id']}")


def make(operator, scope, **body):
    answer = operator.post("/api/api-keys", json={"name": "k", **body}, headers=scope)
    assert answer.status_code == 201, answer.text
    return answer.json()


def status_with(operator, key):
    return httpx.get(f"{str(operator.base_url).rstrip('/')}/api/agents", headers={"Authorization": f"Bearer {key}"}).status_code


def test_a_key_is_shown_once(operator, scope):
    made = make(operator, scope, description="d")
    assert made["key"].startswith(made["prefix"]) and made["prefix"].startswith("ak_") and len(made["prefix"]) == 11
    assert status_with(operator, made["key"]) == 200
    listed = operator.get("/api/api-keys", headers=scope)
    assert made["key"] not in listed.text
    row = listed.json()[0]
    assert "key" not in row and row["id"] == made["id"] and row["description"] == "d"
    assert row["revoked_at"] is row["expires_at"] is None and row["created_by"]


def test_newest_first(operator, scope):
    made = [make(operator, scope)["id"] for _ in range(4)]
    assert [k["id"] for k in operator.get("/api/api-keys", headers=scope).json()] == made[::-1]


def test_revoke_stops_it_and_keeps_the_row(operator, scope):
    made = make(operator, scope)
    first = operator.post(f"/api/api-keys/{made['id']}/revoke", headers=scope).json()
    again = operator.post(f"/api/api-keys/{made['id']}/revoke", headers=scope).json()
    assert first["revoked_at"] and again["revoked_at"] == first["revoked_at"]
    assert status_with(operator, made["key"]) == 401
    assert made["id"] in {k["id"] for k in operator.get("/api/api-keys", headers=scope).json()}


def test_delete_forgets_it(operator, scope):
    made = make(operator, scope)
    assert operator.delete(f"/api/api-keys/{made['id']}", headers=scope).status_code == 204
    assert operator.delete(f"/api/api-keys/{made['id']}", headers=scope).status_code == 404
    assert status_with(operator, made["key"]) == 401


@pytest.mark.parametrize("give", [
    lambda t: t.isoformat(), lambda t: t.replace(tzinfo=None).isoformat(), lambda t: t.isoformat().replace("+00:00", "Z"),
    lambda t: (t + timedelta(hours=5, minutes=30)).replace(tzinfo=None).isoformat() + "+05:30",
])
def test_expiry_without_offset_is_utc(operator, scope, give):
    when = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=123456)
    got = datetime.fromisoformat(make(operator, scope, expires_at=give(when))["expires_at"])
    assert got == when


@pytest.mark.parametrize("when", ["2001-01-01T00:00:00Z", "tomorrow", "", "2030-02-30T00:00:00Z", "2030-01-01", 7, "2030-01-01T25:00:00",
                                  "2030-01-01T00:00:00Z; drop table", "2030-01-01T00:00:00+99:00"])
def test_bad_expiries(operator, scope, when):
    answer = operator.post("/api/api-keys", json={"name": "k", "expires_at": when}, headers=scope)
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"] == ["body", "expires_at"]


def test_null_expiry_is_never(operator, scope):
    assert make(operator, scope, expires_at=None)["expires_at"] is None


def test_another_projects_key_is_not_found(operator, scope):
    made = make(operator, scope)
    other = {"X-Project": "default"}
    assert operator.post(f"/api/api-keys/{made['id']}/revoke", headers=other).status_code == 404
    assert operator.delete(f"/api/api-keys/{made['id']}", headers=other).status_code == 404
    assert operator.delete("/api/api-keys/not-an-id", headers=other).status_code == 404
    assert status_with(operator, made["key"]) == 200


def test_a_key_manages_no_keys(api):
    assert api.get("/api/api-keys").status_code == 403
    assert api.post("/api/api-keys", json={"name": "x"}).status_code == 403
