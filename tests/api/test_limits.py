"""What one sandbox may use, as the settings say, and what those of one project may have together."""
import threading

import pytest
from sandbox_agents import APIStatusError, Client

SETTINGS = {"SANDBOX_MEMORY_MB": "128", "SANDBOX_DISK_MB": "64", "SANDBOX_OPEN_FILES": "77", "SANDBOX_NICE": "5", "SANDBOX_OOM_SCORE": "700", "SANDBOX_PIDS": "40",
            "SANDBOX_CPU_WEIGHT": "50", "SANDBOX_TMP_MB": "8", "WARM_POOL": "0"}


def refused(call, variable):
    with pytest.raises(APIStatusError) as failure:
        call()
    assert failure.value.status_code == 503 and variable in str(failure.value), failure.value
    assert int(failure.value.response.headers["retry-after"]) > 0 if hasattr(failure.value, "response") else True


@pytest.fixture(scope="module")
def bounded(model):
    from programs import Server
    server = Server(model.url, PROJECT_SANDBOXES="3", PROJECT_DISK_MB=str(5 * 64), **SETTINGS)
    yield server
    server.close()


@pytest.fixture
def inside(bounded):
    """A client of that server, and an agent; both are empty again afterwards."""
    with Client(base_url=bounded.url, api_key=bounded.api_key) as client:
        agent = client.agents.create(slug="bounded", name="n")
        yield client, agent
        for session in client.sessions.list(limit=100):
            client.sessions.delete(session.id)
        client.agents.delete(agent.id)


def test_settings_hold_inside(inside):
    client, agent = inside
    session = client.sessions.create_and_wait(agent.id, timeout=60)
    got = client.sessions.exec(session.id, "ulimit -Hn; nice; cat /proc/self/oom_score_adj; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max; ulimit -p")
    assert got.stdout.split() == ["77", "5", "700", str(128 << 20), "40", "40"]
    got = client.sessions.exec(session.id, "dd if=/dev/zero of=fill bs=1M count=100; dd if=/dev/zero of=/tmp/fill bs=1M count=100; stat -c %s fill /tmp/fill")
    disk, temporary = map(int, got.stdout.split())
    assert 32 << 20 <= disk <= 64 << 20 and temporary <= 8 << 20


def test_a_project_runs_so_many_sandboxes(inside):
    client, agent = inside
    made = [client.sessions.create_and_wait(agent.id, timeout=60) for _ in range(3)]
    refused(lambda: client.sessions.create(agent.id), "PROJECT_SANDBOXES")
    client.sessions.stop(made[0].id)
    made.append(client.sessions.create_and_wait(agent.id, timeout=60))
    refused(lambda: client.sessions.start(made[0].id), "PROJECT_SANDBOXES")
    assert client.sessions.get(made[0].id).status == "stopped"
    assert client.sessions.start(made[1].id).status == "running", "one that runs needs no more room"
    client.sessions.delete(made[1].id)
    assert client.sessions.start(made[0].id).status == "running"


def test_many_at_once_get_no_more(inside):
    client, agent = inside
    made, failed = [], []

    def create():
        try:
            made.append(client.sessions.create(agent.id).id)
        except APIStatusError as error:
            failed.append(error.status_code)

    threads = [threading.Thread(target=create) for _ in range(12)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(made) == 3 and failed == [503] * 9


def test_disks_of_stopped_sessions_count(inside):
    client, agent = inside
    for _ in range(5):
        client.sessions.stop(client.sessions.create_and_wait(agent.id, timeout=60).id)
    refused(lambda: client.sessions.create(agent.id), "PROJECT_DISK_MB")
    oldest = client.sessions.list(limit=100)[-1].id
    assert client.sessions.start(oldest).status == "running", "it has its disk"
    client.sessions.delete(oldest)
    client.sessions.create_and_wait(agent.id, timeout=60)


def test_memory_of_a_project(start_server):
    server = start_server(PROJECT_MEMORY_MB="300", **SETTINGS)
    with Client(base_url=server.url, api_key=server.api_key) as client:
        agent = client.agents.create(slug="bounded", name="n")
        made = [client.sessions.create_and_wait(agent.id, timeout=60) for _ in range(2)]
        refused(lambda: client.sessions.create(agent.id), "PROJECT_MEMORY_MB")
        client.sessions.delete(made[0].id)
        client.sessions.create_and_wait(agent.id, timeout=60)
