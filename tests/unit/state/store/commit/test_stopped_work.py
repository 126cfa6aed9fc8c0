"""Writes, overwrites, compactions and rescales of real files that are stopped for a day or more: their work is done
again."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import FilesGoneError
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.overwrite import overwrite_table
from bucketline.state.store.table.rescale import rescale_table
from bucketline.state.store.table.table import Table, create_table
from bucketline.state.store.table.write import write_table
from tests.support.storage.stopped import HOUR_MS, HookedIds, StoppingClock, age_and_clean, let_storage_age
from tests.support.tables.worlds import handle_in

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def _rows(v: int) -> pa.Table:
    return pa.table({"id": range(20), "v": [v] * 20}, schema=COLUMNS)


def _values(table: Table) -> set[int]:
    return set(table.to_arrow()["v"].to_pylist())


WORK: dict[str, Callable[[Table, StoppingClock], object]] = {
    "write": lambda table, clock: write_table(handle_in(table, clock=clock), _rows(7)),
    "overwrite": lambda table, clock: overwrite_table(handle_in(table, clock=clock), _rows(7)),
    "compact": lambda table, clock: compact_table(handle_in(table, clock=clock)),
    "rescale": lambda table, clock: rescale_table(handle_in(table, clock=clock), 3),
}


@pytest.mark.parametrize("work", WORK)
def test_work_whose_files_are_removed_while_it_is_stopped_is_done_again(
    work: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repeated = 0
    for at in count(1):
        table = create_table(str(tmp_path / str(at) / "t"), COLUMNS, ("id",), options={"bucket": "2"})
        table.write(_rows(1))
        table.write(_rows(2))
        clock = StoppingClock(at, 25 * HOUR_MS, age_and_clean(table.path, 25 * HOUR_MS))
        caplog.clear()
        WORK[work](table, clock)
        repeated += any("its work is done again" in r.getMessage() for r in caplog.records)
        assert _values(table) == ({7} if work.endswith("write") else {2}) and table.to_arrow().num_rows == 20
        assert table.doctor(rows=True) == []
        if clock.looks < at:
            break
    assert repeated >= 3


@pytest.mark.parametrize("work", ["write", "overwrite", "compact", "rescale"])
def test_on_a_file_system_the_storages_clock_alone_is_enough(work: str, tmp_path: Path) -> None:
    """The storage's clock jumps by two days and the machine's does not: files are old to a removal alone."""
    table = create_table(str(tmp_path / "t"), COLUMNS, ("id",), options={"bucket": "2"})
    table.write(_rows(1))
    table.write(_rows(2))
    ids = HookedIds(Path(table.path), age_and_clean(table.path, 48 * HOUR_MS))
    if work == "write":
        write_table(handle_in(table, ids=ids), _rows(7))
    elif work == "overwrite":
        overwrite_table(handle_in(table, ids=ids), _rows(7))
    elif work == "compact":
        compact_table(handle_in(table, ids=ids))
    else:
        rescale_table(handle_in(table, ids=ids), 3)
    assert ids.is_done
    assert _values(table) == ({7} if work.endswith("write") else {2}) and table.doctor(rows=True) == []


def test_rows_that_can_be_read_only_once_are_asked_for_again(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), COLUMNS, ("id",), options={"bucket": "2"})
    table.write(_rows(1))
    is_told = False
    for at in count(1):
        clock = StoppingClock(at, 25 * HOUR_MS, age_and_clean(table.path, 25 * HOUR_MS))
        try:
            write_table(handle_in(table, clock=clock), _rows(at).to_reader())
        except FilesGoneError as e:
            assert e.code == "FILES_GONE" and "write the rows again" in e.message
            is_told = True
        else:
            assert _values(table) == {at}
        assert table.doctor(rows=True) == []
        if clock.looks < at:
            break
    assert is_told


def test_files_of_a_rollback_and_of_a_branch_go_only_when_they_are_old(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), COLUMNS, ("id",), options={"bucket": "2", "write-only": "true"})
    for v in range(3):
        table.write(_rows(v))
    table.rollback_to(1)
    assert table.remove_orphan_files(dry_run=False).files == ()
    assert table.remove_orphan_files(older_than=timedelta(0)).files != ()
    let_storage_age(Path(table.path), 25 * HOUR_MS)
    assert table.remove_orphan_files(dry_run=False).files != ()
    assert _values(table) == {0} and table.doctor(rows=True) == []
