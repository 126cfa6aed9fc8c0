"""Reads that need more than the newest state of one branch, against Paimon Java: fallback branches, postponed rows."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.store.table.table import Table, open_table
from tests.support.peers.our_tables import make_table, rows_of
from tests.support.peers.peer import PaimonJava, PeerError
from tests.support.tables.grafted import graft, set_times

pytestmark = pytest.mark.peer

COLUMNS = {"k": "INT NOT NULL", "d": "STRING NOT NULL", "v": "INT"}
OTHER = ("scan.fallback-branch", "scan.primary-branch")


def ours(path: str, options: Mapping[str, str]) -> list[Any] | str:
    try:
        return bag(rows_of(open_table(path, options=options).to_arrow()))
    except OptionError:
        return "refused"


def theirs(peer: PaimonJava, path: str, options: Mapping[str, str]) -> list[Any] | str:
    try:
        return bag(peer.read(path, options=options))
    except PeerError:
        return "refused"


def bag(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    return sorted(tuple(row.items()) for row in rows)


def commits(path: Path, batches: Iterable[Iterable[tuple[int, str, int]]], keyed: bool) -> Table:
    keys = ("k", "d") if keyed else ()
    table = make_table(path, COLUMNS, primary_key=keys, partition_by=("d",), options={"bucket": "1" if keyed else "-1"})
    for rows in batches:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, table.schema, strict=True)]
        table.write(pa.table(arrays, schema=table.schema))
    return table


def asked() -> Iterator[dict[str, str]]:
    yield {}
    for n in range(1, 5):
        yield {"scan.snapshot-id": str(n)}
        yield {"scan.version": str(n)}
    for time_ms in (100, 150, 200, 300, 350, 400, 450, 500, 600):
        yield {"scan.timestamp-millis": str(time_ms)}
    for key in ("scan.tag-name", "scan.version"):
        yield {key: "main-tag"}
    yield {"scan.tag-name": "nowhere"}


@pytest.mark.parametrize("option", OTHER)
@pytest.mark.parametrize("keyed", [True, False])
def test_every_snapshot_of_a_table_with_another_branch_is_read_as_java_reads_it(
    tmp_path: Path, paimon_java: PaimonJava, option: str, keyed: bool
) -> None:
    main = commits(tmp_path / "t", [[(0, "z", 0)], [(1, "a", 1)], [(3, "b", 3)]], keyed)
    old = commits(tmp_path / "old", [[(1, "b", 9), (2, "c", 8)], [(1, "a", 7), (5, "e", 5)]], keyed)
    main.create_tag("main-tag", 2)
    graft(main, "old", old)
    set_times(tmp_path / "t", [100, 200, 400])
    set_times(tmp_path / "t/branch/branch-old", [300, 500])
    main.set_options({option: "old"})
    seen = [ours(main.path, options) for options in asked()]
    assert seen == [theirs(paimon_java, main.path, options) for options in asked()]
    assert len(set(map(str, seen))) >= 5
    listed = [(f["partition"], f["level"], Path(f["file_path"]).name) for f in paimon_java.files(main.path)]
    found = open_table(main.path).files().to_pylist()
    assert sorted((f["partition"], f["level"], Path(f["file_path"]).name) for f in found) == sorted(listed)


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_changes_of_a_postpone_table_are_those_of_a_batch_read_by_java(
    tmp_path: Path, paimon_java: PaimonJava, producer: str
) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "changelog-producer": producer}
    columns = {"k": "INT NOT NULL", "v": "INT"}
    path = str(tmp_path / "t")
    table = make_table(tmp_path / "t", columns, primary_key=("k",), options=options)

    def same(since: int, until: int) -> int:
        between = {"incremental-between": f"{since},{until}"}
        rows = paimon_java.read(path, row_kinds=True, options=between)
        kinds = ("+I", "-U", "+U", "-D")
        found = open_table(path).to_arrow(changes_since=since, snapshot=until).to_pylist()
        told = [(r["k"], r["v"], kinds[r["_row_kind"]]) for r in found]
        assert sorted(told) == sorted((r["k"], r["v"], r["_row_kind"]) for r in rows)
        return len(rows)

    for rows in ([(1, 1), (2, 2)], [(1, 3)]):
        table.write(pa.table([pa.array(c, pa.int32()) for c in zip(*rows, strict=True)], schema=table.schema))
    assert same(0, 2) == 0, "rows that wait are no changes"
    assert table.compact() == 3
    table.write(pa.table([pa.array([1, 3], pa.int32()), pa.array([5, 3], pa.int32())], schema=table.schema))
    assert table.compact() == 5
    logged = [same(since, since + 1) for since in range(5)]
    assert sum(logged) == same(0, 5)
    assert [bool(n) for n in logged] == [False, False, producer != "none", False, producer != "none"]
