"""Raw requests: what could be read in two ways gets one refusal and a close, whatever follows it; what is fine is answered."""
import json
import socket
import time

import pytest

HOST = b"Host: localhost\r\n"
GET = b"GET /api/health HTTP/1.1\r\n" + HOST
POST = b"POST /api/agents HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
SMUGGLED = b"GET /api/me HTTP/1.1\r\nHost: localhost\r\n\r\n"
HARDENING = ("x-content-type-options", "x-frame-options", "referrer-policy", "cross-origin-opener-policy",
             "content-security-policy", "permissions-policy")


class Raw:
    """One connection, and the answers that came on it."""

    def __init__(self, server):
        self.socket = socket.create_connection((server.host, server.port), timeout=15)
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # it may be closed already; what was answered tells

    def _more(self):
        data = self.socket.recv(65536)
        self.rest += data
        return bool(data)

    def answer(self, method=b"GET"):
        """Status, headers and body of the next answer; None at the end of the connection."""
        while b"\r\n\r\n" not in self.rest:
            if not self._more():
                assert self.rest == b"", f"half an answer: {self.rest!r}"
                return None
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        version, status = lines[0].split(" ")[:2]
        assert version == "HTTP/1.1", lines[0]
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = 0 if method == b"HEAD" or int(status) < 200 else int(headers.get("content-length", 0))
        while len(self.rest) < length:
            assert self._more(), "the body ended early"
        body, self.rest = self.rest[:length], self.rest[length:]
        return int(status), headers, body

    def ended(self):
        while self._more():
            pass
        return self.rest == b""


