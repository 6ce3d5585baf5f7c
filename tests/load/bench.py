#!/usr/bin/env python3
"""make bench: how fast it is, each figure beside one of something else that was taken in the same run, since machines drift.

    bench.py [--seconds 5] [--followers 2000] [--pid PID] [PART...]        parts: http create exec sandbox followers slow flat chaos

Starts the programs itself, in a folder of their own, unless SANDBOX_BASE_URL and SANDBOX_API_KEY name a server (with STATE_DIR or --pid for what
looks at processes). Everything is bounded in time; with all parts it takes about three minutes. Ends with 1 when a bound that the project
has set itself is broken or a part could not be measured.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import crun
import direct
from project import TOP, Project, build, memory, ms, percentile, read, spread, wait_for

HERE = Path(__file__).parent
GAP = 0.05


class Table:
    """What was measured, and what stands beside it."""

    def __init__(self):
        self.rows = []
        self.broken = []

    def add(self, what: str, value: str, beside: str = "", ratio: str = ""):
        print(f"  {what}: {value}" + (f"; {beside}" if beside else "") + (f"; {ratio}" if ratio else ""), flush=True)
        self.rows.append((what, value, beside, ratio))

    def bound(self, what: str, kept: bool):
        if not kept:
            self.broken.append(what)

    def print(self):
        rows = [("measured", "ours", "beside", "ratio"), *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        print()
        for number, row in enumerate(rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
            if number == 0:
                print("  ".join("-" * width for width in widths))
        for what in self.broken:
            print(f"BROKEN: {what}")


def ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs else ""


# --- requests a second ---------------------------------------------------------------------------------------------------


class Wrk:
    """One bounded run of wrk(1)."""

    SCALE = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}

    def __init__(self, url: str, seconds: float, token: str | None = None, connections: int = 64):
        command = ["wrk", "-t", "2", "-c", str(connections), "-d", f"{seconds:g}s", "--latency", "--timeout", "10s"]
        if token:
            command += ["-H", f"Authorization: Bearer {token}"]
        done = subprocess.run([*command, url], capture_output=True, text=True, timeout=seconds + 30)
        if done.returncode:
            raise SystemExit(f"wrk {url}: {done.stderr or done.stdout}")
        self.rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1])
        self.p50, self.p99 = (self._time(done.stdout, share) for share in ("50%", "99%"))
        wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
        failed = re.search(r"Socket errors: .*", done.stdout)
        self.errors = ", ".join([*([f"{wrong[1]} answers other than 2xx"] if wrong else []), *([failed[0]] if failed else [])])

    def _time(self, text: str, share: str) -> float:
        match = re.search(rf"^\s+{share}\s+([\d.]+)(us|ms|s|m)$", text, re.M)
        return float(match[1]) * self.SCALE[match[2]]

    def __str__(self):
        return f"{self.rate:,.0f}/s, p50 {ms(self.p50)}, p99 {ms(self.p99)}" + (f" ({self.errors})" if self.errors else "")


class Bare:
    """CivetWeb alone, with as many processes and threads as the server's workers have."""

    def __init__(self, processes: int, threads: int):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/healthz"
        self.process = subprocess.Popen([build() / "tests/load/bare_civetweb", str(self.port), str(processes), str(threads)])

    def __enter__(self):
        wait_for("bare CivetWeb", self._answers, 10)
        return self

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise SystemExit("bare CivetWeb does not start")
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)


def statement(file: str, name: str, *values: str) -> str:
    """A query of ours with its parameters written out, for pgbench. The values are digests, ids and words of ours."""
    text = re.split(r"^-- name: (\S+).*$", read(TOP / "sql/queries" / file), flags=re.M)
    text = re.sub(r"--.*", "", text[text.index(name) + 1]).strip()
    for number, value in enumerate(values, 1):
        text = text.replace(f"${number}", "NULL" if value is None else f"'{value}'")
    return text


