#!/usr/bin/env python3
"""kill -9 of a worker, the streamer, a runner and the supervisor under load: chaos.py [--pid PID]. About a minute.

The load: commands, turns of the built-in model, followers that resume by `after`, and /healthz. After each kill: /healthz was answered all the
time (a request whose connection broke is repeated once, as clients do), another process takes the role, commands work again, and each turn
ends. At the end each follower has seen the log exactly, sandboxes and what ran in them are the same, and nothing is left over.
"""
import argparse
import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from project import ROLES, Connection, Project, Refused, descriptors, ms, read, wait_for

SESSIONS, FOLLOWERS = 4, 5 # followers of each session
GAP_MAX = 1.0              # the longest that /healthz may be unanswered
TURN_SECONDS = 45          # a lease (15 s), its backoff, and the turn
TOLD = re.compile("interrupt|restarted") # what the model is told of a tool call that was lost
TERMINAL = ("completed", "failed", "cancelled")


class Failures:
    """What must not happen, said when it does."""

    def __init__(self):
        self.lock, self.said = threading.Lock(), []

    def add(self, text: str):
        with self.lock:
            self.said.append(text)
            if len(self.said) <= 20:
                print(f"  FAILED: {text}", flush=True)

    def check(self, fine, text: str):
        if not fine:
            self.add(text)
        return fine


class Loop(threading.Thread):
    """Something done again and again until `stop`."""

    def __init__(self, project: Project, failures: Failures):
        super().__init__(daemon=True)
        self.project, self.failures = project, failures
        self.stopping = threading.Event()
        self.count = Counter()

    def run(self):
        try:
            while not self.stopping.is_set():
                self.once()
        except BaseException as error: # or it would end unseen
            self.failures.add(f"{type(self).__name__}: {type(error).__name__}: {error}")

    def stop(self):
        self.stopping.set()


class Health(Loop):
    """Half on a kept connection, half on new ones."""

    def __init__(self, *common):
        super().__init__(*common)
        self.connection, self.good = self.project.connect(timeout=5), [time.monotonic()]

    def once(self):
        for attempt in (1, 2):
            try:
                status, _ = self.connection.request("GET", "/healthz")
                break
            except OSError as error:
                self.count["repeated"] += 1
                if attempt == 2:
                    self.failures.add(f"/healthz twice in a row: {error}")
                    return
        self.failures.check(status == 200, f"/healthz: {status}")
        self.good.append(time.monotonic())
        self.count["answered"] += 1
        if self.count["answered"] % 2:
            self.connection.close()
        time.sleep(0.01)

    def longest_gap(self, since: float) -> float:
        good = [t for t in self.good if t >= since - 1]
        return max((b - a for a, b in zip(good, good[1:])), default=float("inf"))


class Commands(Loop):
    """A command may fail while the supervisor or its worker is away; one that is answered has the right output."""

    def __init__(self, project, failures, session: str):
        super().__init__(project, failures)
        self.connection, self.session = project.connect(), session

    def once(self):
        word = f"word-{self.count['tried']}"
        self.count["tried"] += 1
        try:
            status, data = self.connection.request("POST", f"/api/sessions/{self.session}/exec", {"command": f"echo {word}"})
        except OSError:
            self.count["broken"] += 1
            return
        if status == 200:
            answer = json.loads(data)
            self.count["right" if answer["stdout"] == word + "\n" and answer["exit_code"] == 0 else "killed"] += 1
            if answer["exit_code"] == 0:
                self.failures.check(answer["stdout"] == word + "\n", f"exec printed {answer['stdout']!r}")
        elif status in (502, 503, 504):
            self.count["unavailable"] += 1
            time.sleep(0.05)
        else:
            self.failures.add(f"exec: {status} {data[:200]!r}")
        time.sleep(0.02)


