#!/usr/bin/env python3
"""Idle connections, half-sent heads and dripping bodies beside a client that measures /healthz.

    slow_clients.py [--host 127.0.0.1] [--port 8000] [--idle 2000] [--heads 500] [--bodies 100] [--limit-ms 50] [--long]

Every slow client must be cut at its deadline (a head and a body after 10 s, an idle connection after 75 s: waited for with --long only),
none before, and the p99 of /healthz must stay under the limit meanwhile. Loopback only; about 15 s. SANDBOX_BASE_URL names another server.
"""
import argparse
import os
import resource
import selectors
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

DEADLINE = 10.0
SLACK = 2.5


class Slow:
    """One slow client: what it sends at first, and the byte that it drips each second."""

    def __init__(self, kind, address, first, drip=b""):
        self.kind, self.drip = kind, drip
        self.socket = socket.create_connection(address)
        self.socket.setblocking(False)
        self.began = time.monotonic()
        self.ended = None
        self.answer = b""
        if first:
            self.socket.send(first)

    def read(self):
        try:
            data = self.socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.answer += data
        if not data:
            self.ended = time.monotonic() - self.began
            self.socket.close()

    def write(self):
        if self.ended is None and self.drip:
            try:
                self.socket.send(self.drip)
            except OSError:
                pass


def measure(address, seconds, times, errors):
    """/healthz 50 times a second, in turn on a kept connection and on a new one."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    due = time.monotonic()
    end = due + seconds
    kept = socket.create_connection(address, timeout=10)
    while time.monotonic() < end:
        for connection in (kept, None):
            time.sleep(max(0.0, due - time.monotonic()))
            due += 1 / 50
            began = time.monotonic()
            try:
                fresh = connection or socket.create_connection(address, timeout=10)
                fresh.sendall(request)
                if not fresh.recv(4096).startswith(b"HTTP/1.1 200"):
                    errors.append("not 200")
                if not connection:
                    fresh.close()
            except OSError as error:
                errors.append(str(error))
            times.append(time.monotonic() - began)
    kept.close()


def watch(clients, seconds):
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
    end = time.monotonic() + seconds
    drip_at = time.monotonic() + 1
    while time.monotonic() < end and any(c.ended is None for c in clients):
        for key, _ in selector.select(0.1):
            key.data.read()
            if key.data.ended is not None:
                selector.unregister(key.fileobj)
        if time.monotonic() >= drip_at:
            drip_at += 1
            for client in clients:
                client.write()


def judge(name, clients, low, high, status):
    early = [c for c in clients if c.ended is not None and c.ended < low]
    late = [c for c in clients if c.ended is None or c.ended > high]
    wrong = [c for c in clients if status and c.ended is not None and status not in c.answer[:32]]
    ends = sorted(c.ended for c in clients if c.ended is not None)
    span = f"{ends[0]:.2f} to {ends[-1]:.2f} s" if ends else "never"
    print(f"{name}: {len(clients)} clients, cut after {span}; {len(early)} early, {len(late)} late, {len(wrong)} other answers")
    for client in (early + late + wrong)[:3]:
        print(f"  ended {client.ended}, answer {client.answer[:80]!r}")
    return not (early or late or wrong)


def main():
    parser = argparse.ArgumentParser()
    base = urlsplit(os.environ.get("SANDBOX_BASE_URL", "http://127.0.0.1:8000"))
    parser.add_argument("--host", default=base.hostname)
    parser.add_argument("--port", type=int, default=base.port or 80)
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--heads", type=int, default=500)
    parser.add_argument("--bodies", type=int, default=100)
    parser.add_argument("--limit-ms", type=float, default=50)
    parser.add_argument("--long", action="store_true", help="wait for the idle connections too")
    options = parser.parse_args()
    address = (options.host, options.port)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    head = b"POST /api/agents HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    counted = head + b"Content-Length: %d\r\n\r\n{"
    idle = [Slow("idle", address, b"") for _ in range(options.idle)]
    heads = [Slow("head", address, b"GET /healthz HTTP/1.1\r\nHost: local", b"x" if i % 2 else b"")
             for i in range(options.heads)]
    starts = [counted % 1000, head + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n{", head + b"Expect: 100-continue\r\n" + counted[len(head):] % 1000]
    bodies = [Slow("body", address, starts[i % len(starts)], b" ") for i in range(options.bodies)]

    times, errors = [], []
    meter = threading.Thread(target=measure, args=(address, DEADLINE + 1, times, errors))
    meter.start()
    watch(heads + bodies, DEADLINE + SLACK)
    meter.join()
    times.sort()
    p50, p99 = times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000
    print(f"/healthz: {len(times)} requests, p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {times[-1] * 1000:.2f} ms, {len(errors)} errors")
    fine = [not errors, p99 < options.limit_ms,
            judge("half-sent heads", heads, DEADLINE - 0.2, DEADLINE + SLACK, b" 408 "),
            judge("dripping bodies", bodies, DEADLINE - 0.2, DEADLINE + SLACK, None)]
    if options.long:
        watch(idle, 75 + SLACK)
        fine.append(judge("idle connections", idle, 75, 75 + SLACK + 2, None))
    else:
        for client in idle:
            client.read()
        fine.append(not any(client.ended for client in idle))
        print(f"idle connections: {sum(1 for c in idle if c.ended is None)} of {len(idle)} still open")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
