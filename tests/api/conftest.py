"""The real programs, started once; clients for them; agents and sessions that go with the test."""
from __future__ import annotations

import asyncio
import inspect
import os
import threading
import uuid

import httpx
import pytest
from model_server import ModelServer
from programs import Server
from sandbox_agents import AsyncClient, Client, NotFoundError

@pytest.fixture(scope="session")
def model():
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def server(model):
    for name in ("SANDBOX_AGENTS_BASE_URL", "SANDBOX_AGENTS_API_KEY", "SANDBOX_AGENTS_PROJECT"):
        os.environ.pop(name, None)  # the client would read them
    try:
        running = Server(model.url)
    except RuntimeError as error:
        pytest.exit(str(error), returncode=2)
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