class Turns(Loop):
    """One turn after the other: each ends, and says why when it has not completed."""

    def __init__(self, project, failures, session: str):
        super().__init__(project, failures)
        self.connection, self.session = project.connect(), session
        self.run_id = None

    def ask(self, method, path, body=None):
        """GETs are repeated, as clients do; a POST is not."""
        for attempt in range(3 if method == "GET" else 1):
            try:
                return self.connection.request(method, path, body)
            except OSError:
                self.count["broken"] += 1
                time.sleep(0.05)
        return 0, b""

    def once(self):
        number = self.count["begun"]
        self.count["begun"] += 1
        prompt = f"$ sleep 0.7; echo sum-$(({number} * 1000 + 7))" # what it prints is no part of what was asked
        status, data = self.ask("POST", f"/api/sessions/{self.session}/messages", {"prompt": prompt})
        if status in (0, 409, 503): # whether a broken POST has begun one is not known, so the next may find it
            time.sleep(0.1)
            return
        if not self.failures.check(status == 202, f"message: {status} {data[:200]!r}"):
            return
        self.run_id, end = json.loads(data)["id"], time.monotonic() + TURN_SECONDS
        while time.monotonic() < end:
            status, data = self.ask("GET", f"/api/sessions/{self.session}")
            found = [run for run in json.loads(data)["runs"] if run["id"] == self.run_id] if status == 200 else []
            if found and found[0]["status"] in TERMINAL:
                self.judge(found[0], f"sum-{number * 1000 + 7}")
                self.run_id = None
                return
            time.sleep(0.05)
        self.failures.add(f"the turn {self.run_id} did not end within {TURN_SECONDS} s")
        self.run_id = None

    def judge(self, run, word: str):
        self.count[run["status"]] += 1
        if run["status"] == "completed":
            right = word in run["final_output"]
            self.count["with the right output" if right else "told of an interruption"] += 1
            self.failures.check(right or TOLD.search(run["final_output"]), f"{word} ended with {run['final_output']!r}")
        else:
            self.failures.check(run["error"] or run["stop_reason"], f"a turn is {run['status']} and says no reason")


class Follower(Loop):
    """Reads the stream, and resumes behind the last event whenever it breaks."""

    def __init__(self, project, failures, session: str):
        super().__init__(project, failures)
        self.session, self.seen = session, []

    def once(self):
        after = self.seen[-1] if self.seen else 0
        connection = self.project.connect(timeout=1)
        try:
            connection.request_stream(f"/api/sessions/{self.session}/events/stream?after={after}")
            self.read(connection)
        except OSError:
            pass
        connection.close()
        self.count["resumed"] += not self.stopping.is_set()
        time.sleep(0.05)

    def read(self, connection: Connection):
        rest, silent = b"", 0
        while not self.stopping.is_set():
            try:
                data = connection.socket.recv(65536)
            except TimeoutError:
                silent += 1
                if silent > 20:
                    self.failures.add("a stream was silent for 20 s")
                    return
                continue
            if not data:
                return
            silent = 0
            *frames, rest = (rest + data).split(b"\n\n")
            for frame in frames:
                for line in frame.split(b"\n"):
                    if line.startswith(b"id: "):
                        self.take(int(line[4:]))

    def take(self, seq: int):
        if self.seen and seq <= self.seen[-1]:
            self.failures.add(f"event {seq} came after {self.seen[-1]}")
        self.seen.append(seq)


class Load:
    """Everything at once."""

    def __init__(self, project: Project, failures: Failures, sessions):
        common = (project, failures)
        self.health = Health(*common)
        self.commands = [Commands(*common, session) for session in sessions]
        self.turns = [Turns(*common, session) for session in sessions]
        self.followers = [Follower(*common, session) for session in sessions for _ in range(FOLLOWERS)]
        self.all = [self.health, *self.commands, *self.turns, *self.followers]
        for loop in self.all:
            loop.start()

    def stop(self, loops):
        for loop in loops:
            loop.stop()
        end = time.monotonic() + TURN_SECONDS + 5
        for loop in loops:
            loop.join(max(0.0, end - time.monotonic()))
            if loop.is_alive():
                loop.failures.add(f"{type(loop).__name__} does not end")

    def summary(self, loops) -> str:
        total = sum((loop.count for loop in loops), Counter())
        return ", ".join(f"{count} {name}" for name, count in total.items() if count)


# --- what may not be left over ----------------------------------------------------------------------------------------------


