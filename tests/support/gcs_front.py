"""Google's XML interface for writing, before fake-gcs-server, which knows only the JSON one.

The server decides: a put on the condition `x-goog-if-generation-match` becomes an upload with `ifGenerationMatch`.
Uploads in parts are put together here. All else passes through.
"""

import hashlib
import http.client
import json
import re
import uuid
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

_HOPS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "date", "server"})
_CONDITION = "x-goog-if-generation-match"
_BOUNDARY = "bucketline-part"

_Answer = tuple[int, dict[str, str], bytes]


class GcsFront:
    """Forwards to the fake-gcs-server at `target`."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target).netloc
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._lock = Lock()
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                front._serve(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve

            def log_message(self, *_args: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        status, headers, content = self._answered(request, body)
        with suppress(OSError):
            request.send_response_only(status)
            size = headers.pop("Content-Length", None) if request.command == "HEAD" else str(len(content))
            for key, value in headers.items():
                if key.lower() not in _HOPS:
                    request.send_header(key, value)
            request.send_header("Content-Length", size or "0")
            request.end_headers()
            if request.command != "HEAD":
                request.wfile.write(content)

    def _answered(self, request: BaseHTTPRequestHandler, body: bytes) -> _Answer:
        parts = urlsplit(request.path)
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        upload = query.get("uploadId", "")
        match request.command:
            case "POST" if "uploads" in query:
                with self._lock:
                    self._uploads[upload := uuid.uuid4().hex] = {}
                begun = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
                return 200, {}, _xml("InitiateMultipartUploadResult", begun)
            case "PUT" if "partNumber" in query:
                with self._lock:
                    self._uploads[upload][int(query["partNumber"])] = body
                return 200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}, b""
            case "POST" if upload:
                with self._lock:
                    found = self._uploads.pop(upload)
                order = [int(n) for n in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
                status, headers, _ = self._upload(bucket, key, b"".join(found[n] for n in order), None)
                etag = f"<ETag>{escape(headers.get('ETag', ''))}</ETag>"
                return status, headers, _xml("CompleteMultipartUploadResult", etag)
            case "DELETE" if upload:
                with self._lock:
                    self._uploads.pop(upload, None)
                return 204, {}, b""
            case "PUT":
                return self._upload(bucket, key, body, request.headers.get(_CONDITION))
            case _:
                headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOPS}
                status, found, content = self._asked(request.command, request.path, body, headers)
                # Of an empty object no range can be given, which the emulator does not say.
                is_empty = found.get("Content-Range", "").endswith("/0")
                return (416, {}, b"") if is_empty else (status, found, content)

    def _upload(self, bucket: str, key: str, data: bytes, generation: str | None) -> _Answer:
        """Creates or replaces an object; with a generation only if that is the object's (0: there is none)."""
        condition = "" if generation is None else f"&ifGenerationMatch={generation}"
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart&name={quote(key, safe='')}{condition}"
        about = json.dumps({"name": key, "contentType": "application/octet-stream"}).encode()
        begin, kinds = b"\r\n--" + _BOUNDARY.encode(), (b"application/json", b"application/octet-stream")
        content = b"".join(
            begin + b"\r\nContent-Type: " + kind + b"\r\n\r\n" + text
            for kind, text in zip(kinds, (about, data), strict=True)
        )
        headers = {"Content-Type": f"multipart/related; boundary={_BOUNDARY}"}
        status, _, answer = self._asked("POST", path, content + begin + b"--\r\n", headers)
        if status != 200:
            return status, {}, b"<Error><Code>PreconditionFailed</Code></Error>" if status == 412 else answer
        made = json.loads(answer)
        return 200, {"ETag": f'"{made.get("md5Hash", "")}"', "x-goog-generation": str(made.get("generation", "1"))}, b""

    def _asked(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> _Answer:
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            found = dict(answer.getheaders())
            return answer.status, found, answer.read()
        finally:
            connection.close()


def _xml(name: str, content: str) -> bytes:
    return f"<{name}>{content}</{name}>".encode()
