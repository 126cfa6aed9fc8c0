"""A REST catalog in a thread: it keeps names in memory and tables as files, and fails as it is told."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote_plus, urlsplit

from bucketline.conf.errors import OptionError
from bucketline.state.commit import schema_change as changes
from bucketline.state.commit.schema_edit import After, First, Position
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.json_files.snapshot_json import decode_snapshot, encode_snapshot
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.forwarding import fast_forward
from bucketline.state.store.catalog.rollback import rollback_to
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags, tag_snapshot
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.types.logical import all_fields, parse_field, parse_type

TOKEN = "some-bearer-token"
PAGE = 2


class AnswerError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


@dataclass
class Owned:
    """A table of the server, or a branch of one: its id, and the folder of its metadata."""

    uuid: str
    root: str
    is_external: bool = False
    newest: dict[str, Any] | None = None
    partitions: list[dict[str, str]] = field(default_factory=list)
    """Those that were added, and not computed from snapshots."""
    done: list[dict[str, str]] = field(default_factory=list)
    branches: dict[str, "Owned"] = field(default_factory=dict)


@dataclass
class Request:
    """One request, as the server got it."""

    method: str
    path: str
    body: dict[str, Any]
    headers: dict[str, str]


Fault = Callable[[Request, Callable[[], Any]], Any]
"""Answers a request in place of the server; its second argument carries the request out."""


@dataclass
class RestServer:
    """The catalog. `faults` are taken one a request that changes something, in order; None lets it pass."""

    folder: Path
    prefix: str = "lake house"
    defaults: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    faults: list[Fault | None] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    databases: dict[str, dict[str, Owned]] = field(default_factory=dict)
    token: Callable[[str], dict[str, Any]] | None = None
    drops: tuple[str, ...] = ()
    """Members of snapshots that this server does not know, as older ones do not."""
    unknown_tags: tuple[str, ...] = ()
    adds_partitions: bool = True
    """Whether partitions can be added, as since Paimon 2.0."""
    io: LocalIO = field(default_factory=LocalIO)

    def __enter__(self) -> Self:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

            def do_GET(self) -> None:
                owner._serve(self)

            do_POST = do_DELETE = do_GET

        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def options(self) -> dict[str, str]:
        """The options of its catalog."""
        return {"metastore": "rest", "uri": self.uri, "token": TOKEN, "warehouse": "lake"}

    def count(self, ending: str) -> int:
        """How many requests had a path that ends so."""
        return sum(r.path.endswith(ending) for r in self.requests)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        address = urlsplit(handler.path)
        data = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        request = Request(handler.command, address.path, json.loads(data or b"{}"), dict(handler.headers))
        self.requests.append(request)
        try:
            with self._lock:
                fault = self.faults.pop(0) if self.faults and request.method != "GET" else None
            query = {k: v[0] for k, v in parse_qs(address.query).items()}
            found = self._faulty(fault, request, query)
            self._answer(handler, 200, found or {})
        except AnswerError as e:
            body = {"message": str(e), "code": e.status, "resourceType": e.kind or None, "resourceName": None}
            self._answer(handler, e.status, body)
        except ConnectionError:
            handler.close_connection = True

    def _faulty(self, fault: Fault | None, request: Request, query: dict[str, str]) -> Any:
        def do() -> Any:
            with self._lock:
                return self._do(request, query)

        return do() if fault is None else fault(request, do)

    def _answer(self, handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _do(self, request: Request, query: dict[str, str]) -> Any:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise AnswerError(401, "who are you?")
        parts = [unquote_plus(p) for p in request.path.strip("/").split("/")]
        if parts == ["v1", "config"]:
            return {"defaults": {"prefix": self.prefix, **self.defaults}, "overrides": self.overrides}
        assert parts[:2] == ["v1", self.prefix], request.path
        match request.method, parts[2:]:
            case "GET", ["databases"]:
                return self._page("databases", list(self.databases), query)
            case "POST", ["databases"]:
                if request.body["name"] in self.databases:
                    raise AnswerError(409, "there", "DATABASE")
                self.databases[request.body["name"]] = {}
            case "GET", ["databases", name]:
                self._database(name)
                return {"name": name, "options": {}}
            case "DELETE", ["databases", name]:
                self._database(name)
                del self.databases[name]
            case "GET", ["databases", name, "tables"]:
                return self._page("tables", list(self._database(name)), query)
            case "POST", ["databases", name, "tables"]:
                self._create(self._database(name), request.body)
            case "POST", ["tables", "rename"]:
                self._rename(request.body["source"], request.body["destination"])
            case method, ["databases", name, "tables", table, *rest]:
                return self._of_table(method, name, table, rest, request.body)
            case _:
                raise AnswerError(400, request.path)
        return {}

    def _of_table(self, method: str, database: str, name: str, rest: list[str], body: dict[str, Any]) -> Any:
        tables = self._database(database)
        name, _, branch = name.partition("$branch_")
        table = tables.get(name)
        if table is not None and branch:
            table = table.branches.get(branch)
        if table is None:
            raise AnswerError(404, f"no table {database}.{name} {branch}", "TABLE")
        match method, rest:
            case "GET", []:
                return self._described(database, name, table)
            case "POST", []:
                self._alter(table, body["changes"])
            case "DELETE", []:
                self.io.delete_folder(table.root)
                del tables[name]
            case "GET", ["snapshot"]:
                if table.newest is None:
                    raise AnswerError(404, "no snapshot", "SNAPSHOT")
                return {"snapshot": {"snapshot": table.newest, "recordCount": 0}}
            case "GET", ["token"]:
                assert self.token is not None
                return self.token(f"{database}.{name}")
            case "POST", ["commit"]:
                return {"success": self._commit(table, body)}
            case "POST", ["rollback"]:
                self._roll_back(table, body)
            case "POST", ["tags"]:
                try:
                    tag_snapshot(self.io, table.root, body["tagName"], body["snapshotId"])
                except OptionError as e:
                    raise AnswerError(409, str(e), "TAG") from e
            case "GET", ["tags", tag]:
                found = Tags(self.io, table.root).get(tag)
                if found is None or tag in self.unknown_tags:
                    raise AnswerError(404, "no tag", "TAG")
                return {"tagName": tag, "snapshot": json.loads(encode_snapshot(found.snapshot))}
            case "DELETE", ["tags", tag]:
                if Tags(self.io, table.root).get(tag) is None or tag in self.unknown_tags:
                    raise AnswerError(404, "no tag", "TAG")
                Tags(self.io, table.root).delete(tag)
            case "POST", ["partitions", *action]:
                self._partitions(table, action, body)
            case "GET", ["branches"]:
                return {"branches": sorted(table.branches) or None}
            case "POST", ["branches"]:
                self._branch(table, body["branch"], body["fromTag"])
            case "POST", ["branches", branch, "forward"]:
                self._of_branch(table, branch)
                fast_forward(self.io, table.root, branch)
                self._know(table, max(Snapshots(self.io, table.root).ids()))
            case "DELETE", ["branches", branch]:
                self._of_branch(table, branch)
                del table.branches[branch]
                Branches(self.io, table.root).delete(branch)
            case _:
                raise AnswerError(400, str(rest))
        return {}

    def _database(self, name: str) -> dict[str, Owned]:
        if name not in self.databases:
            raise AnswerError(404, f"no database {name}", "DATABASE")
        return self.databases[name]

    def _of_branch(self, table: Owned, branch: str) -> Owned:
        if branch not in table.branches:
            raise AnswerError(404, f"no branch {branch}", "BRANCH")
        return table.branches[branch]

    def _branch(self, table: Owned, branch: str, tag: str | None) -> None:
        found = None if tag is None else Tags(self.io, table.root).get(tag)
        if tag is not None and found is None:
            raise AnswerError(404, f"no tag {tag}", "TAG")
        if branch in table.branches:
            raise AnswerError(409, f"Branch name '{branch}' already exists.", "BRANCH")
        Branches(self.io, table.root).create(branch, found)
        made = Owned(f"{table.uuid}-{len(self.requests)}", Branches(self.io, table.root).path(branch))
        table.branches[branch] = made
        if found is not None:
            self._know(made, found.snapshot.id)

    def _page(self, member: str, names: list[str], query: dict[str, str]) -> dict[str, Any]:
        found = [n for n in sorted(names) if n > query.get("pageToken", "")]
        return {member: found[:PAGE], "nextPageToken": found[PAGE - 1] if len(found) > PAGE else None}

    def _create(self, tables: dict[str, Owned], body: dict[str, Any]) -> None:
        name = body["identifier"]["object"]
        if name in tables:
            raise AnswerError(409, "there", "TABLE")
        given = body["schema"]
        fields = tuple(parse_field(f) for f in given["fields"])
        schema = TableSchema(
            id=0,
            fields=fields,
            highest_field_id=max((f.id for f in all_fields(fields)), default=-1),
            partition_keys=tuple(given["partitionKeys"]),
            primary_keys=tuple(given["primaryKeys"]),
            options=given["options"],
            comment=given.get("comment"),
        )
        uuid = f"id-{len(self.requests)}"
        tables[name] = Owned(uuid, str(self.folder / uuid))
        assert Schemas(self.io, tables[name].root).create(schema)

    def _described(self, database: str, name: str, table: Owned) -> dict[str, Any]:
        schema = Schemas(self.io, table.root).latest()
        assert schema is not None
        found = {"id": table.uuid, "database": database, "name": name, "path": f"file:{table.root}"}
        return found | {"isExternal": table.is_external, "schemaId": schema.id, "schema": {}}

    def _rename(self, source: dict[str, str], destination: dict[str, str]) -> None:
        tables, target = self._database(source["database"]), self._database(destination["database"])
        if destination["object"] in target:
            raise AnswerError(409, "there", "TABLE")
        target[destination["object"]] = tables.pop(source["object"])

    def _alter(self, table: Owned, given: list[dict[str, Any]]) -> None:
        schemas = Schemas(self.io, table.root)
        newest = schemas.latest()
        assert newest is not None
        try:
            wanted = changes.change_schema(newest, [_change(c) for c in given], now_ms=7, has_snapshots=True)
        except OptionError as e:
            raise AnswerError(400, str(e)) from e
        except Exception as e:
            raise AnswerError(409, str(e), "COLUMN") from e
        if wanted is not newest:
            assert schemas.create(wanted)

    def _commit(self, table: Owned, body: dict[str, Any]) -> bool:
        if body["tableId"] != table.uuid:
            raise AnswerError(404, "another table", "TABLE")
        if "uuid" in self.drops:
            is_next = body["snapshot"]["id"] == (table.newest or {}).get("id", 0) + 1
        else:
            is_next = body["baseSnapshotUuid"] == (table.newest or {}).get("uuid")
        if not is_next:
            return False
        kept = {k: v for k, v in body["snapshot"].items() if k not in self.drops}
        snapshot = decode_snapshot(json.dumps(kept).encode())
        Snapshots(self.io, table.root).delete(snapshot.id)
        assert Snapshots(self.io, table.root).publish(snapshot)
        Snapshots(self.io, table.root).write_latest_hint(snapshot.id)
        table.newest = kept
        return True

    def _partitions(self, table: Owned, action: list[str], body: dict[str, Any]) -> None:
        schema = Schemas(self.io, table.root).latest()
        assert schema is not None
        if schema.options.get("metastore.partitioned-table") != "true":
            raise AnswerError(501, "not partitioned here")
        match action:
            case ["mark"]:
                table.done += body["specs"]
            case []:
                if not self.adds_partitions:
                    raise AnswerError(404, "")
                table.partitions += [s for s in body["partitionSpecs"] if s not in table.partitions]
            case ["drop"]:
                table.partitions = [s for s in table.partitions if s not in body["partitionSpecs"]]
            case _:
                raise AnswerError(400, str(action))

    def _roll_back(self, table: Owned, body: dict[str, Any]) -> None:
        instant, newest = body["instant"], (table.newest or {}).get("id")
        if body.get("fromSnapshot") not in (None, newest):
            raise AnswerError(500, f"Latest snapshot {newest} is not {body['fromSnapshot']}")
        target = instant["snapshotId"] if instant["type"] == "snapshot" else instant["tagName"]
        try:
            found = rollback_to(self.io, table.root, target)
        except OptionError as e:
            raise AnswerError(404, str(e), instant["type"].upper()) from e
        self._know(table, found.id)

    def _know(self, table: Owned, newest: int) -> None:
        table.newest = json.loads(self.io.read(f"{table.root}/snapshot/snapshot-{newest}"))


def lost(request: Request, do: Callable[[], Any]) -> Any:
    """The request is carried out, and the answer never comes."""
    do()
    raise ConnectionResetError


def never_came(request: Request, do: Callable[[], Any]) -> Any:
    """The request is lost on its way."""
    raise ConnectionResetError


def failing(status: int, *, after: bool = False) -> Fault:
    """An answer of that status, perhaps after the request was carried out."""

    def fault(request: Request, do: Callable[[], Any]) -> Any:
        if after:
            do()
        raise AnswerError(status, "as told")

    return fault


def _change(given: dict[str, Any]) -> changes.SchemaChange:
    path = tuple(given.get("fieldNames") or ())
    match given["action"]:
        case "addColumn":
            return changes.AddColumn(path, parse_type(given["dataType"]), comment=given["comment"])
        case "dropColumn":
            return changes.DropColumn(path)
        case "renameColumn":
            return changes.RenameColumn(path, given["newName"])
        case "updateColumnType":
            return changes.ChangeType(path, parse_type(given["newDataType"]))
        case "updateColumnNullability":
            return changes.ChangeNullability(path, given["newNullability"])
        case "updateColumnComment":
            return changes.ChangeComment(path, given["newComment"])
        case "updateColumnPosition":
            move = given["move"]
            place: Position = First() if move["type"] == "FIRST" else After(move["referenceFieldName"])
            return changes.MoveColumn((move["fieldName"],), place)
        case "setOption":
            return changes.SetOption(given["key"], given["value"])
        case "removeOption":
            return changes.UnsetOption(given["key"])
        case "updateComment":
            return changes.SetTableComment(given["comment"])
    raise AssertionError(given)
