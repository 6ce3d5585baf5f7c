"""Sandboxes of sessions: boot, start, stop, idle release, delete, and what is found again after something died."""
import os
import signal
import threading
import time

import pytest
from model_server import call, silence, text
from programs import wait_for
from sandbox_agents import Client, ConflictError, NotFoundError, RunFailedError

NOWHERE = {"entries": {"src": {"kind": "git_repo", "repo": "no/where", "host": "git.invalid"}}}


@pytest.fixture
def make_agent(make_agent):
    return lambda **definition: make_agent(**{"model": "scripted", **definition})


def kill_runners(server):
    killed = server.pids("runner")
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_for("other runners", lambda: len(set(server.pids("runner")) - set(killed)) == len(killed))


def types(client, session_id):
    return [e.type for e in client.sessions.history(session_id)]


# --- boot ------------------------------------------------------------------------------------------------------------


def test_the_manifest_is_written_at_the_first_boot_only(client, make_session):
    session = make_session(definition={"manifest": {"entries": {
        "a/b/file": {"kind": "file", "content": "ü\n"}, "a": {"kind": "dir"}, "empty": {"kind": "dir"}, "none": {"kind": "file", "content": ""}}}})
    assert client.sessions.read_text(session.id, "a/b/file") == "ü\n"
    out = client.sessions.exec(session.id, "stat -c '%F %a' empty none; echo new >a/b/file; rm none").check().stdout
    assert out.splitlines()[0].startswith("directory") and out.splitlines()[1] == "regular empty file 644"
    client.sessions.stop(session.id)
    client.sessions.start(session.id)
    assert client.sessions.exec(session.id, "cat a/b/file; ls").check().stdout.split() == ["new", "a", "empty"]


def test_an_entry_that_is_in_the_way_of_another_fails_the_boot(client, make_agent):
    agent = make_agent(manifest={"entries": {"x": {"kind": "file", "content": ""}, "x/y": {"kind": "file", "content": ""}}})
    session = client.sessions.create(agent.id)
    with pytest.raises(RunFailedError) as info:
        client.sessions.wait_until_running(session.id, timeout=60)
    assert "manifest entry 'x/y'" in str(info.value)


@pytest.mark.parametrize("image", ["no-such-image", "img:1", "../../etc", "Ü"])
def test_an_image_that_is_not_there_fails_the_boot_once(client, make_agent, image):
    began = time.monotonic()
    session = client.sessions.create(make_agent(image=image).id)
    with pytest.raises(RunFailedError):
        client.sessions.wait_until_running(session.id, timeout=60)
    row = client.sessions.get(session.id)
    assert row.status == "error" and row.error == f"there is no image '{image}'"
    assert time.monotonic() - began < 5 and types(client, session.id).count("session.status_error") == 1


def test_a_boot_that_fails_can_be_repaired(client, make_agent):
    agent = make_agent(manifest=NOWHERE)
    session = client.sessions.create(agent.id)
    with pytest.raises(RunFailedError):
        client.sessions.wait_until_running(session.id, timeout=60)
    row = client.sessions.get(session.id)
    assert row.status == "error" and "git.invalid/no/where" in row.error
    end, = [e for e in client.sessions.history(session.id) if e.type == "session.status_error"]
    assert end.run_id is None and end.payload["error"] == row.error and end.payload["run_status"] == "failed"
    with pytest.raises(ConflictError):
        client.sessions.send(session.id, "x")
    assert client.sessions.start(session.id).status == "error", "start answers how it went"
    client.agents.update(agent.id, version=agent.version, manifest={"entries": {"ok": {"kind": "file", "content": "fine"}}})
    assert client.sessions.start(session.id).status == "running"
    assert client.sessions.get(session.id).error is None and client.sessions.read_text(session.id, "ok") == "fine"


def test_a_boot_that_fails_takes_its_first_run_along(client, make_agent):
    session = client.sessions.create(make_agent(manifest=NOWHERE).id, prompt="never")
    wait_for("the end", lambda: client.sessions.get(session.id).status == "error")
    row = client.sessions.get(session.id)
    assert row.activity == "idle" and row.runs[0].status == "failed" and row.runs[0].error == row.error
    end, = [e for e in client.sessions.history(session.id) if e.type == "session.status_error"]
    assert end.run_id == row.runs[0].id


