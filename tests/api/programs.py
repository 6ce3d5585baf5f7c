"""The programs as `make run` starts them (container/run.sh), in a STATE_DIR of their own; how to disturb them, and what they leave."""
from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("O", "build/release"))
START_SECONDS, STOP_SECONDS = 300, 120
SANITIZER = re.compile(r"(ERROR|WARNING|SUMMARY): (Address|Leak|Thread|Undefined\w*)Sanitizer|runtime error:")


def wait_for(what: str, look, seconds: float = 30.0, every: float = 0.05):
    """The first truthy value of `look`; fails by saying what was waited for."""
    end = time.monotonic() + seconds
    while not (value := look()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what}")
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
            "LOG_LEVEL": "INFO", "EGRESS": "0", **self._sanitizers(), **environment,
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
                raise RuntimeError(f"the programs do not start:\n{read(self.state / 'run.log')}")
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
            raise AssertionError(f"not stopped within {STOP_SECONDS} s:\n{read(self.state / 'run.log')[-2000:]}") from None

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
