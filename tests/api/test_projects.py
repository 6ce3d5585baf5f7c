"""Projects: who sees which, slugs, what a delete takes along."""
import uuid

import pytest


def make(operator, **body):
    answer = operator.post("/api/projects", json={"name": f"p {uuid.uuid4().hex}", **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.fixture
def project(operator):
    made = make(operator)
    yield made
    operator.delete(f"/api/projects/{made['id']}")


def test_an_empty_slug_is_made_from_the_name(operator):
    name = f"Größe & {uuid.uuid4().hex}"
    a, b, c = (make(operator, name=name) for _ in range(3))
    assert a["slug"] == "gr-e-" + name.split("& ")[1]
    assert (b["slug"], c["slug"]) == (a["slug"] + "-2", a["slug"] + "-3")
    assert a["role"] is None and a["description"] == "" and a["created_at"].endswith("Z")
    for p in (a, b, c):
        assert operator.delete(f"/api/projects/{p['slug']}").status_code == 204


def test_a_name_shaped_like_an_id_does_not_become_a_slug(operator):
    made = make(operator, name=str(uuid.uuid4()))
    assert made["slug"].startswith("project")
    operator.delete(f"/api/projects/{made['id']}")


def test_a_long_name_makes_a_slug_within_bounds(operator):
    made = [make(operator, name="n" * 200) for _ in range(2)]
    assert made[0]["slug"] == "n" * 63 and made[1]["slug"] == "n" * 61 + "-2"
    for p in made:
        operator.delete(f"/api/projects/{p['id']}")


def test_a_taken_slug_is_a_conflict(operator, project):
    answer = operator.post("/api/projects", json={"name": "x", "slug": project["slug"]})
    assert answer.status_code == 409 and project["slug"] in answer.json()["detail"]


@pytest.mark.parametrize("body", [
    {}, {"name": ""}, {"name": None}, {"name": "x" * 201}, {"name": "x", "slug": "Bad"}, {"name": "x", "slug": "-a"},
    {"name": "x", "slug": "a-"}, {"name": "x", "slug": "a" * 64}, {"name": "x", "slug": str(uuid.uuid4())}, {"name": 7},
])
def test_bad_bodies(operator, body):
    answer = operator.post("/api/projects", json=body)
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"][0] == "body"


def test_get_and_change_by_id_and_slug(operator, project):
    for ref in (project["id"], project["slug"], project["id"].upper()):
        assert operator.get(f"/api/projects/{ref}").json() == project
    changed = operator.patch(f"/api/projects/{project['slug']}", json={"description": "d", "slug": "other"}).json()
    assert changed["description"] == "d" and changed["name"] == project["name"] and changed["slug"] == project["slug"]
    assert changed["updated_at"] >= project["updated_at"]
    assert operator.patch(f"/api/projects/{project['id']}", json={"name": None}).status_code == 422
    assert operator.patch(f"/api/projects/{project['id']}", json={}).json()["description"] == "d"
    assert operator.patch("/api/projects/nothing", json={"name": "x"}).status_code == 404


def test_a_key_reaches_its_own_project_only(api, operator, project):
    mine = api.get("/api/projects").json()
    assert len(mine) == 1 and mine[0]["id"] != project["id"]
    assert api.get(f"/api/projects/{mine[0]['slug']}").status_code == 200
    for ref in (project["id"], project["slug"], "nothing", str(uuid.uuid4())):
        assert api.get(f"/api/projects/{ref}").status_code == 404
    assert project["id"] in {p["id"] for p in operator.get("/api/projects").json()}


def test_a_key_manages_no_projects(api, project):
    assert api.post("/api/projects", json={"name": "x"}).status_code == 403
    assert api.patch(f"/api/projects/{project['id']}", json={"name": "x"}).status_code == 403
    assert api.delete(f"/api/projects/{project['id']}").status_code == 403


def test_delete_takes_everything_along(operator, project):
    scoped = {"X-Project": project["id"]}
    agent = operator.post("/api/agents", json={"slug": "a", "name": "A"}, headers=scoped).json()
    session = operator.post("/api/sessions", json={"agent_id": "a"}, headers=scoped).json()
    assert operator.delete(f"/api/projects/{project['id']}").status_code == 409
    assert operator.post(f"/api/sessions/{session['id']}/stop", headers=scoped).json()["status"] == "stopped"
    assert operator.delete(f"/api/projects/{project['id']}").status_code == 204
    assert operator.get(f"/api/projects/{project['id']}").status_code == 404
    assert operator.delete(f"/api/projects/{project['id']}").status_code == 404
    assert operator.get(f"/api/agents/{agent['id']}", headers=scoped).status_code == 404
