"""Sessions: opened, listed, changed, stopped, started, deleted; messages."""
import asyncio
import threading
import time
import uuid

import pytest
from sandbox_agents import AsyncClient, ConflictError, NotFoundError

GONE = "00000000-0000-4000-8000-000000000000"


def refusal(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["detail"]


def test_create_answers_before_the_boot(api, client, agent):
    answer = api.post("/api/sessions", json={"agent_id": agent.slug, "title": "Ü", "metadata": {"n": 1, "deep": {"a": [1, None]}}})
    assert answer.status_code == 202
    s = answer.json()
    assert (s["status"], s["activity"], s["agent_id"], s["title"]) == ("provisioning", "idle", agent.id, "Ü")
    assert s["metadata"] == {"n": 1, "deep": {"a": [1, None]}} and s["usage"] == {} and s["exposed_ports"] == []
    assert s["error"] is s["stopped_reason"] is s["model"] is s["container_id"] is None
    up = client.sessions.wait_until_running(s["id"], timeout=60)
    assert up.status == "running" and up.workdir.startswith("/") and up.container_id
    events = list(client.sessions.history(s["id"]))
    assert [e.type for e in events] == ["session.created", "session.status_running"]
    assert events[0].payload == {"agent_id": agent.id, "agent": agent.slug, "title": "Ü", "from_snapshot_id": None}


def test_async_client(api, agent):
    async def go():
        async with AsyncClient(base_url=str(api.base_url), api_key=api.headers["Authorization"].removeprefix("Bearer ")) as client:
            s = await client.sessions.create_and_wait(agent.slug, timeout=60)
            assert (await client.sessions.exec(s.id, "echo $0")).exit_code == 0
            assert (await client.sessions.stop(s.id)).stopped_reason == "requested"
            assert (await client.sessions.start(s.id)).status == "running"
            await client.sessions.delete(s.id)
            with pytest.raises(NotFoundError):
                await client.sessions.get(s.id)

    asyncio.run(go())


@pytest.mark.parametrize("status,body", [
    (422, {}), (422, {"agent_id": None}), (422, {"agent_id": 7}), (404, {"agent_id": "no-such-agent"}), (404, {"agent_id": GONE}), (404, {"agent_id": ""}),
    (422, {"agent_id": "A", "title": None}), (422, {"agent_id": "A", "metadata": []}), (422, {"agent_id": "A", "metadata": "x"}),
    (422, {"agent_id": "A", "prompt": ""}), (422, {"agent_id": "A", "prompt": 7}), (422, {"agent_id": "A", "manifest": {"entries": {"/x": {"kind": "dir"}}}}),
    (400, {"agent_id": "A", "manifest": {"entries": {"x": {"kind": "local_dir", "src": "/"}}}}), (404, {"agent_id": "A", "from_snapshot_id": GONE}),
    (404, {"agent_id": "A", "environment_id": GONE}), (400, {"agent_id": "A", "secret_bindings": [{"secret": "no", "env": "E"}]}),
    (422, {"agent_id": "A", "secret_bindings": [{"secret": "a", "env": "E"}, {"secret": "b", "env": "E"}]}),
], ids=lambda value: str(value)[:60])
def test_bad_bodies(api, agent, status, body):
    refusal(api.post("/api/sessions", json={**body, "agent_id": agent.id} if body.get("agent_id") == "A" else body), status)
    assert api.get("/api/sessions", params={"agent_id": agent.id}).json() == []


def test_what_is_not_there(api, session):
    calls = [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/start"), ("POST", "/stop"), ("POST", "/interrupt"), ("POST", "/messages"),
             ("GET", "/events"), ("GET", "/files"), ("GET", "/files/content?path=x"), ("DELETE", "/files?path=x"), ("POST", "/exec")]
    bodies = {"/messages": {"prompt": "x"}, "/exec": {"command": "true"}, "": {"title": "x"}}
    for ref in (GONE, "not-an-id", "x" * 500):
        for method, rest in calls:
            body = bodies.get(rest) if method != "GET" and method != "DELETE" else None
            assert refusal(api.request(method, f"/api/sessions/{ref}{rest}", json=body), 404) == "session not found", (method, rest)


def test_what_is_not_there_goes_before_what_is_wrong(api):
    refusal(api.post(f"/api/sessions/{GONE}/exec", json={}), 404)
    refusal(api.post(f"/api/sessions/{GONE}/messages", json={"prompt": ""}), 404)
    refusal(api.patch(f"/api/sessions/{GONE}", json={"title": 7}), 404)
    refusal(api.get(f"/api/sessions/{GONE}/events", params={"limit": 0}), 404)
    refusal(api.patch("/api/agents/nothing", json={}), 404)


def test_another_projects_session_is_not_there(operator, session):
    other = operator.post("/api/projects", json={"name": f"x {uuid.uuid4().hex}"}).json()
    scoped = {"X-Project": other["id"]}
    try:
        for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("GET", "/events"), ("GET", "/files")):
            refusal(operator.request(method, f"/api/sessions/{session.id}{rest}", headers=scoped), 404)
        refusal(operator.post(f"/api/sessions/{session.id}/exec", json={"command": "true"}, headers=scoped), 404)
        refusal(operator.post("/api/sessions", json={"agent_id": session.agent_id}, headers=scoped), 404)
        assert operator.get("/api/sessions", params={"agent_id": session.agent_id}, headers=scoped).headers["X-Total-Count"] == "0"
    finally:
        operator.delete(f"/api/projects/{other['id']}")


