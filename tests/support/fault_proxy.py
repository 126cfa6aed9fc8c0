"""A proxy before a store: it forwards requests, and treats chosen ones in each way that networks and stores can."""

import http.client
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

DELAY_S = 0.02
_HOPS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "date", "server"})


class Trouble(Enum):
    """What becomes of a request."""

    ANSWER_LOST = "the store does it, and the connection ends without an answer"
    REQUEST_LOST = "the connection ends before the store hears of it"
    REPEATED = "the store gets it twice, and the second answer is given"
    CONFLICT = "409, and the store does not hear of it"
    CONDITION_FAILED = "412, and the store does not hear of it"
    BROKEN_AFTER = "the store does it, and the answer is 500"
    BROKEN_BEFORE = "500, and the store does not hear of it"
    BUSY = "503, and the store does not hear of it"
    LATE = "the answer takes a while"
    CONDITION_IGNORED = "the store does not hear of the condition"


_ANSWERS = {
    Trouble.CONFLICT: (409, "ConditionalRequestConflict"),
    Trouble.CONDITION_FAILED: (412, "PreconditionFailed"),
    Trouble.BROKEN_BEFORE: (500, "InternalError"),
    Trouble.BUSY: (503, "SlowDown"),
}

Choose = Callable[[str, str], Trouble | None]
"""(method, path) of a request -> what becomes of it; None: nothing special"""


class FaultProxy:
    """Forwards to the server at `target`; `choose` is asked for each request, one at a time, and may be replaced.

    `done` lists the requests that were treated so, `signed` how each request was signed.
    """

    def __init__(self, target: str, choose: Choose) -> None:
        self.choose = choose
        self.done: list[tuple[str, str, Trouble]] = []
        self.signed: list[str] = []
        self._host = urlsplit(target).netloc
        self._lock = Lock()
        self._ended = Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                proxy.serve(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve

            def log_message(self, *_args: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._lock:
            self.signed.append(request.headers.get("Authorization") or "")
            trouble = self.choose(request.command, request.path)
            if trouble is not None:
                self.done.append((request.command, request.path, trouble))
        if trouble is Trouble.REQUEST_LOST:
            request.close_connection = True
            return
        if trouble in _ANSWERS:
            status, code = _ANSWERS[trouble]
            _answer(request, status, {}, f"<Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode())
            return
        if trouble is Trouble.LATE:
            self._ended.wait(DELAY_S)
        status, headers, content = self._forward(request, body, trouble)
        if trouble is Trouble.REPEATED:
            status, headers, content = self._forward(request, body, trouble)
        if trouble is Trouble.ANSWER_LOST:
            request.close_connection = True
            return
        if trouble is Trouble.BROKEN_AFTER:
            status, headers, content = 500, {}, b"<Error><Code>InternalError</Code></Error>"
        with suppress(OSError):
            _answer(request, status, headers, content)

    def _forward(
        self, request: BaseHTTPRequestHandler, body: bytes, trouble: Trouble | None
    ) -> tuple[int, dict[str, str], bytes]:
        left_out = {"if-none-match"} if trouble is Trouble.CONDITION_IGNORED else set()
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOPS | left_out}
        connection = http.client.HTTPConnection(self._host, timeout=60)
        try:
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            found = dict(answer.getheaders())
            content = answer.read()
            if request.command == "HEAD":
                found = {"content-length": found.pop("content-length", found.pop("Content-Length", "0")), **found}
            return answer.status, found, content
        finally:
            connection.close()


def _answer(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes) -> None:
    request.send_response_only(status)
    size = headers.get("content-length") if request.command == "HEAD" else str(len(content))
    for key, value in headers.items():
        if key.lower() not in _HOPS:
            request.send_header(key, value)
    request.send_header("Content-Length", size or "0")
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content)
