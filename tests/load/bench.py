"""How fast the server is, beside what it is built on; every measurement is bounded in time. make bench"""
from __future__ import annotations

import json
import os
import re
import resource
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/api"))

import httpx  # noqa: E402
from model_server import ModelServer  # noqa: E402
from programs import BUILD, Server, read  # noqa: E402
from sandbox_agents import Client  # noqa: E402

SECONDS = int(os.environ.get("BENCH_SECONDS", "8"))
FOLLOWERS = int(os.environ.get("BENCH_FOLLOWERS", "2000"))
CONNECTIONS = 64


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)

    def at(part: float) -> str:
        return f"{1000 * ordered[min(len(ordered) - 1, int(len(ordered) * part))]:9.2f}"

    return f"{at(0.5)} {at(0.99)}"


def timed(times: int, what, pause: float = 0) -> list[float]:
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        what()
        taken.append(time.perf_counter() - begin)
        time.sleep(pause)
    return taken


def row(name: str, *columns: str):
    print(f"  {name:<44}{' '.join(columns)}", flush=True)


# --- requests -----------------------------------------------------------------------------------------------------------


def wrk(url: str, *headers: str) -> tuple[str, str]:
    """Requests a second, and the 99th percentile in milliseconds."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", *(w for h in headers for w in ("-H", h)), url]
    out = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    if bad := re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: .*", out):
        print(f"  ({url}: {bad[0].strip()})")
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
    value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", out).groups()
    return f"{rate:10.0f}", f"{float(value) * {'us': 0.001, 'ms': 1, 's': 1000}[unit]:9.2f}"


def requests(server: Server, client: Client):
    print(f"\nrequests, {CONNECTIONS} connections, {SECONDS} s each" + " " * 6 + "req/s    p99 ms")
    port = free_port()
    bare = subprocess.Popen([TOP / BUILD / "tests/load/bare_civetweb", str(port)])
    try:
        for _ in range(100):
            try:
                httpx.get(f"http://127.0.0.1:{port}/", timeout=1)
                break
            except httpx.HTTPError:
                time.sleep(0.05)
        row("a bare CivetWeb handler", *wrk(f"http://127.0.0.1:{port}/"))
    finally:
        bare.terminate()
        bare.wait()
    row("GET /healthz", *wrk(f"{server.url}/healthz"))
    agent = client.agents.create(slug="bench", name="bench", manifest={"entries": {"a.md": {"kind": "file", "content": "x" * 500}}})
    row("GET /api/agents/{id}, with a key", *wrk(f"{server.url}/api/agents/{agent.id}", f"Authorization: Bearer {server.api_key}"))
    return agent


# --- sandboxes ------------------------------------------------------------------------------------------------------------


def creation(client: Client, agent):
    print("\nsandboxes" + " " * 46 + "p50 ms    p99 ms")
    made = []
    taken = timed(30, lambda: made.append(client.sessions.create_and_wait(agent.id, timeout=60)))
    row(f"create_and_wait, {len(taken)} times", "  ", percentiles(taken))
    for session in made[1:]:
        client.sessions.delete(session.id)
    return made[0]


class Crun:
    """A container of the same image, to run `true` in."""

    def __init__(self, image: Path):
        self.folder = Path(tempfile.mkdtemp(prefix="bench-crun-"))
        self.name = f"bench-{os.getpid()}"
        self.crun = ["crun", "--root", str(self.folder / "state"), "--cgroup-manager=cgroupfs"]
        subprocess.run(["crun", "spec"], cwd=self.folder, check=True)
        spec = json.loads((self.folder / "config.json").read_text())
        spec["root"] = {"path": str(image), "readonly": True}
        spec["process"].update(terminal=False, args=["sleep", "600"])
        (self.folder / "config.json").write_text(json.dumps(spec))
        subprocess.run([*self.crun, "run", "-d", "-b", self.folder, self.name], check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)

    def true(self):
        subprocess.run([*self.crun, "exec", self.name, "true"], check=True, stdin=subprocess.DEVNULL)

    def close(self):
        subprocess.run([*self.crun, "delete", "-f", self.name], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def commands(server: Server, session):
    crun = Crun(server.state / "images/base")
    try:
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.api_key}"}, timeout=60) as http:
            def through_api():
                answer = http.post(f"/api/sessions/{session.id}/exec", json={"command": "true"})
                assert answer.status_code == 200 and answer.json()["exit_code"] == 0, answer.text

            for pause, how in ((0, "one after the other"), (0.05, "50 ms apart")):
                times = 200 if not pause else 60
                timed(5, through_api)
                row(f"exec of true through the API, {how}", "  ", percentiles(timed(times, through_api, pause)))
                row(f"crun exec true, {how}", "  ", percentiles(timed(times, crun.true, pause)))
    finally:
        crun.close()


# --- followers ------------------------------------------------------------------------------------------------------------


def proportional_kib(pids: list[int]) -> int:
    return sum(int(re.search(r"^Pss:\s+(\d+)", read(f"/proc/{pid}/smaps_rollup"), re.M)[1]) for pid in pids)


def slab_kib() -> int:
    return int(re.search(r"^Slab:\s+(\d+)", read("/proc/meminfo"), re.M)[1])


def followers(server: Server, client: Client, session):
    print(f"\n{FOLLOWERS} followers of one session")
    everybody = server.pids("streamer") + server.pids("worker")
    request = (f"GET /api/sessions/{session.id}/events/stream?after=0 HTTP/1.1\r\nHost: {server.host}\r\n"
               f"Authorization: Bearer {server.api_key}\r\n\r\n").encode()
    before, slab = proportional_kib(everybody), slab_kib()
    selector = selectors.DefaultSelector()
    tails: dict[socket.socket, bytes] = {}
    begin = time.perf_counter()

    def drain(until, seconds: float):
        """Read what comes, until `until` holds for every follower; returns how many it holds for."""
        done: set[socket.socket] = {s for s, tail in tails.items() if until(tail)}
        end = time.monotonic() + seconds
        while len(done) < len(tails) and time.monotonic() < end:
            for key, _ in selector.select(0.1):
                data = key.fileobj.recv(65536)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                tails[key.fileobj] = (tails[key.fileobj] + data)[-600:]
                if until(tails[key.fileobj]):
                    done.add(key.fileobj)
        return len(done)

    try:
        for _ in range(FOLLOWERS):
            one = socket.create_connection((server.host, server.port), timeout=30)
            one.sendall(request)
            one.setblocking(False)
            selector.register(one, selectors.EVENT_READ)
            tails[one] = b""
        up = drain(lambda tail: b"session.status_running" in tail, 60)
        row("attached", f"{up} of {FOLLOWERS} in {time.perf_counter() - begin:.1f} s")
        grown, kernel = proportional_kib(everybody) - before, slab_kib() - slab
        row("memory of ours a follower", f"{grown / FOLLOWERS:.1f} KiB")
        row("kernel memory (slab) a follower", f"{kernel / FOLLOWERS:.1f} KiB, both ends of the connection")
        begin = time.perf_counter()
        client.sessions.send(session.id, "$ true")
        got = drain(lambda tail: b"session.status_idle" in tail, 60)
        row("a turn seen to its end", f"by {got} in {time.perf_counter() - begin:.2f} s")
    finally:
        for one in tails:
            one.close()


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, FOLLOWERS + 1000)), hard))
    model = ModelServer()
    server = Server(model.url, POSTGRES_OPTIONS="", LOG_LEVEL="WARNING")
    try:
        print(f"{os.cpu_count()} cores, {os.uname().release}; the load comes from the same machine")
        with Client(base_url=server.url, api_key=server.api_key) as client:
            agent = requests(server, client)
            session = creation(client, agent)
            commands(server, session)
            followers(server, client, session)
    finally:
        server.close()
        model.close()


if __name__ == "__main__":
    main()
