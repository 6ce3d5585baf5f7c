"""All that a tenant could try, uploaded and run as a tenant would: tests/sandbox/battery."""
import os
import socket

import pytest
from programs import BUILD


@pytest.fixture
def battery(client, session):
    client.sessions.upload_file(session.id, (BUILD / "tests/sandbox/battery").read_bytes(), path="battery")
    assert client.sessions.exec(session.id, "chmod 755 battery").exit_code == 0
    return session


# What can't be told there: nothing was left for it to look at.
LOOKED_AT_ELSEWHERE = {"proc.setuid_program", "unix.supervisor_socket", "compat.limits_told"}


def failures(output):
    lines = output.splitlines()
    assert int(lines[-1].split()[0]) > 400, output
    return [line for line in lines[:-1] if not line.startswith(("ok ", "skip neighbour.")) and line.removeprefix("skip ") not in LOOKED_AT_ELSEWHERE]


@pytest.mark.parametrize("how", ["./battery", "./battery --as 1000"])
def test_nothing_is_let_out(client, server, battery, how):
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as abstract:
        listener.bind(("", 0))
        listener.listen()
        abstract.bind(f"\0battery-of-{os.getpid()}")
        abstract.listen()
        kinds = "".join(os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"))
        told = {"HOST_PID": os.getpid(), "HOST_PORT": listener.getsockname()[1], "HOST_ABSTRACT": f"battery-of-{os.getpid()}",
                "HOST_NAMESPACES": kinds, "CANARY": server.state, "HOST_WORD": server.state.name}
        words = " ".join(f"BATTERY_{name}='{value}'" for name, value in told.items())
        got = client.sessions.exec(battery.id, f"{words} {how}", timeout=60)
        assert failures(got.stdout) == [] and got.exit_code == 0
