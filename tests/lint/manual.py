#!/usr/bin/env python3
"""Whether the manual pages say what the programs say: every setting, option and command.

manual.py [--write] BUILD: the folder of the programs; --write brings the settings of the pages up to date.
Ends with 0, or says what is wrong.
"""
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
WRITE = "--write" in sys.argv
BUILD = Path([a for a in sys.argv[1:] if a != "--write"][0])
PAGES = {"sandbox-server": "server/server.8", "sandbox-supervisor": "supervisor/supervisor.8", "sandboxctl": "server/sandboxctl.8"}

wrong = []


def told(program, option):
    done = subprocess.run([BUILD / program, option], text=True, capture_output=True, timeout=60, check=False)
    if done.returncode:
        wrong.append(f"{program} {option} ends with {done.returncode}")
    return done.stdout


def settings_of(page):
    """The list of settings in a page: where it begins and ends."""
    found = re.search(r"^\.Sh ENVIRONMENT\n.*?^\.Bl [^\n]*\n(.*?)^\.El\n", page, re.M | re.S)
    return found.span(1) if found else (0, 0)


def first_difference(page, program):
    """The name of the first setting that is not the same in both."""
    pages, programs = (dict(zip(parts[1::2], parts[2::2])) for parts in (re.split(r"^\.It Ev (\w+)\n", text, flags=re.M) for text in (page, program)))
    return next((name for name in [*programs, *pages] if pages.get(name) != programs.get(name)), "their order")


def check_settings(program):
    path = TOP / PAGES[program]
    page, wanted = path.read_text(), told(program, "--settings-manual")
    if wanted.count(".It Ev ") < 3:
        wrong.append(f"{program} --settings-manual prints no settings")
        return
    begin, end = settings_of(page)
    if page[begin:end] == wanted:
        return
    if WRITE and begin:
        path.write_text(page[:begin] + wanted + page[end:])
    else:
        wrong.append(f"{PAGES[program]} differs from {program} in {first_difference(page[begin:end], wanted)}; tests/lint/manual.py --write {BUILD} puts it right")


def check_options(program):
    """The usage line names options; the page explains each."""
    page = (TOP / PAGES[program]).read_text()
    for option in {"help", "settings-manual", *re.findall(r"--([a-z-]+)", told(program, "--help").split("\n\n")[0])}:
        if not re.search(rf"^\.It Fl -{option}\b", page, re.M) or not re.search(rf"Fl (?:[^\n]*\| )?-{option}\b", page.split(".Sh DESCRIPTION")[0]):
            wrong.append(f"{PAGES[program]} lacks --{option}")


def check_commands():
    """sandboxctl's commands and the options of each."""
    page = (TOP / PAGES["sandboxctl"]).read_text()
    commands = re.findall(r"^  ([a-z]+(?: [a-z]+)?) ([^\n]*)\n      ", told("sandboxctl", "--help").split("\nIt reads")[0], re.M)
    if len(commands) < 5:
        wrong.append("sandboxctl --help lists no commands")
    for name, words in commands:
        synopsis = re.search(rf"^\.Cm {name}\n((?:\.(?!Nm)[^\n]*\n)*)", page.split(".Sh DESCRIPTION")[0], re.M)
        if not synopsis or not re.search(rf"^\.It Cm {name}$", page, re.M):
            wrong.append(f"{PAGES['sandboxctl']} lacks {name}")
            continue
        for option in re.findall(r"--([a-z-]+)", words):
            if f"Fl -{option}" not in synopsis[1]:
                wrong.append(f"{PAGES['sandboxctl']}: {name} lacks --{option}")


for each in PAGES:
    check_settings(each)
    check_options(each)
check_commands()
print("\n".join(f"manual: error: {w}" for w in wrong) or "manual: fine")
sys.exit(bool(wrong))