def test_an_id_in_capitals_is_the_same(api, session):
    assert api.get(f"/api/sessions/{session.id.upper()}").json()["id"] == session.id
    assert api.post(f"/api/sessions/{session.id.upper()}/exec", json={"command": "echo x"}).json()["stdout"] == "x\n"


def test_pages(client, api, agent):
    made = [client.sessions.create(agent.id, title=f"n{i}").id for i in range(5)]
    page = client.sessions.list(agent_id=agent.slug, limit=2)
    assert [s.id for s in page] == made[::-1][:2] and page.total == 5 and page.next_offset == 2
    assert [s.id for s in client.sessions.iterate(agent_id=agent.id, page_size=2)] == made[::-1]
    past = api.get("/api/sessions", params={"agent_id": agent.id, "offset": 2**62})
    assert past.json() == [] and past.headers["X-Total-Count"] == "5"
    unknown = api.get("/api/sessions", params={"agent_id": "nobody"})
    assert unknown.json() == [] and unknown.headers["X-Total-Count"] == "0"
    for s in made:
        client.sessions.stop(s)
    assert client.sessions.list(agent_id=agent.id, status="stopped").total == 5
    assert client.sessions.list(agent_id=agent.id, status="running").total == 0


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"limit": "1e2"}, {"offset": -1}, {"offset": 2**64}, {"status": "nope"}, {"status": ""}])
def test_bad_queries(api, query):
    assert refusal(api.get("/api/sessions", params=query), 422)[0]["loc"] == ["query", next(iter(query))]


def test_metadata_is_merged(client, api, session):
    path = f"/api/sessions/{session.id}"
    api.patch(path, json={"metadata": {"a": 1, "b": {"x": None}}})
    assert api.patch(path, json={"metadata": {"b": None, "c": [1, None], "absent": None}}).json()["metadata"] == {"a": 1, "c": [1, None]}
    assert api.patch(path, json={"title": "t"}).json()["metadata"] == {"a": 1, "c": [1, None]}
    assert api.patch(path, json={}).json()["title"] == "t" and api.patch(path, json={"metadata": {}}).json()["metadata"] == {"a": 1, "c": [1, None]}
    refusal(api.patch(path, json={"title": None}), 422)
    refusal(api.patch(path, json={"metadata": 7}), 422)
    client.sessions.stop(session.id)
    assert api.patch(path, json={"title": "", "metadata": {"a": None}}).json()["metadata"] == {"c": [1, None]}


