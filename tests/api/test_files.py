"""Files of the workspace."""
import json
import os
import time

import pytest
from sandbox_agents import ConflictError


def names(client, session, path="."):
    return [e.path for e in client.sessions.list_files(session.id, path)]


def refused(api, session, path, status=400):
    base = f"/api/sessions/{session.id}/files"
    for answer in (api.get(base, params={"path": path}), api.get(f"{base}/content", params={"path": path}),
                   api.delete(base, params={"path": path}), api.post(base, params={"path": path}, files={"file": ("f", b"x")})):
        assert answer.status_code in (status, 422), (answer.request.method, answer.status_code, answer.text)
        assert answer.json()["detail"]


def test_round_trip(api, client, session):
    data = os.urandom(300_000)
    up = client.sessions.upload_file(session.id, data, path="deep/er/blob")
    assert (up.path, up.size) == ("deep/er/blob", len(data))
    assert client.sessions.read_file(session.id, "deep/er/blob") == data
    answer = api.get(f"/api/sessions/{session.id}/files/content", params={"path": "deep/er/blob"})
    assert answer.headers["content-type"] == "application/octet-stream" and answer.headers["content-length"] == str(len(data))
    assert client.sessions.exec(session.id, "stat -c %a:%U deep/er/blob").stdout == "644:root\n"
    event = [e for e in client.sessions.history(session.id) if e.type == "user.file"][-1]
    assert event.payload == {"path": "deep/er/blob", "size": len(data)} and event.run_id is None


def test_an_empty_file(client, session):
    assert client.sessions.upload_file(session.id, b"", path="empty").size == 0
    assert client.sessions.read_file(session.id, "empty") == b""
    assert [(e.path, e.size) for e in client.sessions.list_files(session.id, "empty")] == [("empty", 0)]


def test_an_upload_without_a_path_lands_in_uploads(api, client, session):
    assert client.sessions.upload_file(session.id, b"1", filename="ü b.txt").path == "uploads/ü b.txt"
    answer = api.post(f"/api/sessions/{session.id}/files", files={"file": ("../../etc/passwd", b"2")})
    assert answer.status_code == 201 and answer.json() == {"path": "uploads/passwd", "size": 1}
    for name in ("..", "."):
        assert api.post(f"/api/sessions/{session.id}/files", files={"file": (name, b"x")}).status_code == 400


def test_an_upload_replaces_atomically(client, session):
    client.sessions.upload_file(session.id, b"first version", path="f")
    assert client.sessions.exec(session.id, "exec 3< f; cat f").stdout == "first version"
    client.sessions.upload_file(session.id, b"2", path="f")
    assert client.sessions.read_file(session.id, "f") == b"2"
    assert names(client, session) == ["f"], "nothing of the write is left over"


def test_listing(client, session):
    client.sessions.exec(session.id, "mkdir -p d/e; echo 12345 > d/f; ln -s /etc/passwd d/link; mkfifo d/pipe; chmod 4750 d/f; touch 'd/ü b' d/B d/a; chmod 1777 d/e").check()
    got = {e.path: e for e in client.sessions.list_files(session.id, "d")}
    assert list(got) == sorted(got, key=str.encode)
    assert {p: e.kind for p, e in got.items()} == {"d/e": "directory", "d/f": "file", "d/link": "symlink", "d/pipe": "other", "d/ü b": "file", "d/B": "file", "d/a": "file"}
    assert (got["d/f"].size, got["d/f"].permissions, got["d/f"].owner) == (6, "rwsr-x---", "root") and got["d/e"].permissions == "rwxrwxrwt"
    for path, entry in got.items():
        if entry.kind == "file":
            assert client.sessions.list_files(session.id, path)[0].path == path
    assert names(client, session) == ["d"] and names(client, session, "./d/") == list(got)


ODD = {b"a\xffb": "a\ufffdFFb", b"\xc3": "\ufffdC3", b"\xed\xa0\x80": "\ufffdED\ufffdA0\ufffd80", b"new\nline\x1b[31m": "new\nline\x1b[31m", b" ": " ", b"-rf": "-rf",
       "\ufffd".encode(): "\ufffd", "\ufffdFF".encode(): "\ufffdEF\ufffdBF\ufffdBDFF", b"'\"\\$(id)`": "'\"\\$(id)`", b"\xff" * 255: "\ufffdFF" * 255, b"%41+&?#": "%41+&?#"}


