"""What every answer has in common: heads, methods, hosts, origins, sizes, ids."""
import json
import uuid
from email.utils import parsedate_to_datetime

import pytest

HARDENING = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": "frame-ancestors 'none'; base-uri 'none'; object-src 'none'",
    "permissions-policy": "geolocation=(), microphone=(), camera=()",
}


@pytest.mark.parametrize("method,path,status", [
    ("GET", "/healthz", 200), ("GET", "/api/health", 200), ("GET", "/nothing", 404), ("GET", "/api/nothing", 404),
    ("PUT", "/healthz", 405), ("PUT", "/api/agents", 405), ("GET", "/api/agents", 401), ("GET", "/healthz/", 307),
    ("HEAD", "/docs", 200), ("OPTIONS", "/healthz", 405),
])
def test_every_answer_is_hardened(stranger, method, path, status):
    answer = stranger.request(method, path, follow_redirects=False)
    assert answer.status_code == status
    assert {name: answer.headers.get(name) for name in HARDENING} == HARDENING
    assert parsedate_to_datetime(answer.headers["date"]) and answer.headers["server"]
    assert "content-length" in answer.headers and "strict-transport-security" not in answer.headers
    assert ("x-request-id" in answer.headers) == path.startswith("/api/")


def test_unknown_paths_and_methods(stranger):
    assert stranger.get("/nothing").expect(404) == {"detail": "Not Found"}
    answer = stranger.delete("/api/agents")
    assert answer.expect(405) == {"detail": "Method Not Allowed"}
    assert answer.headers["allow"] == "GET, POST"
    assert stranger.head("/healthz").headers["allow"] == "GET"
    assert stranger.post("/docs").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["//healthz", "/Healthz", "/healthz/x", "/api", "/api/", "/api/agents/", "/api//agents", "/healthz//"])
def test_paths_are_exact(api, path):
    assert api.get(path, follow_redirects=False).status_code == 404


def test_paths_are_decoded_after_the_split(stranger, api):
    stranger.get("/%68ealthz").expect(200)
    stranger.get("/api%2Fhealth").expect(404)
    api.get("/api/agents/%2e%2e%2f..").expect(404)
    api.get("/api/agents/%ff").expect(404)
    assert api.get("/api/agents/a%00b").status_code in (400, 404)


def test_one_slash_too_many_is_shown_the_way(stranger, server):
    answer = stranger.post("/healthz/?a=%20b", follow_redirects=False)
    assert answer.status_code == 307 and answer.content == b""
    assert answer.headers["location"] == f"http://{server.host}:{server.port}/healthz?a=%20b"


