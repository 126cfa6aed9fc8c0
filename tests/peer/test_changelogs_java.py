"""Tables that look older values up: Paimon Java and we make the same rows and the same changelog of the same writes.

Java opens a new writer for each commit, as its own lookups go stale within one. Rows stay clear of what has changed
between Java's versions: a retract never is the first of several rows of its key in a flush.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.table.table import open_table
from tests.support.peers.arrow_text import table_of
from tests.support.peers.golden import json_rows
from tests.support.peers.peer import PaimonJava
from tests.support.peers.rows import assert_same_rows

pytestmark = pytest.mark.peer

_FIELDS: list[dict[str, Any]] = [
    {"name": "k", "type": "INT NOT NULL"},
    {"name": "g", "type": "INT"},
    {"name": "n", "type": "BIGINT"},
    {"name": "s", "type": "STRING"},
    {"name": "c", "type": {"type": "ARRAY", "element": "INT"}},
]
_ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "g"},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "partial-update by groups": {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "n,c",
        "fields.n.aggregate-function": "sum",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.c.aggregate-function": "collect",
    },
}
_KINDS: Mapping[str, list[str]] = {
    "deduplicate": ["+I", "+I", "+U", "-U", "-D"],
    "deduplicate by sequence": ["+I", "+I", "+U", "-D"],
    "first-row": ["+I"],
    "partial-update": ["+I", "+U", "+I", "-D"],
    "partial-update by groups": ["+I", "+U", "-U"],
    "aggregation": ["+I", "+U", "-U"],
}
_PRODUCERS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    # Java takes an array read from a file and the same one computed for different.
    "lookup, changes only": {
        "changelog-producer": "lookup",
        "changelog-producer.row-deduplicate": "true",
        "changelog-producer.row-deduplicate-ignore-fields": "c",
    },
    # Neither side starts a full compaction by itself.
    "full-compaction": {
        "changelog-producer": "full-compaction",
        "num-sorted-run.compaction-trigger": "50",
        "num-sorted-run.stop-trigger": "60",
        "num-levels": "6",
        "full-compaction.delta-commits": "1000",
    },
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors, lookup": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
}
_CASES = [
    (engine, producer)
    for engine in _ENGINES
    for producer in _PRODUCERS
    if not (engine == "first-row" and producer not in ("none", "lookup"))
]


def _batch(draw: random.Random, kinds: list[str], live: set[int], keys: Sequence[int]) -> list[dict[str, Any]]:
    rows = []
    for key in keys:
        kind = draw.choice(kinds)
        # A retract is the only row of its key, and there is something to take away.
        if kind[0] == "-" and (keys.count(key) > 1 or key not in live):
            kind = "+I"
        rows.append(
            {
                "k": key,
                "g": draw.randrange(5),
                "n": draw.choice([None, -3, 2, 5]),
                "s": draw.choice([None, "a", "b", "ccc"]),
                "c": draw.choice([None, [], [1], [2, None]]),
                "_row_kind": kind,
            }
        )
        if kind == "-D":
            # What a partial update keeps of a delete's values depends on when it is compacted.
            rows[-1] |= {"g": rows[-1]["g"] if "-U" in kinds else None, "n": None, "s": None, "c": None}
    for row in rows:
        (live.discard if row["_row_kind"] == "-D" else live.add)(row["k"])
    return rows


class _Pair:
    """A table that Java alone writes, and one that is ours, or written in turns."""

    def __init__(self, java: PaimonJava, folder: Path, options: Mapping[str, str]) -> None:
        self.java = java
        self.theirs, self.ours = (folder / "db.db" / name for name in ("theirs", "ours"))
        for path in (self.theirs, self.ours):
            java.create(path, _FIELDS, primary_keys=["k"], options={"bucket": "1", **options})
        self.has_changes = "changelog-producer" in options
        self.seen = (0, 0)

    def write(self, rows: list[dict[str, Any]], *, by_java: bool) -> None:
        self.java.write(self.theirs, rows)
        if by_java:
            self.java.write(self.ours, rows)
            return
        table = open_table(str(self.ours))
        plain = [{n: v for n, v in row.items() if n != "_row_kind"} for row in rows]
        kinds = pa.array([["+I", "-U", "+U", "-D"].index(row["_row_kind"]) for row in rows], pa.int8())
        table.write(table_of(plain, table.schema), kinds)

    def compact(self, *, by_java: bool) -> None:
        self.java.compact(self.theirs)
        if by_java:
            self.java.compact(self.ours)
        else:
            open_table(str(self.ours)).compact()

    def check(self) -> None:
        expected = self.java.read(self.theirs)
        ours = open_table(str(self.ours))
        assert_same_rows(json_rows(ours.to_arrow()), expected, _FIELDS)
        assert_same_rows(self.java.read(self.ours), expected, _FIELDS)
        assert [f for f in ours.doctor(rows=True) if f.severity is Severity.ERROR] == []
        if self.has_changes:
            self._check_changes(self.theirs, self.ours)

    def _check_changes(self, theirs: Path, ours: Path) -> None:
        wanted = _bare(self.java.changes(theirs, self.seen[0]))
        read_by_java = _bare(self.java.changes(ours, self.seen[1]))
        table = open_table(str(ours))
        found = json_rows(table.to_batches(changes_since=self.seen[1]).read_all())
        names = ["+I", "-U", "+U", "-D"]
        read_by_us = [{**row, "_row_kind": names[int(row["_row_kind"])]} for row in found]
        assert read_by_java == wanted
        assert read_by_us == wanted
        self.seen = tuple(open_table(str(p)).snapshots()["snapshot_id"][-1].as_py() for p in (theirs, ours))  # type: ignore[assignment]


def _bare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{n: v for n, v in row.items() if n != "_snapshot"} for row in rows]


@pytest.mark.parametrize(("engine", "producer"), _CASES)
def test_rows_and_changes_are_those_of_java(
    paimon_java: PaimonJava, tmp_path: Path, engine: str, producer: str
) -> None:
    draw = random.Random(f"{engine} {producer}")
    pair = _Pair(paimon_java, tmp_path, {**_ENGINES[engine], **_PRODUCERS[producer]})
    # Small files move up beside a large one, so that older rows are looked up, and not only merged.
    keys = draw.choice([60, 400])
    live: set[int] = set()
    pair.write(_batch(draw, ["+I"], live, range(keys)), by_java=draw.random() < 0.5)
    for _ in range(6):
        touched = [draw.randrange(keys + 5) for _ in range(draw.randrange(1, 50))]
        pair.write(_batch(draw, _KINDS[engine], live, touched), by_java=draw.random() < 0.3)
        if draw.random() < 0.25:
            pair.compact(by_java=draw.random() < 0.5)
        if draw.random() < 0.6:
            pair.check()
    pair.compact(by_java=False)
    pair.check()
