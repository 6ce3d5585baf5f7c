"""The API's description says what is served, and two pages show it with nothing from outside."""
import re

import httpx
import pytest
from openapi_spec_validator import validate

METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture
def document(stranger):
    answer = stranger.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    return answer.expect(200)


def test_it_is_valid(document):
    assert document["openapi"] == "3.1.0"
    validate(document)


def test_operations_have_names_and_tags(document):
    operations = [o for path in document["paths"].values() for m, o in path.items() if m in METHODS]
    assert len({o["operationId"] for o in operations}) == len(operations) > 30
    assert all(o["tags"] and o["summary"] for o in operations)


def test_every_reference_is_there_and_every_schema_is_used(document):
    text = httpx.Response(200, json=document).text
    used = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert used == set(document["components"]["schemas"])


def test_streams_and_files_claim_no_schema(document):
    """What reads the document tries it on each event, or on the bytes."""
    contents = [c for path in document["paths"].values() for o in path.values() for r in o["responses"].values() for c in r.get("content", {}).items()]
    raw = [media for kind, media in contents if kind in ("text/event-stream", "application/octet-stream")]
    assert len(raw) >= 2 and not any(raw)


def test_every_operation_is_served(document, stranger):
    """Without a credential each answers 401, or 200 where none is needed: none is unknown."""
    for path, item in document["paths"].items():
        for method in item:
            answer = stranger.request(method.upper(), re.sub(r"\{\w+\}", "x", path))
            wanted = 401 if item[method].get("security") else 200
            assert answer.status_code == wanted, f"{method} {path}: {answer.status_code}"


def test_wrong_methods_answer_with_those_of_the_document(document, stranger):
    for path, item in document["paths"].items():
        missing = next(m for m in METHODS if m not in item)
        answer = stranger.request(missing.upper(), re.sub(r"\{\w+\}", "x", path))
        assert answer.status_code == 405, path
        assert sorted(answer.headers["allow"].lower().split(", ")) == sorted(item), path


def test_statuses_are_declared(document, api):
    """What simple calls answer stands in the document."""
    def declared(method, path):
        return {int(s) for s in document["paths"][path][method]["responses"]}

    for path in ("/api/agents", "/api/sessions", "/api/projects", "/api/models", "/api/me", "/api/api-keys", "/api/me/profile"):
        assert api.get(path).status_code in declared("get", path), path
    for path in ("/api/agents", "/api/sessions", "/api/projects"):
        assert api.post(path, content=b"{").status_code in declared("post", path), path


def test_answers_have_every_required_member(document, api):
    for path, name in (("/api/me", "Me"), ("/api/projects/default", "Project"), ("/api/health", "Health")):
        body = api.get(path).expect(200)
        assert list(body) == document["components"]["schemas"][name]["required"]


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_pages_need_nothing_from_outside(stranger, path):
    answer = stranger.get(path)
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.search(r"""(src|href)=["'](https?:)?//""", answer.text)
    assert not re.search(r"<script(?![^>]* src=)", answer.text), "an inline script"
    assets = re.findall(r"""(?:src|href)=["'](/docs/assets/[^"']+)""", answer.text)
    assert assets
    for asset in assets:
        got = stranger.get(asset)
        assert got.status_code == 200 and len(got.content) > 100
        assert got.headers["content-type"].startswith(("text/javascript", "text/css"))


def test_the_licences_are_there(stranger):
    assert "Apache License" in stranger.get("/docs/assets/swagger-ui.LICENSE").text
    assert "MIT" in stranger.get("/docs/assets/redoc.LICENSE").text


@pytest.mark.parametrize("name", ["nothing.js", "..%2fdocs.html", "%2e%2e", "swagger-ui.css%00"])
def test_other_assets_are_404(stranger, name):
    assert stranger.get(f"/docs/assets/{name}").status_code in (400, 404)


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/redoc"])
def test_head_is_taken(stranger, path):
    assert int(stranger.head(path).headers["content-length"]) == len(stranger.get(path).content)
