"""The server's processes: one that dies is started again, a reload loses no request, and what is counted stays counted."""
import os
import re
import signal
import socket
import threading
import time

import httpx
import pytest
from programs import wait_for


class Load:
    """Clients that ask again and again on connections that they keep, as the published client does; and what went wrong."""

    def __init__(self, server, clients=8, pause=0.002):
        self.server, self.pause = server, pause
        self.answered, self.failed = 0, []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self):
        headers = {"Authorization": f"Bearer {self.server.api_key}"}
        with httpx.Client(base_url=self.server.url, headers=headers, timeout=30) as client:
            while not self._stop.is_set():
                try:
                    # A POST, since nobody repeats one; it does nothing.
                    answer = client.post("/api/agents", json={"name": ""})
                    if answer.status_code != 422:
                        self.failed.append(f"{answer.status_code}: {answer.text[:200]}")
                    self.answered += 1
                except httpx.HTTPError as error:
                    self.failed.append(repr(error))
                time.sleep(self.pause)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def counters(server):
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {metrics_key(server)}"}) as client:
        answer = client.get("/metrics")
    if answer.status_code == 503:
        pytest.skip("no METRICS_API_KEY")
    assert answer.status_code == 200
    return {m[1]: float(m[2]) for m in re.finditer(r"^([a-z][^ #]*) ([0-9.e+]+)$", answer.text, re.M) if "_total" in m[1]}


def metrics_key(server):
    return (server.state / "secrets" / "METRICS_API_KEY").read_text()


def test_a_reload_replaces_every_process_and_loses_no_request(server):
    before = {role: set(server.pids(role)) for role in ("worker", "streamer", "runner")}
    with Load(server) as load:
        for _ in range(2):
            os.kill(server.master, signal.SIGHUP)
            time.sleep(2)
        end = time.monotonic() + 60
        while time.monotonic() < end and any(before[role] & set(server.pids(role)) for role in before):
            time.sleep(0.1)
    assert not load.failed, load.failed[:5]
    assert load.answered > 100
    for role, pids in before.items():
        assert not pids & set(server.pids(role)), f"a {role} was not replaced"
        assert len(server.pids(role)) >= len(pids)


@pytest.mark.parametrize("role", ["worker", "streamer", "runner"])
def test_what_dies_is_started_again(server, role):
    pid = server.kill(role)
    server.replaced(role, pid)
    server.healthy()


def test_a_worker_that_dies_takes_only_its_own_requests(server):
    with Load(server) as load:
        pid = server.kill("worker")
        server.replaced("worker", pid)
        time.sleep(0.5)
        failed = len(load.failed)
        time.sleep(1)
        assert len(load.failed) == failed, "requests fail after the worker was replaced"
    assert failed <= 8, load.failed[:5]
    assert all("Error" in failure for failure in load.failed), "a request was answered wrongly"


def test_a_master_that_is_killed_is_replaced_while_its_workers_still_finish_what_they_began(server, api, session):
    answers = []

    def run():
        answers.append(api.post(f"/api/sessions/{session.id}/exec", json={"command": "sleep 8; echo late"}))

    began = threading.Thread(target=run)
    began.start()
    time.sleep(0.5)
    killed = server.kill("server")
    server.replaced("server", killed, 5)
    server.healthy(4)
    assert not answers
    began.join(30)
    assert answers[0].expect(200)["stdout"] == "late\n"


def test_no_counter_goes_down_when_a_process_dies(server):
    before = counters(server)
    for role in ("worker", "streamer", "runner"):
        server.replaced(role, server.kill(role))
    server.healthy()
    after = counters(server)
    assert not [name for name, value in before.items() if after.get(name, 0) < value]
    assert after['process_deaths_total{role="worker"}'] > before.get('process_deaths_total{role="worker"}', 0)


def test_a_second_signal_ends_at_once(start_server):
    """And whatever was in flight does not hold it."""
    other = start_server(DRAIN_SECONDS="60")
    master = other.master  # the run script starts another one afterwards
    with socket.create_connection((other.host, other.port)) as slow:
        slow.sendall(f"POST /api/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {other.api_key}\r\n"
                     "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{".encode())
        time.sleep(0.5)
        began = time.monotonic()
        os.kill(master, signal.SIGTERM)
        time.sleep(0.5)  # two that are pending at once are one (signal(7))
        assert os.path.exists(f"/proc/{master}"), "the first signal did not wait for the request in flight"
        os.kill(master, signal.SIGTERM)
        while os.path.exists(f"/proc/{master}") and time.monotonic() - began < 30:
            time.sleep(0.05)
    assert time.monotonic() - began < 5



def test_each_kill_of_the_database_is_seen_and_counted_once(start_server):
    """Also one that comes while the last is being mended: the shell forgets children that died meanwhile."""
    other = start_server()
    for _ in range(3):
        pid = other.kill("postgres")
        other.replaced("postgres", pid)
        wait_for("a database", lambda: httpx.get(f"{other.url}/readyz", timeout=5).status_code == 200)
    assert (other.state / "run.log").read_text().count("postgres ended unexpectedly") == 3
