"""A session whose table gets a column, and rows that use it, between its look at the schema and that at the files."""

from pathlib import Path

import pyarrow as pa

from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import create_table, open_table
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import on_io

OLD = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
NEW = OLD.append(pa.field("w", pa.int64()))


def test_a_compaction_keeps_a_column_that_came_while_it_looked_at_the_table(tmp_path: Path) -> None:
    made = create_table(str(tmp_path / "shop.db" / "t"), OLD, ("id",), options={"bucket": "1", "write-only": "true"})
    made.write(pa.table({"id": range(5), "v": [0] * 5}, schema=OLD))
    acts = ["once"]

    def evolve(name: str, path: str) -> None:
        if "/snapshot/" in path and acts:
            acts.clear()
            open_table(made.path).add_column("w", "BIGINT")
            open_table(made.path).write(pa.table({"id": range(5), "v": [1] * 5, "w": [7] * 5}, schema=NEW))

    assert on_io(open_table(made.path), FaultyIO(LocalIO(), before_call=evolve)).compact() == 3
    found = open_table(made.path)
    assert found.to_arrow()["w"].to_pylist() == [7] * 5 and {f["level"] for f in found.files().to_pylist()} == {5}


def test_a_compaction_keeps_a_column_of_a_schema_that_does_not_follow_the_known_one(tmp_path: Path) -> None:
    made = create_table(str(tmp_path / "shop.db" / "t"), OLD, ("id",), options={"bucket": "1", "write-only": "true"})
    made.write(pa.table({"id": range(5), "v": [0] * 5}, schema=OLD))
    held = open_table(made.path)
    open_table(made.path).add_column("w", "BIGINT")
    open_table(made.path).add_column("x", "BIGINT")
    (Path(made.path) / "schema" / "schema-1").unlink()
    open_table(made.path).write(pa.table({"id": range(5), "v": [1] * 5, "w": [7] * 5, "x": [8] * 5}))
    assert held.compact() == 3
    assert open_table(made.path).to_arrow()["w"].to_pylist() == [7] * 5