class Traces:
    """All that sandboxes leave on a machine, as names that can be compared."""

    def __init__(self, project: Project):
        self.project = project
        self.state = project.setting("SUPERVISOR_STATE", "/var/lib/agent-sandbox/supervisor", "supervisor")
        status = self.folder().stat()
        self.cgroup = f"agent-sandbox-{status.st_dev:x}-{status.st_ino:x}"
        self.first_id = int(project.setting("ID_BASE", "1048576", "supervisor"))

    def folder(self) -> Path:
        """The supervisor's, as it sees it."""
        return Path(f"/proc/{self.project.pids('supervisor')[0]}/root{self.state}")

    def processes(self) -> set[str]:
        """By their user ids, which are nobody else's."""
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.first_id <= folder.stat().st_uid < self.first_id + 131072000:
                    found.add(f"process {folder.name} {read(folder / 'comm').strip()}")
            except OSError:
                continue
        return found

    def cgroups(self) -> set[str]:
        return {f"cgroup {Path(root).relative_to('/sys/fs/cgroup')}/{name}" for root, folders, _ in os.walk("/sys/fs/cgroup") for name in folders
                if self.cgroup in root or name == self.cgroup}

    def mounts(self) -> set[str]:
        found = set()
        for who in ("self", *map(str, self.project.pids("supervisor"))):
            for line in read(f"/proc/{who}/mountinfo").splitlines():
                found.add(f"mount {'ours' if who == 'self' else 'supervisor'} {line.split()[4]}")
        return found

    def folders(self) -> set[str]:
        state = self.folder()
        return {f"folder {path.relative_to(state)}" for pattern in ("*", "*/*") for path in state.glob(pattern)}

    def everything(self) -> set[str]:
        return self.processes() | self.cgroups() | self.mounts() | self.folders()


def descriptor_counts(project: Project) -> dict[int, tuple[str, int]]:
    return {pid: (role, descriptors(pid)) for pid, role in project.everybody().items()}


# --- the course of it -------------------------------------------------------------------------------------------------------


class Witness:
    """A background process in a sandbox, which must outlive everything but the session."""

    def __init__(self, connection: Connection, session: str):
        self.session = session
        command = "setsid sh -c 'while :; do sleep 1; done' >/dev/null 2>&1 </dev/null & echo $!"
        self.pid = int(self.exec(connection, command))
        self.began = self.start_time(connection)

    def exec(self, connection, command: str) -> str:
        return connection.call("POST", f"/api/sessions/{self.session}/exec", {"command": command})["stdout"].strip()

    def start_time(self, connection) -> str:
        return self.exec(connection, f"cut -d' ' -f22 /proc/{self.pid}/stat 2>&1")


def works_again(project: Project, sessions, seconds: float) -> bool:
    """A command in every session."""
    end = time.monotonic() + seconds
    left = list(sessions)
    with project.connect(timeout=10) as connection:
        while left and time.monotonic() < end:
            try:
                connection.call("POST", f"/api/sessions/{left[0]}/exec", {"command": "true"})
                left.pop(0)
            except (OSError, Refused):
                time.sleep(0.05)
    return not left


def kill_one(project: Project, failures: Failures, load: Load, sessions, role: str):
    before = project.pids(role)
    victim = before[0]
    in_flight = [(turns, turns.run_id) for turns in load.turns if turns.run_id]
    began = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    wait_for(f"another {role}", lambda: len([pid for pid in project.pids(role) if pid != victim]) >= len(before), 15)
    replaced = time.monotonic() - began
    failures.check(works_again(project, sessions, 15), f"after the {role}: commands do not work again within 15 s")
    works = time.monotonic() - began
    end = began + TURN_SECONDS
    while any(turns.run_id == run for turns, run in in_flight) and time.monotonic() < end:
        time.sleep(0.05)
    ended = time.monotonic() - began
    time.sleep(max(0.0, 4 - ended))
    gap = load.health.longest_gap(began)
    failures.check(gap < GAP_MAX, f"after the {role}: /healthz unanswered for {ms(gap)}")
    print(f"kill -9 of {role} {victim}: replaced within {replaced:.2f} s, commands work after {works:.2f} s, "
          f"the {len(in_flight)} turns in flight ended after {ended:.1f} s, /healthz never more than {ms(gap)} apart", flush=True)


