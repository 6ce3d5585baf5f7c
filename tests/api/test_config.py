"""What both programs refuse to start with: each bad configuration, and that every fault of one is told."""
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from programs import BUILD, TOP, wait_for

SERVER, SUPERVISOR, INIT = (TOP / BUILD / name for name in ("sandbox-server", "sandbox-supervisor", "sandbox-init"))
ROOT = [] if os.geteuid() == 0 else ["sudo", "-n", "-E"]
GOOD = "q7Lm2xVtB9cRz4NwYpKs8HdJfGa3UeT6"  # 32 bytes


def run(*words, cwd, **settings):
    kept = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS") or k in ("PATH", "HOME")}
    return subprocess.run([str(w) for w in words], env={**kept, **settings}, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def folder(path, mode):
    path.mkdir(parents=True)
    path.chmod(mode)
    return str(path)


def secret(path, mode, text=GOOD):
    path.write_text(text)
    path.chmod(mode)


# --- the server

def server_settings(tmp_path, **settings):
    return {"DATABASE_URL": "postgresql:///unused", "STATE_DIR": str(tmp_path / "state"), "HOST": "127.0.0.1", "OPERATOR_TOKEN": GOOD, **settings}


SERVER_BAD = {
    "a number out of bounds": ({"PORT": "70000"}, ["PORT"]),
    "no number": ({"WORKERS": "many"}, ["WORKERS"]),
    "an unknown level": ({"LOG_LEVEL": "loud"}, ["LOG_LEVEL"]),
    "an unknown network": ({"SANDBOX_NETWORK": "all"}, ["SANDBOX_NETWORK"]),
    "no database": ({"DATABASE_URL": ""}, ["DATABASE_URL"]),
    "an odd database": ({"DATABASE_URL": "postgresql://u:hidden-password@[::1/x"}, ["DATABASE_URL"]),
    "a secret of 31 bytes": ({"OPERATOR_TOKEN": GOOD[:31]}, ["OPERATOR_TOKEN"]),
    "a known key": ({"METRICS_API_KEY": "Change-Me-" + GOOD}, ["METRICS_API_KEY"]),
    "one key for two": ({"METRICS_API_KEY": GOOD}, ["METRICS_API_KEY"]),
    "disks of no size": ({"PROJECT_DISK_MB": "100"}, ["PROJECT_DISK_MB"]),
    "debug on every address": ({"ENV": "dev", "HOST": "0.0.0.0"}, ["ENV"]),
    "debug on every address of IPv6": ({"ENV": "test", "HOST": "::"}, ["ENV"]),
    "debug on another address": ({"ENV": "development", "HOST": "192.0.2.1"}, ["ENV"]),
    "no address": ({"HOST": "300.1.1.1"}, ["HOST"]),
    "no URL": ({"MODEL_BASE_URL": "ftp://models"}, ["MODEL_BASE_URL"]),
    "several": ({"PORT": "0", "LOG_LEVEL": "loud", "DATABASE_URL": "", "OPERATOR_TOKEN": "short"}, ["PORT", "LOG_LEVEL", "DATABASE_URL", "OPERATOR_TOKEN"]),
}


@pytest.mark.parametrize("settings,named", SERVER_BAD.values(), ids=SERVER_BAD)
def test_the_server_refuses(tmp_path, settings, named):
    told = run(SERVER, "--check-config", cwd=tmp_path, **server_settings(tmp_path, **settings))
    lines = told.stderr.splitlines()
    assert told.returncode == os.EX_CONFIG and sorted(line.split()[0].rstrip(":") for line in lines) == sorted(named), told
    started = run(SERVER, cwd=tmp_path, **server_settings(tmp_path, **settings))
    assert started.returncode == os.EX_CONFIG and started.stderr == f"sandbox-server: {lines[0]}\n"
    assert "hidden-password" not in told.stderr + started.stderr and not (tmp_path / "state").exists()


def check_server(tmp_path, **settings):
    return run(SERVER, "--check-config", cwd=tmp_path, **server_settings(tmp_path, **settings))


def test_a_good_configuration_of_the_server_is_fine(tmp_path):
    folder(tmp_path / "state", 0o755)
    folder(tmp_path / "state/run", 0o750)
    for settings in ({}, {"HOST": "::"}, {"ENV": "dev", "OPERATOR_TOKEN": "short"}, {"ENV": "dev", "HOST": "::1"}, {"ENV": "dev", "HOST": "::ffff:127.0.0.1"}):
        told = check_server(tmp_path, **settings)
        assert (told.returncode, told.stderr) == (0, ""), told


@pytest.mark.parametrize("name,mode", [("", 0o777), ("", 0o775), ("run", 0o755), ("spool", 0o770), ("spool", 0o707)])
def test_the_server_refuses_a_folder_that_others_reach(tmp_path, name, mode):
    folder(tmp_path / "state", 0o700)
    if name:
        folder(tmp_path / "state" / name, mode)
    else:
        (tmp_path / "state").chmod(mode)
    told = check_server(tmp_path)
    assert told.returncode == os.EX_CONFIG and told.stderr.startswith("STATE_DIR: ") and told.stderr.count("\n") == 1, told


@pytest.mark.parametrize("mode,good", [(0o600, True), (0o400, True), (0o640, False), (0o604, False), (0o644, False)])
def test_the_server_refuses_a_secret_that_others_can_read(tmp_path, mode, good):
    credentials = Path(folder(tmp_path / "credentials", 0o700))
    secret(credentials / "operator_token", mode)
    by_file = check_server(tmp_path, CREDENTIALS_DIRECTORY=str(credentials), OPERATOR_TOKEN="")
    secret(tmp_path / ".env", mode, f"METRICS_API_KEY={GOOD[::-1]}\n")
    by_env = check_server(tmp_path)
    for told, name in ((by_file, "OPERATOR_TOKEN"), (by_env, "METRICS_API_KEY")):
        assert (told.returncode == 0) == good and GOOD not in told.stderr and GOOD[::-1] not in told.stderr
        assert good or (told.stderr.startswith(f"{name}: ") and told.stderr.count("\n") == 1), told


def test_a_file_without_secrets_may_be_read(tmp_path):
    secret(tmp_path / ".env", 0o644, "LOG_LEVEL=INFO\nMETRICS_API_KEY=\n")
    assert check_server(tmp_path).returncode == 0


def test_what_a_service_manager_gives_a_user_by_name_is_no_secret_of_a_group(tmp_path):
    credentials = Path(folder(tmp_path / "credentials", 0o700))
    secret(credentials / "operator_token", 0o400)
    if not shutil.which("setfacl") or run("setfacl", "-m", "u:1:r", credentials / "operator_token", cwd=tmp_path).returncode != 0:
        pytest.skip("no access lists here")
    assert (credentials / "operator_token").stat().st_mode & 0o070
    assert check_server(tmp_path, CREDENTIALS_DIRECTORY=str(credentials)).returncode == 0
    run("setfacl", "-m", "g:1:r", credentials / "operator_token", cwd=tmp_path)
    assert "OPERATOR_TOKEN" in check_server(tmp_path, CREDENTIALS_DIRECTORY=str(credentials)).stderr


# --- the supervisor

def supervisor_settings(tmp_path, **settings):
    return {"SUPERVISOR_STATE": str(tmp_path / "state"), "IMAGES_DIR": str(tmp_path / "images"), "INIT_PATH": str(INIT),
            "SUPERVISOR_SOCKET": str(tmp_path / "supervisor.sock"), **settings}


def check_supervisor(tmp_path, before="", **settings):
    """In a mount namespace of its own, in which `before` has changed what it will look at."""
    script = before + f'\nexec "{SUPERVISOR}" --check-config'
    return run(*ROOT, "unshare", "--mount", "--propagation", "private", "sh", "-euc", script, cwd=tmp_path, **supervisor_settings(tmp_path, **settings))


def over(path, text):
    return f"printf '{text}' >over && mount --bind over {path}"


USER = r"root:x:0:0::/:/bin/sh\nsbx:x:990:990::/:/bin/sh\n"
FIRST, NEEDED = 1048576, 2001 * 65536

SUPERVISOR_BAD = {
    "a number out of bounds": ("", {"SANDBOXES_MAX": "0"}, "SANDBOXES_MAX"),
    "no flag": ("", {"STOP_ON_EXIT": "perhaps"}, "STOP_ON_EXIT"),
    "an unknown level": ("", {"LOG_LEVEL": "loud"}, "LOG_LEVEL"),
    "no such user": ("", {"SERVER_USER": "nobody-has-this-name"}, "SERVER_USER"),
    "ids beyond the last": ("", {"ID_BASE": "3999990000", "SANDBOXES_MAX": "60000"}, "ID_BASE"),
    "ids of a user": (over("/etc/passwd", rf"{USER}big:x:{FIRST + 7}:1::/:/bin/sh\n"), {}, "ID_BASE"),
    "ids of a group": (over("/etc/group", rf"root:x:0:\nbig:x:{FIRST + NEEDED - 1}:\n"), {}, "ID_BASE"),
    "ids that subuid gives away": (over("/etc/subuid", rf"sbx:{FIRST + NEEDED - 1}:65536\n"), {}, "ID_BASE"),
    "ids that subgid gives away": (over("/etc/subgid", rf"sbx:100000:{FIRST - 99999}\n"), {}, "ID_BASE"),
    "too few ids": (over("/etc/subuid", rf"root:{FIRST}:{NEEDED - 1}\n"), {}, "SANDBOXES_MAX"),
    "a state that others read": ("mkdir state && chmod 0750 state", {}, "SUPERVISOR_STATE"),
    "a state of somebody else": ("mkdir -m 0700 state && chown 1:1 state", {}, "SUPERVISOR_STATE"),
    "a state that is a file": (">state", {}, "SUPERVISOR_STATE"),
    "a state somewhere": ("", {"SUPERVISOR_STATE": "state"}, "SUPERVISOR_STATE"),
    "images that others change": ("mkdir images && chmod 0777 images", {}, "IMAGES_DIR"),
    "images of somebody else": ("mkdir images && chown 1:1 images", {}, "IMAGES_DIR"),
    "no init": ("", {"INIT_PATH": "/nonexistent"}, "INIT_PATH"),
    "an init that others change": ("cp -p /bin/true init && chmod 0777 init", {"INIT_PATH": "init"}, "INIT_PATH"),
    "an init that is no program": (">init", {"INIT_PATH": "init"}, "INIT_PATH"),
    "a socket among others": ("mkdir -m 0777 open", {"SUPERVISOR_SOCKET": "open/s"}, "SUPERVISOR_SOCKET"),
    "a long socket": ("", {"SUPERVISOR_SOCKET": "/" + "s" * 108}, "SUPERVISOR_SOCKET"),
    "a parent that goes up": ("", {"CGROUP_PARENT": "/a/../b"}, "CGROUP_PARENT"),
    "a crash handler": (over("/proc/sys/kernel/core_pattern", "|/usr/sbin/handler") + "\nprlimit --pid $$ --core=0:0"
                        f'\nexec setpriv --bounding-set -sys_resource "{SUPERVISOR}" --check-config', {}, "kernel.core_pattern"),
    "a network of no addresses": ("", {"EGRESS": "1", "EGRESS_RANGE": "10.5.0.0/33"}, "EGRESS_RANGE"),
    "a network with no room": ("", {"EGRESS": "1", "EGRESS_RANGE": "10.5.0.0/24"}, "EGRESS_RANGE"),
    "a network of the host": ("", {"EGRESS": "1", "EGRESS_RANGE": "127.0.0.0/8"}, "EGRESS_RANGE"),
    "a network of the other family": ("", {"EGRESS": "1", "EGRESS_RANGE6": "10.0.0.0/8"}, "EGRESS_RANGE6"),
    "an allowed nothing": ("", {"EGRESS": "1", "EGRESS_ALLOW": "10.0.0.1, example.org"}, "EGRESS_ALLOW"),
    "a denied nothing": ("", {"EGRESS": "1", "EGRESS_DENY": "10.0.0.1/x"}, "EGRESS_DENY"),
    "a range of resolvers": ("", {"EGRESS": "1", "EGRESS_DNS": "10.0.0.0/8"}, "EGRESS_DNS"),
    "no right over the network": (f'exec setpriv --bounding-set -net_admin "{SUPERVISOR}" --check-config', {"EGRESS": "1"}, "EGRESS: CAP_NET_ADMIN"),
    "a capability too few": (f'exec setpriv --bounding-set -kill "{SUPERVISOR}" --check-config', {}, "CAP_KILL"),
    "no root": (f'exec unshare --user "{SUPERVISOR}" --check-config', {"CGROUPS_REQUIRED": "0"}, "the supervisor must be started as root"),
}


@pytest.mark.parametrize("before,settings,named", SUPERVISOR_BAD.values(), ids=SUPERVISOR_BAD)
def test_the_supervisor_refuses(tmp_path, before, settings, named):
    told = check_supervisor(tmp_path, before, **settings)
    # What is mounted over a file of /proc keeps the kernel from making another /proc, which is told as well.
    lines = [line for line in told.stderr.splitlines() if not ("/proc/" in before and line.startswith("kernel: a new /proc"))]
    assert told.returncode == os.EX_CONFIG and len(lines) == 1 and lines[0].startswith(named), told


def test_the_supervisor_refuses_a_missing_controller(tmp_path):
    for before, settings in (("umount -R /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup", {}), ("", {"CGROUP_PARENT": "/no-such.slice"})):
        told = check_supervisor(tmp_path, before, **settings)
        lines = told.stderr.splitlines()
        assert told.returncode == os.EX_CONFIG and len(lines) == 3 and all(line.startswith("CGROUPS_REQUIRED: ") for line in lines), told
        assert check_supervisor(tmp_path, before, CGROUPS_REQUIRED="0", **settings).returncode == 0


def test_the_supervisor_refuses_a_kernel_that_lacks_something(tmp_path):
    told = check_supervisor(tmp_path, f"""exec unshare --user --map-root-user sh -euc 'echo 0 >/proc/sys/user/max_user_namespaces; exec "{SUPERVISOR}" --check-config'""", QUOTA_REQUIRED="0")
    lines = told.stderr.splitlines()
    assert told.returncode == os.EX_CONFIG and lines and all(line.startswith("kernel: ") for line in lines), told
    assert lines[0] == "kernel: user namespaces: No space left on device; needed: a kernel with CONFIG_USER_NS, and in a container its privileges"


def test_the_supervisor_tells_every_fault_and_starts_with_none_of_them(tmp_path):
    settings = {"SANDBOXES_MAX": "0", "LOG_LEVEL": "loud", "SERVER_USER": "nobody-has-this-name", "INIT_PATH": "/nonexistent"}
    told = check_supervisor(tmp_path, **settings)
    assert sorted(line.split()[0].rstrip(":") for line in told.stderr.splitlines()) == sorted(settings), told
    for name, value in settings.items():
        started = run(*ROOT, SUPERVISOR, cwd=tmp_path, **supervisor_settings(tmp_path, **{name: value}))
        line = json.loads(started.stderr)
        assert started.returncode == os.EX_CONFIG and line["event"] == "supervisor_failed" and line["reason"].startswith(name), started
    assert not (tmp_path / "state").exists()


def test_a_good_configuration_of_the_supervisor_is_fine_and_starts(tmp_path):
    kept = over("/etc/subuid", rf"root:100000:65536\nroot:{FIRST}:{NEEDED}\nsbx:165536:65536\n") + "\nmkdir -m 0700 state && mkdir images"
    assert check_supervisor(tmp_path, kept).returncode == 0
    program = subprocess.Popen([*ROOT, str(SUPERVISOR)], env={**os.environ, **supervisor_settings(tmp_path), "ID_BASE": "3000000000"},
                               cwd=tmp_path, stderr=open(tmp_path / "log", "wb"))
    try:
        wait_for("the supervisor", lambda: "supervisor_ready" in (tmp_path / "log").read_text() or program.poll() is not None)
        assert program.poll() is None, (tmp_path / "log").read_text()
    finally:
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
    assert not (tmp_path / "supervisor.sock").exists()
