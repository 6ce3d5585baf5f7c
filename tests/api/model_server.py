"""An OpenAI-compatible endpoint that answers what a test has told it to.

    model.script("marker", [call("shell", command="ls"), text("done")])

A request belongs to the script whose marker stands in its last user message; how many assistant messages follow that message says which
answer is due. Requests are kept, so that a test can look at what was sent.
"""
from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USAGE = {"prompt_tokens": 21, "completion_tokens": 8, "total_tokens": 29}


@dataclass
class Answer:
    pieces: list[str] = field(default_factory=list)    # of the text, streamed one by one
    calls: list[tuple[str, str]] = field(default_factory=list)
    pause: float = 0                                   # seconds before each piece
    status: int = 200
    body: bytes | None = None                          # instead of an answer
    breaks: bool = False                               # the connection ends in the middle
    hangs: bool = False                                # nothing comes after the head


def text(*pieces: str, pause: float = 0) -> Answer:
    return Answer(pieces=list(pieces), pause=pause)


def call(name: str, **arguments) -> Answer:
    return Answer(calls=[(name, json.dumps(arguments))])


def calls(*several: Answer) -> Answer:
    return Answer(calls=[c for one in several for c in one.calls])


def failure(status: int) -> Answer:
    return Answer(status=status)


def garbage(body: bytes = b"<html></html>") -> Answer:
    return Answer(body=body)


def broken(*pieces: str) -> Answer:
    return Answer(pieces=list(pieces), breaks=True)


def silence() -> Answer:
    return Answer(hangs=True)


def content(message: dict) -> str:
    value = message.get("content") or ""
    return value if isinstance(value, str) else "".join(part.get("text", "") for part in value)


class ModelServer:
    """Listens on a free port of the loopback interface until close()."""

    def __init__(self):
        self.lock = threading.Lock()
        self.scripts: dict[str, list[Answer]] = {}
        self.requests: list[dict] = []
        self.closing = threading.Event()
        handler = type("Handler", (_Handler,), {"owner": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def script(self, marker: str, answers: list[Answer]) -> str:
        """Returns the marker, to be put into a prompt."""
        with self.lock:
            self.scripts[marker] = list(answers)
        return marker

    def sent(self, marker: str) -> list[dict]:
        """The requests whose conversation has the marker, oldest first."""
        with self.lock:
            return [r for r in self.requests if marker in json.dumps(r["messages"], ensure_ascii=False)]

    def answer(self, request: dict) -> Answer:
        messages = request["messages"]
        last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=0)
        done = sum(m["role"] == "assistant" for m in messages[last:])
        with self.lock:
            self.requests.append(request)
            answers = next((a for marker, a in self.scripts.items() if marker in content(messages[last])), [])
        return answers[done] if done < len(answers) else text("the script is over")

    def close(self):
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ModelServer

    def log_message(self, *_):
        pass

    def plain(self, status: int, body: bytes, kind: str = "application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        models = {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "tests"}]}
        found = self.path.endswith("/models")
        self.plain(200 if found else 404, json.dumps(models if found else {"error": {"message": "no such path"}}).encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.path.endswith("/chat/completions"):
            return self.plain(404, b'{"error":{"message":"no such path"}}')
        request = json.loads(body)
        request["_authorization"] = self.headers.get("Authorization")
        answer = self.owner.answer(request)
        try:
            if answer.status != 200:
                self.plain(answer.status, b'{"error":{"message":"scripted","type":"scripted"}}')
            elif answer.body is not None:
                self.plain(200, answer.body, "text/html")
            elif request.get("stream"):
                self.stream(request, answer)
            else:
                self.whole(request, answer)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        return None

    def tool_calls(self, answer: Answer) -> list[dict]:
        return [{"id": "call_" + uuid.uuid4().hex[:20], "type": "function", "function": {"name": n, "arguments": a}} for n, a in answer.calls]

    def wait(self, seconds: float):
        if self.owner.closing.wait(seconds):
            raise ConnectionResetError

    def whole(self, request: dict, answer: Answer):
        if answer.hangs:
            self.wait(300)
        message = {"role": "assistant", "content": "".join(answer.pieces) or None}
        if answer.calls:
            message["tool_calls"] = self.tool_calls(answer)
        self.plain(200, json.dumps({
            "id": "chatcmpl-" + uuid.uuid4().hex, "object": "chat.completion", "created": int(time.time()), "model": request["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if answer.calls else "stop"}], "usage": USAGE,
        }).encode())

    def stream(self, request: dict, answer: Answer):
        ident = "chatcmpl-" + uuid.uuid4().hex
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def send(data: bytes):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def chunk(choices: list, **more):
            send(b"data: " + json.dumps({"id": ident, "object": "chat.completion.chunk", "created": int(time.time()),
                                         "model": request["model"], "choices": choices, **more}).encode() + b"\n\n")

        def delta(finish=None, **what):
            chunk([{"index": 0, "delta": what, "finish_reason": finish}])

        delta(role="assistant", content="")
        if answer.hangs:
            self.wait(300)
        for piece in answer.pieces:
            self.wait(answer.pause)
            delta(content=piece)
        if answer.breaks:
            self.close_connection = True
            return
        for i, one in enumerate(self.tool_calls(answer)):
            arguments = one["function"]["arguments"]
            delta(tool_calls=[{"index": i, "id": one["id"], "type": "function", "function": {"name": one["function"]["name"], "arguments": ""}}])
            for at in range(0, len(arguments), 7):
                delta(tool_calls=[{"index": i, "function": {"arguments": arguments[at:at + 7]}}])
        delta("tool_calls" if answer.calls else "stop")
        if (request.get("stream_options") or {}).get("include_usage"):
            chunk([], usage=USAGE)
        send(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
