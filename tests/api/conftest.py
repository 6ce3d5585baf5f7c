"""The real programs, started once by `container/run.sh` as `make run` does it, with a fresh STATE_DIR; and clients for them."""
from __future__ import annotations

import asyncio
import inspect
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path

import httpx
import pytest
from model_server import ModelServer
from sandbox_agents import AsyncClient, Client, NotFoundError

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("O", "build/release"))
START_SECONDS, STOP_SECONDS = 300, 120
SANITIZER = re.compile(r"(ERROR|WARNING|SUMMARY): (Address|Leak|Thread|Undefined\w*)Sanitizer|runtime error:")


def wait_for(what: str, look, seconds: float = 30.0, every: float = 0.05):
    """The first truthy value of `look`; fails by saying what was waited for."""
    end = time.monotonic() + seconds
    while not (value := look()):
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(every)
    return value


def read(path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


class Server:
    """What runs, and how to disturb it."""

    def __init__(self, model_url: str, **environment: str):
        self.state = Path(tempfile.mkdtemp(prefix="api-test-"))
        self.state.chmod(0o755)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.host = "127.0.0.1"
        self.environment = {
            **os.environ, "O": str(TOP / BUILD), "STATE_DIR": str(self.state), "PORT": str(self.port), "HOST": self.host,
            "MODEL_BASE_URL": model_url, "MODEL_API_KEY": "the-key-of-the-model", "POSTGRES_OPTIONS": "-F -c shared_buffers=32MB",
            "LOG_LEVEL": "INFO", **self._sanitizers(), **environment,
        }
        self.environment.pop("DATABASE_URL", None)
        self.process = None
        self.start()

    def _sanitizers(self) -> dict[str, str]:
        """The server's user may not be able to read the checkout."""
        changed = {}
        for name in ("LSAN_OPTIONS", "TSAN_OPTIONS"):
            match = re.search(r"suppressions=([^:]+)", os.environ.get(name, ""))
            if match:
                copy = shutil.copy(match[1], self.state)
                changed[name] = os.environ[name].replace(match[1], str(copy))
        return changed

    def start(self):
        self.process = subprocess.Popen([TOP / "container/run.sh"], env=self.environment, cwd=self.state, stdin=subprocess.DEVNULL,
                                        stdout=open(self.state / "run.log", "ab"), stderr=subprocess.STDOUT, start_new_session=True)
        end = time.monotonic() + START_SECONDS
        while not (self.state / "run.env").exists():
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.exit(f"the programs do not start:\n{read(self.state / 'run.log')}", returncode=2)
            time.sleep(0.05)
        values = dict(line.split("=", 1) for line in read(self.state / "run.env").splitlines())
        self.url = values["SANDBOX_BASE_URL"]
        self.api_key = values["SANDBOX_API_KEY"]
        self.operator_token = values["SANDBOX_OPERATOR_TOKEN"]
        self.runtime = next((line.split()[4].removesuffix("/state") for line in read(f"/proc/{self.master}/mountinfo").splitlines()
                             if line.split()[4].startswith("/run/agent-sandbox/")), None)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"not stopped within {STOP_SECONDS} s:\n{read(self.state / 'run.log')[-2000:]}")

    # --- processes

    def _pids(self) -> dict[str, int]:
        return {role: int(pid) for role, _, pid in (line.partition("=") for line in read(self.state / "pids").splitlines())}

    @property
    def master(self) -> int:
        return self._pids()["server"]

    def pids(self, role: str) -> list[int]:
        """Of `postgres`, `supervisor`, `server` (the master), `worker`, `streamer` or `runner`."""
        top = self._pids()
        if role in top:
            return [top[role]]
        children = read(f"/proc/{top['server']}/task/{top['server']}/children").split()
        return [int(pid) for pid in children if read(f"/proc/{pid}/comm").strip() == role]

    def kill(self, role: str, how=signal.SIGKILL) -> int:
        """Kill one process of that role, and say which."""
        pid = wait_for(f"a {role}", lambda: self.pids(role))[0]
        os.kill(pid, how)
        return pid

    def replaced(self, role: str, pid: int, seconds: float = 30):
        """Wait until that process is gone and another has its role."""
        return wait_for(f"another {role}", lambda: [p for p in self.pids(role) if p != pid], seconds)

    def healthy(self, seconds: float = 30):
        def look():
            try:
                return httpx.get(f"{self.url}/api/health", timeout=5).status_code == 200
            except httpx.HTTPError:
                return False
        wait_for("a healthy server", look, seconds)

    # --- what is left

    def cgroups(self) -> list[str]:
        status = (self.state / "supervisor").stat()
        name = f"agent-sandbox-{status.st_dev:x}-{status.st_ino:x}"
        return [str(Path(root) / name) for root, folders, _ in os.walk("/sys/fs/cgroup") if name in folders]

    def processes(self) -> list[str]:
        """Those that carry this STATE_DIR in their environment or command."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            about = read(folder / "environ") + read(folder / "cmdline")
            if folder.name != str(os.getpid()) and (str(self.state) in about or (self.runtime and self.runtime in about)):
                found.append(f"{folder.name}: {read(folder / 'cmdline').replace(chr(0), ' ')[:100]}")
        return found

    def mounts(self) -> list[str]:
        return [line for line in read("/proc/self/mounts").splitlines() if str(self.state) in line or (self.runtime and self.runtime in line)]

    def sanitizer_reports(self) -> list[str]:
        return [f"{log.name}: {line}" for log in (self.state / "log").glob("*.log") for line in read(log).splitlines() if SANITIZER.search(line)]

    def close(self):
        """Stop, and see that nothing stays."""
        status = self.stop()
        left = {"processes": self.processes(), "mounts": self.mounts(), "cgroups": self.cgroups(),
                "run.env": [str(p) for p in self.state.glob("run.env")], "reports of a sanitizer": self.sanitizer_reports()[:20]}
        logs = TOP / BUILD / "api-logs"
        shutil.rmtree(logs, ignore_errors=True)
        shutil.copytree(self.state / "log", logs)
        shutil.copy(self.state / "run.log", logs)
        shutil.rmtree(self.state)
        assert status == 0, f"run.sh ended with {status}; see {logs}/run.log"
        assert not any(left.values()), f"left over: { {k: v for k, v in left.items() if v} }; logs in {logs}"


@pytest.fixture(scope="session")
def model():
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def server(model):
    for name in ("SANDBOX_AGENTS_BASE_URL", "SANDBOX_AGENTS_API_KEY", "SANDBOX_AGENTS_PROJECT"):
        os.environ.pop(name, None)  # the client would read them
    running = Server(model.url)
    yield running
    running.close()


@pytest.fixture
def start_server(model):
    """Another one, with other settings, for the tests that need it; gone with the test."""
    made = []

    def start(**environment: str) -> Server:
        made.append(Server(model.url, **environment))
        return made[-1]

    yield start
    for one in made:
        one.close()


# --- clients ---------------------------------------------------------------------------------------------------------


class Answer(httpx.Response):
    def expect(self, status: int):
        """The JSON body, if the status is this one."""
        assert self.status_code == status, f"{self.request.method} {self.request.url}: {self.status_code} {self.text[:500]}"
        return self.json() if self.content else None


class Http(httpx.Client):
    def send(self, request, **kw):
        answer = super().send(request, **kw)
        answer.__class__ = Answer
        return answer


def _http(server, credential: str | None) -> Http:
    return Http(base_url=server.url, timeout=60, headers={"Authorization": f"Bearer {credential}"} if credential else {})


@pytest.fixture
def api(server):
    """With the key of the default project."""
    with _http(server, server.api_key) as client:
        yield client


@pytest.fixture
def operator(server):
    """With the operator's token."""
    with _http(server, server.operator_token) as client:
        yield client


