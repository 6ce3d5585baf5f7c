"""Who is asking, and in which project."""
import http.client
import uuid

import httpx
import pytest


@pytest.fixture
def other(operator):
    """A second project."""
    made = operator.post("/api/projects", json={"name": f"other {uuid.uuid4().hex}"}).json()
    yield made
    operator.delete(f"/api/projects/{made['id']}")


def raw(server, headers):
    """Status of a call whose header bytes go out as they are."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=20)
    connection.putrequest("GET", "/api/agents")
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_me_with_a_key(api, server):
    me = api.get("/api/me").expect(200)
    assert me["authenticated"] is True and me["auth_required"] is True
    assert me["kind"] == "api_key" and uuid.UUID(me["subject"]) and me["label"]
    assert [me[name] for name in ("login_url", "logout_url", "recovery_url", "settings_url")] == [None] * 4
    assert server.api_key not in str(me)


def test_me_with_the_operators_token(operator):
    me = operator.get("/api/me").expect(200)
    assert me["authenticated"] is True and me["kind"] == "token" and me["subject"] == "operator"


@pytest.mark.parametrize("value", [None, "", "Bearer", "Basic YTpi", "Bearer ak_wrong", "Bearer a b", "bearer x,y"])
def test_me_without_a_good_credential_says_so(stranger, value):
    me = stranger.get("/api/me", headers={} if value is None else {"Authorization": value}).expect(200)
    assert me["authenticated"] is False and me["auth_required"] is True and me["kind"] is None and me["subject"] is None


def test_check(api, operator, stranger):
    assert isinstance(api.get("/api/auth/check").expect(200), dict)
    operator.get("/api/auth/check").expect(200)
    answer = stranger.get("/api/auth/check")
    assert isinstance(answer.expect(401)["detail"], str)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_key_and_the_operator_have_no_profile(api, operator, stranger):
    for client in (api, operator):
        client.get("/api/me/profile").expect(409)
        client.patch("/api/me/profile", json={"name": "x"}).expect(409)
    stranger.get("/api/me/profile").expect(401)
    stranger.patch("/api/me/profile", json={"name": "x"}).expect(401)


@pytest.mark.parametrize("value", [b"", b"Bearer", b"Bearer ", b"Basic YTpi", b"Bearer a b c", b"Bearer \xff\xfe",
                                   b"Bearer " + b"x" * 8000, b"\x80\xff", b"Bearer ak_" + b"0" * 43])
def test_a_malformed_credential_is_401(server, value):
    assert raw(server, [("Authorization", value)]) == 401


def test_the_scheme_is_any_case_and_may_be_followed_by_blanks(server):
    assert raw(server, [("Authorization", f"bEaReR    {server.api_key}")]) == 200


def test_two_credentials_are_refused(server):
    assert raw(server, [("Authorization", f"Bearer {server.api_key}"), ("Authorization", "Bearer x")]) in (400, 401)


def test_a_key_acts_in_its_own_project(api, operator, other):
    default = operator.get("/api/projects/default").expect(200)
    for ref in (default["id"], default["slug"], default["id"].upper()):
        api.get("/api/agents", headers={"X-Project": ref}).expect(200)
    for ref in (other["id"], other["slug"], "no-such", "../x", "a b", str(uuid.uuid4())):
        api.get("/api/agents", headers={"X-Project": ref}).expect(404)


def test_the_operator_names_a_project(operator, other):
    for ref in (other["id"], other["slug"]):
        assert operator.get("/api/agents", headers={"X-Project": ref}).expect(200) == []
    for ref in ("no-such", "00000000-0000-4000-8000-000000000000", "../x", "a b", "x" * 5000):
        operator.get("/api/agents", headers={"X-Project": ref}).expect(404)
    operator.get("/api/agents").expect(400)


def test_calls_without_a_project_need_none(operator, other):
    operator.get("/api/projects").expect(200)
    operator.get("/api/backends", headers={"X-Project": "no-such"}).expect(200)


def test_a_key_is_no_operator(api):
    api.post("/api/projects", json={"name": "x"}).expect(403)
    api.get("/api/api-keys").expect(403)


def test_the_credential_goes_before_everything(stranger, operator):
    stranger.post("/api/agents", content=b"{", headers={"X-Project": "no-such"}).expect(401)
    operator.post("/api/agents", content=b"{", headers={"X-Project": "no-such"}).expect(404)
    operator.post("/api/agents", content=b"{", headers={"X-Project": "default"}).expect(422)


def test_an_object_goes_before_its_body(api):
    api.patch(f"/api/agents/{uuid.uuid4()}", content=b"{").expect(404)
    api.post(f"/api/sessions/{uuid.uuid4()}/messages", json={}).expect(404)
    api.get(f"/api/sessions/{uuid.uuid4()}/events", params={"limit": "x"}).expect(404)


def test_a_stranger_makes_nobody_read_an_upload(server):
    """401 comes before a byte of the body is taken, and the connection ends."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=20)
    connection.putrequest("POST", f"/api/sessions/{uuid.uuid4()}/files")
    connection.putheader("Content-Type", "multipart/form-data; boundary=x")
    connection.putheader("Content-Length", str(400 << 20))
    connection.endheaders()
    connection.send(b"--x\r\n" + b"y" * 100000)
    answer = connection.getresponse()
    assert answer.status == 401 and answer.headers["connection"] == "close"
    connection.close()


def test_no_secret_is_answered(server, api, operator):
    for answer in (api.get("/api/me"), operator.get("/api/me"), operator.get("/api/projects")):
        text = answer.text + str(answer.headers)
        assert server.api_key not in text and server.operator_token not in text


def test_a_credential_in_the_query_is_none(server):
    assert httpx.get(f"{server.url}/api/agents", params={"token": server.api_key}).status_code == 401