def judge_followers(project: Project, failures: Failures, load: Load, sessions, connection):
    for session in sessions:
        log, after = [], 0
        while page := connection.call("GET", f"/api/sessions/{session}/events?after={after}&limit=1000"):
            log += [event["seq"] for event in page]
            after = log[-1]
        mine = [follower for follower in load.followers if follower.session == session]
        end = time.monotonic() + 10
        while any(follower.seen[-1:] != log[-1:] for follower in mine) and time.monotonic() < end:
            time.sleep(0.1)
        for follower in mine:
            lost = sorted(set(log) - set(follower.seen))
            failures.check(follower.seen == log, f"a follower saw {len(follower.seen)} of {len(log)} events; lost {lost[:5]}")


def judge_descriptors(project: Project, failures: Failures, before, after):
    """Of those that lived through it; of a new process, beside the most that one of its role had. A thread opens its link to the supervisor, and a
    pool its connections, when they are first needed."""
    lazy = 2 + int(project.setting("WORKER_THREADS", "64")) + int(project.setting("DATABASE_POOL", "8"))
    for pid, (role, count) in after.items():
        had = before[pid][1] if pid in before else max((c for r, c in before.values() if r == role), default=0)
        about = "" if pid in before else " (new, beside the old ones)"
        failures.check(count <= had + lazy, f"{role} {pid} has {count} descriptors, had {had}{about}")

    def most(counts, role):
        return max(count for other, count in counts.values() if other == role)

    roles = dict.fromkeys(role for role, _ in after.values())
    print("descriptors " + ", ".join(f"{role} {most(before, role)} → {most(after, role)}" for role in roles), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pid", type=int, help="of container/run.sh, when SANDBOX_BASE_URL names a server")
    options = parser.parse_args()
    failures = Failures()
    with Project(options.pid, WORKER_THREADS="8") as project, project.connect() as connection:
        traces = Traces(project)
        clean = traces.everything()
        agent = project.agent(connection)["id"]
        sessions = [project.session(connection, agent)["id"] for _ in range(SESSIONS)]
        witnesses = [Witness(connection, session) for session in sessions]
        project.use_every_thread(sessions)
        warm_up = Load(project, failures, sessions)
        time.sleep(5)
        warm_up.stop(warm_up.all)
        time.sleep(1)
        before = descriptor_counts(project)

        load = Load(project, failures, sessions)
        time.sleep(2)
        for role in ("worker", "streamer", "runner", "supervisor"):
            kill_one(project, failures, load, sessions, role)
        load.stop([load.health, *load.commands, *load.turns])
        connection.close()
        judge_followers(project, failures, load, sessions, connection)
        load.stop(load.followers)
        print(f"/healthz: {load.summary([load.health])}\ncommands: {load.summary(load.commands)}\nturns: {load.summary(load.turns)}\n"
              f"followers: {len(load.followers)}, {sum(len(f.seen) for f in load.followers)} events, {load.summary(load.followers)}", flush=True)
        for witness in witnesses:
            status = connection.call("GET", f"/api/sessions/{witness.session}")["status"]
            failures.check(status == "running", f"session {witness.session} is {status}")
            failures.check(witness.start_time(connection) == witness.began, f"what ran in session {witness.session} is gone")
        time.sleep(1)
        judge_descriptors(project, failures, before, descriptor_counts(project))

        for session in sessions:
            connection.call("DELETE", f"/api/sessions/{session}")
        connection.call("DELETE", f"/api/agents/{agent}")
        end = time.monotonic() + 10
        while (left := traces.everything() - clean) and time.monotonic() < end:
            time.sleep(0.2)
        failures.check(not left, f"left over: {sorted(left)[:10]}")
        for role in ("server", "supervisor", *ROLES):
            failures.check(project.pids(role), f"there is no {role}")
    print("nothing is left over" if not failures.said else f"{len(failures.said)} failures")
    return 1 if failures.said else 0


if __name__ == "__main__":
    sys.exit(main())
