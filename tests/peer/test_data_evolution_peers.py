"""Tables with data evolution and row tracking that Paimon Java and pypaimon write, drawn at random, row by row."""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.state.store.table.table import Table, open_table
from tests.support.peers.our_tables import rows_of
from tests.support.peers.peer import PaimonJava, PeerError, PyPaimon
from tests.support.peers.rows import assert_same_rows, table_fields

pytestmark = pytest.mark.peer

COLUMNS = {"k": "INT", "s": "STRING", "d": "DECIMAL(12, 3)", "f": "DOUBLE", "p": "STRING"}
CODECS = {"parquet": ("zstd", "snappy", "gzip"), "orc": ("zstd", "snappy", "zlib"), "avro": ("zstd", "deflate")}


def value(draw: random.Random, column: str) -> Any:
    number = draw.randrange(-50, 50)
    if draw.random() < 0.2 and column != "p":
        return None
    return {"k": number, "s": f"s{number}", "d": f"{number}.125", "f": number / 4, "p": draw.choice("xy")}[column]


def options_of(draw: random.Random, path: Path, *, deletes: bool) -> dict[str, str]:
    form = draw.choice(("parquet", "orc", "avro"))
    found = {"bucket": "-1", "row-tracking.enabled": "true", "file.format": form}
    found["file.compression"] = draw.choice(CODECS[form])
    found["metadata.stats-mode"] = draw.choice(("none", "full", "truncate(8)"))
    if deletes or draw.random() < 0.8:
        found["data-evolution.enabled"] = "true"
    if deletes:
        found |= {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": draw.choice(("true", "false"))}
    if draw.random() < 0.3:
        found["data-file.external-paths"] = f"file://{path}-elsewhere"
        found["data-file.external-paths.strategy"] = "round-robin"
    return found


def row_ids(table: Table) -> list[int]:
    found: list[int] = table.to_arrow(columns=["_ROW_ID"])["_ROW_ID"].to_pylist()
    return found


def change(draw: random.Random, path: Path, writers: list[Any], pypaimon: PyPaimon) -> None:
    table = open_table(str(path))
    is_evolved = "data-evolution.enabled" in table.options
    ids = row_ids(table)
    if not ids or not is_evolved or draw.random() < 0.4:
        count = draw.choice((1, 5, 20))
        draw.choice(writers).write(path, [{c: value(draw, c) for c in COLUMNS} for _ in range(count)])
    elif "deletion-vectors.enabled" in table.options and draw.random() < 0.4:
        pypaimon.delete(path, draw.sample(ids, draw.randint(1, max(1, len(ids) // 2))))
    else:
        columns = draw.sample(["k", "s", "d", "f"], draw.randint(1, 3))
        chosen = draw.sample(ids, draw.randint(1, len(ids)))
        pypaimon.update(path, columns, [{"_ROW_ID": i, **{c: value(draw, c) for c in columns}} for i in chosen])


def told_by(peer: Any, path: Path, snapshot: int | None = None, **arguments: Any) -> list[dict[str, Any]] | None:
    """The rows that a peer reads; None where it cannot, as Java the decimals in Avro files of pypaimon."""
    options = {} if snapshot is None else {"scan.snapshot-id": str(snapshot)}
    try:
        found: list[dict[str, Any]] = peer.read(path, options=options, **arguments)
    except PeerError:
        return None
    return found


@pytest.mark.parametrize("seed", range(12))
def test_tables_of_others_are_read_as_they_read_them(
    tmp_path: Path, paimon_java: PaimonJava, pypaimon: PyPaimon, seed: int
) -> None:
    """Deletion vectors beside data evolution are pypaimon's alone: this version of Paimon Java refuses them."""
    draw = random.Random(seed)
    deletes = seed % 3 == 0
    path = tmp_path / "t"
    writers: list[Any] = [pypaimon] if deletes else [paimon_java, pypaimon]
    fields = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
    partitions = ["p"] if draw.random() < 0.4 else []
    options = options_of(draw, path, deletes=deletes)
    draw.choice(writers).create(path, fields, partition_keys=partitions, options=options)
    for _ in range(draw.randint(2, 5)):
        change(draw, path, writers, pypaimon)
    table = open_table(str(path))
    for snapshot in table.snapshots()["snapshot_id"].to_pylist():
        found = rows_of(table.to_arrow(snapshot=snapshot))
        judges = [rows for peer in writers if (rows := told_by(peer, path, snapshot)) is not None]
        assert judges
        for rows in judges:
            assert_same_rows(found, rows, table_fields(path))
    whole = table.to_arrow()
    for number in (n for n in whole["k"].to_pylist()[:5] if n is not None):
        condition = pc.field("k") == number
        assert table.to_arrow(filter=condition).num_rows == whole.filter(condition).num_rows
    assert [f for f in table.doctor(rows=True) if f.severity == "error"] == []
    told = None if deletes else told_by(paimon_java, path, system="row_tracking")
    if told is not None:
        tracked = rows_of(table.to_arrow(columns=["_ROW_ID", "_SEQUENCE_NUMBER"]))
        key = ("_ROW_ID", "_SEQUENCE_NUMBER")
        assert sorted(tuple(r[k] for k in key) for r in tracked) == sorted(tuple(r[k] for k in key) for r in told)


@pytest.mark.parametrize("seed", range(6))
def test_rows_keep_their_ids_whoever_writes_changes_and_compacts(
    tmp_path: Path, paimon_java: PaimonJava, seed: int
) -> None:
    """Tables with row tracking that both write: Java reads the ids and versions that we read, and we those of Java.

    Java cannot read ids out of Avro files, its own included.
    """
    draw = random.Random(seed)
    path = tmp_path / "t"
    fields = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
    options = options_of(draw, path, deletes=False)
    options.pop("data-evolution.enabled", None)
    form = draw.choice(("parquet", "orc"))
    options |= {"file.format": form, "file.compression": draw.choice(CODECS[form])}
    options |= {"compaction.min.file-num": "2", "deletion-vectors.enabled": draw.choice(("true", "false"))}
    partitions = ["p"] if draw.random() < 0.5 else []
    paimon_java.create(path, fields, partition_keys=partitions, options=options)
    known: dict[int, int] = {}
    for _ in range(8):
        table, verb = (
            open_table(str(path)),
            draw.choice(("ours", "java", "update", "delete", "compact", "java compacts")),
        )
        drawn = [{c: value(draw, c) for c in COLUMNS} for _ in range(draw.choice((1, 4, 15)))]
        if verb == "java":
            paimon_java.write(path, drawn)
        elif verb == "ours":
            types = table.schema
            table.write(pa.Table.from_pylist([as_stored(row) for row in drawn], schema=types))
        elif verb == "update":
            table.update(f"k > {draw.randrange(-50, 50)}", {"s": "changed"})
        elif verb == "delete":
            table.delete(f"k = {draw.randrange(-50, 50)} OR k BETWEEN 0 AND 5")
        elif verb == "compact":
            table.compact()
        else:
            paimon_java.compact(path)
        check_ids(open_table(str(path)), paimon_java, path)
        whole = open_table(str(path)).to_arrow(columns=["_ROW_ID", "f"])
        now = dict(zip(whole["_ROW_ID"].to_pylist(), whole["f"].to_pylist(), strict=True))
        assert len(now) == whole.num_rows, "an id is there twice"
        if verb != "delete":
            assert known.items() <= now.items(), verb
        known = now
    assert [f for f in open_table(str(path)).doctor(rows=True) if f.severity == "error"] == []


def as_stored(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "d": None if row["d"] is None else Decimal(row["d"])}


def check_ids(table: Table, java: PaimonJava, path: Path) -> None:
    found = rows_of(table.to_arrow(columns=[*COLUMNS, "_ROW_ID", "_SEQUENCE_NUMBER"]))
    told = java.read(path, system="row_tracking")
    keys = ("_ROW_ID", "_SEQUENCE_NUMBER", "k", "s")
    assert sorted(tuple(map(str, (r[k] for k in keys))) for r in found) == sorted(
        tuple(map(str, (r[k] for k in keys))) for r in told
    )
    assert_same_rows(rows_of(table.to_arrow()), java.read(path), table_fields(path))
