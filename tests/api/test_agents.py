"""Agents: every field stored, checked and answered; the optimistic lock; what refers to what."""
import asyncio
import threading
import uuid

import pytest
from sandbox_agents import AsyncClient, ClientTool, DirEntry, FileEntry, GitRepoEntry, ManifestSpec, Subagent

CLEARED = {
    "reasoning_effort": None, "image": None, "capabilities": None, "client_tools": [], "subagents": [], "idle_ttl_seconds": None,
    "manifest": {"entries": {}, "environment": {}}, "exposed_ports": [], "skills_source": None, "environment_id": None,
}


def unique(prefix="a"):
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make(api):
    """Agents that go away with the test, the last first since it may refer to earlier ones."""
    made = []

    def one(**body):
        answer = api.post("/api/agents", json={"slug": unique(), "name": "n", **body})
        assert answer.status_code == 201, answer.text
        made.append(answer.json())
        return made[-1]

    yield one
    for agent in reversed(made):
        api.delete(f"/api/agents/{agent['id']}")


def refusals(answer, status=422):
    assert answer.status_code == status, answer.text
    return answer.json()["detail"]


def test_defaults_are_filled_in(make):
    a = make()
    assert a["transport"] == "proxy" and isinstance(a["model"], str) and a["model"] and a["version"] == 1
    assert a["description"] == a["instructions"] == "" and a["archived_at"] is None
    assert {name: a[name] for name in CLEARED} == CLEARED and a["secret_bindings"] == [] and a["workspace_source"] is None


def test_everything_comes_back(client, make):
    helper = make()
    a = client.agents.create(
        slug=unique(), name="Full ünï", description="δ", instructions="1\n\u2028 \U0001f600", transport="litellm", model="m",
        reasoning_effort="high", image="img:1", capabilities=["shell", "filesystem"],
        manifest=ManifestSpec(entries={"a/b.txt": FileEntry(content="x"), "out": DirEntry(),
                                       "src": GitRepoEntry(repo="o/r", ref="v1", subpath="lib")}, environment={"MODE": "test"}),
        exposed_ports=[8000, 3000], client_tools=[ClientTool(name="ask", timeout_seconds=30), ClientTool(name="later", deferrable=True)],
        subagents=[Subagent(agent=helper["slug"], mode="handoff", description="helps")], idle_ttl_seconds=77)
    try:
        for got in (a, client.agents.get(a.id), client.agents.get(a.slug)):
            assert (got.name, got.description, got.instructions) == ("Full ünï", "δ", "1\n\u2028 \U0001f600")
            assert got.manifest.entries["src"].host == "github.com" and got.manifest.environment == {"MODE": "test"}
            assert [(t.name, t.deferrable, t.timeout_seconds, t.parameters) for t in got.client_tools] == [
                ("ask", False, 30, {}), ("later", True, None, {})]
            assert [(s.agent, s.mode, s.tool_name) for s in got.subagents] == [(helper["slug"], "handoff", None)]
            assert got.exposed_ports == [8000, 3000] and got.idle_ttl_seconds == 77 and got.capabilities == ["shell", "filesystem"]
    finally:
        client.agents.delete(a.id)


def test_async_client(api):
    async def go():
        async with AsyncClient(base_url=str(api.base_url), api_key=api.headers["Authorization"].removeprefix("Bearer ")) as client:
            a = await client.agents.create(slug=unique(), name="n")
            assert (await client.agents.get(a.slug)).id == a.id
            b = await client.agents.update(a.id, version=a.version, name="m")
            assert b.version == 2 and a.id in {x.id for x in await client.agents.list()}
            await client.agents.delete(a.id)

    asyncio.run(go())


def test_nulls_of_the_oldest_client_are_defaults(make):
    names = ["description", "instructions", "transport", "model", "reasoning_effort", "image", "capabilities", "skills_source",
             "workspace_source", "manifest", "exposed_ports", "client_tools", "secret_bindings", "subagents", "idle_ttl_seconds",
             "environment_id"]
    plain, nulled = make(), make(**dict.fromkeys(names))
    assert {n: nulled[n] for n in names} == {n: plain[n] for n in names}