def pgbench(project: Project, agent: str, seconds: float, clients: int) -> tuple[float, float] | str:
    """Transactions a second and their mean time; each is what GET /api/agents/{id} asks. Or why that can't be measured."""
    program = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), reverse=True)), None) or shutil.which("pgbench")
    try:
        # The server takes it out of its environment; what make run leaves for operators has it.
        state = project.state or Path(project.setting("SUPERVISOR_STATE", "", "supervisor")).parent
        found = re.search(r"\bDATABASE_URL=(.*)$", Path(state, "sandboxctl").read_text(), re.M)
        url = shlex.split(found[1])[0] if found else ""
    except (SystemExit, KeyError, OSError):
        return "which database it uses is not known (STATE_DIR or --pid)"
    if not program:
        return "pgbench is not installed"
    if not (match := re.fullmatch(r"postgresql://(\w+)@/(\w+)\?host=([^&]+)", url)):
        return "the database is not the private one"
    user, database, host = match.groups()
    with project.connect() as connection:
        tenant = connection.call("GET", "/api/projects")[0]["id"]
    digest = hashlib.sha256(project.key.encode()).hexdigest()
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        if project.key.startswith("ak_"):
            script.write(statement("identity.sql", "identity_key", digest) + "\n")
        script.write(statement("agents.sql", "agents_get", tenant, agent, None, "builtin/shell") + "\n")
        script.flush()
        done = subprocess.run([program, "-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", f"{seconds:.0f}", "-h", host, "-U", user,
                               "-f", script.name, database], capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode:
        return f"pgbench: {done.stderr.strip()[-300:]}"
    return (float(re.search(r"tps = ([\d.]+)", done.stdout)[1]),
            float(re.search(r"latency average = ([\d.]+) ms", done.stdout)[1]) / 1000)


def bench_http(project: Project, table: Table, options):
    try:
        workers = int(project.setting("WORKERS", "0")) or os.cpu_count()
        threads, pool = int(project.setting("WORKER_THREADS", "64")), int(project.setting("DATABASE_POOL", "8"))
    except (SystemExit, KeyError):
        workers, threads, pool = os.cpu_count(), 64, 8
    with project.connect() as connection, Bare(workers, threads) as bare:
        agent = project.agent(connection)["id"]
        Wrk(f"{project.url}/api/agents/{agent}", 1, project.key)
        before = Wrk(bare.url, options.seconds)
        health = Wrk(f"{project.url}/healthz", options.seconds)
        get = Wrk(f"{project.url}/api/agents/{agent}", options.seconds, project.key)
        after = Wrk(bare.url, options.seconds)
        database = pgbench(project, agent, options.seconds, workers * pool)
        connection.call("DELETE", f"/api/agents/{agent}")
    rate = (before.rate + after.rate) / 2
    table.add("bare CivetWeb, before and after", str(before), str(after))
    table.add("GET /healthz", str(health), f"bare CivetWeb {rate:,.0f}/s", f"{ratio(health.rate, rate)} of its rate")
    table.add("GET /api/agents/{id} with a key", str(get), f"bare CivetWeb {rate:,.0f}/s", f"{ratio(get.rate, rate)} of its rate")
    if isinstance(database, str):
        table.add("its statements by pgbench", "not measured", database)
    else:
        table.add("GET /api/agents/{id}, again", f"{get.rate:,.0f}/s", f"its statements by pgbench {database[0]:,.0f}/s, mean {ms(database[1])}",
                  f"{ratio(get.rate, database[0])} of its rate")
    table.bound("requests failed under wrk", not (health.errors or get.errors))


# --- sandboxes -----------------------------------------------------------------------------------------------------------


def crun_beside(project: Project, table: Table, cache={}) -> dict | None:
    """Taken once for both parts that show it."""
    if "times" not in cache:
        try:
            image = Path(project.setting("IMAGES_DIR", "", "supervisor"), project.setting("SANDBOX_IMAGE", "base"))
        except (SystemExit, KeyError):
            image = None
        folder = Path(tempfile.mkdtemp(prefix="bench-crun-"))
        try:
            if os.geteuid() != 0 or not shutil.which("crun") or not image or not image.is_dir():
                table.add("crun", "not measured", "needs root, crun, and STATE_DIR or --pid")
                cache["times"] = None
            else:
                cache["times"] = crun.measure(str(image), folder, 200, GAP)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return cache["times"]


def bench_create(project: Project, table: Table, options):
    created, deleted = [], []
    with project.connect() as connection:
        agent = project.agent(connection)["id"]
        for number in range(32):
            began = time.monotonic()
            session = project.session(connection, agent)["id"]
            up = time.monotonic()
            connection.call("DELETE", f"/api/sessions/{session}")
            if number >= 2:
                created.append(up - began)
                deleted.append(time.monotonic() - up)
        connection.call("DELETE", f"/api/agents/{agent}")
    theirs = crun_beside(project, table)
    if theirs:
        table.add("create_and_wait", spread(created), f"crun run --detach {spread(theirs['run'])}",
                  f"{ratio(percentile(created, 0.5), percentile(theirs['run'], 0.5))} of its p50")
    else:
        table.add("create_and_wait", spread(created))
    table.add("DELETE of a running session", spread(deleted))


# What is measured by sandbox_bench, beside what, and what its p50 may be of the other's (None: told, not bounded).
SANDBOX_BOUNDS = [
    ("cold, back to back", "bwrap", 1.0), ("cold, one per 50 ms", "bwrap", 1.0), ("cold, back to back", "crun", None), ("cold, back to back", "runc", None),
    ("claim, back to back", "bwrap", 0.25), ("claim, one per 50 ms", "bwrap", 0.25),
    ("exec, back to back", "crun", 0.2), ("exec, one per 50 ms", "crun", 0.08), ("exec, back to back", "runc", None), ("exec, one per 50 ms", "runc", None),
]
CROWD_BOUNDS = [("exec", 1.3), ("cold", 2.0)]
CROWD_KIB = 0.7 * 1024


def sandbox_figures(project: Project) -> dict:
    """The lines of sandbox_bench, which makes sandboxes with a supervisor of its own, its state on tmpfs: part -> who -> figures."""
    image = Path(project.setting("IMAGES_DIR", "", "supervisor"), project.setting("SANDBOX_IMAGE", "base"))
    done = subprocess.run([build() / "tests/load/sandbox_bench", image], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"sandbox_bench: {done.stderr.strip()[-300:]}")
    figures: dict = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        figures.setdefault(row.pop("part"), {}).setdefault(row.pop("who"), {}).update(row)
    return figures


def bench_sandbox(project: Project, table: Table, options):
    figures = sandbox_figures(project)

    def p50(part: str, who: str) -> float:
        return figures[part][who]["p50_us"] / 1e6

    for part, other, bound in SANDBOX_BOUNDS:
        if other not in figures[part]:
            table.add(part, ms(p50(part, "ours")), f"{other}: not installed")
            table.bound(f"{part}: {other} is not there to compare with", bound is None)
            continue
        of = p50(part, "ours") / p50(part, other)
        table.add(part, ms(p50(part, "ours")), f"{other} {ms(p50(part, other))}", f"{of:.2f}" + (f", to reach {bound:g}" if bound else ""))
        table.bound(f"{part}: {of:.2f} of {other}, more than {bound}", bound is None or of <= bound)
    for count in (1, 4, 16):
        part = figures[f"cold, {count} at once"]
        table.add(f"cold, {count} at once", f"{part['ours']['per_second']:.0f}/s",
                  ", ".join(f"{who} {part[who]['per_second']:.0f}/s" for who in ("bwrap", "crun", "runc") if who in part))
    for what, bound in CROWD_BOUNDS:
        of = p50("beside 1000", what) / p50("beside 1", what)
        table.add(f"{what} beside 1,000 idle sandboxes", ms(p50("beside 1000", what)), f"beside one {ms(p50('beside 1', what))}", f"{of:.2f}, to reach {bound:g}")
        table.bound(f"{what} beside 1,000: {of:.2f} of beside one, more than {bound}", of <= bound)
    each = figures["crowd"]["ours"]["kib_each"]
    table.add("an idle sandbox holds", f"{each:.0f} KiB", "all kernel memory counted", f"to reach {CROWD_KIB:.0f}")
    table.bound(f"an idle sandbox holds {each:.0f} KiB, more than {CROWD_KIB:.0f}", each <= CROWD_KIB)


def exec_times(connection, session: str, count: int, gap: float) -> list[float]:
    times, due = [], time.monotonic()
    for _ in range(count):
        time.sleep(max(0.0, due - time.monotonic()))
        due += gap
        began = time.monotonic()
        answer = connection.call("POST", f"/api/sessions/{session}/exec", {"command": "true"})
        times.append(time.monotonic() - began)
        if answer["exit_code"] != 0:
            raise SystemExit(f"true: {answer}")
    return times


def bench_exec(project: Project, table: Table, options):
    with project.connect() as connection:
        agent = project.agent(connection)["id"]
        session = project.session(connection, agent)["id"]
        exec_times(connection, session, 20, 0)
        ours = {"back_to_back": exec_times(connection, session, 200, 0), "apart": exec_times(connection, session, 200, GAP)}
        inner = None
        try:
            path = project.setting("SUPERVISOR_SOCKET", "")
            if path and os.access(path, os.W_OK):
                inner = {"back_to_back": direct.measure(path, session, 200, 0), "apart": direct.measure(path, session, 200, GAP)}
        except (SystemExit, KeyError) as error:
            print(f"  the supervisor alone is not measured: {error}")
        connection.call("DELETE", f"/api/sessions/{session}")
        connection.call("DELETE", f"/api/agents/{agent}")
    theirs = crun_beside(project, table)
    for key, when in (("back_to_back", "back to back"), ("apart", "one per 50 ms")):
        if theirs:
            table.add(f"exec of true, {when}", spread(ours[key]), f"crun exec {spread(theirs[key])}",
                      f"{ratio(percentile(ours[key], 0.5), percentile(theirs[key], 0.5))} of its p50")
        else:
            table.add(f"exec of true, {when}", spread(ours[key]))
        if inner:
            table.add(f"  the supervisor alone, {when}", spread(inner[key]), "the same with HTTP and database, above",
                      f"{ratio(percentile(inner[key], 0.5), percentile(ours[key], 0.5))} of its p50")


# --- followers -------------------------------------------------------------------------------------------------------------


def kernel_memory() -> int:
    """Slab and the buffers of TCP, in bytes; of the whole machine, so only a difference says something."""
    slab = int(re.search(r"^Slab:\s+(\d+) kB", read("/proc/meminfo"), re.M)[1]) * 1024
    pages = int(re.search(r"^TCP: .* mem (\d+)", read("/proc/net/sockstat"), re.M)[1])
    return slab + pages * os.sysconf("SC_PAGE_SIZE")


class Followers:
    """followers.c: so many streams of one session, until the end of the block."""

    def __init__(self, project: Project, session: str, after: int, count: int):
        command = [build() / "tests/load/followers", str(project.address[1]), str(count), f"/api/sessions/{session}/events/stream?after={after}",
                   '"session.status_idle"', "20"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "SANDBOX_API_KEY": project.key})
        self.count = count

    def line(self, word: str) -> tuple[float, float]:
        line = self.process.stdout.readline().split()
        if len(line) != 4 or line[0] != word or int(line[1]) != self.count:
            raise SystemExit(f"of {self.count} followers: {' '.join(line) or 'the client ended'}")
        return float(line[2]), float(line[3])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def follow_turn(project: Project, connection, session: str, count: int):
    """Seconds until all were open; from the message to the first and to the last follower's end of the turn; and memory per follower."""
    try:
        streamer = next(iter(project.pids("streamer")), None)
    except SystemExit:
        streamer = None
    own = memory(streamer) if streamer else {}
    kernel = kernel_memory()
    with Followers(project, session, project.last_seq(connection, session), count) as followers:
        opened = followers.line("open")
        time.sleep(0.5)
        grown = {name: (size - own.get(name, 0)) / count for name, size in memory(streamer).items()} if own else {}
        grown["kernel"] = (kernel_memory() - kernel) / count
        began = time.monotonic()
        connection.call("POST", f"/api/sessions/{session}/messages", {"prompt": "$ echo the followers see this"})
        first, last = followers.line("seen")
    return opened[1] - opened[0], first - began, last - began, grown