def test_a_first_run_waits_for_the_boot(client, make_agent, model):
    session = client.sessions.create(make_agent().id, prompt=model.script("[first]", [call("shell", command="echo early"), text("done")]))
    assert client.sessions.wait_for_run(session.id, timeout=60).text == "done"
    seen = types(client, session.id)
    assert seen[:2] == ["session.created", "user.message"] and seen.index("session.status_running") < seen.index("agent.tool_use")


# --- stop and start --------------------------------------------------------------------------------------------------


def test_stop_ends_the_turn_first(client, session, model):
    run = client.sessions.send(session.id, model.script("[stopped]", [silence()]))
    stopped = client.sessions.stop(session.id)
    assert (stopped.status, stopped.stopped_reason) == ("stopped", "requested")
    assert types(client, session.id)[-2:] == ["session.status_idle", "session.status_stopped"]
    assert client.sessions.get(session.id).runs[0].status == "cancelled"
    assert client.sessions.wait_for_run(session.id, run_id=run.id).cancelled
    with pytest.raises(ConflictError):
        client.sessions.send(session.id, "x")


def test_time_counts_while_it_is_up(client, session):
    time.sleep(1.1)
    assert client.sessions.get(session.id).sandbox_seconds > 1
    client.sessions.stop(session.id)
    then = client.sessions.get(session.id).sandbox_seconds
    time.sleep(0.5)
    assert client.sessions.get(session.id).sandbox_seconds == then
    client.sessions.start(session.id)
    assert client.sessions.get(session.id).sandbox_seconds > then


def test_processes_end_with_a_stop(client, session):
    client.sessions.exec(session.id, "date >ticks; (while :; do date >>ticks; sleep 0.05; done) >/dev/null 2>&1 &").check()
    client.sessions.stop(session.id)
    before = client.sessions.read_file(session.id, "ticks")
    time.sleep(0.3)
    assert client.sessions.read_file(session.id, "ticks") == before


def test_stop_while_it_boots(client, make_agent):
    agent = make_agent()
    for _ in range(5):
        session = client.sessions.create(agent.id)
        assert client.sessions.stop(session.id).status == "stopped"
    time.sleep(1)
    for session in client.sessions.list(agent_id=agent.id):
        assert session.status == "stopped", "the boot went on after the stop"
        assert client.sessions.start(session.id).status == "running"
        assert client.sessions.exec(session.id, "echo ok").stdout == "ok\n"


def test_starts_at_once_make_one_sandbox(client, session):
    client.sessions.stop(session.id)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(client.sessions.start(session.id).status)) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert answers == ["running"] * 8 and types(client, session.id).count("session.status_running") == 2


def test_stops_and_starts_at_once_end_in_one_state(client, session):
    client.sessions.exec(session.id, "echo kept >kept").check()
    errors = []

    def go(act):
        try:
            act(session.id)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=go, args=(act,)) for act in [client.sessions.stop, client.sessions.start] * 6]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors
    row = client.sessions.get(session.id)
    assert row.status in ("running", "stopped")
    if row.status == "running":
        assert client.sessions.exec(session.id, "cat kept").stdout == "kept\n", "the row says that it runs"
    seen = [t for t in types(client, session.id) if t.startswith("session.status_")]
    assert ("session.status_running",) * 2 not in zip(seen, seen[1:], strict=False), "a running session was booted"
    client.sessions.start(session.id)
    assert client.sessions.read_text(session.id, "kept") == "kept\n"


# --- idle ------------------------------------------------------------------------------------------------------------


