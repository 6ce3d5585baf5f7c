"""What the load tests share: the programs, started as `make run` does it or already there; their processes; a bare HTTP client; figures.

Used with SANDBOX_BASE_URL (then SANDBOX_API_KEY, and STATE_DIR or --pid for what looks at processes), or without: then a private server
is started in a folder of its own and stopped at the end.
"""
from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

TOP = Path(__file__).resolve().parents[2]
START_SECONDS, STOP_SECONDS = 300, 120
ROLES = ("worker", "streamer", "runner")


def build() -> Path:
    """Where the programs were built."""
    return TOP / os.environ.get("O", "build/release")


def wait_for(what: str, look, seconds: float = 30.0, every: float = 0.05):
    """The first truthy value of `look`; ends the program by saying what was waited for."""
    end = time.monotonic() + seconds
    while not (value := look()):
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds:g} s: {what}")
        time.sleep(every)
    return value


def read(path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


# --- HTTP ------------------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: int, body: bytes, what: str):
        super().__init__(f"{what}: {status} {body[:300].decode(errors='replace')}")
        self.status = status


class Connection:
    """One kept connection, with little of its own between the request and the clock. OSError where the server hangs up."""

    def __init__(self, address: tuple[str, int], token: str | None = None, timeout: float = 60):
        self.address, self.timeout = address, timeout
        self.head = f"Host: {address[0]}\r\nAccept: application/json\r\n" + (f"Authorization: Bearer {token}\r\n" if token else "")
        self.socket = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def request_stream(self, path: str):
        """Send a GET and read the head of a 200, byte by byte; what follows is left in the socket."""
        self.socket = socket.create_connection(self.address, self.timeout)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\n{self.head}\r\n".replace("application/json", "text/event-stream").encode())
        got = b""
        while not got.endswith(b"\r\n\r\n"):
            got += self.socket.recv(1) or self._more()
        if got[9:12] != b"200":
            raise ConnectionError(f"GET {path}: {got[:100]!r}")

    def request(self, method: str, path: str, body=None) -> tuple[int, bytes]:
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self.head}"
        if body is not None:
            head += "Content-Type: application/json\r\n"
        if method != "GET":
            head += f"Content-Length: {len(data)}\r\n"
        try:
            if not self.socket:
                self.socket = socket.create_connection(self.address, self.timeout)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.sendall(head.encode() + b"\r\n" + data)
            return self._answer()
        except OSError:
            self.close()
            raise

    def _answer(self) -> tuple[int, bytes]:
        got = b""
        while (end := got.find(b"\r\n\r\n")) < 0:
            got += self._more()
        status, length, keep = int(got[9:12]), 0, True
        for line in got[:end].lower().split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and value.strip() == b"close":
                keep = False
        while len(got) < end + 4 + length:
            got += self._more()
        if not keep:
            self.close()
        return status, got[end + 4 : end + 4 + length]

    def _more(self) -> bytes:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the server hung up")
        return data

    def call(self, method: str, path: str, body=None):
        """The JSON of a 2xx answer."""
        status, data = self.request(method, path, body)
        if not 200 <= status < 300:
            raise Refused(status, data, f"{method} {path}")
        return json.loads(data) if data else None


# --- the programs --------------------------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*") for child in read(task / "children").split()]