@pytest.mark.parametrize("given,kept", [("abc.DEF-1", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("a\"b", False)])
def test_request_ids(stranger, given, kept):
    got = stranger.get("/api/health", headers={"X-Request-Id": given}).headers["x-request-id"]
    assert got == given if kept else uuid.UUID(got)


def test_request_ids_differ(stranger):
    assert len({stranger.get("/api/health").headers["x-request-id"] for _ in range(5)}) == 5


def test_any_origin_by_default(stranger):
    assert stranger.get("/api/health", headers={"Origin": "http://a"}).headers["access-control-allow-origin"] == "*"
    answer = stranger.get("/nothing", headers={"Origin": "http://a"})
    assert answer.headers["access-control-allow-origin"] == "*" and "vary" not in answer.headers
    assert not [n for n in stranger.get("/api/health").headers if n.startswith("access-control")]


@pytest.mark.parametrize("path", ["/api/agents", "/healthz", "/nothing"])
def test_preflights(stranger, path):
    ask = {"Origin": "http://a", "Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization,x-project"}
    answer = stranger.options(path, headers=ask)
    assert answer.status_code == 200 and answer.text == "OK"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["access-control-allow-methods"] == "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
    assert answer.headers["access-control-allow-headers"] == "authorization,x-project"
    assert answer.headers["access-control-max-age"] == "600"
    refused = stranger.options(path, headers={**ask, "Access-Control-Request-Method": "BREW"})
    assert refused.status_code == 400 and refused.text == "Disallowed CORS method"


def test_the_networks_size_limit(stranger):
    answer = stranger.post("/healthz", content=b"x" * 65537)
    assert answer.status_code == 413 and answer.text == "Request body too large"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert stranger.post("/healthz", content=iter([b"x" * 40000, b"x" * 40000])).status_code in (405, 413)


def test_the_sessions_apis_size_limit(api):
    assert api.post("/api/agents", content=b" " * (8 << 20) + b"1").expect(413)["detail"]
    assert api.post("/api/agents", content=b" " * (8 << 20)).status_code == 422
    assert api.post("/api/agents", content=iter([b" " * 65536] * 129)).status_code == 413


def test_a_connection_goes_on_after_a_refusal(api):
    """Refusals of small requests cost no connection."""
    for _ in range(3):
        for answer in (api.get("/api/nothing"), api.post("/api/agents", json={}), api.put("/api/agents", json={})):
            assert answer.status_code >= 400 and "connection" not in answer.headers


def test_a_body_that_nobody_asked_for_is_dropped(api):
    for _ in range(3):
        assert api.request("GET", "/api/agents", content=b"{" * 100000).status_code == 200


@pytest.mark.parametrize("body,type_", [
    (b"", "missing"), (b"{", "json_invalid"), (b"\xff", "json_invalid"), (b"[]", "dict_type"), (b"null", "dict_type"),
    (b'{"name":"\\ud800"}', "json_invalid"), (b'{"name":"\\u0000"}', "json_invalid"), (b'{"name":NaN}', "json_invalid"),
    (b'{"a":1,"a":2}', "json_invalid"), (b"[" * 100000, "json_invalid"), (b'{"name":1,"slug":[]}', "string_type"),
])
def test_a_bad_body_is_422(api, body, type_):
    detail = api.post("/api/agents", content=body).expect(422)["detail"]
    assert detail[0]["type"] == type_ and detail[0]["loc"][0] == "body" and detail[0]["msg"]


def test_a_refusal_never_repeats_what_came(api):
    text = api.post("/api/agents", json={"name": 5, "slug": "SECRET value", "transport": "SECRET"}).text
    assert "SECRET" not in text


@pytest.mark.parametrize("query", ["limit=1e3", "limit=1.5", "limit=", "limit=18446744073709551616", "limit=-1", "limit=%2B1",
                                   "limit=abc", "limit=0x1", "limit=true", "offset=%201", "status=nope", "agent_id=%ff"])
def test_a_bad_query_is_422(api, query):
    detail = api.get(f"/api/sessions?{query}").expect(422)["detail"]
    assert detail[0]["loc"] == ["query", query.split("=")[0]]


@pytest.mark.parametrize("query", ["limit=1", "limit=001", "unknown=%ff", "agent_id=a+b%2B", "limit=x&limit=1", "", "&&"])
def test_a_good_query_is_taken(api, query):
    assert isinstance(api.get(f"/api/sessions?{query}").expect(200), list)


@pytest.mark.parametrize("query", ["include_archived=1", "include_archived=True", "include_archived=", "include_archived=yes"])
def test_flags_are_true_or_false(api, query):
    api.get(f"/api/agents?{query}").expect(422)
    api.get("/api/agents?include_archived=true").expect(200)
    api.get("/api/agents?include_archived=false").expect(200)


def test_health_and_readiness(stranger):
    assert stranger.get("/healthz").expect(200) == {"status": "ok"}
    assert stranger.get("/api/health").expect(200) == {"status": "ok"}
    assert stranger.get("/readyz").text == '{"status":"ready","database":"available","schema":"current"}'


def test_text_is_answered_literally(api):
    answer = api.post("/api/agents", json={"slug": f"compact-{uuid.uuid4().hex[:8]}", "name": "é/\x7f\u2028\"\\\n"}).expect(201)
    text = api.get(f"/api/agents/{answer['id']}").text
    assert '"name":"é/\x7f\u2028\\"\\\\\\n"' in text and json.loads(text)["name"] == "é/\x7f\u2028\"\\\n"
    api.delete(f"/api/agents/{answer['id']}").expect(204)


def test_metrics_want_their_own_credential(stranger, operator, api):
    for client in (stranger, operator, api):
        answer = client.get("/metrics")
        assert answer.expect(401) == {"detail": "Invalid or missing metrics credential"}
        assert answer.headers["www-authenticate"] == "Bearer"


def test_metrics_have_what_the_supervisor_counts(server, stranger, session):
    key = (server.state / "secrets" / "METRICS_API_KEY").read_text().strip()
    text = stranger.get("/metrics", headers={"Authorization": f"Bearer {key}"}).text
    samples = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}
    assert samples["sandbox_supervisor_up"] == 1
    assert samples['sandboxes{state="running"}'] >= 1
    assert sum(samples.get(f'sandbox_start_seconds_count{{way="{way}"}}', 0) for way in ("cold", "claimed")) >= 1
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(families) == len(set(families))


def test_metrics_count_requests(server, stranger):
    key = (server.state / "secrets" / "METRICS_API_KEY").read_text().strip()

    def sample(name):
        answer = stranger.get("/metrics", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200 and answer.headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
        return next((float(line.rsplit(" ", 1)[1]) for line in answer.text.splitlines() if line.startswith(name + " ")), 0.0)

    healthy = 'http_requests_total{handler="/api/health",method="GET",status="2xx"}'
    unknown = 'http_requests_total{handler="none",method="GET",status="4xx"}'
    before = sample(healthy), sample(unknown), sample("http_request_duration_highr_seconds_count")
    for _ in range(5):
        stranger.get("/api/health")
        stranger.get("/api/nothing")
    assert sample(healthy) >= before[0] + 5 and sample(unknown) >= before[1] + 5
    assert sample("http_request_duration_highr_seconds_count") >= before[2] + 10
    assert sample("process_resident_memory_bytes") > 1e6 and sample("process_start_time_seconds") > 1e9
