"""Models: the endpoint's list, read through, and the built-in one."""
import httpx
from sandbox_agents import Client

BUILTIN = {"id": "builtin/shell", "owned_by": "builtin", "max_input_tokens": None, "max_output_tokens": None}


def models(server):
    return httpx.get(f"{server.url}/api/models", headers={"Authorization": f"Bearer {server.api_key}"}, timeout=30)


def test_the_builtin_model_comes_last(server):
    answer = models(server)
    assert answer.status_code == 200
    assert answer.json() == [{"id": "scripted", "owned_by": "tests", "max_input_tokens": None, "max_output_tokens": None}, BUILTIN]


def test_an_endpoint_that_is_down(start_server):
    """502 for the list, since an empty one would mean something else; a turn fails with a reason; the built-in model works."""
    server = start_server(MODEL_BASE_URL="http://127.0.0.1:9/v1", MODEL_DEFAULT="somewhere")
    answer = models(server)
    assert answer.status_code == 502 and "does not answer" in answer.json()["detail"]
    with Client(base_url=server.url, api_key=server.api_key) as client:
        agent = client.agents.create(slug="a", name="a")
        assert agent.model == "somewhere"
        session = client.sessions.create_and_wait(agent.id)
        r = client.sessions.run(session.id, "hello", raise_on_error=False)
        assert r.status == "failed" and "does not answer" in r.error
        builtin = client.sessions.create_and_wait(agent.id, model="builtin/shell")
        assert "42" in client.sessions.run(builtin.id, "$ echo $((6 * 7))").text


def test_without_an_endpoint_the_builtin_model_is_the_default(start_server):
    server = start_server(MODEL_BASE_URL="", MODEL_DEFAULT="ignored")
    assert models(server).json() == [BUILTIN]
    with Client(base_url=server.url, api_key=server.api_key) as client:
        agent = client.agents.create(slug="a", name="a")
        assert agent.model == "builtin/shell"
        session = client.sessions.create_and_wait(agent.id)
        assert "42" in client.sessions.run(session.id, "$ echo $((6 * 7))").text
        other = client.sessions.create_and_wait(agent.id, model="no-such")
        r = client.sessions.run(other.id, "hello", raise_on_error=False)
        assert r.status == "failed" and "MODEL_BASE_URL" in r.error
