"""A small server of a schema registry's API: Confluent's own client and serializers talk to it."""

import json
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class SchemaRegistry:
    """What the server holds, what it was asked, and how it behaves: its `status`, with the `body` that others than a
    registry send, and how many requests it refuses.
    """

    url: str = ""
    schemas: list[dict[str, object]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    logins: set[str | None] = field(default_factory=set)
    status: int = 200
    refused: int = 0
    body: bytes | None = None

    def add(self, subject: str, schema: object, **more: object) -> int:
        """The id of a schema that the registry has from now on."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        known = {"schema": text, "schemaType": "AVRO", **more}
        if known not in self.schemas:
            self.schemas.append(known)
        schema_id = self.schemas.index(known) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    @staticmethod
    def guid(schema_id: int) -> str:
        return str(uuid.UUID(int=schema_id))

    def answer(self, method: str, path: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
        parts = path.partition("?")[0].strip("/").split("/")
        status, self.refused = (self.status, 0) if not self.refused else (503, self.refused - 1)
        if status != 200:
            return status, {"error_code": status, "message": "not now"}
        if method == "POST" and parts[0] == "subjects":
            known = self.add(parts[1], body["schema"], **{k: v for k, v in body.items() if k == "references"})
            return 200, {"id": known, "guid": self.guid(known), "version": self.subjects[parts[1]].index(known) + 1}
        if parts[:2] == ["schemas", "ids"] and 0 < int(parts[2]) <= len(self.schemas):
            return 200, {**self.schemas[int(parts[2]) - 1], "guid": self.guid(int(parts[2]))}
        if parts[:2] == ["schemas", "guids"] and uuid.UUID(parts[2]).int <= len(self.schemas):
            return 200, {**self.schemas[uuid.UUID(parts[2]).int - 1], "id": uuid.UUID(parts[2]).int}
        if parts[0] == "subjects" and parts[1] in self.subjects:
            known = self.subjects[parts[1]][int(parts[3]) - 1]
            return 200, {**self.schemas[known - 1], "id": known, "subject": parts[1], "version": int(parts[3])}
        return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def schema_registry(
    port: int = 0, held: SchemaRegistry | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[SchemaRegistry]:
    """A server on this machine, for as long as the block runs. It is a proxy as well, which answers itself."""
    registry = SchemaRegistry() if held is None else held

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            registry.asked.append(self.path)
            path = urlsplit(self.path)._replace(scheme="", netloc="").geturl()
            registry.logins.add(self.headers.get("Authorization"))
            length = int(self.headers.get("Content-Length") or 0)
            status, answer = registry.answer(self.command, path, json.loads(self.rfile.read(length) or "{}"))
            data = json.dumps(answer).encode() if registry.body is None else registry.body
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _handle

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass

    server = Server(("127.0.0.1", port), Handler)
    if tls is not None:
        # The handshake is left to the thread of a connection, so that one that fails stops nobody else.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
