#!/usr/bin/env python3
"""crun on the base image, as something to compare with: crun.py IMAGE FOLDER COUNT GAP-MS prints how long its commands took, as JSON.

crun refuses a hybrid layout of cgroups, so it runs where the v2 half is hidden: in a mount namespace of its own, made by unshare(1).
"""
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

COMMAND = ["/bin/sh", "-c", "true"]
UNIFIED = Path("/sys/fs/cgroup/unified")


def timed(arguments, count: int, gap: float, environment=None) -> list[float]:
    """vfork, exec, wait: the least that starting the tool costs."""
    program = shutil.which(arguments[0])
    nothing = os.open("/dev/null", os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, nothing, fd) for fd in (0, 1, 2)]
    times, due = [], time.monotonic()
    for _ in range(count):
        time.sleep(max(0.0, due - time.monotonic()))
        due += gap
        began = time.monotonic()
        _, status = os.waitpid(os.posix_spawn(program, arguments, environment or os.environ, file_actions=actions), 0)
        times.append(time.monotonic() - began)
        if status:
            raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    os.close(nothing)
    return times


class Container:
    """With a sandbox's limits, and crun's own choice of namespaces and capabilities."""

    def __init__(self, image: str, folder: Path, name: str):
        self.name, self.bundle = name, folder / name
        self.crun = ["crun", "--root", str(folder / "root")]
        self.bundle.mkdir(parents=True)
        subprocess.run([*self.crun, "spec"], cwd=self.bundle, check=True)
        config = json.loads((self.bundle / "config.json").read_text())
        config["root"] = {"path": image, "readonly": True}
        config["process"]["terminal"] = False
        config["process"]["args"] = ["/bin/sleep", "300"]
        config["linux"].setdefault("resources", {}).update(
            memory={"limit": 1 << 30}, pids={"limit": 512}, cpu={"quota": 200000, "period": 100000})
        (self.bundle / "config.json").write_text(json.dumps(config))

    def __enter__(self):
        return self

    def run(self) -> float:
        began = time.monotonic()
        done = subprocess.run([*self.crun, "run", "--detach", "--bundle", str(self.bundle), self.name], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=(self.bundle / "errors").open("w"))
        if done.returncode:
            raise SystemExit(f"crun run: {(self.bundle / 'errors').read_text().strip()}")
        return time.monotonic() - began

    def exec(self, count: int, gap: float) -> list[float]:
        return timed([*self.crun, "exec", self.name, *COMMAND], count, gap)

    def __exit__(self, *_):
        subprocess.run([*self.crun, "delete", "--force", self.name], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.bundle)


def inside(image: str, folder: Path, count: int, gap: float):
    if UNIFIED.is_dir():
        subprocess.run(["mount", "-t", "tmpfs", "none", str(UNIFIED)], check=True)
    result = {"run": []}
    for number in range(max(10, count // 10)):
        with Container(image, folder, f"bench-run-{os.getpid()}-{number}") as container:
            result["run"].append(container.run())
    with Container(image, folder, f"bench-exec-{os.getpid()}") as container:
        container.run()
        container.exec(10, 0)
        result["back_to_back"] = container.exec(count, 0)
        result["apart"] = container.exec(count, gap)
    print(json.dumps(result))


def measure(image: str, folder: Path, count: int, gap: float) -> dict:
    """In a namespace of its own. Bounded: a command takes far less than half a second."""
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, __file__, image, str(folder), str(count),
                           str(gap * 1000)], capture_output=True, text=True, timeout=30 + count * (1 + gap))
    if done.returncode:
        raise SystemExit(f"crun can't be measured: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    inside(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]) / 1000)
