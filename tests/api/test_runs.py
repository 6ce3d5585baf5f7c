"""Turns: what they leave in the log, tools, failures of the model, interrupting, what happens when their process dies."""
import json
import os
import signal
import threading
import time
import uuid

import pytest
from model_server import Answer, broken, call, calls, failure, garbage, silence, text
from programs import wait_for
from sandbox_agents import ConflictError

TERMINAL = {"session.status_idle", "session.status_error"}


@pytest.fixture
def make_agent(make_agent):
    return lambda **definition: make_agent(**{"model": "scripted", **definition})


@pytest.fixture
def say(model):
    """A prompt that the model answers like this."""
    def make(*answers, prompt: str = "do it") -> str:
        marker = f"[{uuid.uuid4().hex}]"
        model.script(marker, list(answers))
        return f"{prompt} {marker}"
    return make


def kill_runners(server):
    killed = server.pids("runner")
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_for("other runners", lambda: len(set(server.pids("runner")) - set(killed)) == len(killed))


def events_of(client, session, run_id):
    return [e for e in client.sessions.history(session.id) if e.run_id == run_id]


def results(client, session, run_id):
    return [e.payload for e in events_of(client, session, run_id) if e.type == "agent.tool_result"]


def wait_for_event(client, session, run_id, kind, seconds=30.0):
    return wait_for(f"{kind} of {run_id}", lambda: [e for e in events_of(client, session, run_id) if e.type == kind], seconds)[0]


# --- the log ---------------------------------------------------------------------------------------------------------


def test_events_come_in_order(client, session, say):
    r = client.sessions.run(session.id, say(Answer(pieces=["I'll ", "look"], calls=[("shell", '{"command":"echo out; echo err >&2"}')]), text("done")))
    events = events_of(client, session, r.run_id)
    assert [e.type for e in events] == ["user.message", "agent.message", "agent.tool_use", "agent.tool_result", "agent.message", "session.status_idle"]
    use, result, end = events[2], events[3], events[-1]
    assert use.payload["tool"] == "shell" and json.loads(use.payload["arguments"]) == {"command": "echo out; echo err >&2"}
    assert result.payload["call_id"] == use.payload["call_id"] and result.payload["is_error"] is False
    assert result.payload["output"] == "out\n[stderr]\nerr\n"
    assert events[1].payload["text"] == "I'll look" and end.payload["final_output"] == "done" == r.text
    assert set(end.payload) >= {"run_status", "stop_reason", "final_output", "turns", "usage", "session_usage", "sandbox_seconds", "call_ids"}


def test_the_row_is_final_before_the_end_is_seen(client, session, say):
    for i in range(10):
        r = client.sessions.run(session.id, say(text(str(i))))
        row = client.sessions.get(session.id).runs[-1]
        assert (row.id, row.status, row.final_output, row.turns) == (r.run_id, "completed", str(i), 1) and row.finished_at


def test_usage_adds_up(client, session, say):
    r = client.sessions.run(session.id, say(call("shell", command="sleep 0.3"), text("x")))
    assert (r.usage["requests"], r.usage["input_tokens"], r.usage["output_tokens"], r.usage["total_tokens"]) == (2, 42, 16, 58)
    assert 0.3 < r.usage["active_seconds"] < 5 and list(r.usage["by_model"]) and list(r.usage["by_agent"])
    again = client.sessions.run(session.id, say(text("y")))
    assert again.usage["total_tokens"] == 29 and again.session_usage["total_tokens"] == 87 and again.session_usage["requests"] == 3
    assert client.sessions.get(session.id).usage["total_tokens"] == 87


def test_deltas_join_to_the_text(client, session, say):
    got = []
    said = "".join(f"wörd{i} \U0001f600" for i in range(2000))
    r = client.sessions.run(session.id, say(Answer(pieces=[said[:1], *[said[i:i + 40] for i in range(1, len(said), 40)]], pause=0.002)), on_event=got.append)
    deltas = [e for e in got if e.type == "agent.text_delta"]
    assert r.text == said and "".join(e.text for e in deltas).endswith(said[-4000:]) and len(deltas) > 3
    assert all(e.seq == 0 and e.run_id == r.run_id for e in deltas)


def test_a_large_answer_is_fast(client, session, say):
    began = time.monotonic()
    r = client.sessions.run(session.id, say(text(*["0123456789abcdef" * 256] * 500)))
    assert len(r.text) == 2_048_000 and time.monotonic() - began < 15


