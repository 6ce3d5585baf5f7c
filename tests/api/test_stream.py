"""Following a session's log: frames, cursors, many followers, slow ones, ends."""
import json
import socket
import threading
import time

import httpx
import pytest


def path(session):
    return f"/api/sessions/{session.id}/events/stream"


def frames(lines, until, seconds=60):
    """Frames as dictionaries, until one satisfies `until`."""
    out, current, end = [], {}, time.monotonic() + seconds
    for line in lines:
        if line == "":
            if current:
                out.append(current)
                if until(current):
                    return out
                current = {}
        elif line.startswith(":"):
            current["comment"] = line
        else:
            name, _, value = line.partition(": ")
            current[name] = value
        assert time.monotonic() < end, f"not within {seconds} s; last frames: {out[-3:]}"
    raise AssertionError(f"the stream ended; last frames: {out[-3:]}")


def event(frame):
    return json.loads(frame["data"]) if "data" in frame else {}


def has_type(name):
    return lambda frame: event(frame).get("type") == name


def log_of(api, session):
    return api.get(f"/api/sessions/{session.id}/events", params={"limit": 1000}).json()


def test_frames_equal_the_log(api, client, session):
    client.sessions.run(session.id, "$ echo one")
    with api.stream("GET", path(session)) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "no-cache" in response.headers["cache-control"]
        assert "content-length" not in response.headers
        got = frames(response.iter_lines(), has_type("session.status_idle"))
    stored = [f for f in got if event(f)["seq"]]
    assert [event(f) for f in stored] == log_of(api, session)
    assert all(f["id"] == str(event(f)["seq"]) for f in stored)


def test_a_cursor_begins_behind_it(api, client, session):
    client.sessions.run(session.id, "$ true")
    seqs = [e["seq"] for e in log_of(api, session)]

    def first(params=None, headers=None):
        with api.stream("GET", path(session), params=params, headers=headers) as response:
            return event(frames(response.iter_lines(), lambda f: "data" in f)[-1])["seq"]

    assert first() == seqs[0]
    assert first({"after": seqs[1]}) == seqs[2]
    assert first(headers={"Last-Event-ID": str(seqs[1])}) == seqs[2]
    assert first({"after": seqs[0]}, {"Last-Event-ID": str(seqs[2])}) == seqs[3]
    assert first(headers={"Last-Event-ID": "not-ours"}) == seqs[0]


@pytest.mark.parametrize("after", ["x", "-1", "1.5", str(2**64)])
def test_a_bad_cursor_is_refused(api, session, after):
    assert api.get(path(session), params={"after": after}).status_code == 422


def test_deltas_come_before_their_message(api, client, session):
    got = []

    def follow():
        with api.stream("GET", path(session)) as response:
            got.extend(frames(response.iter_lines(), has_type("session.status_idle")))

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(0.5)
    client.sessions.send(session.id, "$ echo a; echo b; echo c")
    thread.join(60)
    types = [event(f)["type"] for f in got]
    deltas = [event(f) for f in got if event(f)["type"] == "agent.text_delta"]
    message = next(event(f) for f in got if event(f)["type"] == "agent.message")
    assert deltas and all(d["seq"] == 0 for d in deltas)
    assert "".join(d["payload"]["text"] for d in deltas) == message["payload"]["text"]
    assert max(i for i, t in enumerate(types) if t == "agent.text_delta") < types.index("agent.message")
    assert not [e for e in log_of(api, session) if e["type"] == "agent.text_delta"]


def test_followers_that_join_at_any_moment_see_the_same_log(api, client, session):
    run = client.sessions.send(session.id, "\n".join(f"```sh\nsleep 0.1; echo {i}\n```" for i in range(12)))
    got, threads = {}, []

    def follow(i):
        with api.stream("GET", path(session)) as response:
            ended = frames(response.iter_lines(), has_type("session.status_idle"))
            got[i] = [event(f)["seq"] for f in ended if event(f)["seq"]]

    for i in range(15):
        threads.append(threading.Thread(target=follow, args=(i,)))
        threads[-1].start()
        time.sleep(0.1)
    for thread in threads:
        thread.join(90)
    assert client.sessions.wait_for_run(session.id, run_id=run.id).ok
    seqs = [e["seq"] for e in log_of(api, session)]
    assert len(got) == 15 and all(value == seqs for value in got.values())


def test_a_quiet_stream_says_that_it_is_alive(api, session):
    with api.stream("GET", path(session), params={"after": 10**9}, timeout=40) as response:
        begin = time.monotonic()
        frames(response.iter_lines(), lambda f: f.get("comment") == ": ping", seconds=25)
        assert 10 < time.monotonic() - begin < 20


def test_a_reader_that_does_not_read_harms_nobody(server, api, client, session):
    with socket.create_connection((server.host, server.port)) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.sendall(f"GET {path(session)} HTTP/1.1\r\nHost: {server.host}\r\n"
                        f"Authorization: Bearer {server.api_key}\r\n\r\n".encode())
        for _ in range(3):
            result = client.sessions.run(session.id, "$ head -c 60000 /dev/zero | tr '\\0' x")
            assert result.ok
        assert client.sessions.run(session.id, "$ echo fine").ok


def test_a_deleted_session_ends_its_streams(api, client, agent):
    session = client.sessions.create_and_wait(agent.id)
    ended = threading.Event()

    def follow():
        with api.stream("GET", path(session)) as response:
            for _ in response.iter_lines():
                pass
        ended.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    time.sleep(0.5)
    client.sessions.delete(session.id)
    assert ended.wait(20), "the stream outlived its session"
    assert api.get(path(session)).status_code == 404


def test_a_revoked_key_loses_its_streams(server, operator, client, session):
    made = operator.post("/api/api-keys", json={"name": "to revoke"}).json()
    with httpx.stream("GET", server.url + path(session), timeout=40,
                      headers={"Authorization": f"Bearer {made['key']}"}) as response:
        assert response.status_code == 200
        operator.post(f"/api/api-keys/{made['id']}/revoke")
        end = time.monotonic() + 30
        for _ in response.iter_raw():
            assert time.monotonic() < end, "the stream outlived its key"


def test_followers_resume_after_the_streamer_was_killed(server, api, client, session):
    """A follower cut in the middle comes back with its cursor: each event once, in order."""
    run = client.sessions.send(session.id, "\n".join(f"```sh\nsleep 0.2; echo {i}\n```" for i in range(15)))
    seen = []
    killed = False
    for e in client.sessions.stream(session.id, max_reconnects=30):
        if e.seq:
            seen.append(e.seq)
        if len(seen) == 6 and not killed:
            killed = True
            server.kill("streamer")
        if e.type in ("session.status_idle", "session.status_error") and e.run_id == run.id:
            break
    assert killed and seen == [e["seq"] for e in log_of(api, session)]
