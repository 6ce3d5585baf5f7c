#!/usr/bin/env python3
"""Memory and descriptors of every process stay flat over thousands of mixed requests: flat.py [--requests 2000] [--rounds 4] [--pid PID]

Every thread of the workers is used once, then the same mix runs in rounds, and those before the last two are the warm-up: pools and caches fill
then. Flat means that in the last one no process has gained more than --descriptors descriptors or some memory (--kib; PSS, so that pages
shared after a fork count once). The private server has few threads, so that each has had every kind of request soon.
"""
import argparse
import sys
import threading
import time

from project import Connection, Project, Refused, descriptors, memory, percentile, spread

THREADS = 8


class Mix:
    """One thread's requests: reads, writes, refusals, commands, files, turns, sessions that come and go."""

    def __init__(self, project: Project, agent: str, session: str, number: int):
        self.connection, self.stranger = project.connect(), Connection(project.address, "ak_nobody-has-this-key")
        self.agent, self.session, self.number = agent, session, number
        self.path = f"/api/sessions/{session}"
        self.times, self.wrong = [], []
        often = [
            ("GET", "/healthz", None, 200), ("GET", f"/api/agents/{agent}", None, 200), ("GET", "/api/sessions?limit=20", None, 200),
            ("GET", self.path, None, 200), ("GET", f"{self.path}/events?limit=100", None, 200), ("GET", f"{self.path}/files?path=.", None, 200),
            ("PATCH", self.path, {"title": f"flat {number}", "metadata": {"k": str(number)}}, 200),
            ("POST", f"{self.path}/exec", {"command": "echo some output; echo and errors >&2"}, 200),
            ("POST", f"{self.path}/exec", {"command": f"head -c 20000 /dev/zero >file-{number}"}, 200),
            ("GET", f"{self.path}/files/content?path=file-{number}", None, (200, 404)),
            ("GET", "/api/agents/no-such-agent", None, 404), ("POST", "/api/agents", {"slug": "UPPER"}, 422), ("GET", "/no/such/path", None, 404),
            ("POST", f"{self.path}/messages", {"prompt": "$ echo a turn"}, (202, 409)), ("GET", "/api/me", None, 200),
        ]
        self.steps = [step for step in often for _ in range(2)]

    def once(self, step, connection=None):
        method, target, body, expected = step
        began = time.monotonic()
        try:
            status, data = (connection or self.connection).request(method, target, body)
        except OSError as error:
            self.wrong.append(f"{method} {target}: {error}")
            return
        self.times.append(time.monotonic() - began)
        if status not in (expected if isinstance(expected, tuple) else (expected,)):
            self.wrong.append(f"{method} {target}: {status} {data[:200].decode(errors='replace')}")

    def run(self, requests: int, project: Project):
        done = 0
        while done < requests:
            for step in self.steps:
                self.once(step)
            self.once(("GET", "/api/auth/check", None, 401), self.stranger)
            done += len(self.steps) + 1
            self.close() # the next connections may be another worker's
        try:
            session = project.session(self.connection, self.agent)["id"]
            self.connection.call("DELETE", f"/api/sessions/{session}")
        except (Refused, OSError, SystemExit) as error:
            self.wrong.append(f"a session that comes and goes: {error}")

    def close(self):
        self.connection.close()
        self.stranger.close()


def run_all(mixes, requests: int, project: Project):
    threads = [threading.Thread(target=mix.run, args=(requests // len(mixes), project)) for mix in mixes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(2) # for what is let go a moment later


def look(project: Project):
    """pid → role, descriptors, bytes."""
    return {pid: (role, descriptors(pid), memory(pid).get("Pss", 0)) for pid, role in project.everybody().items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--descriptors", type=int, default=8)
    parser.add_argument("--kib", type=int, default=192, help="for each thread of a worker, since each keeps what its largest request took")
    parser.add_argument("--pid", type=int, help="of container/run.sh, when SANDBOX_BASE_URL names a server")
    options = parser.parse_args()
    # Commands may hold three quarters of the threads: 8 clients never meet that bound, whichever worker has them all.
    with Project(options.pid, WORKER_THREADS="16") as project, project.connect() as connection:
        agent = project.agent(connection)["id"]
        sessions = [project.session(connection, agent)["id"] for _ in range(THREADS)]
        mixes = [Mix(project, agent, session, number) for number, session in enumerate(sessions)]
        project.use_every_thread(sessions)
        kib = options.kib * int(project.setting("WORKER_THREADS", "64"))
        seen, rates = [], []
        for _ in range(options.rounds):
            began = time.monotonic()
            run_all(mixes, options.requests, project)
            rates.append(options.requests / (time.monotonic() - began - 2))
            seen.append(look(project))
        for mix in mixes:
            mix.close()
        for session in sessions:
            connection.call("DELETE", f"/api/sessions/{session}")
        connection.call("DELETE", f"/api/agents/{agent}")
    wrong = [text for mix in mixes for text in mix.wrong]
    print(f"{options.rounds * options.requests} requests, {THREADS} at once, about {percentile(rates, 0.5):,.0f}/s, "
          f"{spread([time for mix in mixes for time in mix.times])}, {len(wrong)} wrong answers")
    for text in wrong[:5]:
        print(f"  {text}")
    fine = not wrong
    for pid, (role, had, size) in seen[-2].items():
        if any(pid not in round for round in (seen[0], seen[-1])):
            print(f"{role} {pid}: it did not live through the test")
            fine = False
            continue
        rounds = [round[pid] for round in seen if pid in round]
        flat = rounds[-1][1] - had <= options.descriptors and rounds[-1][2] - size <= kib * 1024
        print(f"{role:10} {pid}: descriptors {', '.join(str(r[1]) for r in rounds)}; PSS {', '.join(str(r[2] // 1024) for r in rounds)} KiB"
              f"{'' if flat else '  NOT FLAT'}")
        fine = fine and flat
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