@pytest.mark.parametrize("name", sorted(CLEARED))
def test_null_clears(api, make, name):
    helper = make()
    full = {"reasoning_effort": "low", "image": "x", "capabilities": ["shell"], "client_tools": [{"name": "t"}],
            "subagents": [{"agent": helper["slug"]}], "idle_ttl_seconds": 9, "exposed_ports": [80], "environment_id": None,
            "manifest": {"entries": {"d": {"kind": "dir"}}}, "skills_source": {"kind": "git_repo", "repo": "o/r"}}
    a = make(**full)
    b = api.patch(f"/api/agents/{a['id']}", json={"version": 1, name: None}).json()
    assert b[name] == CLEARED[name] and b["version"] == 2
    for other in CLEARED:
        if other != name:
            assert b[other] == a[other]


def test_an_empty_list_of_capabilities_is_none_of_them(make):
    assert make(capabilities=[])["capabilities"] == []


@pytest.mark.parametrize("name", ["name", "description", "instructions", "transport"])
def test_null_is_refused_where_it_means_nothing(api, make, name):
    a = make()
    assert refusals(api.patch(f"/api/agents/{a['id']}", json={"version": 1, name: None}))[0]["loc"] == ["body", name]
    assert api.get(f"/api/agents/{a['id']}").json() == a


def test_the_lock(api, make):
    a = make()
    for stale in (0, -1, 2, 2**62):
        refusals(api.patch(f"/api/agents/{a['id']}", json={"version": stale, "name": "x"}), 409)
    for wrong in ({"name": "x"}, {"version": None}, {"version": "1"}, {"version": 1.5}, {"version": True}, {"version": 2**64}):
        refusals(api.patch(f"/api/agents/{a['id']}", json=wrong))
    assert api.get(f"/api/agents/{a['id']}").json() == a
    assert api.patch(f"/api/agents/{a['slug']}", json={"version": 1.0}).json()["version"] == 2
    assert refusals(api.patch("/api/agents/nothing", json={"version": 1}), 404) == "agent not found"


