"""pypaimon as a program that tests talk to: tables of a local file system in, lines of JSON out.

Runs in pypaimon's own virtual environment, so it imports nothing of the product. The protocol, the commands and the
text form of values are those of `java/PaimonTool.java`; pypaimon has neither compaction nor row kinds.
`python -m tests.support.peers.pypaimon_tool COMMAND '{"table": "/path", ...}'` runs one command, and
`... serve` one a line.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TextIO

import pyarrow as pa
from pypaimon.common.file_io import FileIO
from pypaimon.common.options import Options
from pypaimon.schema.data_types import AtomicInteger, DataField, DataTypeParser, PyarrowFieldParser
from pypaimon.schema.schema import Schema
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.table.system import system_table_loader

from tests.support.peers.arrow_text import parse, rows_of, table_of

Emit = Callable[[dict[str, Any]], None]


def main(arguments: list[str], out: TextIO) -> int:
    if arguments == ["serve"]:
        for line in sys.stdin:
            request = json.loads(line)
            answer(request["command"], request, out)
        return 0
    if len(arguments) == 2:
        return 0 if answer(arguments[0], json.loads(arguments[1]), out) else 1
    print("usage: pypaimon_tool.py serve | pypaimon_tool.py COMMAND JSON", file=sys.stderr)
    return 2


def answer(command: str, request: dict[str, Any], out: TextIO) -> bool:
    fine = True
    try:
        if command not in COMMANDS:
            raise ValueError(f"unknown command: {command}")
        last: dict[str, Any] = {"done": COMMANDS[command](request, lambda row: say({"row": row}, out))}
    except Exception as problem:  # noqa: BLE001 - whatever fails is the answer, and the next command is served
        name = f"{type(problem).__module__}.{type(problem).__qualname__}"
        last = {"error": name, "message": str(problem), "trace": traceback.format_exc()}
        fine = False
    say(last, out)
    out.flush()
    return fine


def say(line: dict[str, Any], out: TextIO) -> None:
    out.write(json.dumps(line) + "\n")


# ---- commands ----


def open_table(request: dict[str, Any]) -> Any:
    table = FileStoreTable.from_path(request["table"])
    return table.copy(request["options"]) if request.get("options") else table


def ping(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    return {"pid": os.getpid()}


def create(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    ids = AtomicInteger(-1)
    fields = [
        DataField(ids.increment_and_get(), field["name"], DataTypeParser.parse_data_type(field["type"], ids))
        for field in request["fields"]
    ]
    schema = Schema(
        fields=fields,
        partition_keys=request.get("partition_keys") or [],
        primary_keys=request.get("primary_keys") or [],
        options=request.get("options") or {},
    )
    path = request["table"]
    SchemaManager(FileIO.get(path, Options({})), path).create_table(schema)
    return {}


def read(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    table = open_table(request)
    if request.get("row_kinds"):
        raise NotImplementedError("pypaimon's batch read has no row kinds")
    if request.get("system"):
        data, table = table, system_table_loader.load(request["system"], table)
        if table is None:
            raise ValueError(f"no system table called {request['system']}")
        del data
    builder = table.new_read_builder()
    if request.get("equals"):
        builder.with_filter(equal_to(table, builder.new_predicate_builder(), request["equals"]))
    reader = builder.new_read()
    count = 0
    for split in builder.new_scan().plan().splits():
        rows = reader.to_arrow([split])
        if rows is None:
            continue
        for row in rows_of(rows):
            if request.get("buckets"):
                row["__paimon_bucket"] = split.bucket
            emit(row)
            count += 1
    return {"rows": count}


def filter_read(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    if not request.get("equals"):
        raise ValueError("filter-read needs 'equals'")
    return read(request, emit)


def equal_to(table: Any, predicates: Any, wanted: dict[str, Any]) -> Any:
    schema = PyarrowFieldParser.from_paimon_schema(table.fields)
    parts = []
    for name, value in wanted.items():
        kind = schema.field(name).type
        if value is None:
            parts.append(predicates.is_null(name))
        else:
            parts.append(predicates.equal(name, pa.array([parse(value, kind)], kind)[0].as_py()))
    return predicates.and_predicates(parts)


def files(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    return read({**request, "system": "files"}, emit)


def write(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    table = open_table(request)
    schema = PyarrowFieldParser.from_paimon_schema(table.fields)
    with open(request["rows"], encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        if row.pop("_row_kind", "+I") != "+I":
            raise NotImplementedError("pypaimon takes row kinds from rowkind.field only")
        unknown = set(row) - set(schema.names)
        if unknown:
            raise ValueError(f"no column called {min(unknown)}")
    data = table_of(rows, schema)
    mode = request.get("mode") or "batch"
    if mode not in ("batch", "stream"):
        raise ValueError(f"mode must be batch or stream, not {mode}")
    stream = mode == "stream"
    builder = table.new_stream_write_builder() if stream else table.new_batch_write_builder()
    if request.get("commit_user"):
        builder._with_commit_user(request["commit_user"])
    if request.get("overwrite") is not None:
        builder.overwrite(request["overwrite"])
    writer, commit = builder.new_write(), builder.new_commit()
    try:
        writer.write_arrow(data)
        if stream:
            identifier = request["commit_identifier"]
            commit.commit(writer.prepare_commit(identifier), identifier)
        else:
            commit.commit(writer.prepare_commit())
    finally:
        writer.close()
        commit.close()
    latest = table.snapshot_manager().get_latest_snapshot()
    return {"snapshot_id": None if latest is None else latest.id, "rows": len(rows)}


def update(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """Rows of a table with data evolution get other values: `rows` hold `_ROW_ID` and the columns to set."""
    builder = open_table(request).new_batch_write_builder()
    found = table_of(request["rows"], _tracked_schema(request, request["columns"]))
    return _commit(
        builder, builder.new_update().with_update_type(request["columns"]).update_by_arrow_with_row_id(found)
    )


def delete(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """Rows of a table with data evolution and deletion vectors go, by `row_ids`."""
    builder = open_table(request).new_batch_write_builder()
    return _commit(builder, builder.new_update().delete_by_row_id(request["row_ids"]))


def _tracked_schema(request: dict[str, Any], columns: list[str]) -> pa.Schema:
    schema = PyarrowFieldParser.from_paimon_schema(open_table(request).fields)
    return pa.schema([pa.field("_ROW_ID", pa.int64()), *(schema.field(name) for name in columns)])


def _commit(builder: Any, messages: Any) -> dict[str, Any]:
    commit = builder.new_commit()
    try:
        commit.commit(messages)
    finally:
        commit.close()
    return {}


def compact(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    raise NotImplementedError("pypaimon has no compaction")


COMMANDS = {
    "ping": ping,
    "create": create,
    "read": read,
    "filter-read": filter_read,
    "files": files,
    "write": write,
    "update": update,
    "delete": delete,
    "compact": compact,
}


if __name__ == "__main__":
    answers = sys.stdout
    sys.stdout = sys.stderr  # a library that prints must not break the protocol
    status = main(sys.argv[1:], answers)
    answers.flush()
    sys.exit(status)
