"""`num-sorted-run.stop-trigger` and `commit.force-compact`: what inline compaction keeps, and where it cannot."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.errors import OptionError
from bucketline.conf.table.table_settings import TableSettings
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.levels import Levels
from bucketline.state.lsm.tree.pick import pick_compaction
from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.state.store.table.write import write_table
from tests.support.tables.commits import number_of
from tests.support.tables.levels import sized_file

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def _rows(start: int, count: int) -> pa.Table:
    return pa.table({"id": range(start, start + count), "v": [count] * count}).cast(ROWS)


def _table(path: Path, primary_key: tuple[str, ...] = ("id",), **options: str) -> Table:
    return create_table(str(path / "w.db" / "t"), ROWS, primary_key, options={"bucket": "1"} | options)


def _run_count(table: Table) -> int:
    """Each file of level 0 is a run, and so is each level above."""
    levels = table.files()["level"].to_pylist()
    return levels.count(0) + len(set(levels) - {0})


_SIZES = st.integers(1, 1 << 40)


@given(
    st.integers(1, 7),
    st.integers(0, 4),
    st.integers(2, 6),
    st.lists(_SIZES, min_size=1, max_size=30),
    st.dictionaries(st.integers(1, 5), _SIZES, max_size=5),
)
def test_no_pick_leaves_more_runs_than_the_stop_trigger(
    trigger: int, more: int, num_levels: int, level0: list[int], upper: dict[int, int]
) -> None:
    files = [sized_file(f"f{i}", 0, size, sequence=1000 - i) for i, size in enumerate(level0)]
    files += [sized_file(f"u{n}", n, size) for n, size in upper.items() if n < num_levels]
    levels = Levels.from_files(files, num_levels, number_of)
    texts = {"num-sorted-run.compaction-trigger": trigger, "num-sorted-run.stop-trigger": trigger + more}
    options = CompactOptions.of(TableSettings({k: str(n) for k, n in texts.items()} | {"num-levels": str(num_levels)}))
    unit = pick_compaction(levels, options, 0)
    taken = set() if unit is None else {f.file_name for f in unit.files}
    left = [f for f in levels.files if f.file_name not in taken]
    runs = sum(f.level == 0 for f in left) + len({f.level for f in left} - {0}) + (unit is not None)
    assert runs <= trigger + more


@pytest.mark.parametrize("stop", ["3", "4", "100"])
def test_no_commit_leaves_more_runs_than_the_stop_trigger(stop: str, tmp_path: Path) -> None:
    options = {"num-sorted-run.compaction-trigger": "3", "num-sorted-run.stop-trigger": stop}
    table = _table(tmp_path, **options)
    draw = random.Random(3)
    for number in range(14):
        # Sizes that fall by halves are those that a size ratio never joins.
        table.write(_rows(draw.randrange(1000), max(1, 8000 >> number)))
        assert _run_count(table) <= 3


def test_the_first_batch_of_a_job_that_compacts_takes_a_bucket_below_its_stop_trigger(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"num-sorted-run.stop-trigger": "5"})
    for number in range(12):
        write_table(handle_of(table), _rows(number, 20), options={"compaction": "none"})
    assert _run_count(table) == 12
    table.write(_rows(0, 1))
    assert _run_count(table) <= 5


@pytest.mark.parametrize(
    ("primary_key", "options", "job", "why"),
    [
        (("id",), {"write-only": "true"}, {}, "'write-only' = 'true'"),
        (("id",), {}, {"write-only": "true"}, "'write-only' = 'true'"),
        (("id",), {}, {"compaction": "none"}, "'compaction' = 'none'"),
        (("id",), {"bucket": "-2"}, {}, "postpone"),
        ((), {"bucket": "-1"}, {}, "without buckets"),
    ],
)
def test_a_commit_that_cannot_wait_for_a_compaction_is_refused_where_it_is_asked_to(
    primary_key: tuple[str, ...], options: dict[str, str], job: dict[str, str], why: str, tmp_path: Path
) -> None:
    table = _table(tmp_path, primary_key, **options, **{"commit.force-compact": "true"})
    with pytest.raises(OptionError, match=why) as caught:
        write_table(handle_of(table), _rows(0, 5), options=job)
    assert caught.value.fields["key"] == "commit.force-compact"
    assert table.snapshots().num_rows == 0
    write_table(handle_of(table), _rows(0, 5), options=job | {"commit.force-compact": "false"})
    # A compaction that is asked for by hand is what such a table waits for.
    table.compact()
    assert table.to_arrow().num_rows == 5


@pytest.mark.parametrize("primary_key", [("id",), ()])
def test_a_commit_that_compacts_has_waited(primary_key: tuple[str, ...], tmp_path: Path) -> None:
    keys = {} if primary_key else {"bucket-key": "id"}
    options = {"commit.force-compact": "true", "full-compaction.delta-commits": "1"} | keys
    table = _table(tmp_path, primary_key, **options)
    for number in range(3):
        table.write(_rows(number * 5, 5))
        kinds = table.snapshots()["commit_kind"].to_pylist()
        assert _run_count(table) == 1 and kinds[-1] == ("COMPACT" if primary_key or number else "APPEND")