@pytest.fixture
def stranger(server):
    """With no credential."""
    with _http(server, None) as client:
        yield client


@pytest.fixture
def client(server):
    """The published client."""
    with Client(base_url=server.url, api_key=server.api_key) as made:
        yield made


class Awaited:
    """The published awaited client behind the blocking one's face: each call runs in an event loop of its own thread."""

    def __init__(self, target, loop):
        self._target, self._loop = target, loop

    def __getattr__(self, name):
        value = getattr(self._target, name)
        if not callable(value):
            return Awaited(value, self._loop) if hasattr(value, "__dict__") else value

        def call(*args, **kw):
            result = value(*args, **kw)
            if inspect.isawaitable(result):
                return asyncio.run_coroutine_threadsafe(result, self._loop).result(300)
            return self._drain(result) if hasattr(result, "__anext__") else result

        return call

    def _drain(self, generator):
        try:
            while True:
                try:
                    yield asyncio.run_coroutine_threadsafe(generator.__anext__(), self._loop).result(300)
                except StopAsyncIteration:
                    return
        finally:
            asyncio.run_coroutine_threadsafe(generator.aclose(), self._loop).result(30)


@pytest.fixture(scope="session")
def _loop():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(params=["blocking", "awaited"])
def either(request, server, client):
    """The published client, once blocking and once awaited."""
    if request.param == "blocking":
        yield client
        return
    loop = request.getfixturevalue("_loop")
    made = AsyncClient(base_url=server.url, api_key=server.api_key)
    yield Awaited(made, loop)
    closing = getattr(made, "aclose", None) or made.close
    asyncio.run_coroutine_threadsafe(closing(), loop).result(30)


# --- agents and sessions that go with the test ---------------------------------------------------------------------------


@pytest.fixture
def make_agent(client):
    made = []

    def make(**definition):
        definition.setdefault("slug", f"t-{uuid.uuid4().hex[:16]}")
        definition.setdefault("name", definition["slug"])
        made.append(client.agents.create(**definition))
        return made[-1]

    yield make
    for agent in reversed(made):
        for session in list(client.sessions.iterate(agent_id=agent.id)):
            client.sessions.delete(session.id)
        try:
            client.agents.delete(agent.id)
        except NotFoundError:
            pass


@pytest.fixture
def agent(make_agent):
    return make_agent()


@pytest.fixture
def make_session(client, make_agent):
    """A running session of a new agent (its definition in `agent`) or of a given one."""
    made = []

    def make(agent=None, definition=None, **body):
        agent = agent or make_agent(**(definition or {}))
        made.append(client.sessions.create_and_wait(agent.id, timeout=60, **body))
        return made[-1]

    yield make
    for session in made:
        try:
            client.sessions.delete(session.id)
        except NotFoundError:
            pass


@pytest.fixture
def session(make_session):
    return make_session()


@pytest.fixture(autouse=True)
def still_serves(request):
    """A test that takes the server down is the one that fails."""
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").healthy(30)
