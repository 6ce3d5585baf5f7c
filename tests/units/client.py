#!/usr/bin/env python3
"""One call of the API for checks.sh, with what Python has: client.py KEYFILE VERB...

    open            an agent and a session that runs; prints the session's id
    exec ID TEXT    run it in the session's sandbox; prints the output, ends with its exit code
    stop|start ID
    status ID       prints the session's status
    delete ID
"""
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

key = Path(sys.argv[1]).read_text().strip()
verb, words = sys.argv[2], sys.argv[3:]


def call(method, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:8000{path}", method=method, data=None if body is None else json.dumps(body).encode(),
                                     headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        sys.exit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:400]}")
    return json.loads(text) if text else None


def status(session):
    return call("GET", f"/api/sessions/{session}")["status"]


def running(session):
    end = time.monotonic() + 30
    while (now := status(session)) != "running":
        if now not in ("provisioning", "stopped") or time.monotonic() > end:
            sys.exit(f"session is {now}: {call('GET', f'/api/sessions/{session}')}")
        time.sleep(0.05)


if verb == "open":
    agent = call("POST", "/api/agents", {"slug": f"units-{time.time_ns()}", "name": "units", "model": "builtin/shell"})
    made = call("POST", "/api/sessions", {"agent_id": agent["id"]})["id"]
    running(made)
    print(made)
elif verb == "exec":
    got = call("POST", f"/api/sessions/{words[0]}/exec", {"command": words[1]})
    print(got["stdout"], end="")
    print(got["stderr"], end="", file=sys.stderr)
    sys.exit(got["exit_code"])
elif verb == "status":
    print(status(words[0]))
elif verb == "delete":
    call("DELETE", f"/api/sessions/{words[0]}")
else:
    call("POST", f"/api/sessions/{words[0]}/{verb}")
    if verb == "start":
        running(words[0])