# --- what the model is sent ------------------------------------------------------------------------------------------


def test_the_conversation_is_kept(client, session, model, say):
    first = say(call("shell", command="echo tool-output"), text("first"))
    client.sessions.run(session.id, first)
    second = say(text("second"))
    client.sessions.run(session.id, second)
    request = model.sent(second)[-1]
    assert [m["role"] for m in request["messages"]] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert request["messages"][3]["content"] == "tool-output\n"
    assert request["messages"][3]["tool_call_id"] == request["messages"][2]["tool_calls"][0]["id"]
    assert request["stream"] is True and request["stream_options"] == {"include_usage": True}
    assert request["_authorization"] == "Bearer the-key-of-the-model"


def test_definitions_are_read_at_each_turn(client, make_session, make_agent, model, say):
    agent = make_agent(instructions="OLD RULES", model="one", reasoning_effort="low")
    session = make_session(agent)
    prompt = say(text("x"))
    client.sessions.run(session.id, prompt)
    request = model.sent(prompt)[-1]
    assert (request["model"], request["reasoning_effort"]) == ("one", "low") and "OLD RULES" in request["messages"][0]["content"]
    client.agents.update(agent.id, version=agent.version, instructions="NEW RULES", model="two", reasoning_effort=None, capabilities=[])
    prompt = say(text("x"))
    client.sessions.run(session.id, prompt)
    request = model.sent(prompt)[-1]
    assert request["model"] == "two" and "reasoning_effort" not in request and "tools" not in request
    assert request["messages"][0]["content"] == "NEW RULES"


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command,output", [
    ("true", "(no output)"), ("exit 7", "[exit code 7]"), ("echo a; exit 3", "a\n[exit code 3]"), ("kill -9 $$", "[exit code 137]"),
    ("no-such-command 2>/dev/null", "[exit code 127]"), ("cat", "(no output)"), ("pwd", "/workspace\n"),
    ("printf 'a\\377\\000b'", "a\ufffd\ufffdb"), ("echo only >&2", "[stderr]\nonly\n"),
])
def test_shell(client, session, say, command, output):
    r = client.sessions.run(session.id, say(call("shell", command=command), text("x")))
    assert results(client, session, r.run_id)[0]["output"] == output


def test_shell_timeout(client, session, say):
    began = time.monotonic()
    r = client.sessions.run(session.id, say(call("shell", command="echo begun; sleep 60", timeout_seconds=0.5), text("x")))
    assert results(client, session, r.run_id)[0]["output"] == "begun\n[exit code 124: killed after 0.5 seconds]"
    assert time.monotonic() - began < 10


def test_output_is_cut(client, session, say):
    r = client.sessions.run(session.id, say(call("shell", command="head -c 5000000 /dev/zero | tr '\\0' x; echo why >&2"), text("x")))
    output = results(client, session, r.run_id)[0]["output"]
    assert len(output) <= 64 * 1024 and "5000000 bytes in all" in output and output.endswith("why\n")


def test_files(client, session, say):
    r = client.sessions.run(session.id, say(
        call("write_file", path="out/ü.txt", content="one\ntwo\n"), call("edit_file", path="out/ü.txt", old="two", new="zwei"),
        call("read_file", path="out/ü.txt"), call("list_files", path="."), call("list_files", path="out"), text("x")))
    outputs = [p["output"] for p in results(client, session, r.run_id)]
    assert outputs[2:] == ["one\nzwei\n", "out/\n", "ü.txt (9 bytes)\n"] and not any(p["is_error"] for p in results(client, session, r.run_id))
    assert client.sessions.read_text(session.id, "out/ü.txt") == "one\nzwei\n"


def test_files_that_are_refused(client, session, say):
    client.sessions.exec(session.id, "head -c 1048577 /dev/zero >big; printf '\\377' >bytes; ln -s /etc/passwd link; mkfifo fifo; echo aa >twice").check()
    paths = ["/etc/passwd", "../../etc/passwd", "missing", "big", "bytes", "link", "fifo", "."]
    r = client.sessions.run(session.id, say(*[call("read_file", path=p) for p in paths],
                                            call("edit_file", path="twice", old="a", new="b"), call("edit_file", path="twice", old="c", new="b"), text("x")))
    for path, payload in zip(paths, results(client, session, r.run_id), strict=False):
        assert payload["is_error"] and payload["output"].startswith("Error: ") and "root:" not in payload["output"], path
    assert r.ok and len(results(client, session, r.run_id)) == len(paths) + 2
    assert client.sessions.read_text(session.id, "twice") == "aa\n"


