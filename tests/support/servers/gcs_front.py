"""Google's XML interface for writing, before fake-gcs-server, which knows only the JSON one.

The server decides: a put on the condition `x-goog-if-generation-match` becomes an upload with `ifGenerationMatch`.
Uploads in parts are put together here. All else passes through.
"""

import hashlib
import json
import re
import uuid
from http.server import BaseHTTPRequestHandler
from threading import Lock
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.servers.http_front import Answer, HttpFront, passed_on, send

_CONDITION = "x-goog-if-generation-match"
_BOUNDARY = "bucketline-part"


class GcsFront(HttpFront):
    """Forwards to the fake-gcs-server at `target`."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._lock = Lock()

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        send(request, self._answered(request, body))

    def _answered(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
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
                status, found, content = self.asked(request.command, request.path, body, passed_on(request))
                # Of an empty object no range can be given, which the emulator does not say.
                is_empty = found.get("Content-Range", "").endswith("/0")
                return (416, {}, b"") if is_empty else (status, found, content)

    def _upload(self, bucket: str, key: str, data: bytes, generation: str | None) -> Answer:
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
        status, _, answer = self.asked("POST", path, content + begin + b"--\r\n", headers)
        if status != 200:
            return status, {}, b"<Error><Code>PreconditionFailed</Code></Error>" if status == 412 else answer
        made = json.loads(answer)
        return 200, {"ETag": f'"{made.get("md5Hash", "")}"', "x-goog-generation": str(made.get("generation", "1"))}, b""


def _xml(name: str, content: str) -> bytes:
    return f"<{name}>{content}</{name}>".encode()
