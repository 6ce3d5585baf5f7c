"""Images that sandboxctl builds, and sessions that start from them."""
import json
import subprocess

import pytest
from sandbox_agents import RunFailedError


def ctl(server, *words, **kw):
    return subprocess.run([server.state / "sandboxctl", *words], text=True, capture_output=True, timeout=100, check=False, **kw)


def build(server, name, recipe):
    done = ctl(server, "image", "build", "--recipe", "-", name, input=recipe)
    assert done.returncode == 0, done
    return done.stdout.strip()


@pytest.fixture
def images(server):
    """Names for the images of one test, which go with it."""
    made = []

    def name(word):
        made.append(f"test-{word}")
        return made[-1]

    yield name
    for one in made:
        ctl(server, "image", "remove", "--force", one)
    for one in ctl(server, "image", "list").stdout.split():
        if one.startswith("built-"):
            ctl(server, "image", "remove", "--force", one)


def output(client, session, command):
    done = client.sessions.exec(session.id, command)
    assert done.exit_code == 0, done
    return done.stdout


def test_a_session_starts_from_the_image_of_its_agent(server, client, make_agent, images):
    first, second = images("first"), images("second")
    build(server, first, "from base\nrun echo one >/made; mkdir /opt/tool\n")
    agent = make_agent(image=first)
    session = client.sessions.create(agent.id)
    client.sessions.wait_until_running(session.id, timeout=60)
    assert output(client, session, "cat /made; ls /opt") == "one\ntool\n"

    # Another version of it reaches the next start, as another image of the agent does; what runs keeps its own.
    build(server, first, "from base\nrun echo two >/made\n")
    assert output(client, session, "cat /made; ls /opt") == "one\ntool\n"
    client.sessions.stop(session.id)
    client.sessions.start(session.id)
    assert output(client, session, "cat /made; ls /opt") == "two\n"
    build(server, second, f"from {first}\nrun echo three >>/made\n")
    agent = client.agents.update(agent.id, version=agent.version, image=second)
    client.sessions.stop(session.id)
    client.sessions.start(session.id)
    assert output(client, session, "cat /made") == "two\nthree\n"
    client.agents.update(agent.id, version=agent.version, image=None)
    client.sessions.stop(session.id)
    client.sessions.start(session.id)
    assert output(client, session, "ls /made 2>/dev/null || echo none") == "none\n"


def test_an_image_that_was_removed_fails_the_start(server, client, make_agent, images):
    name = images("gone")
    build(server, name, "from base\nrun echo x >/x\n")
    session = client.sessions.create(make_agent(image=name).id)
    client.sessions.wait_until_running(session.id, timeout=60)
    refused = ctl(server, "image", "remove", name)
    assert refused.returncode == 1 and "sandboxes run on it" in refused.stderr
    client.sessions.stop(session.id)
    assert ctl(server, "image", "remove", name).returncode == 0
    client.sessions.start(session.id)
    with pytest.raises(RunFailedError):
        client.sessions.wait_until_running(session.id, timeout=60)
    assert client.sessions.get(session.id).error == f"there is no image '{name}'"


def test_a_build_is_no_stray_of_the_server(server, images):
    """A runner that starts looks for sandboxes that no session knows; it leaves those of builds alone."""
    name = images("long")
    building = subprocess.Popen([server.state / "sandboxctl", "image", "build", "--recipe", "-", name], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    building.stdin.write("from base\nrun echo begun; sleep 6; echo done >/made\n")
    building.stdin.close()
    while "begun" not in building.stderr.readline():
        assert building.poll() is None
    row, = [r for r in json.loads(ctl(server, "image", "list", "--json").stdout) if r["name"] == name]
    assert row["state"] == "building" and row["digest"] is None
    server.replaced("runner", server.kill("runner"))
    assert building.wait(60) == 0, building.stderr.read()
    row, = [r for r in json.loads(ctl(server, "image", "list", "--json").stdout) if r["name"] == name]
    assert row["state"] == "ready" and row["layers"] == 2 and row["sandboxes"] == 0