def bench_followers(project: Project, table: Table, options):
    with project.connect() as connection:
        agent = project.agent(connection)["id"]
        session = project.session(connection, agent)["id"]
        follow_turn(project, connection, session, 1)
        _, _, alone, _ = follow_turn(project, connection, session, 1)
        opened, first, last, grown = follow_turn(project, connection, session, options.followers)
        connection.call("DELETE", f"/api/sessions/{session}")
        connection.call("DELETE", f"/api/agents/{agent}")
    count = f"{options.followers:,}"
    table.add(f"{count} followers opened", f"{opened:.2f} s", f"{options.followers / opened:,.0f}/s")
    table.add(f"message to the turn's end at {count} followers", f"the first {ms(first)}, all {ms(last)}", f"at one follower {ms(alone)}",
              f"{ratio(last, alone)} of it")
    if "Pss" in grown:
        table.add("the streamer's memory per follower", f"RSS {grown['Rss'] / 1024:.2f} KiB, PSS {grown['Pss'] / 1024:.2f} KiB",
                  f"the kernel's for both ends of a socket {grown['kernel'] / 1024:.1f} KiB")
    else:
        table.add("the streamer's memory per follower", "not measured", "which processes serve is not known (STATE_DIR or --pid)")


# --- the load tests --------------------------------------------------------------------------------------------------------


