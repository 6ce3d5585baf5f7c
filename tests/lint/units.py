#!/usr/bin/env python3
"""Whether the units fit the programs: what systemd says of the installed ones, how exposed they are, and each variable and secret in them.

units.py BUILD: the folder of the programs. Ends with 0, or says what is wrong. UNITS names another folder than container/systemd.
units.py --prove BUILD: break the units in every way that it knows, and see that each is noticed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
UNITS = Path(os.environ.get("UNITS") or TOP / "container/systemd")
PROVE = "--prove" in sys.argv
BUILD = Path(next((a for a in sys.argv[1:] if a != "--prove"), "build/release")).resolve()

# security.md, 4.3: id-mapped layers need CAP_SYS_ADMIN, so the supervisor is held to the second of its two bars.
SCORES = {"sandbox-server.service": 1.5, "sandbox-supervisor.service": 5.0, "sandbox-boxes.service": 1.5}

# What the supervisor's unit cannot set: its file says why.
REASONED = """ProtectKernelTunables ProtectKernelLogs ProtectProc ProcSubset ProtectHostname PrivateDevices PrivateUsers PrivateNetwork
    RestrictNamespaces RestrictSUIDSGID MemoryDenyWriteExecute User""".split()

# The clock can be read with these, too; ProtectClock= asks for no more than that they are gone.
TAKEN = {"adjtimex", "clock_adjtime"}

wrong = []


def check(holds, sentence):
    if not holds:
        wrong.append(sentence)


def run(*words, **options):
    return subprocess.run([str(w) for w in words], text=True, capture_output=True, timeout=120, check=False, **options)


def options(name):
    """Every Option=value of a unit, in order."""
    text = (UNITS / name).read_text().replace("\\\n", " ")
    return re.findall(r"^(\w+)=(.*)$", text, re.M)


def values(name, option):
    return [v for o, v in options(name) if o == option]


def known(program):
    """What it reads: name → kind, from its --help."""
    return dict(re.findall(r"^  ([A-Z_]+) \((\w+)", run(BUILD / program, "--help").stdout, re.M))


def check_variables():
    for program, unit, example in (("sandbox-server", "sandbox-server.service", "server.env.example"),
                                   ("sandbox-supervisor", "sandbox-supervisor.service", "supervisor.env.example")):
        settings = known(program)
        check(len(settings) > 10, f"{program} --help lists no settings")
        named = [w.split("=")[0] for v in values(unit, "Environment") for w in v.split()]
        named += re.findall(r"^#?([A-Z_]+)=", (UNITS / example).read_text(), re.M)
        for name in named:
            check(name in settings, f"{unit} or {example}: {program} does not read {name}")
        secrets = {n.lower() for n, kind in settings.items() if kind == "secret"}
        loaded = {v.split(":")[0]: v for v in values(unit, "LoadCredential")}
        check(loaded.keys() == secrets, f"{unit}: LoadCredential= and the secrets of {program} differ: {sorted(loaded.keys() ^ secrets)}")
        for name, line in loaded.items():
            check(line == f"{name}:agent-sandbox.{name}", f"{unit}: LoadCredential={line}")


def check_paths():
    """Places that two files name are the same place."""
    listens = values("sandbox-supervisor.socket", "ListenSequentialPacket")
    server = dict(w.split("=", 1) for v in values("sandbox-server.service", "Environment") for w in v.split())
    supervisor = dict(w.split("=", 1) for v in values("sandbox-supervisor.service", "Environment") for w in v.split())
    check(listens == [server["SUPERVISOR_SOCKET"]], "the server's SUPERVISOR_SOCKET is not what the socket unit listens on")
    check(listens == [supervisor["SUPERVISOR_SOCKET"]], "the supervisor's SUPERVISOR_SOCKET is not what the socket unit listens on")
    check(f'installed[] = "{listens[0]}"' in (TOP / "server/sandboxctl.c").read_text(), "sandboxctl looks for the supervisor somewhere else")
    check(values("sandbox-server.service", "User") == [supervisor["SERVER_USER"]], "SERVER_USER is not the server's user")
    check(values("sandbox-supervisor.socket", "SocketGroup") == values("sandbox-server.service", "Group"), "the socket has another group")
    parent = supervisor["CGROUP_PARENT"]
    check(parent == "/sandbox.slice/" + values("sandbox-boxes.service", "Slice")[0] + "/sandbox-boxes.service", "CGROUP_PARENT is not the place of the boxes")
    writable = {v.lstrip("-") for v in values("sandbox-supervisor.service", "ReadWritePaths")}
    for layout in ("", "/unified", "/memory", "/pids", "/cpu"):
        check(f"/sys/fs/cgroup{layout}{parent}" in writable, f"ReadWritePaths= lacks CGROUP_PARENT in /sys/fs/cgroup{layout}")
    check("/var/lib/agent-sandbox" in writable, "the state is not writable")


def check_calls():
    """Tenants inherit the supervisor's filters: what is refused there must be refused to them anyway."""
    allowed = set(re.findall(r"\bALLOW\((\w+)\)", (TOP / "supervisor/syscalls.def").read_text()))
    check(len(allowed) > 200, "syscalls.def allows next to nothing?")
    refused, names = set(), [w for v in values("sandbox-supervisor.service", "SystemCallFilter") for w in v.split()]
    check(names and names[0].startswith("~"), "the supervisor's SystemCallFilter= is no list of what is refused")
    waiting = [n.lstrip("~") for n in names]
    while waiting:
        name = waiting.pop()
        if not name.startswith("@"):
            refused.add(name)
            continue
        group = run("systemd-analyze", "syscall-filter", name).stdout
        waiting += [line.strip() for line in group.splitlines()[1:] if line.startswith("    ") and not line.strip().startswith("#")]
    check(len(refused) > 20, "systemd-analyze syscall-filter names no calls")
    check(refused & allowed <= TAKEN, f"the unit takes calls from sandboxes: {sorted((refused & allowed) - TAKEN)}")
    for option in ("MemoryDenyWriteExecute", "RestrictSUIDSGID", "RestrictNamespaces", "ProtectHostname", "ProtectKernelTunables", "ProtectProc"):
        check(not values("sandbox-supervisor.service", option), f"sandbox-supervisor.service sets {option}=, which sandboxes would feel")


