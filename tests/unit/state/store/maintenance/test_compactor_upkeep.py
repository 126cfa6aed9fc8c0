"""A compactor follows the table's rules after its commits, and not after each of many."""

from pathlib import Path

import pyarrow as pa

from bucketline.state.store.maintenance.compactor_upkeep import UPKEEP_INTERVAL_MS, CompactorUpkeep
from bucketline.state.store.maintenance.upkeep import Upkept
from bucketline.state.store.table.table import create_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.table_at import table_at
from tests.support.tables.commit_table import StillClock
from tests.support.tables.worlds import handle_in


def test_snapshots_expire_at_most_once_an_interval_and_only_after_a_commit(tmp_path: Path) -> None:
    options = {"bucket": "1", "write-only": "true", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = create_table(str(tmp_path / "t"), "id INT", ("id",), options=options)
    clock = StillClock(1_800_000_000_000)

    def write() -> None:
        write_table(handle_in(table, clock=clock), pa.table({"id": pa.array([1], pa.int32())}))

    write()
    write()
    upkeep = CompactorUpkeep(table_at(handle_in(table, clock=clock), {}))
    assert upkeep.between_rounds() == Upkept()
    upkeep.owe()
    assert upkeep.between_rounds() == Upkept(expired_snapshots=1)
    write()
    upkeep.owe()
    clock.now += UPKEEP_INTERVAL_MS - 1
    assert upkeep.between_rounds() == Upkept()
    assert table.snapshots().num_rows == 2
    clock.now += 1
    assert upkeep.between_rounds() == Upkept(expired_snapshots=1)
    write()
    upkeep.owe()
    assert upkeep.at_end() == Upkept(expired_snapshots=1)
    assert table.snapshots()["snapshot_id"].to_pylist() == [4]