def test_parallel_merges_lose_nothing(client, session):
    threads = [threading.Thread(target=client.sessions.update, args=(session.id,), kwargs={"metadata": {f"k{i}": i}}) for i in range(12)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert client.sessions.get(session.id).metadata == {f"k{i}": i for i in range(12)}


def test_detail(client, session):
    run = client.sessions.send(session.id, "$ echo hello")
    client.sessions.wait_for_run(session.id, run_id=run.id)
    second = client.sessions.run(session.id, "$ echo again")
    d = client.sessions.get(session.id)
    assert d.agent.id == session.agent_id and [r.id for r in d.runs] == [run.id, second.run_id]
    assert d.runs[0].status == "completed" and d.runs[0].prompt == "$ echo hello" and d.runs[0].finished_at
    assert d.sandbox_seconds > 0 and d.last_event_at
    time.sleep(0.5)
    assert client.sessions.get(session.id).sandbox_seconds >= d.sandbox_seconds + 0.4
    client.sessions.stop(session.id)
    a = client.sessions.get(session.id).sandbox_seconds
    time.sleep(0.5)
    assert client.sessions.get(session.id).sandbox_seconds == a


def test_stop_and_start(client, session):
    client.sessions.exec(session.id, "echo kept > kept").check()
    stopped = client.sessions.stop(session.id)
    assert (stopped.status, stopped.stopped_reason, stopped.container_id) == ("stopped", "requested", None)
    assert client.sessions.stop(session.id).status == "stopped"
    with pytest.raises(ConflictError):
        client.sessions.send(session.id, "x")
    assert client.sessions.get(session.id).runs == []
    started = client.sessions.start(session.id)
    assert (started.status, started.stopped_reason) == ("running", None)
    seq = client.sessions.events(session.id)[-1].seq
    assert client.sessions.start(session.id).status == "running" and client.sessions.events(session.id, after=seq) == []
    assert client.sessions.read_text(session.id, "kept") == "kept\n"


def test_a_first_prompt_waits_for_the_boot(client, agent):
    s = client.sessions.create(agent.id, prompt="$ echo from-the-first-turn")
    assert len(client.sessions.get(s.id).runs) == 1
    done = client.sessions.wait_for_run(s.id, timeout=60)
    assert done.ok and "from-the-first-turn" in done.text
    types = [e.type for e in client.sessions.history(s.id)]
    assert types[0] == "session.created" and types.index("session.status_running") < types.index("agent.tool_use")


def test_one_turn_at_a_time_and_interrupt(client, api, session):
    run = api.post(f"/api/sessions/{session.id}/messages", json={"prompt": "$ sleep 30"})
    assert run.status_code == 202 and run.json()["status"] == "running" and run.json()["session_id"] == session.id
    refusal(api.post(f"/api/sessions/{session.id}/messages", json={"prompt": "$ true"}), 409)
    assert client.sessions.get(session.id).activity == "busy"
    interrupted = client.sessions.interrupt(session.id)
    assert interrupted.activity == "idle" and interrupted.status == "running"
    assert client.sessions.get(session.id).runs[0].status == "cancelled"
    assert client.sessions.interrupt(session.id).status == "running", "without a turn it changes nothing"
    assert client.sessions.run(session.id, "$ echo after").ok


@pytest.mark.parametrize("body", [{}, {"prompt": ""}, {"prompt": None}, {"prompt": ["x"]}, {"prompt": "x", "max_turns": 0}, {"prompt": "x", "max_turns": 10001},
                                  {"prompt": "x", "max_turns": "5"}, {"prompt": "x", "client_tools": [{"name": "shell"}]},
                                  {"prompt": "x", "client_tools": [{"name": "t"}, {"name": "t"}]}, {"prompt": "x\u0000"}], ids=str)
def test_bad_messages(api, session, body):
    refusal(api.post(f"/api/sessions/{session.id}/messages", json=body), 422)
    assert api.get(f"/api/sessions/{session.id}").json()["runs"] == []


def test_delete_while_a_turn_runs(client, session):
    client.sessions.send(session.id, "$ sleep 30")
    client.sessions.delete(session.id)
    for call in (client.sessions.get, client.sessions.events, client.sessions.delete, client.sessions.list_files):
        with pytest.raises(NotFoundError):
            call(session.id)


def test_an_agent_with_sessions_is_not_deleted(client, session):
    with pytest.raises(ConflictError):
        client.agents.delete(session.agent_id)