def test_of_parallel_edits_one_wins(api, make):
    a, codes, gate = make(), [], threading.Barrier(8)

    def edit(i):
        gate.wait()
        codes.append(api.patch(f"/api/agents/{a['id']}", json={"version": 1, "name": f"by {i}"}).status_code)

    threads = [threading.Thread(target=edit, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(codes) == [200] + [409] * 7
    assert api.get(f"/api/agents/{a['id']}").json()["version"] == 2


def test_archive(api, make):
    a = make()
    gone = api.post(f"/api/agents/{a['slug']}/archive").json()
    assert gone["archived_at"] and gone["version"] == 1
    assert api.post(f"/api/agents/{a['id']}/archive").json()["archived_at"] == gone["archived_at"]
    assert a["id"] not in {x["id"] for x in api.get("/api/agents").json()}
    assert a["id"] in {x["id"] for x in api.get("/api/agents", params={"include_archived": "true"}).json()}
    assert "archived" in refusals(api.post("/api/sessions", json={"agent_id": a["id"]}), 409)
    refusals(api.post("/api/agents", json={"slug": a["slug"], "name": "x"}), 409)
    assert api.post(f"/api/agents/{a['id']}/unarchive").json()["archived_at"] is None
    assert a["id"] in {x["id"] for x in api.get("/api/agents").json()}
    refusals(api.post("/api/agents/nothing/archive"), 404)


def test_a_subagent_is_not_deleted(api, make):
    helper = make()
    a = make(subagents=[{"agent": helper["slug"]}])
    assert a["slug"] in refusals(api.delete(f"/api/agents/{helper['id']}"), 409)
    api.patch(f"/api/agents/{a['id']}", json={"version": 1, "subagents": []})
    assert api.delete(f"/api/agents/{helper['id']}").status_code == 204
    refusals(api.delete(f"/api/agents/{helper['id']}"), 404)


def test_another_project_s_agent_is_not_found(api, operator, make):
    a = make()
    other = operator.post("/api/projects", json={"name": unique()}).json()
    scoped = {"X-Project": other["id"]}
    try:
        for ref in (a["id"], a["slug"]):
            refusals(operator.get(f"/api/agents/{ref}", headers=scoped), 404)
            refusals(operator.patch(f"/api/agents/{ref}", json={"version": 1}, headers=scoped), 404)
            refusals(operator.delete(f"/api/agents/{ref}", headers=scoped), 404)
        taken = operator.post("/api/agents", json={"slug": a["slug"], "name": "x", "subagents": []}, headers=scoped)
        assert taken.status_code == 201, "slugs are a project's own"
        refusals(operator.post("/api/agents", json={"slug": "x", "name": "x", "subagents": [{"agent": "not-there"}]}, headers=scoped), 400)
    finally:
        operator.delete(f"/api/projects/{other['id']}")


ENTRY = {"kind": "git_repo", "repo": "o/r"}


@pytest.mark.parametrize("status,bad", [
    (422, {"slug": ""}), (422, {"slug": "Has Space"}), (422, {"slug": "-a"}), (422, {"slug": "a-"}), (422, {"slug": "a" * 64}),
    (422, {"slug": "ü"}), (422, {"slug": str(uuid.uuid4())}), (422, {"name": ""}), (422, {"name": "x" * 201}), (422, {"name": 7}),
    (422, {"transport": "pigeon"}), (422, {"reasoning_effort": "extreme"}), (422, {"capabilities": ["telepathy"]}), (422, {"model": ""}),
    (422, {"exposed_ports": [0]}), (422, {"exposed_ports": [65536]}), (422, {"exposed_ports": ["80"]}), (422, {"idle_ttl_seconds": -1}),
    (422, {"idle_ttl_seconds": 2**64}), (422, {"client_tools": [{"name": ""}]}), (422, {"client_tools": [{"name": "a b"}]}),
    (422, {"client_tools": [{"name": "x" * 65}]}), (422, {"client_tools": [{"name": "t"}, {"name": "t"}]}),
    (422, {"client_tools": [{"name": "shell"}]}), (422, {"client_tools": [{"name": "read_file"}]}),
    (422, {"client_tools": [{"name": "t", "timeout_seconds": 3601}]}), (422, {"client_tools": [{"name": "t", "timeout_seconds": 0}]}),
    (422, {"client_tools": [{"name": "t", "deferrable": True, "timeout_seconds": 10}]}),
    (422, {"client_tools": [{"name": "t", "parameters": []}]}), (422, {"client_tools": "t"}),
    (422, {"secret_bindings": [{"secret": "a b", "env": "A"}]}), (422, {"secret_bindings": [{"secret": "s", "env": "1A"}]}),
    (422, {"secret_bindings": [{"secret": "s", "env": "A"}, {"secret": "t", "env": "A"}]}),
    (400, {"secret_bindings": [{"secret": "no-such", "env": "A"}]}), (400, {"subagents": [{"agent": "no-such"}]}),
    (400, {"slug": "self-ref", "subagents": [{"agent": "self-ref"}]}), (422, {"subagents": [{"agent": "x", "mode": "clone"}]}),
    (422, {"subagents": [{"agent": "x", "tool_name": "a b"}]}), (400, {"environment_id": str(uuid.uuid4())}), (400, {"environment_id": "x"}),
    (422, {"manifest": {"entries": {"../x": {"kind": "dir"}}}}), (422, {"manifest": {"entries": {"/x": {"kind": "dir"}}}}),
    (422, {"manifest": {"entries": {"a/../b": {"kind": "dir"}}}}), (422, {"manifest": {"entries": {"": {"kind": "dir"}}}}),
    (422, {"manifest": {"entries": {"a//b": {"kind": "dir"}}}}), (422, {"manifest": {"entries": {"a": {"kind": "teleport"}}}}),
    (422, {"manifest": {"entries": {"x" * 256: {"kind": "dir"}}}}), (422, {"manifest": {"entries": {"a": {"kind": "file"}}}}),
    (422, {"manifest": {"entries": {"a": "text"}}}), (422, {"manifest": {"entries": {"a": {}}}}), (422, {"manifest": []}),
    (422, {"manifest": {"environment": {"BAD NAME": "x"}}}), (422, {"manifest": {"environment": {"A=B": "x"}}}),
    (422, {"manifest": {"environment": {"A": 1}}}), (422, {"manifest": {"environment": {"A": "x" * 50000}}}),
    (422, {"manifest": {"entries": {"a": {**ENTRY, "repo": "--upload-pack=x"}}}}), (422, {"manifest": {"entries": {"a": {**ENTRY, "repo": "a/../b"}}}}),
    (422, {"manifest": {"entries": {"a": {**ENTRY, "repo": "../b"}}}}), (422, {"manifest": {"entries": {"a": {**ENTRY, "host": "-oX=y"}}}}),
    (422, {"manifest": {"entries": {"a": {**ENTRY, "ref": "--output=x"}}}}), (422, {"manifest": {"entries": {"a": {**ENTRY, "ref": "a b"}}}}),
    (422, {"manifest": {"entries": {"a": {**ENTRY, "subpath": "../../x"}}}}), (422, {"manifest": {"entries": {"a": {**ENTRY, "subpath": "-x"}}}}),
    (400, {"manifest": {"entries": {"a": {"kind": "local_dir", "src": "/etc"}}}}),
    (400, {"manifest": {"entries": {"a": {"kind": "s3_mount", "bucket": "b"}}}}),
    (422, {"manifest": {"entries": {"a": {"kind": "s3_mount", "bucket": "b", "read_only": False}}}}),
    (422, {"skills_source": {"kind": "bundle", "bundle": "b", "version": 0}}), (422, {"skills_source": {"kind": "bundle", "bundle": "b", "version": "newest"}}),
    (422, {"skills_source": {"kind": "bundle", "bundle": "B"}}), (400, {"skills_source": {"kind": "bundle", "bundle": "b", "version": 3}}),
    (400, {"skills_source": {"kind": "git_repo", "repo": "o/r", "ssh_key_id": str(uuid.uuid4())}}), (422, {"skills_source": {"kind": "ftp"}}),
    (400, {"skills_source": {"kind": "local_dir", "src": "/etc"}}), (400, {"workspace_source": {"kind": "same_as_skills"}}),
    (422, {"workspace_source": {"kind": "other"}}), (422, {"workspace_source": {"kind": "same_as_skills", "dest": "../x"}}),
], ids=lambda value: str(value)[:70])
def test_bad_definitions(api, make, status, bad):
    body = {"slug": unique("bad"), "name": "x", **bad}
    detail = refusals(api.post("/api/agents", json=body), status)
    if status == 422:
        assert detail[0]["loc"][:2] == ["body", next(n for n in reversed(bad))]
    refusals(api.get(f"/api/agents/{body['slug'] or 'nothing'}"), 404)
    if "slug" not in bad and "name" not in bad:
        a = make()
        refusals(api.patch(f"/api/agents/{a['id']}", json={"version": 1, **bad}), status)
        assert api.get(f"/api/agents/{a['id']}").json() == a


def test_body_before_references_before_state(api, make):
    a = make()
    refusals(api.post("/api/agents", json={"slug": a["slug"], "name": "", "subagents": [{"agent": "no-such"}]}), 422)
    refusals(api.post("/api/agents", json={"slug": a["slug"], "name": "x", "subagents": [{"agent": "no-such"}]}), 400)
    refusals(api.post("/api/agents", json={"slug": a["slug"], "name": "x"}), 409)
    refusals(api.patch(f"/api/agents/{a['id']}", json={"version": 9, "subagents": [{"agent": a["slug"]}]}), 400)


def test_a_workspace_source_keeps_its_skills(api, make):
    a = make(skills_source={"kind": "git_repo", "repo": "o/r"}, workspace_source={"kind": "same_as_skills"})
    assert a["workspace_source"]["dest"] == "pstack" and a["workspace_source"]["ensure_dirs"] == []
    refusals(api.patch(f"/api/agents/{a['id']}", json={"version": 1, "skills_source": None}), 400)
    b = api.patch(f"/api/agents/{a['id']}", json={"version": 1, "skills_source": None, "workspace_source": None}).json()
    assert b["skills_source"] is b["workspace_source"] is None


def test_unknown_keys_are_ignored(api, make):
    a = make(from_the_future={"x": 1})
    assert "from_the_future" not in a
    assert api.patch(f"/api/agents/{a['id']}", json={"version": 1, "slug": "other", "new": 1}).json()["slug"] == a["slug"]


def test_text_of_any_size_and_script(make, api):
    text = "0123456789 äöü \u2028\U0001f600\x01\t\n" * 20000
    a = make(instructions=text)
    assert api.get(f"/api/agents/{a['id']}").json()["instructions"] == text


def test_backends_and_models(client):
    assert [(b.name, b.default) for b in client.backends.list()] == [("native", True)]
    assert "builtin/shell" in {m.id for m in client.models.list()}