def check_reasons():
    comments = "".join(re.findall(r"^#.*\n", (UNITS / "sandbox-supervisor.service").read_text(), re.M))
    for option in REASONED:
        check(f"{option}=" in comments, f"sandbox-supervisor.service has no reason for the missing {option}=")
    for capability in values("sandbox-supervisor.service", "CapabilityBoundingSet")[0].split():
        check(re.search(rf"\b{capability.removeprefix('CAP_')}\b", comments), f"sandbox-supervisor.service has no reason for {capability}")


def check_always():
    """What every service has, whatever it scores."""
    for name in SCORES:
        for option, value in (("NoNewPrivileges", "yes"), ("SystemCallArchitectures", "native"), ("LockPersonality", "yes"), ("RestrictRealtime", "yes"),
                              ("KeyringMode", "private"), ("ProtectSystem", "strict"), ("ProtectHome", "yes"), ("UMask", "0077")):
            check(values(name, option) == [value], f"{name}: {option}= is not {value}")


def check_scores():
    for name, most in SCORES.items():
        told = run("systemd-analyze", "security", "--offline=true", UNITS / name)
        found = re.search(r"exposure level for \S+: ([0-9.]+)", told.stdout)
        check(found and float(found[1]) <= most, f"{name}: exposure {found[1] if found else told.stderr} is above {most}")
        check(not told.stderr, f"{name}: {told.stderr.strip()}")


def check_ids():
    """The line that keeps the sandboxes' ids from others has as many as the defaults need."""
    line = re.search(r"^#   root:(\d+):(\d+)$", (UNITS / "supervisor.env.example").read_text(), re.M)
    defaults = dict(re.findall(r"^  ([A-Z_]+) \(.*default ([^)]*)\)", run(BUILD / "sandbox-supervisor", "--help").stdout, re.M))
    wanted = (int(defaults["ID_BASE"]), (int(defaults["SANDBOXES_MAX"]) + 1) * 65536)
    check(line and (int(line[1]), int(line[2])) == wanted, f"supervisor.env.example: the line for /etc/subuid is not root:{wanted[0]}:{wanted[1]}")


