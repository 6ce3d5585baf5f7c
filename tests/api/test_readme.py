"""The README's own example, as a newcomer would run it."""
import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.S | re.M)


def test_the_example_works_as_printed(server):
    (script,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=120, check=False,
                          env={**os.environ, "SANDBOX_BASE_URL": server.url, "SANDBOX_API_KEY": server.api_key})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# Report\nThe door is blue.\n" in done.stdout
    seen = re.findall(r"^\d+ (\S+)$", done.stdout, re.M)
    assert seen[0] == "session.created" and seen[-1] == "session.status_idle"
    assert seen.index("session.status_running") < seen.index("user.message") < seen.index("agent.tool_use") < seen.index("agent.tool_result")


def test_the_commands_of_the_quick_start_exist():
    shell = "\n".join(blocks("sh"))
    assert "make run" in shell and "sandbox-agents==0.7.0" in shell
    for target in re.findall(r"`make ([a-z]+)`", README.read_text()):
        assert re.search(rf"^{target}:", (README.parent / "Makefile").read_text(), re.M), target
