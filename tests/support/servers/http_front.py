"""A server on this machine that stands before another one: the shell of `FaultProxy` and `GcsFront`."""

import http.client
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

_HOPS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "date", "server"})

Answer = tuple[int, dict[str, str], bytes]
"""The status, headers and body."""


class HttpFront:
    """Listens at `endpoint`, and knows the server at `target`; `serve` says what becomes of a request."""

    def __init__(self, target: str) -> None:
        self._host = urlsplit(target).netloc
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # The head and the body of an answer go together: the client would wait 40 ms for the second packet.
            disable_nagle_algorithm = True
            wbufsize = -1

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                front.serve(self, body)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve

            def log_message(self, *_args: Any) -> None:
                """Says nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_args: Any) -> None:
                """Says nothing of a client that has gone away in the middle."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answers a request, or ends its connection."""
        raise NotImplementedError

    def asked(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """What the server behind it answers."""
        connection = http.client.HTTPConnection(self._host, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()


def passed_on(request: BaseHTTPRequestHandler) -> dict[str, str]:
    """The headers of a request that are for the server behind."""
    return {k: v for k, v in request.headers.items() if k.lower() not in _HOPS}


def send(request: BaseHTTPRequestHandler, answer: Answer) -> None:
    """Sends an answer to who has asked, if they still listen."""
    status, headers, content = answer
    size = str(len(content))
    if request.command == "HEAD":
        size = next((value for key, value in headers.items() if key.lower() == "content-length"), "0")
    with suppress(OSError):
        request.send_response_only(status)
        for key, value in headers.items():
            if key.lower() not in _HOPS:
                request.send_header(key, value)
        request.send_header("Content-Length", size)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)