class Project:
    """What serves, how to reach it, and which processes it is."""

    def __init__(self, pid: int | None = None, **environment: str):
        self.process = self.state = None
        self.run_pid = pid
        if os.environ.get("SANDBOX_BASE_URL"):
            self._attach(os.environ)
            return
        if os.geteuid() != 0:
            raise SystemExit("only root can start the supervisor: become root, or set SANDBOX_BASE_URL and SANDBOX_API_KEY")
        self.state = Path(tempfile.mkdtemp(prefix="load-test-"))
        self.state.chmod(0o755)
        try:
            self._start(environment)
        except BaseException:
            self.close()
            raise

    def _attach(self, values):
        self.url = values["SANDBOX_BASE_URL"].rstrip("/")
        parts = urlsplit(self.url)
        self.address = (parts.hostname, parts.port or 80)
        self.key = values.get("SANDBOX_API_KEY") or values.get("SANDBOX_OPERATOR_TOKEN")
        if not self.state and values.get("STATE_DIR"):
            self.state = Path(values["STATE_DIR"]).resolve()

    def _start(self, environment):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.log = self.state / "run.log"
        variables = {**os.environ, "O": str(build()), "HOST": "127.0.0.1", "LOG_LEVEL": "WARNING", **environment,
                     "STATE_DIR": str(self.state), "PORT": str(port)}
        for name in ("DATABASE_URL", "MODEL_BASE_URL", "MODEL_DEFAULT"):
            variables.pop(name, None)
        self.process = subprocess.Popen([TOP / "container/run.sh"], env=variables, cwd=self.state, stdin=subprocess.DEVNULL,
                                        stdout=self.log.open("ab"), stderr=subprocess.STDOUT, start_new_session=True)
        self.run_pid = self.process.pid
        end = time.monotonic() + START_SECONDS
        while not (self.state / "run.env").exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the programs do not start:\n{read(self.log)[-3000:]}")
            time.sleep(0.05)
        self._attach(dict(line.split("=", 1) for line in read(self.state / "run.env").splitlines()))

    def close(self):
        """Stop what was started here."""
        if not self.process:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                print(f"not stopped within {STOP_SECONDS} s; logs stay in {self.state}", file=sys.stderr)
                return
        if self.process.returncode == 0:
            shutil.rmtree(self.state, ignore_errors=True)
        else:
            print(f"run.sh ended with {self.process.returncode}; logs stay in {self.state}", file=sys.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- requests

    def connect(self, timeout: float = 60) -> Connection:
        return Connection(self.address, self.key, timeout)

    def agent(self, connection: Connection, **definition):
        name = f"load-{os.getpid()}-{time.monotonic_ns()}"
        return connection.call("POST", "/api/agents", {"slug": name, "name": name, "idle_ttl_seconds": 0, **definition})

    def session(self, connection: Connection, agent: str, every: float = 0.005, seconds: float = 60):
        """A running one: created, then asked for every few milliseconds."""
        session = connection.call("POST", "/api/sessions", {"agent_id": agent})
        end = time.monotonic() + seconds
        while session["status"] == "provisioning" and time.monotonic() < end:
            time.sleep(every)
            session = connection.call("GET", f"/api/sessions/{session['id']}")
        if session["status"] != "running":
            raise SystemExit(f"session {session['id']} is {session['status']}: {session['error']}")
        return session

    def last_seq(self, connection: Connection, session: str) -> int:
        after = 0
        while page := connection.call("GET", f"/api/sessions/{session}/events?after={after}&limit=1000"):
            after = page[-1]["seq"]
        return after

    def use_every_thread(self, sessions):
        """As many commands at once as the workers have threads, and some, since connections are not dealt out evenly. Those beyond what
        commands may hold are refused, which uses a thread as well."""
        workers = int(self.setting("WORKERS", "0")) or os.cpu_count()
        count = int(workers * int(self.setting("WORKER_THREADS", "64")) * 1.25)

        def use(number: int):
            with self.connect() as connection:
                connection.request("POST", f"/api/sessions/{sessions[number % len(sessions)]}/exec", {"command": "sleep 1"})

        for _ in range(4):
            threads = [threading.Thread(target=use, args=(number,)) for number in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    # --- processes, found by parentage below the script that started them

    def top(self) -> dict[str, int]:
        """`server` (the master), `supervisor` and, where it is ours, `postgres`."""
        if self.run_pid is None:
            lines = read(self.state / "pids").splitlines() if self.state else []
            if not lines:
                raise SystemExit("which processes serve is not known: set STATE_DIR, or give --pid of container/run.sh")
            return {role: int(pid) for role, _, pid in (line.partition("=") for line in lines)}
        found = {}
        for pid in children(self.run_pid):
            command = read(f"/proc/{pid}/cmdline").split("\0")[0].rsplit("/", 1)[-1]
            role = {"sandbox-server": "server", "sandbox-supervisor": "supervisor", "postgres": "postgres"}.get(command)
            if role:
                found[role] = pid
        return found

    def pids(self, role: str) -> list[int]:
        top = self.top()
        if role not in ROLES:
            return [top[role]] if role in top else []
        return [pid for pid in children(top["server"]) if read(f"/proc/{pid}/comm").strip() == role] if "server" in top else []

    def everybody(self) -> dict[int, str]:
        """Every process of ours but PostgreSQL: pid → role."""
        return {pid: role for role in ("server", "supervisor", *ROLES) for pid in self.pids(role)}

    def setting(self, variable: str, fallback: str, role: str = "server") -> str:
        """As that process was started with."""
        for entry in read(f"/proc/{self.top()[role]}/environ").split("\0"):
            name, _, value = entry.partition("=")
            if name == variable:
                return value
        return fallback


def memory(pid: int) -> dict[str, int]:
    """Rss, Pss, … of a process in bytes; empty when it is gone or belongs to somebody else."""
    found = {}
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]:
        name, _, value = line.partition(":")
        found[name] = int(value.split()[0]) * 1024
    return found


def descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


# --- figures -----------------------------------------------------------------------------------------------------------------


def percentile(values, share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def spread(times) -> str:
    return f"p50 {ms(percentile(times, 0.5))}, p99 {ms(percentile(times, 0.99))}, n {len(times)}"