@pytest.mark.parametrize("name,arguments", [("shell", "{not json"), ("shell", "[]"), ("shell", ""), ("shell", '{"command":7}'), ("no_such_tool", "{}"),
                                            ("write_file", '{"path":"x"}')])
def test_a_call_that_makes_no_sense_goes_back_to_the_model(client, session, say, name, arguments):
    r = client.sessions.run(session.id, say(Answer(calls=[(name, arguments)]), text("recovered")))
    payload, = results(client, session, r.run_id)
    assert r.text == "recovered" and payload["is_error"] and payload["output"].startswith("Error: ")


def test_parallel_calls_are_each_answered(client, session, model, say):
    prompt = say(calls(call("shell", command="echo one"), call("shell", command="exit 3"), call("shell", command="echo two")), text("x"))
    r = client.sessions.run(session.id, prompt)
    assert [p["output"] for p in results(client, session, r.run_id)] == ["one\n", "[exit code 3]", "two\n"]
    assert [m["role"] for m in model.sent(prompt)[-1]["messages"]] == ["system", "user", "assistant", "tool", "tool", "tool"]


def test_max_turns(client, session, say):
    r = client.sessions.run(session.id, say(*[call("shell", command="echo x >>f")] * 5), max_turns=2, raise_on_error=False)
    assert (r.status, r.stop_reason, r.turns) == ("failed", "max_turns", 2) and r.error
    assert client.sessions.read_text(session.id, "f") == "x\nx\n"
    assert client.sessions.run(session.id, say(text("after")), max_turns=1).text == "after"


# --- failures of the model -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer,says", [(failure(400), "400"), (failure(302), "302"), (garbage(), "no chat completion"), (garbage(b""), "nothing"),
                                         (broken("half of"), "cut short"), (garbage(b"data: {\"error\":{\"message\":\"overloaded\"}}\n\n"), "overloaded")])
def test_a_failure_of_the_model_fails_the_run(client, session, say, answer, says):
    r = client.sessions.run(session.id, say(answer), raise_on_error=False)
    assert r.status == "failed" and says in r.error
    row = client.sessions.get(session.id)
    assert (row.status, row.activity, row.runs[-1].status, row.runs[-1].error) == ("running", "idle", "failed", r.error)
    assert client.sessions.run(session.id, say(text("next"))).text == "next"


def test_a_passing_failure_is_asked_again(client, session, model, say):
    prompt = say(text("made it"))
    answer, failures = model.answer, [503, 429]
    model.answer = lambda request: failure(failures.pop()) if failures and prompt in json.dumps(request["messages"]) else answer(request)
    try:
        assert client.sessions.run(session.id, prompt).text == "made it"
    finally:
        del model.answer
    assert not failures


def test_an_empty_answer_is_an_answer(client, session, say):
    r = client.sessions.run(session.id, say(text()))
    assert r.ok and not r.text
    assert client.sessions.run(session.id, say(text("ok"))).text == "ok"


# --- interrupt -------------------------------------------------------------------------------------------------------


def test_interrupt_while_the_model_is_silent(client, session, say):
    run = client.sessions.send(session.id, say(silence()))
    with pytest.raises(ConflictError):
        client.sessions.send(session.id, say(text("second")))
    time.sleep(0.3)
    client.sessions.interrupt(session.id)
    row = client.sessions.get(session.id).runs[-1]
    assert (row.id, row.status, row.stop_reason) == (run.id, "cancelled", "cancelled")
    assert client.sessions.run(session.id, say(text("at once"))).text == "at once"
    assert [e.type for e in events_of(client, session, run.id)] == ["user.message", "session.status_idle"]


