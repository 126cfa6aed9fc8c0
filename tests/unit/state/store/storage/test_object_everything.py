"""What else a table does, on S3: each way to look after it, once, over one store; and the folder of bad records."""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet
import pytest

import bucketline as bl
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.bad_records.place import BatchName, settle_bad_records
from bucketline.streaming.decode.rejects import REJECTS_SCHEMA, pack_rejects
from tests.support.servers.s3_server import S3Server

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string()), ("n", pa.int32())])
FIXED = {"bucket": "1"}


def rows(*found: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in found], schema=COLUMNS)


def content(table: Table) -> list[tuple[object, ...]]:
    found = open_table(table.uri, storage_options=handle_of(table).storage).to_arrow()
    return sorted(zip(*found.to_pydict().values(), strict=True))


def change_rows(table: Table, server: S3Server) -> None:
    table.write(rows((1, "a", 1), (2, "a", 2), (3, "b", 3)))
    table.delete("n = 2")
    table.update("id = 3", {"n": bl.expr("n * 10")})
    table.merge(rows((1, "a", 7), (4, "b", 4)), on=["id", "day"], when_matched={"n": bl.expr("source.n")})
    assert content(table) == [(1, "a", 7), (3, "b", 30), (4, "b", 4)]


def tags_and_branches(table: Table, server: S3Server) -> None:
    table.write(rows((1, "a", 1)))
    table.create_tag("one", retained=timedelta(days=1))
    table.create_branch("b", "one")
    branch = open_table(table.uri, options={"branch": "b"}, storage_options=server.storage)
    branch.write(rows((2, "a", 2)))
    table.write(rows((3, "a", 3)))
    table.rollback_to("one")
    assert content(table) == [(1, "a", 1)]
    table.fast_forward("b")
    assert content(table) == [(1, "a", 1), (2, "a", 2)] and table.branches() == ["b"]
    assert table.delete_branch("b") and table.delete_tag("one")


def replace_and_rescale(table: Table, server: S3Server) -> None:
    table.write(rows((1, "a", 1), (2, "b", 2), (3, "c", 3)))
    table.overwrite(rows((4, "b", 4)))
    table.drop_partitions([{"day": "c"}])
    table.rescale(3)
    assert content(table) == [(1, "a", 1), (4, "b", 4)]


def columns_and_sql(table: Table, server: S3Server) -> None:
    table = table.add_column("note", "STRING").rename_column("n", "amount").set_options({"num-levels": "4"})
    warehouse = {"warehouse": table.uri.removesuffix("/shop.db/t"), **server.storage}
    bl.sql(None, "INSERT INTO shop.t VALUES (1, 'a', 1, 'x'), (2, 'b', 2, 'y')", warehouse=warehouse)
    found = bl.sql(None, "SELECT note, amount FROM shop.t WHERE day = 'b'", warehouse=warehouse)
    assert found.to_pylist() == [{"note": "y", "amount": 2}]
    files = bl.sql(None, "SELECT sum(record_count) AS n FROM shop.t$files", warehouse=warehouse)
    assert files.to_pylist() == [{"n": 2}]


def expire(table: Table, server: S3Server) -> None:
    for number in range(4):
        table.write(rows((1, "2020-01-01", number), (2, "2999-01-01", number)))
    assert table.expire_partitions(timedelta(days=7)) == ("day=2020-01-01",)
    table.expire_snapshots(retain_max=1, retain_min=1)
    io, root = handle_of(table).io, table.path
    assert len([n for n in io.list_names(f"{root}/snapshot") if n.startswith("snapshot-")]) == 1
    assert [n for n in io.list_names(f"{root}/changelog") if n.startswith("changelog-")] != []
    assert content(table) == [(2, "2999-01-01", 3)]


def other_folders(table: Table, server: S3Server) -> None:
    table.write(rows((1, "a", 1), (2, "b", 2)))
    io, root = file_io_for(f"{table.uri}-elsewhere", server.storage)
    assert [f for f in io.list_files(root) if f.path.endswith(".parquet")]
    table.compact()
    table.expire_snapshots(retain_max=1)
    table.remove_orphan_files(dry_run=False)
    assert content(table) == [(1, "a", 1), (2, "b", 2)]


class Case(NamedTuple):
    """A table's options, and what is done with it; its id and day are its key, and its partitions are days."""

    work: Callable[[Table, S3Server], None]
    options: dict[str, str]


CASES = {
    "rows are changed by copies": Case(change_rows, FIXED),
    "rows are changed by deletion vectors": Case(change_rows, {**FIXED, "deletion-vectors.enabled": "true"}),
    "tags, branches and rollbacks": Case(tags_and_branches, FIXED),
    "partitions are replaced, buckets divided": Case(replace_and_rescale, FIXED),
    "columns change, and SQL reads and writes": Case(columns_and_sql, FIXED),
    "partitions, snapshots and changelogs expire": Case(
        expire,
        {
            **FIXED,
            "changelog-producer": "input",
            "changelog.num-retained.max": "9",
            "changelog.time-retained": "2 h",
            "changelog.num-retained.min": "9",
            "partition.timestamp-formatter": "yyyy-MM-dd",
        },
    ),
    "data files lie in another folder": Case(
        other_folders,
        {**FIXED, "data-file.external-paths": "URI-elsewhere", "data-file.external-paths.strategy": "round-robin"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_table_on_s3_is_looked_after_as_one_on_a_disk(name: str, s3_server: S3Server) -> None:
    case, uri = CASES[name], s3_server.new_uri()
    options = {key: text.replace("URI", uri) for key, text in case.options.items()}
    table = create_table(uri, COLUMNS, ("id", "day"), ("day",), options, storage_options=s3_server.storage)
    case.work(table, s3_server)
    assert examine(open_to_examine(uri, storage_options=s3_server.storage), rows=True) == []


def test_the_doctor_names_what_is_missing_on_s3(s3_server: S3Server) -> None:
    uri, storage = s3_server.new_uri(), s3_server.storage
    table = create_table(uri, COLUMNS, ("id", "day"), ("day",), FIXED, storage_options=storage)
    table.write(rows((1, "a", 1)))
    io = handle_of(table).io
    [lost] = [f.path for f in io.list_files(table.path) if "/bucket-0/data-" in f.path]
    io.delete(lost)
    [finding] = examine(open_to_examine(uri, storage_options=storage))
    assert finding.rule == "missing-file" and lost in str(finding)


def test_bad_records_go_to_a_folder_on_s3_once_however_often_a_batch_is_repeated(s3_server: S3Server) -> None:
    bad = {"topic": "orders", "partition": 0, "offset": 7, "reason": "no JSON", "value": b"{"}
    blob = pack_rejects(pa.Table.from_pylist([bad], schema=REJECTS_SCHEMA))
    uri = s3_server.new_uri()
    for _ in range(2):
        place = Folder(f"{uri.replace('s3://', 's3a://')}/", s3_server.storage)
        found = settle_bad_records(place, 1, [blob], BatchName("u", 3))
        assert found is not None and found.count == 1
    io, root = file_io_for(uri, s3_server.storage)
    [file] = io.list_files(root)
    with io.open_input(file.path) as source:
        assert pa.parquet.read_table(source, columns=list(bad)).to_pylist() == [bad]
