"""A rollback to a snapshot whose expiry was cut short is refused before it removes the later ones."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import RemovalUnderWayError
from bucketline.state.store.table.maintenance import roll_back_table
from bucketline.state.store.table.table import create_table, open_table
from tests.support.spark.tasks import killed_at
from tests.support.storage.interleaved import NoPause
from tests.support.tables.worlds import handle_in


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_that_is_half_gone_is_not_made_the_newest(tmp_path: Path, seed: int) -> None:
    """Wherever the expiry dies: the oldest snapshot that is left is whole after a rollback, or the rollback refused."""
    draw, columns = random.Random(seed), "id BIGINT NOT NULL, n BIGINT"
    refused = 0
    for number, at in enumerate(range(1 + seed, 60, 4)):
        path = str(tmp_path / f"{number}" / "t")
        table = create_table(path, columns, primary_key=["id"], options={"bucket": "1"})
        for _ in range(3):
            table.write(pa.table({"id": [draw.randrange(9)], "n": [1]}, schema=table.schema))
            table.compact()
        with killed_at(at, draw.choice(("before", "after"))):
            table.expire_snapshots(retain_min=1, retain_max=1)
        table = open_table(path)
        rows, ids = table.to_arrow(), table.snapshots()["snapshot_id"].to_pylist()
        try:
            roll_back_table(handle_in(table, pause=NoPause()), ids[0])
        except OptionError as e:
            refused += 1
            assert "cannot be the newest again: " in e.message and "choose a later snapshot" in e.message
            assert table.to_arrow().equals(rows) and table.snapshots()["snapshot_id"].to_pylist() == ids
        except RemovalUnderWayError as e:
            assert "`expire_snapshots` finishes what it began" in e.message
            assert table.to_arrow().equals(rows) and table.snapshots()["snapshot_id"].to_pylist() == ids
        assert open_table(path).to_arrow().num_rows > 0
    assert refused > 0


def test_files_on_an_external_path_are_looked_for_there(tmp_path: Path) -> None:
    options = {
        "bucket": "1",
        "data-file.external-paths": f"file://{tmp_path}/external",
        "data-file.external-paths.strategy": "round-robin",
    }
    table = create_table(str(tmp_path / "t"), "id BIGINT NOT NULL, n BIGINT", primary_key=["id"], options=options)
    for n in range(2):
        table.write(pa.table({"id": [1], "n": [n]}, schema=table.schema))
    table.compact()
    table.expire_snapshots(retain_max=2)
    assert table.snapshots()["snapshot_id"].to_pylist() == [2, 3]
    assert table.rollback_to(2) == 2
    assert open_table(str(tmp_path / "t")).to_arrow()["n"].to_pylist() == [1]