def test_interrupt_kills_the_command(client, session, model, say):
    run = client.sessions.send(session.id, say(call("shell", command="touch began; sleep 300; touch ended")))
    wait_for("the command", lambda: client.sessions.exec(session.id, "test -e began").exit_code == 0)
    client.sessions.interrupt(session.id)
    wait_for("its end", lambda: client.sessions.exec(session.id, "pgrep -x sleep || ! ps >/dev/null 2>&1").exit_code != 0 or
             "sleep" not in client.sessions.exec(session.id, "cat /proc/[0-9]*/comm").stdout, 5)
    prompt = say(text("x"))
    assert client.sessions.run(session.id, prompt).ok
    messages = model.sent(prompt)[-1]["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "user"] and "ancelled" in messages[3]["content"]
    assert not [e for e in events_of(client, session, run.id) if e.type == "agent.tool_result"]


def test_what_was_said_before_the_interrupt_stays(client, session, model, say):
    got = threading.Event()
    run = client.sessions.send(session.id, say(text(*["partial "] * 100, pause=0.05)))
    for event in client.sessions.stream(session.id):
        if event.type == "agent.text_delta" and not got.is_set():
            got.set()
            client.sessions.interrupt(session.id)
        if event.type in TERMINAL and event.run_id == run.id:
            break
    time.sleep(0.5)
    prompt = say(text("x"))
    client.sessions.run(session.id, prompt)
    messages = model.sent(prompt)[-1]["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"] and messages[2]["content"].startswith("partial ")


# --- processes -------------------------------------------------------------------------------------------------------


def test_a_turn_outlives_its_runner(client, server, session, model, say):
    """Killed while the model is silent and while a command runs: another runner goes on from the log."""
    prompt = say(call("shell", command="echo once >>log"), call("shell", command="echo again >>log; sleep 60"), text("survived"))
    run = client.sessions.send(session.id, prompt)
    wait_for("the second command", lambda: client.sessions.exec(session.id, "grep again log").exit_code == 0)
    kill_runners(server)
    r = client.sessions.wait_for_run(session.id, run_id=run.id, timeout=90)
    assert r.text == "survived" and client.sessions.read_text(session.id, "log") == "once\nagain\n"
    first, second = results(client, session, run.id)
    assert first["is_error"] is False and second["is_error"] is True and "interrupted" in second["output"]
    events = [e.type for e in events_of(client, session, run.id)]
    assert events.count("agent.tool_use") == events.count("agent.tool_result") == 2 and events.count("session.status_idle") == 1


def test_a_turn_survives_a_reload(client, server, session, say):
    run = client.sessions.send(session.id, say(call("shell", command="sleep 1; echo slept"), call("shell", command="echo more"), text("fine")))
    wait_for_event(client, session, run.id, "agent.tool_use")
    runners = server.pids("runner")
    server.kill("server", 1)
    r = client.sessions.wait_for_run(session.id, run_id=run.id, timeout=60)
    assert r.text == "fine" and [p["output"] for p in results(client, session, run.id)] == ["slept\n", "more\n"]
    wait_for("other runners", lambda: not set(runners) & set(server.pids("runner")), 60)


# --- the built-in model ----------------------------------------------------------------------------------------------


def test_builtin_shell_runs_what_is_spelt_out(client, make_session):
    session = make_session(definition={"model": "builtin/shell"})
    got = []
    r = client.sessions.run(session.id, "Please\n```sh\nmkdir -p output\necho '# R' >output/report.md\n```\nthen\n```sh\ncat output/report.md; exit 3\n```",
                            on_event=got.append)
    assert r.ok and r.turns == 3 and "# R" in r.text and "[exit code 3]" in r.text and "no language model" in r.text
    assert client.sessions.read_text(session.id, "output/report.md") == "# R\n"
    assert [e.type for e in events_of(client, session, r.run_id)] == [
        "user.message", *["agent.tool_use", "agent.tool_result"] * 2, "agent.message", "session.status_idle"]
    assert r.usage["requests"] == 3 and list(r.usage["by_model"]) == ["builtin/shell"]
    assert "no language model" in client.sessions.run(session.id, "What is the time?").text
    r = client.sessions.run(session.id, "$ echo $((6 * 7))")
    assert "42" in r.text
    r = client.sessions.run(session.id, '@tool ask_user {"q": 1}')
    assert r.ok and results(client, session, r.run_id)[0]["is_error"]


def test_builtin_shell_without_tools(client, make_session):
    session = make_session(definition={"model": "builtin/shell", "capabilities": []})
    r = client.sessions.run(session.id, "$ true")
    assert r.ok and "there is no tool 'shell' here" in r.text
