"""An S3 store in a thread of this process that answers late, as one far away does: what waits for what can be seen.

It keeps objects in memory, honours `If-None-Match: *`, and knows the requests that this library sends.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.servers.s3_server import BUCKET, storage_of


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: when the store began with it, and when its answer was ready (seconds of one clock)."""

    method: str
    path: str
    begun: float
    ended: float


@dataclass
class SlowStore:
    """The bucket `BUCKET`; each answer takes `delay_s` more."""

    delay_s: float = 0.0
    objects: dict[str, bytes] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    _tags: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __enter__(self) -> Self:
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

            def do_GET(self) -> None:
                store._serve(self)

            do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def storage(self) -> dict[str, str]:
        """The storage options that reach it."""
        return storage_of(f"http://127.0.0.1:{self._server.server_port}")

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        begun = time.monotonic()
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        address = urlsplit(request.path)
        key = unquote(address.path).removeprefix(f"/{BUCKET}").strip("/")
        with self._lock:
            status, headers, content = self._answer(request, key, parse_qs(address.query, True), body)
        time.sleep(self.delay_s)
        with self._lock:
            self.sent.append(Sent(request.command, key or address.query, begun, time.monotonic()))
        request.send_response_only(status)
        for name, value in headers.items():
            request.send_header(name, value)
        if "Content-Length" not in headers:
            request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    def _answer(
        self, request: BaseHTTPRequestHandler, key: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if request.command == "PUT":
            if request.headers.get("If-None-Match") == "*" and key in self.objects:
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            self.objects[key] = body
            self._tags[key] = f'"{md5(body, usedforsecurity=False).hexdigest()}"'
            return 200, {"ETag": self._tags[key]}, b""
        if request.command == "DELETE":
            self.objects.pop(key, None)
            return 204, {}, b""
        if request.command == "POST":
            keys = re.findall("<Key>([^<]*)</Key>", body.decode())
            for gone in keys:
                self.objects.pop(gone, None)
            deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            return 200, {}, f"<DeleteResult>{deleted}</DeleteResult>".encode()
        if not key:
            return 200, {"Content-Type": "application/xml"}, self._listing(query)
        found = self.objects.get(key)
        if found is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        headers = {"ETag": self._tags[key], "Last-Modified": formatdate(usegmt=True)}
        if request.command == "HEAD":
            return 200, {**headers, "Content-Length": str(len(found))}, b""
        return _range(request.headers.get("Range"), found, headers)

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        keys, folders = [], set()
        for key in sorted(k for k in self.objects if k.startswith(prefix)):
            name, cut, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            if cut:
                folders.add(prefix + name + delimiter)
            else:
                keys.append(key)
        objects = "".join(
            f"<Contents><Key>{escape(k)}</Key><Size>{len(self.objects[k])}</Size><ETag>{escape(self._tags[k])}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for k in keys
        )
        below = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}{below}</ListBucketResult>".encode()


def longest_chain(sent: Sequence[Sent]) -> list[Sent]:
    """The most requests of which each began after the one before had been answered: what no parallel work can hide."""
    chain: list[Sent] = []
    for one in sorted(sent, key=lambda s: s.ended):
        if not chain or one.begun >= chain[-1].ended:
            chain.append(one)
    return chain


def _range(asked: str | None, found: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    if asked is None:
        return 200, headers, found
    first, _, last = asked.removeprefix("bytes=").partition("-")
    if not found:
        return 416, headers, b""
    low = int(first) if first else max(0, len(found) - int(last))
    high = min(int(last), len(found) - 1) if first and last else len(found) - 1
    return 206, {**headers, "Content-Range": f"bytes {low}-{high}/{len(found)}"}, found[low : high + 1]