def check_host():
    """The advice for the host is what the doctor looks for, and what the page for operators names."""
    doctor = (TOP / "server/doctor.c").read_text()
    page = (TOP / "container/systemd/README.md").read_text()
    bounds = {name.replace("/", "."): (int(least), int(most)) for name, least, most in re.findall(r'\{"([a-z_/]+)",\s*(\d), (\d)\}', doctor)}
    advised = {name: int(value) for name, value in re.findall(r"^-([a-z_.]+) = (\d)$", (UNITS / "agent-sandbox.sysctl.conf").read_text(), re.M)}
    check(len(advised) > 8 and advised.keys() == bounds.keys(), f"agent-sandbox.sysctl.conf and the doctor differ: {sorted(advised.keys() ^ bounds.keys())}")
    for name in advised.keys() & bounds.keys():
        check(bounds[name][0] <= advised[name] <= bounds[name][1], f"agent-sandbox.sysctl.conf: the doctor would complain of {name}={advised[name]}")
        check(f"`{name}={advised[name]}`" in page or name.startswith("fs.protected_"), f"container/systemd/README.md lacks {name}={advised[name]}")
    risky = set("".join(re.findall(r'"([a-z0-9_ ]+)"', re.search(r"risky\[\] =(.*?);", doctor, re.S)[1])).split())
    listed = set(re.findall(r"^blacklist (\S+)$", (UNITS / "agent-sandbox.modprobe.conf").read_text(), re.M))
    check(len(listed) > 8 and risky == listed, f"agent-sandbox.modprobe.conf and the doctor differ: {sorted(risky ^ listed)}")


def check_install():
    """As make install leaves them, where every program that they name is."""
    if "UNITS" in os.environ:
        told = run("systemd-analyze", "verify", "--man=no", *sorted(UNITS.glob("*.service")))
        for line in (told.stdout + told.stderr).splitlines():
            check("Unknown" not in line, line)
        return
    folder = Path(tempfile.mkdtemp())
    try:
        made = run("make", "install", f"O={BUILD}", f"PREFIX={folder}/usr", cwd=TOP)
        check(made.returncode == 0, f"make install: {made.stderr}")
        units = sorted((folder / "usr/lib/systemd/system").glob("*"))
        check(len(units) == len([u for u in UNITS.iterdir() if u.suffix in (".service", ".socket", ".slice")]), "make install forgets units")
        told = run("systemd-analyze", "verify", "--man=no", *units)
        # Other units of this machine are not ours to judge.
        ours = [line for line in (told.stdout + told.stderr).splitlines() if "sandbox" in line or str(folder) in line]
        check(not ours, "systemd-analyze verify: " + "; ".join(ours))
        check_users(folder / "root", folder / "usr/lib")
        run("make", "uninstall", f"O={BUILD}", f"PREFIX={folder}/usr", cwd=TOP)
        left = [p for p in (folder / "usr").rglob("*") if not p.is_dir()]
        check(not left, f"make uninstall leaves {left}")
    finally:
        shutil.rmtree(folder)


def check_users(root, lib):
    """The user and the folders are made, also when they are there already."""
    (root / "etc").mkdir(parents=True)
    for _ in range(2):
        users = run("systemd-sysusers", f"--root={root}", lib / "sysusers.d/agent-sandbox.conf")
        check(users.returncode == 0, f"systemd-sysusers: {users.stderr}")
    found = re.search(r"^sandbox-server:[x!*]*:(\d+):(\d+):.*:(\S*)$", (root / "etc/passwd").read_text(), re.M)
    check(found and "nologin" in found[3], "systemd-sysusers makes no user without a shell")
    if run("id", "-u").stdout.strip() != "0":
        return
    (root / "etc/passwd").open("a").write("root:x:0:0::/root:/bin/sh\n")
    (root / "etc/group").open("a").write("root:x:0:\n")
    made = run("systemd-tmpfiles", f"--root={root}", "--create", lib / "tmpfiles.d/agent-sandbox.conf")
    check(made.returncode == 0, f"systemd-tmpfiles: {made.stderr}")
    for path, mode, group in (("var/lib/agent-sandbox/supervisor", 0o700, 0), ("run/agent-sandbox/supervisor", 0o750, int(found[2])),
                              ("etc/credstore", 0o700, 0), ("var/lib/agent-sandbox/images", 0o755, 0)):
        status = (root / path).stat()
        check((status.st_mode & 0o7777, status.st_uid, status.st_gid) == (mode, 0, group), f"tmpfiles.d: {path} has mode {status.st_mode:o}")