def test_idle_release_and_wake(client, make_session, model):
    session = make_session(definition={"idle_ttl_seconds": 1})
    client.sessions.exec(session.id, "echo before >note").check()
    wait_for("sleep", lambda: client.sessions.get(session.id).is_asleep, 15)
    assert client.sessions.read_text(session.id, "note") == "before\n" and client.sessions.get(session.id).is_asleep
    r = client.sessions.run(session.id, model.script("[woken]", [call("shell", command="cat note"), text("good morning")]))
    assert r.text == "good morning"
    assert [e.payload["reason"] for e in client.sessions.history(session.id) if e.type == "session.status_stopped"][0] == "idle"
    wait_for("sleep again", lambda: client.sessions.get(session.id).is_asleep, 15)
    stopped = client.sessions.stop(session.id)
    assert stopped.stopped_reason == "requested" and not stopped.is_asleep
    with pytest.raises(ConflictError):
        client.sessions.send(session.id, "x")


def test_a_busy_session_does_not_sleep(client, make_session, model):
    session = make_session(definition={"idle_ttl_seconds": 1})
    r = client.sessions.run(session.id, model.script("[busy]", [call("shell", command="sleep 6; echo slept"), text("x")]))
    assert r.ok
    assert "session.status_stopped" not in types(client, session.id)[:-1]


# --- delete ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["running", "provisioning", "stopped", "busy", "error"])
def test_delete_in_any_state(client, server, make_agent, model, how):
    agent = make_agent(**({"manifest": NOWHERE} if how == "error" else {}))
    session = client.sessions.create(agent.id)
    if how not in ("provisioning", "error"):
        client.sessions.wait_until_running(session.id, timeout=60)
    if how == "error":
        wait_for("the failure", lambda: client.sessions.get(session.id).status == "error")
    if how == "stopped":
        client.sessions.stop(session.id)
    if how == "busy":
        client.sessions.send(session.id, model.script("[deleted]", [silence()]))
    client.sessions.delete(session.id)
    with pytest.raises(NotFoundError):
        client.sessions.get(session.id)
    time.sleep(0.5)
    left = [str(path) for path in (server.state / "supervisor").rglob(f"*{session.id}*")]
    assert not left, left


def test_streams_end_with_the_session(client, session):
    seen = []

    def follow():
        try:
            for event in client.sessions.stream(session.id):
                seen.append(event.type)
        except NotFoundError:
            seen.append("gone")

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    wait_for("the stream", lambda: "session.status_running" in seen)
    client.sessions.delete(session.id)
    thread.join(30)
    assert seen[-1] == "gone"


# --- what died -------------------------------------------------------------------------------------------------------


def test_a_session_outlives_the_supervisor(client, server, session, model):
    """Its sandbox goes on, and so does its turn: the call that was cut off is a failed call."""
    client.sessions.exec(session.id, "echo kept >kept; (while :; do date >ticks; sleep 0.1; done) >/dev/null 2>&1 &").check()
    run = client.sessions.send(session.id, model.script("[supervisor]", [
        call("shell", command="touch begun; sleep 20"), call("shell", command="cat kept"), text("went on")]))
    wait_for("the command", lambda: client.sessions.exec(session.id, "test -e begun").exit_code == 0)
    server.replaced("supervisor", server.kill("supervisor"))
    assert client.sessions.wait_for_run(session.id, run_id=run.id, timeout=60).text == "went on"
    cut, after = [e.payload for e in client.sessions.history(session.id) if e.type == "agent.tool_result"]
    assert cut["is_error"] and after["output"] == "kept\n"
    before = client.sessions.read_text(session.id, "ticks")
    wait_for("the processes of before", lambda: client.sessions.read_text(session.id, "ticks") != before, 5)


def test_boots_outlive_their_runner(client, server, make_agent):
    agent = make_agent()
    made = [client.sessions.create(agent.id) for _ in range(3)]
    kill_runners(server)
    made += [client.sessions.create(agent.id) for _ in range(3)]
    for session in made:
        assert client.sessions.wait_until_running(session.id, timeout=60).status == "running"
        assert client.sessions.exec(session.id, "echo up").stdout == "up\n"


def test_a_network_that_the_machine_does_not_give_fails_the_boot(start_server):
    server = start_server(SANDBOX_NETWORK="egress")
    with Client(base_url=server.url, api_key=server.api_key) as client:
        session = client.sessions.create(client.agents.create(slug="out", name="out").id)
        with pytest.raises(RunFailedError):
            client.sessions.wait_until_running(session.id, timeout=60)
        assert "EGRESS is off" in client.sessions.get(session.id).error
