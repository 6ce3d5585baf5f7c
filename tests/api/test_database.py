"""The database goes away for a while: what needs it says so, and afterwards all goes on by itself."""
import os
import signal
import threading
import time

import pytest
from programs import wait_for


@pytest.fixture
def outage(server):
    """Take PostgreSQL down, and let it come back when called again."""
    script = server.process.pid
    hidden = []

    def down():
        os.kill(script, signal.SIGSTOP) # it would start it again at once
        hidden.append(server.kill("postgres", signal.SIGINT))
        wait_for("PostgreSQL to end", lambda: open(f"/proc/{hidden[0]}/stat").read().rsplit(")", 1)[1].split()[0] == "Z")

    def up():
        os.kill(script, signal.SIGCONT)
        server.replaced("postgres", hidden[0])

    yield down, up
    os.kill(script, signal.SIGCONT)


@pytest.mark.slow
def test_a_turn_outlives_a_database_that_was_away_longer_than_it_could_wait(api, server, session, outage):
    down, up = outage
    run = api.post(f"/api/sessions/{session.id}/messages", json={"prompt": "$ sleep 2; echo it-is-$((40 + 2))"}).expect(202)
    tool_use = lambda: [e for e in api.get(f"/api/sessions/{session.id}/events").expect(200) if e["type"] == "agent.tool_use"]
    wait_for("the command to begin", tool_use)
    answers = []
    command = threading.Thread(target=lambda: answers.append(api.post(f"/api/sessions/{session.id}/exec", json={"command": "sleep 3; echo done"})))
    command.start()
    time.sleep(0.5)
    down()
    answer = api.get("/api/agents")
    assert answer.expect(503)["detail"] and float(answer.headers["retry-after"]) > 0
    api.get("/healthz").expect(200)
    api.get("/readyz").expect(503)
    command.join(20)
    assert answers[0].expect(200)["stdout"] == "done\n" # it was run, so nobody may be told that it was not
    time.sleep(7) # the turn tries for 5 s to write that the command has ended
    up()
    wait_for("readiness", lambda: api.get("/readyz").status_code == 200)
    ended = lambda: [r for r in api.get(f"/api/sessions/{session.id}").expect(200)["runs"] if r["id"] == run["id"] and r["status"] != "running"]
    assert wait_for("the end of the turn", ended, 60)[0]["status"] == "completed"
    events = [e for e in api.get(f"/api/sessions/{session.id}/events").expect(200) if e["run_id"] == run["id"]]
    assert [e["type"] for e in events].count("session.status_idle") == 1 and events[-1]["type"] == "session.status_idle"
    api.post(f"/api/sessions/{session.id}/messages", json={"prompt": "hello"}).expect(202)
