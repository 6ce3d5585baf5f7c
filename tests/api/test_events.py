"""The log in pages."""
import pytest


def page(api, session, **query):
    answer = api.get(f"/api/sessions/{session.id}/events", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_pages_join_to_the_log(api, client, session):
    client.sessions.run(session.id, "$ echo one")
    client.sessions.run(session.id, "$ echo two")
    whole = page(api, session)
    seqs = [e["seq"] for e in whole]
    assert seqs == sorted(set(seqs)) and seqs[0] > 0
    joined, after = [], 0
    while got := page(api, session, after=after, limit=3):
        assert len(got) <= 3
        joined += got
        after = got[-1]["seq"]
    assert joined == whole
    assert page(api, session, after=2**63 - 1) == [] and page(api, session, after=seqs[-1]) == []


def test_shape(api, client, session):
    client.sessions.run(session.id, "$ echo one")
    for event in page(api, session):
        assert set(event) == {"seq", "session_id", "run_id", "type", "payload", "created_at"}
        assert event["session_id"] == session.id and isinstance(event["payload"], dict) and event["created_at"].endswith("Z")
        assert event["type"] != "agent.text_delta"


def test_a_full_page_is_full(api, client, session):
    for _ in range(5):
        client.sessions.upload_file(session.id, b"x", filename="x")
    assert len(page(api, session, limit=5)) == 5 and len(page(api, session, limit=1000)) >= 7


@pytest.mark.parametrize("query", [{"after": -1}, {"after": 2**64}, {"after": "x"}, {"after": "1.5"}, {"limit": 0}, {"limit": 1001}, {"limit": -1}, {"limit": ""}])
def test_bad_queries(api, session, query):
    answer = api.get(f"/api/sessions/{session.id}/events", params=query)
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"] == ["query", next(iter(query))]