REFUSED = {
    # request line
    "no version": b"GET /api/health\r\n\r\n",
    "two blanks": b"GET  /api/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "a blank in front": b" GET /api/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "a blank behind": b"GET /api/health HTTP/1.1 \r\n" + HOST + b"\r\n",
    "version 1.2": b"GET /api/health HTTP/1.2\r\n" + HOST + b"\r\n",
    "version 2.0": b"GET /api/health HTTP/2.0\r\n" + HOST + b"\r\n",
    "version 0.9": b"GET /api/health HTTP/0.9\r\n" + HOST + b"\r\n",
    "lower-case version": b"GET /api/health http/1.1\r\n" + HOST + b"\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "method with a bracket": b"G{T /api/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "unknown method": b"BREW /api/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "lower-case method": b"get /api/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "TRACE": b"TRACE /api/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    # target
    "NUL escaped in the path": b"GET /api/health%00 HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL escaped in the query": b"GET /api/agents?a=%00 HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in the path": b"GET /api/\0health HTTP/1.1\r\n" + HOST + b"\r\n",
    "broken escape": b"GET /api/%zz HTTP/1.1\r\n" + HOST + b"\r\n",
    "half an escape": b"GET /api/%4 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a byte above 127": b"GET /api/\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "fragment": b"GET /api/health#x HTTP/1.1\r\n" + HOST + b"\r\n",
    "no path": b"GET api/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "GET *": b"GET * HTTP/1.1\r\n" + HOST + b"\r\n",
    "another authority": b"GET http://example.com/api/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "another scheme": b"GET ftp://localhost/api/health HTTP/1.1\r\n" + HOST + b"\r\n",
    # line ends
    "bare LF": b"GET /api/health HTTP/1.1\nHost: localhost\n\n",
    "bare LF behind a field": GET + b"X: y\n\r\n",
    "bare LF at the end": GET + b"\n",
    "bare CR": GET + b"X: y\rZ: w\r\n\r\n",
    "bare CR at the end": GET + b"\r\r\n",
    # fields
    "folded field": GET + b"X: y\r\n z\r\n\r\n",
    "field folded by a tab": GET + b"X: y\r\n\tz\r\n\r\n",
    "first field folded": b"GET /api/health HTTP/1.1\r\n " + HOST + b"\r\n",
    "blank before the colon": GET + b"X : y\r\n\r\n",
    "tab before the colon": GET + b"X\t: y\r\n\r\n",
    "no name": GET + b": y\r\n\r\n",
    "no colon": GET + b"X\r\n\r\n",
    "name with a bracket": GET + b"X(: y\r\n\r\n",
    "name with a NUL": GET + b"X\0: y\r\n\r\n",
    "value with a NUL": GET + b"X: y\0z\r\n\r\n",
    "value with a control": GET + b"X: y\x08z\r\n\r\n",
    "65 fields": GET + b"".join(b"X%d: y\r\n" % i for i in range(64)) + b"\r\n",
    "a length as field 71": POST + b"".join(b"X%d: y\r\n" % i for i in range(70)) + b"Content-Length: 5\r\n\r\nhello",
    "a head of 40 KiB": GET + b"X: " + b"y" * 40960 + b"\r\n\r\n",
    "a target of 40 KiB": b"GET /" + b"x" * 40960 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    # Host
    "no Host": b"GET /api/health HTTP/1.1\r\n\r\n",
    "empty Host": b"GET /api/health HTTP/1.1\r\nHost:\r\n\r\n",
    "two Hosts": GET + HOST + b"\r\n",
    "two different Hosts": GET + b"host: example.com\r\n\r\n",
    "Host with a blank": b"GET /api/health HTTP/1.1\r\nHost: a b\r\n\r\n",
    "Host with a path": b"GET /api/health HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "Host with a user": b"GET /api/health HTTP/1.1\r\nHost: u@a\r\n\r\n",
    "Host with a bad port": b"GET /api/health HTTP/1.1\r\nHost: a:b\r\n\r\n",
    # Content-Length
    **{f"length {value!r}": POST + b"Content-Length: " + value + b"\r\n\r\nhello"
       for value in (b"+5", b"-5", b"0x5", b"5 5", b"5,5", b"5, 5", b"5.0", b"5x", b"x", b"", b"'5'", b"9223372036854775808",
                     b"18446744073709551621", b"99999999999999999999", b"1e1", b"\xd9\xa5")},
    "two equal lengths": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length with a blank before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
    # Transfer-Encoding
    "both framings": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both framings, the other order": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "encoding twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "encoding and another": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "encoding with a blank before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "encoding folded": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "encoding in HTTP/1.0": b"POST /api/agents HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    **{f"encoding {value!r}": POST + b"Transfer-Encoding: " + value + b"\r\n\r\n0\r\n\r\n"
       for value in (b"identity", b"gzip", b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"xchunked", b"chunked;q=1",
                     b"\"chunked\"", b"", b"\x0bchunked", b"chunk")},
    # chunks
    **{f"chunks {value!r}": POST + b"Transfer-Encoding: chunked\r\n\r\n" + value
       for value in (b"g\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"-1\r\n", b"+5\r\nhello\r\n0\r\n\r\n", b" 5\r\nhello\r\n0\r\n\r\n",
                     b"5 \r\nhello\r\n0\r\n\r\n", b"5\nhello\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n",
                     b"000000005\r\nhello\r\n0\r\n\r\n", b"fffffffff\r\n", b"\r\n0\r\n\r\n", b"5;\nx\r\nhello\r\n0\r\n\r\n",
                     b"5;" + b"x" * 300 + b"\r\nhello\r\n0\r\n\r\n", b"0\r\n X: y\r\n\r\n", b"0\r\n" + b"X: y\r\n" * 2000 + b"\r\n")},
    # the rest
    "expectation": POST + b"Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello",
    "connection that is no token": GET + b"Connection: a b\r\n\r\n",
    "two credentials": GET + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "two projects": GET + b"X-Project: a\r\nX-Project: b\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", REFUSED.values(), ids=REFUSED.keys())
def test_what_can_be_read_in_two_ways_gets_one_refusal_and_a_close(server, request_bytes):
    with Raw(server) as raw:
        raw.send(request_bytes + SMUGGLED)
        status, headers, body = raw.answer()
        assert 400 <= status < 500
        assert isinstance(json.loads(body)["detail"], (str, list))
        assert headers["content-type"].startswith("application/json")
        assert headers["connection"] == "close"
        assert not [name for name in HARDENING if name not in headers]
        assert raw.answer() is None, "what followed was answered"


ANSWERED = {
    "plain": (GET + b"\r\n", 200),
    "an empty line in front": (b"\r\n" + GET + b"\r\n", 200),
    "no blank behind the colon": (b"GET /api/health HTTP/1.1\r\nHost:localhost\r\n\r\n", 200),
    "blanks and tabs around a value": (GET + b"X: \ty \t z \t\r\n\r\n", 200),
    "bytes above 127 in a value": (GET + b"X: \xc3\xa9\xff\r\n\r\n", 200),
    "an empty value": (GET + b"X:\r\n\r\n", 200),
    "64 fields": (GET + b"".join(b"X%d: y\r\n" % i for i in range(63)) + b"\r\n", 200),
    "a head of 30 KiB": (GET + b"X: " + b"y" * 30000 + b"\r\n\r\n", 200),
    "absolute form": (b"GET http://localhost/api/health HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    "absolute form with the port": (b"GET http://LOCALHOST:80/api/health HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    "Host with a port": (b"GET /api/health HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 200),
    "Host that is IPv6": (b"GET /api/health HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n", 200),
    "length 0": (GET + b"Content-Length: 0\r\n\r\n", 200),
    "GET with a body": (GET + b"Content-Length: 5\r\n\r\nhello", 200),
    "chunks": (GET + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200),
    "chunks with an extension and a trailer": (GET + b"Transfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n", 200),
    "an upgrade that nobody asked of us": (GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n", 200),
    "not found": (b"GET /api/nothing HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    "another method": (b"PUT /api/health HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    "dots": (b"GET /api/../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", 404),
}


@pytest.mark.parametrize("request_bytes,status", ANSWERED.values(), ids=ANSWERED.keys())
def test_what_is_fine_is_answered_and_the_connection_stays(server, request_bytes, status):
    with Raw(server) as raw:
        for _ in range(2):
            raw.send(request_bytes)
            assert raw.answer()[0] == status


@pytest.mark.parametrize("request_bytes,status", ANSWERED.values(), ids=ANSWERED.keys())
def test_a_request_may_come_in_pieces(server, request_bytes, status):
    pieces = [request_bytes[:1], request_bytes[1:7], request_bytes[7:-3], request_bytes[-3:-1], request_bytes[-1:]]
    with Raw(server) as raw:
        raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            raw.send(piece)
            time.sleep(0.005)
        assert raw.answer()[0] == status


def test_what_is_pipelined_is_not_answered(server):
    with Raw(server) as raw:
        raw.send(GET + b"\r\n" + SMUGGLED)
        status, headers, _ = raw.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert raw.answer() is None


def test_head_has_no_body(server):
    with Raw(server) as raw:
        raw.send(GET.replace(b"GET", b"HEAD") + b"\r\n")
        _, _, body = raw.answer(b"HEAD")
        assert body == b""
        raw.send(GET + b"\r\n")
        assert raw.answer()[2] != b""


def test_http_1_0_closes_unless_asked(server):
    with Raw(server) as raw:
        raw.send(b"GET /api/health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert raw.answer()[0] == 200
        raw.send(b"GET /api/health HTTP/1.0\r\n\r\n")
        assert raw.answer()[0] == 200
        assert raw.answer() is None


def test_who_wants_to_close_is_closed(server):
    with Raw(server) as raw:
        raw.send(GET + b"Connection: close\r\n\r\n")
        assert raw.answer()[1]["connection"] == "close"
        assert raw.answer() is None


def test_a_client_that_has_said_all_is_answered(server):
    with Raw(server) as raw:
        raw.send(GET + b"\r\n")
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.answer()[0] == 200
        assert raw.answer() is None


def test_a_body_that_is_too_large_is_refused_before_it_comes(server):
    credential = b"Authorization: Bearer " + server.operator_token.encode() + b"\r\n"
    for expect in (b"", b"Expect: 100-continue\r\n"):
        with Raw(server) as raw:
            raw.send(POST + credential + expect + b"Content-Length: 10000000000\r\n\r\n")
            began = time.monotonic()
            assert raw.answer()[0] == 413
            assert time.monotonic() - began < 5
            assert raw.answer() is None


def test_the_body_is_asked_for_when_it_is_expected(server):
    body = b'{"name": 1}'
    credential = b"Authorization: Bearer " + server.operator_token.encode() + b"\r\n"
    with Raw(server) as raw:
        raw.send(POST + credential + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert raw.answer()[0] == 100
        raw.send(body)
        assert raw.answer()[0] == 422


@pytest.mark.slow
def test_half_a_request_is_cut_after_ten_seconds(server):
    beginnings = (b"GET /api/he", POST + b"Content-Length: 100\r\n\r\n{", POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nh")
    connections = [Raw(server) for _ in beginnings]
    began = time.monotonic()
    for raw, beginning in zip(connections, beginnings):
        raw.send(beginning)
    for raw in connections:
        raw.socket.settimeout(15)
        assert raw.answer()[0] == 408
        assert raw.answer() is None
        assert 9 < time.monotonic() - began < 13
        raw.socket.close()


@pytest.mark.slow
def test_an_idle_connection_is_kept_for_75_seconds(server):
    with Raw(server) as raw:
        raw.send(GET + b"\r\n")
        assert raw.answer()[0] == 200
        time.sleep(74)
        raw.send(GET + b"\r\n")
        assert raw.answer()[0] == 200