def test_names_of_any_bytes_are_shown_and_found(api, client, session):
    script = "".join("printf x >\"$(printf '%s')\"\n" % "".join(f"\\{byte:03o}" for byte in name) for name in ODD)
    client.sessions.exec(session.id, "mkdir d; cd d\n" + script).check()
    raw = api.get(f"/api/sessions/{session.id}/files", params={"path": "d"})
    raw.content.decode("utf-8")
    assert [e["path"] for e in raw.json()] == ["d/" + ODD[name] for name in sorted(ODD)]
    for entry in raw.json():
        path = entry["path"]
        assert [(e.path, e.size) for e in client.sessions.list_files(session.id, path)] == [(path, 1)], path
        assert client.sessions.read_file(session.id, path) == b"x", path
        assert client.sessions.upload_file(session.id, b"yy", path=path).path == path
        assert client.sessions.read_file(session.id, path) == b"yy", path
    assert client.sessions.exec(session.id, "cd d; ls | wc -l; cat \"$(printf 'a\\377b')\"").stdout.split() == [str(len(ODD) + 1), "yy"], "replaced, not doubled"
    for entry in raw.json():
        client.sessions.delete_file(session.id, entry["path"])
    assert names(client, session, "d") == []


def peak(pid):
    return int(next(line.split()[1] for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM:"))) >> 10


def test_a_directory_of_100000_is_listed_in_little_memory(server, api, client, session):
    client.sessions.exec(session.id, "mkdir many; cd many; i=0; while [ $i -lt 100000 ]; do : >name-of-a-file-that-is-not-short-$i; i=$((i+1)); done", timeout=300).check()
    client.sessions.list_files(session.id)
    processes = server.pids("worker") + server.pids("supervisor")
    before = {pid: peak(pid) for pid in processes}
    began = time.monotonic()
    with api.stream("GET", f"/api/sessions/{session.id}/files", params={"path": "many"}) as answer:
        body = answer.read()
    took = time.monotonic() - began
    got = [e["path"] for e in json.loads(body)]
    assert len(got) == 100_000 and got == sorted(got) and took < 20
    grown = {pid: peak(pid) - before[pid] for pid in processes}
    assert max(grown.values()) <= 8, f"MiB of each process: {grown}, {took:.1f} s"
    client.sessions.delete_file(session.id, "many", recursive=True)
    assert names(client, session) == []


def test_delete(api, client, session):
    client.sessions.exec(session.id, "mkdir -p d/e empty; echo x > d/f; echo keep > target; ln -s target link").check()
    client.sessions.delete_file(session.id, "link")
    assert client.sessions.read_text(session.id, "target") == "keep\n"
    with pytest.raises(ConflictError):
        client.sessions.delete_file(session.id, "d")
    client.sessions.delete_file(session.id, "empty")
    client.sessions.delete_file(session.id, "d", recursive=True)
    assert names(client, session) == ["target"]
    assert api.delete(f"/api/sessions/{session.id}/files", params={"path": "nothing"}).status_code == 404
    for root in (".", "./", "./."):
        assert api.delete(f"/api/sessions/{session.id}/files", params={"path": root, "recursive": "true"}).status_code == 400


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "../x", "a/../../x", "", "x" * 256, "/".join(["d"] * 3000), "a\x00b"], ids=lambda p: repr(p[:12]))
def test_bad_paths(api, session, path):
    refused(api, session, path)


def test_links_do_not_lead_out(api, client, session):
    client.sessions.exec(session.id, "ln -s /etc out; ln -s /etc/passwd file; ln -s ../.. up; ln -s /proc/self/root magic; mkdir -p in/x; echo y > in/x/y; ln -s in/x inside").check()
    base = f"/api/sessions/{session.id}/files"
    for path in ("out/hostname", "file", "up/etc/passwd", "magic/etc/passwd"):
        assert api.get(f"{base}/content", params={"path": path}).status_code in (400, 404), path
        assert api.post(base, params={"path": path}, files={"file": ("f", b"x")}).status_code in (201, 400, 404) if path == "file" else True
    for path in ("out/new", "up/new", "magic/new"):
        assert api.post(base, params={"path": path}, files={"file": ("f", b"x")}).status_code in (400, 404), path
    assert client.sessions.read_text(session.id, "inside/y") == "y\n"


