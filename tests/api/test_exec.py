"""One shell command, and the truth about how it ended."""
import base64
import threading
import time

import httpx
import pytest


def run(api, session, command, **body):
    answer = api.post(f"/api/sessions/{session.id}/exec", json={"command": command, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("command,code,signal", [
    ("true", 0, None), ("exit 255", 255, None), ("no-such-command", 127, None), ("./", 126, None), ("kill -9 $$", 137, 9), ("kill -TERM $$", 143, 15),
    ("sh -c 'kill -9 $$'; exit $?", 137, None), ("(exit 5) | true", 0, None),
])
def test_how_it_ended(api, session, command, code, signal):
    got = run(api, session, command)
    assert (got["exit_code"], got["signal"]) == (code, signal) and got["timed_out"] is got["oom_killed"] is False


FIELDS = {"exit_code", "signal", "timed_out", "oom_killed", "duration_ms", "stdout_bytes", "stderr_bytes", "stdout_truncated", "stderr_truncated"}


def test_every_field(api, session):
    got = run(api, session, "printf out; printf error >&2; sleep 0.2")
    assert (got["stdout"], got["stderr"], got["stdout_bytes"], got["stderr_bytes"]) == ("out", "error", 3, 5)
    assert got["stdout_truncated"] is got["stderr_truncated"] is False and 200 <= got["duration_ms"] < 5000
    assert set(got) == {"stdout", "stderr"} | FIELDS


def test_answers_events_and_metrics_share_their_words(server, api, client, session, make_session, stranger):
    key = (server.state / "secrets" / "METRICS_API_KEY").read_text().strip()

    def samples():
        text = stranger.get("/metrics", headers={"Authorization": f"Bearer {key}"}).text
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("exec_")}

    before = samples()
    got = run(api, session, "printf abc; exit 3")
    run(api, session, "kill -9 $$")
    run(api, session, "head -c 17000000 /dev/zero >&2", timeout=20)
    assert run(api, session, "sleep 60", timeout=0.2)["timed_out"]
    after = {name: value - before.get(name, 0) for name, value in samples().items()}
    assert {end: after[f'exec_total{{end="{end}"}}'] for end in ("exited", "signal", "timed_out")} == {"exited": 2, "signal": 1, "timed_out": 1}
    assert (after["exec_stdout_bytes_total"], after["exec_stderr_bytes_total"]) == (3, 17_000_000)
    assert (after["exec_stdout_truncated_total"], after["exec_stderr_truncated_total"], after["exec_duration_seconds_count"]) == (0, 1, 4)
    shell = make_session(definition={"model": "builtin/shell"})
    client.sessions.run(shell.id, "$ printf abc; exit 3")
    payload = [e.payload for e in client.sessions.history(shell.id) if e.type == "agent.tool_result"][-1]
    assert set(payload) == {"tool", "call_id", "output", "is_error"} | FIELDS
    assert {k: v for k, v in payload.items() if k in FIELDS - {"duration_ms"}} == {k: v for k, v in got.items() if k in FIELDS - {"duration_ms"}}


def test_a_lack_of_memory_is_told(api, session):
    got = run(api, session, "exec dd if=/dev/zero of=/dev/null bs=3000M count=1")
    assert (got["exit_code"], got["signal"], got["oom_killed"], got["timed_out"]) == (137, 9, True, False)
    assert run(api, session, "echo usable")["stdout"] == "usable\n"


def test_timeout(api, session):
    start = time.monotonic()
    got = run(api, session, "echo before; sleep 60", timeout=0.5)
    assert time.monotonic() - start < 3
    assert (got["exit_code"], got["timed_out"], got["stdout"], got["signal"]) == (124, True, "before\n", None)
    assert run(api, session, "echo usable", timeout=None)["stdout"] == "usable\n"


@pytest.mark.parametrize("body", [{}, {"command": None}, {"command": 7}, {"command": ["ls"]}, {"command": ""}, {"command": "x\u0000y"}, {"command": "x" * 200_000},
                                  {"command": "x", "timeout": 0}, {"command": "x", "timeout": -1}, {"command": "x", "timeout": 3600.1},
                                  {"command": "x", "timeout": "60"}, {"command": "x", "timeout": 1e300}, {"command": "x", "output_encoding": "latin"}], ids=lambda b: str(b)[:50])
def test_bad_bodies(api, session, body):
    answer = api.post(f"/api/sessions/{session.id}/exec", json=body)
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"][0] == "body"


def test_where_and_with_what(api, client):
    a = client.agents.create(slug=f"exec-{time.time_ns()}", name="n", manifest={"entries": {}, "environment": {"WHO": "a'b \"c\" ü", "LANG": "C"}})
    s = client.sessions.create_and_wait(a.id, timeout=60)
    try:
        got = run(api, s, "pwd; echo \"$WHO\"; echo $LANG $HOME $USER; command -v sh; cat; test -t 0 || echo no-terminal")
        assert got["stdout"].splitlines() == [s.workdir, "a'b \"c\" ü", "C /root root", "/usr/bin/sh", "no-terminal"]
        own = client.sessions.create_and_wait(a.id, timeout=60, manifest={"entries": {}, "environment": {"OTHER": "1"}})
        assert run(api, own, "echo [$WHO$OTHER]")["stdout"] == "[1]\n"
        client.sessions.delete(own.id)
    finally:
        client.sessions.delete(s.id)
        client.agents.delete(a.id)


def test_a_flood_is_cut_and_counted(api, session):
    got = run(api, session, "head -c 40000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert (got["exit_code"], got["stderr"], got["stdout_bytes"], got["stdout_truncated"]) == (0, "end\n", 40_000_000, True)
    assert len(got["stdout"]) == 16 << 20 and got["stderr_truncated"] is False


def test_both_streams_at_once(api, session):
    got = run(api, session, "for i in 1 2 3 4; do head -c 500000 /dev/zero | tr '\\0' o; head -c 500000 /dev/zero | tr '\\0' e >&2; done")
    assert len(got["stdout"]) == len(got["stderr"]) == 2_000_000


def test_bytes_that_are_no_text(api, session):
    command = "printf 'a\\377\\376b\\300\\200c\\355\\240\\200d\\000e\\303'"
    got = run(api, session, command)["stdout"]
    assert got[0] == "a" and got.endswith("d\x00e\ufffd") and "\ufffd" in got and got.encode()
    assert base64.b64decode(run(api, session, command, output_encoding="base64")["stdout"]) == b"a\xff\xfeb\xc0\x80c\xed\xa0\x80d\x00e\xc3"


def test_a_cut_does_not_halve_a_character(api, session):
    got = run(api, session, "yes 'aü€😀' | head -c 17000000")
    assert got["stdout_truncated"] and set(got["stdout"]) <= set("aü€😀\n\ufffd") and got["stdout"].count("\ufffd") <= 1


def test_background_children_do_not_hold_the_answer(api, session):
    start = time.monotonic()
    assert run(api, session, "sleep 45 & echo started")["stdout"] == "started\n"
    assert time.monotonic() - start < 10
    assert run(api, session, "pgrep -x sleep || ps | grep -c '[s]leep'")["stdout"].strip() != "0"


def test_side_by_side(api, session):
    got, start = {}, time.monotonic()
    threads = [threading.Thread(target=lambda i=i: got.update({i: run(api, session, f"sleep 1; echo {i}")["stdout"]})) for i in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert time.monotonic() - start < 8 and got == {i: f"{i}\n" for i in range(16)}


def test_a_caller_that_goes_ends_its_command(api, session):
    with pytest.raises(httpx.TimeoutException):
        api.post(f"/api/sessions/{session.id}/exec", json={"command": "sleep 4321"}, timeout=1)
    for _ in range(50):
        if run(api, session, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 432[1]'")["stdout"] == "0\n":
            return
        time.sleep(0.1)
    pytest.fail("the command outlived its caller")


def test_variables_are_those_of_the_last_boot(client, make_agent, make_session):
    agent = make_agent(manifest={"environment": {"MODE": "old"}})
    session = make_session(agent)
    client.agents.update(agent.id, version=agent.version, manifest={"environment": {"MODE": "new"}})
    assert client.sessions.exec(session.id, "echo $MODE").stdout == "old\n"
    client.sessions.stop(session.id)
    client.sessions.start(session.id)
    assert client.sessions.exec(session.id, "echo $MODE").stdout == "new\n"