# A file, what of it is replaced by what, and what is then said.
FAULTS = [
    ("sandbox-server.service", "NoNewPrivileges=yes", "", "NoNewPrivileges= is not yes"),
    ("sandbox-server.service", "CapabilityBoundingSet=\n", "CapabilityBoundingSet=CAP_SYS_ADMIN CAP_NET_ADMIN CAP_SYS_PTRACE\n", "exposure"),
    ("sandbox-server.service", "ProtectSystem=strict", "ProtectSytem=strict", "Unknown key"),
    ("sandbox-server.service", "SUPERVISOR_SOCKET=/run", "SUPERVISOR_SOCKET=/tmp", "SUPERVISOR_SOCKET is not what the socket unit listens on"),
    ("sandbox-server.service", "LoadCredential=model_api_key:agent-sandbox.model_api_key\n", "", "LoadCredential= and the secrets"),
    ("sandbox-server.service", "model_api_key:agent-sandbox.model_api_key", "model_api_key:model_api_key", "LoadCredential=model_api_key"),
    ("sandbox-server.service", "User=sandbox-server", "User=nobody", "SERVER_USER is not the server's user"),
    ("sandbox-supervisor.service", "CAP_SYS_RESOURCE\n", "CAP_SYS_RESOURCE CAP_SYS_PTRACE\n", "no reason for CAP_SYS_PTRACE"),
    ("sandbox-supervisor.service", "LockPersonality=yes", "MemoryDenyWriteExecute=yes", "sets MemoryDenyWriteExecute="),
    ("sandbox-supervisor.service", "@swap", "@swap @debug", "takes calls from sandboxes"),
    ("sandbox-supervisor.service", "# PrivateUsers=", "# Private", "no reason for the missing PrivateUsers="),
    ("sandbox-supervisor.service", "ReadWritePaths=-/sys/fs/cgroup/pids", "ReadWritePaths=-/sys/fs/cgroup/pid", "ReadWritePaths= lacks"),
    ("sandbox-supervisor.service", "/sandbox-boxes.slice/sandbox-boxes.service\nEnv", "/sandbox-boxes.service\nEnv", "CGROUP_PARENT is not the place"),
    ("supervisor.env.example", "#ID_BASE", "#IDBASE", "does not read IDBASE"),
    ("supervisor.env.example", "131137536", "131072000", "the line for /etc/subuid"),
    ("agent-sandbox.sysctl.conf", "io_uring_disabled = 2", "io_uring_disabled = 0", "the doctor would complain of kernel.io_uring_disabled=0"),
    ("agent-sandbox.modprobe.conf", "blacklist rxrpc", "blacklist rxrcp", "the doctor differ: ['rxrcp', 'rxrpc']"),
    ("sandbox-boxes.service", "PrivateNetwork=yes", "PrivateNetwork=no\nUser=root\nRestrictAddressFamilies=AF_INET", "exposure"),
]


def prove():
    unnoticed = 0
    for file, old, new, said in FAULTS:
        with tempfile.TemporaryDirectory() as folder:
            units = Path(folder) / "units"
            shutil.copytree(UNITS, units)
            text = (units / file).read_text()
            (units / file).write_text(text.replace(old, new))
            told = run(sys.executable, __file__, BUILD, env={**os.environ, "UNITS": str(units)})
            if old not in text or told.returncode == 0 or said not in told.stdout:
                unnoticed += 1
                print(f"units: error: {file}: '{old.strip()}' became '{new.strip()}', and what is said is: {told.stdout.strip()[:300]}")
    return unnoticed


if not shutil.which("systemd-analyze"):
    print("skipped: systemd-analyze is not installed (container/packages.sh check installs it)")
    sys.exit(0)
if PROVE:
    sys.exit(bool(prove()))
for test in (check_variables, check_paths, check_calls, check_reasons, check_always, check_scores, check_ids, check_host, check_install):
    test()
print("\n".join(f"units: error: {w}" for w in wrong) or "units: fine")
sys.exit(bool(wrong))