def test_what_is_no_file_is_refused_at_once(api, client, session):
    client.sessions.exec(session.id, "mkfifo pipe; mkdir d").check()
    for path in ("pipe", "d", "."):
        assert api.get(f"/api/sessions/{session.id}/files/content", params={"path": path}, timeout=5).status_code == 400
    assert api.post(f"/api/sessions/{session.id}/files", params={"path": "d"}, files={"file": ("f", b"x")}).status_code == 400
    assert api.post(f"/api/sessions/{session.id}/files", params={"path": "d/"}, files={"file": ("f", b"x")}).status_code == 400
    assert api.get(f"/api/sessions/{session.id}/files/content", params={"path": "nothing"}).status_code == 404
    assert api.get(f"/api/sessions/{session.id}/files", params={"path": "nothing"}).status_code == 404
    assert api.get(f"/api/sessions/{session.id}/files/content").status_code == 422


def test_a_file_too_large_is_not_served(api, client, session):
    client.sessions.exec(session.id, "truncate -s 513M big").check()
    assert api.get(f"/api/sessions/{session.id}/files/content", params={"path": "big"}).status_code == 413


def test_a_stopped_session_is_read_but_not_written(api, client, session):
    client.sessions.upload_file(session.id, b"kept", path="d/kept")
    client.sessions.stop(session.id)
    assert names(client, session, "d") == ["d/kept"] and client.sessions.read_file(session.id, "d/kept") == b"kept"
    assert api.delete(f"/api/sessions/{session.id}/files", params={"path": "d/kept"}).status_code == 409
    assert api.post(f"/api/sessions/{session.id}/files", params={"path": "new"}, files={"file": ("f", b"x")}).status_code == 409
    assert api.post(f"/api/sessions/{session.id}/exec", json={"command": "true"}).status_code == 409
    assert client.sessions.get(session.id).status == "stopped"


def change(api, session, what, **body):
    return api.patch(f"/api/sessions/{session.id}/files", params={"path": what}, json=body)


def test_move_and_permissions(api, client, session):
    client.sessions.exec(session.id, "echo x >f; mkdir -p full/d; echo y >full/g; ln -s f link; mkfifo pipe").check()
    got = change(api, session, "f", path="new/deep/f", permissions="rwxr-x---").expect(200)
    assert got == {"path": "new/deep/f", "kind": "file", "size": 2, "permissions": "rwxr-x---", "owner": "root", "group": "root"}
    assert client.sessions.exec(session.id, "./new/deep/f; cat new/deep/f; test ! -e f && echo gone").stdout == "x\ngone\n"
    assert change(api, session, "new/deep/f", path="a\ufffdFF").expect(200)["path"] == "a\ufffdFF"
    assert client.sessions.read_file(session.id, "a\ufffdFF") == b"x\n"
    assert change(api, session, "a\ufffdFF", permissions="600").expect(200)["permissions"] == "rw-------"
    assert change(api, session, "pipe", permissions=None, path=None).expect(200)["kind"] == "other"
    assert change(api, session, "a\ufffdFF", path="full/g").expect(200)["size"] == 2, "a file is replaced"
    assert change(api, session, "link", path="full/link").expect(200)["kind"] == "symlink"
    for path, body, status in (("nothing", {"path": "x"}, 404), ("full", {"path": "new"}, 409), ("new/deep", {"path": "gone"}, 200), ("new", {"path": "gone/empty"}, 200), ("gone", {"path": "old"}, 200), ("full", {"path": "new"}, 200), ("new/g", {"path": "new"}, 409), ("new", {"path": "new/d/x"}, 400),
                               ("new/link", {"permissions": "644"}, 400), ("new/link", {"permissions": "644", "path": "x"}, 400), (".", {"path": "x"}, 400),
                               ("new/g", {"path": "../x"}, 400), ("new/g", {"path": ""}, 400), ("new/g", {"path": "/x"}, 400), ("new/g", {"permissions": "999"}, 422),
                               ("new/g", {"permissions": "rwxrwxrwt"}, 422), ("new/g", {"permissions": "4755"}, 422), ("new/g", {"path": 7}, 422), ("/etc/passwd", {"permissions": "777"}, 400)):
        assert change(api, session, path, **body).status_code == status, (path, body)
    assert names(client, session) == ["new", "old", "pipe"] and names(client, session, "new") == ["new/d", "new/g", "new/link"]
    client.sessions.stop(session.id)
    assert change(api, session, "new/g", path="x").status_code == 409