def load_test(name: str, about: str, own: bool):
    """A program of its own; its exit status says whether its bounds held. `own`: against a server of its own with few threads, which are soon
    warm, unless the environment names one."""

    def run(project: Project, table: Table, options):
        environment = dict(os.environ)
        command = [sys.executable, str(HERE / f"{name}.py")]
        if not (own and project.process):
            environment |= {"SANDBOX_BASE_URL": project.url, "SANDBOX_API_KEY": project.key}
        if own and not project.process and project.run_pid:
            command += ["--pid", str(project.run_pid)]
        began = time.monotonic()
        process = subprocess.Popen(command, env=environment)
        try:
            kept = process.wait(180) == 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT) # it stops what it started
            process.wait(60)
            kept = False
        table.add(about, "held" if kept else "BROKEN", f"{time.monotonic() - began:.0f} s, figures above")
        table.bound(about, kept)

    return run


PARTS = {
    "http": bench_http, "create": bench_create, "exec": bench_exec, "sandbox": bench_sandbox, "followers": bench_followers,
    "slow": load_test("slow_clients", "/healthz beside 2,600 slow clients", False),
    "flat": load_test("flat", "memory and descriptors over 2,000 requests", True),
    "chaos": load_test("chaos", "kill -9 of each process under load", True),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5, help="of each run of wrk and pgbench")
    parser.add_argument("--followers", type=int, default=2000)
    parser.add_argument("--pid", type=int, help="of container/run.sh, when SANDBOX_BASE_URL names a server")
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help=" ".join(PARTS))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    table = Table()
    with Project(options.pid) as project:
        for name in options.parts:
            print(f"--- {name}", flush=True)
            try:
                PARTS[name](project, table, options)
            except (SystemExit, Exception) as error:
                table.add(name, "not measured", f"{type(error).__name__}: {error}"[:200])
                table.broken.append(f"{name}: {error}")
    table.print()
    return 1 if table.broken else 0


if __name__ == "__main__":
    sys.exit(main())
