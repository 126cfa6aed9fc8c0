"""Overwrite: which partitions it replaces, in every bucket mode, and that nothing of the old rows is left."""

import pickle
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CommitConflictError, SchemaMismatchError
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.write_plan import Workers

ROWS = pa.schema(
    [pa.field("dt", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())]
)
MODES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "fixed": (("dt", "id"), {"bucket": "2"}),
    "dynamic": (("dt", "id"), {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}),
    "postpone": (("dt", "id"), {"bucket": "-2"}),
    "vectors": (("dt", "id"), {"bucket": "2", "deletion-vectors.enabled": "true"}),
    "first-row": (("dt", "id"), {"bucket": "2", "merge-engine": "first-row"}),
    "lookup": (("dt", "id"), {"bucket": "2", "changelog-producer": "lookup"}),
    "input": (("dt", "id"), {"bucket": "2", "changelog-producer": "input"}),
    "write-only": (("dt", "id"), {"bucket": "2", "write-only": "true"}),
    "append": ((), {"bucket": "-1"}),
    "append bucketed": ((), {"bucket": "2", "bucket-key": "id"}),
}


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    key, options = MODES[request.param]
    return create_table(str(tmp_path / "w.db" / "t"), ROWS, key, ["dt"], options)


def rows(*found: tuple[str, int, int]) -> pa.Table:
    return pa.table({name: [row[i] for row in found] for i, name in enumerate(ROWS.names)}).cast(ROWS)


def held(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in open_table(table.path).to_arrow().to_pylist())


def fill(table: Table) -> None:
    for number in range(3):
        table.write(rows(*[(day, number * 5 + i, number) for day in ("a", "b") for i in range(8)]))


def test_rows_of_one_key_become_one(table: Table) -> None:
    """In tables with changelog-producer = input each of them stayed, for good."""
    fill(table)

    table.overwrite(rows(("a", 1, 5), ("a", 1, 6), ("a", 2, 7)), {"dt": "a"})
    open_table(table.path).compact()

    wanted = {(1, 5), (1, 6), (2, 7)} if not table.primary_key else {(1, 6), (2, 7)}
    if table.options.get("merge-engine") == "first-row":
        wanted = {(1, 5), (2, 7)}
    found = [row[1:] for row in held(table) if row[0] == "a"]
    assert set(found) == wanted and len(found) == len(wanted)


def test_partitions_that_get_rows_are_replaced(table: Table) -> None:
    fill(table)
    other = [row for row in held(table) if row[0] == "b"]
    made = table.overwrite(rows(("a", 1, 100), ("a", 99, 100), ("c", 1, 100)))
    assert made == table.snapshots()["snapshot_id"].to_pylist()[-1]
    assert held(table) == sorted([("a", 1, 100), ("a", 99, 100), ("c", 1, 100), *other])
    assert table.snapshots()["commit_kind"].to_pylist()[-1] == "OVERWRITE"
    assert table.doctor(rows=True) == []
    # Writing goes on from there: known keys are found in what the overwrite has made.
    table.write(rows(("a", 1, 200), ("a", 2, 200)))
    table.compact()
    found = [row for row in held(table) if row[0] == "a" and row[1] < 3]
    options = table.options
    first = 100 if options.get("merge-engine") == "first-row" else 200
    kept = [("a", 1, 100)] if not table.primary_key else []
    assert found == sorted([*kept, ("a", 1, first), ("a", 2, 200)])
    assert table.doctor(rows=True) == []


def test_a_partition_that_is_named_is_replaced_and_emptied_where_no_rows_come(table: Table) -> None:
    fill(table)
    table.overwrite(rows(("a", 1, 100)), {"dt": "a"})
    assert [row for row in held(table) if row[0] == "a"] == [("a", 1, 100)]
    table.overwrite(rows(), {"dt": "b"})
    assert held(table) == [("a", 1, 100)]
    assert table.doctor(rows=True) == []


def test_everything_is_replaced_where_the_option_says_so(table: Table) -> None:
    fill(table)
    table = table.set_options({"dynamic-partition-overwrite": "false"})
    table.overwrite(rows(("c", 1, 100)))
    assert held(table) == [("c", 1, 100)]
    table.overwrite(rows())
    assert held(table) == []


def test_no_rows_replace_nothing_where_rows_say_what_is_replaced(table: Table) -> None:
    fill(table)
    before, snapshots = held(table), table.snapshots().num_rows
    assert table.overwrite(rows()) == table.drop_partitions([{"dt": "nobody"}]) == table.drop_partitions([])
    assert table.overwrite(rows()) == table.snapshots()["snapshot_id"].to_pylist()[-1]
    assert (held(table), table.snapshots().num_rows) == (before, snapshots)


def test_partitions_are_dropped_and_a_table_is_emptied(table: Table) -> None:
    assert table.truncate() == table.drop_partitions([{"dt": "a"}]) == 0
    fill(table)
    kept = [row for row in held(table) if row[0] not in ("a", "b")]
    done = table.drop_partitions([{"dt": "a"}, {"dt": "b"}])
    assert (held(table), done) == (kept, table.snapshots()["snapshot_id"].to_pylist()[-1])
    fill(table)
    table.truncate()
    assert (held(table), table.files().num_rows) == ([], 0)
    newest = table.snapshots().to_pylist()[-1]
    assert (newest["commit_kind"], newest["operation"]) == ("OVERWRITE", "TRUNCATE")
    fill(table)
    assert table.doctor(rows=True) == []
    for wrong in ([{}], {"dt": "a"}, "a", [{"id": 1}]):
        with pytest.raises(OptionError, match="partition"):
            table.drop_partitions(wrong)  # type: ignore[arg-type]


TYPED: tuple[tuple[str, tuple[Any, Any], Any], ...] = (
    ("DOUBLE", (1e300, float("nan")), date(1970, 1, 1)),
    ("FLOAT", (0.1, 16777216.0), date(2026, 1, 1)),
    ("DECIMAL(20, 4)", (Decimal("0.5"), Decimal("-7")), Decimal("0.00001")),
    ("DATE", (date(1, 1, 1), date(2026, 1, 1)), 5),
    ("TIMESTAMP(3)", (datetime(1969, 12, 31, 23, 59, 59, 500000), datetime(2026, 1, 1)), 0),
    ("TIME(3)", (time(0, 0), time(23, 59, 59, 1000)), 1),
    ("BOOLEAN", (True, False), 1),
    ("INT", (-1, 20260101), 1.5),
)


@pytest.mark.parametrize(("kind", "values", "wrong"), TYPED, ids=[kind for kind, _, _ in TYPED])
def test_a_partition_is_named_by_a_value_of_its_type(
    kind: str, values: tuple[Any, Any], wrong: Any, tmp_path: Path
) -> None:
    """By their texts in Python, such as `1e+300`, no partition was found, and nothing was said."""
    table = create_table(str(tmp_path / "t"), f"p {kind}, v INT", partition_by=["p"])
    table.write(pa.table({"p": pa.array(values, table.schema.field("p").type), "v": pa.array([1, 2], pa.int32())}))
    with pytest.raises(OptionError, match="is not a value of partition column 'p'"):
        table.drop_partitions([{"p": wrong}])
    table.drop_partitions([{"p": values[0]}])
    assert table.to_arrow()["v"].to_pylist() == [2]
    table.drop_partitions([{"p": values[1]}])
    assert table.to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("kind", "value", "more_exact"),
    [
        ("DATE", date(2026, 1, 1), datetime(2026, 1, 1, 5)),
        ("TIMESTAMP(3)", datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)),
        ("TIME(3)", time(5), time(5, 0, 0, 1)),
    ],
)
def test_a_moment_that_no_partition_can_have_drops_no_partition(
    kind: str, value: object, more_exact: object, tmp_path: Path
) -> None:
    """Arrow cuts such a value to the precision of the column, and the partition of the cut value was dropped."""
    table = create_table(str(tmp_path / "t"), f"p {kind}, v INT", partition_by=["p"])
    table.write(pa.table({"p": pa.array([value], table.schema.field("p").type), "v": pa.array([1], pa.int32())}))
    with pytest.raises(OptionError, match="is not a value of partition column 'p'"):
        table.drop_partitions([{"p": more_exact}])
    assert table.to_arrow().num_rows == 1


def test_none_names_the_partition_of_nulls_alone(tmp_path: Path) -> None:
    """The same folder holds blank texts, and these were dropped too."""
    table = create_table(str(tmp_path / "t"), "p STRING, v INT", partition_by=["p"])
    texts = ["", None, "__DEFAULT_PARTITION__", " ", "x"]
    table.write(pa.table({"p": texts, "v": pa.array(range(5), pa.int32())}))
    assert {f.name for f in Path(table.path).iterdir() if f.name.startswith("p=")} == {
        "p=__DEFAULT_PARTITION__",
        "p=x",
    }
    table.drop_partitions([{"p": None}])
    assert sorted(table.to_arrow()["v"].to_pylist()) == [0, 2, 3, 4]
    table.drop_partitions([{"p": ""}])
    assert sorted(table.to_arrow()["v"].to_pylist()) == [2, 3, 4]
    table.drop_partitions([{"p": "__DEFAULT_PARTITION__"}])
    assert table.to_arrow()["v"].to_pylist() == [4]


def test_rows_outside_the_partition_are_refused_before_anything_is_written(table: Table) -> None:
    fill(table)
    files = {f for f in Path(table.path).rglob("*") if f.is_file()}
    with pytest.raises(SchemaMismatchError, match="rows of partition dt=b, which is not being overwritten"):
        table.overwrite(rows(("a", 1, 1), ("b", 1, 1)), {"dt": "a"})
    with pytest.raises(OptionError, match="'id' is no partition column"):
        table.overwrite(rows(("a", 1, 1)), {"id": 1})
    assert {f for f in Path(table.path).rglob("*") if f.is_file()} == files


def test_deletes_among_the_rows_count(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "w.db" / "t"), ROWS, ["dt", "id"], ["dt"], {"bucket": "1"})
    table.write(rows(("a", 1, 1), ("a", 2, 2)))
    table.overwrite(rows(("a", 3, 3), ("a", 4, 4), ("a", 3, 3)), row_kinds=pa.array([0, 0, 3], pa.int8()))
    assert held(table) == [("a", 4, 4)]
    assert table.files()["level"].to_pylist() == [5]


def test_postponed_rows_go_with_their_partition(tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    table = create_table(str(tmp_path / "w.db" / "t"), ROWS, ["dt", "id"], ["dt"], options)
    table.write(rows(("a", 1, 1), ("b", 1, 1)))
    table.overwrite(rows(("a", 2, 2)))
    table.compact()
    assert held(table) == [("a", 2, 2), ("b", 1, 1)]


def test_an_overwritten_partition_has_the_bucket_count_of_the_table(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "w.db" / "t"), ROWS, ["dt", "id"], ["dt"], {"bucket": "1"})
    table.write(rows(*[(day, i, i) for day in "ab" for i in range(20)]))
    table.rescale(3, [{"dt": "a"}])
    table.overwrite(rows(*[("a", i, i) for i in range(30)]))
    assert {f["bucket"] for f in table.files().to_pylist()} == {0}
    assert len(held(table)) == 50
    assert table.doctor(rows=True) == []


def test_tables_without_partitions_are_replaced_as_a_whole(tmp_path: Path) -> None:
    table = create_table(
        str(tmp_path / "w.db" / "t"), ROWS, ["id"], options={"bucket": "1", "changelog-producer": "input"}
    )
    table.write(rows(("a", 1, 1)))
    table.overwrite(rows(("a", 2, 2)))
    assert held(table) == [("a", 2, 2)]
    assert table.to_arrow(changes_since=1).num_rows == 0
    table.overwrite(rows())
    assert held(table) == []


def test_the_last_overwrite_wins_over_what_was_written_meanwhile(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "w.db" / "t"), ROWS, ["dt", "id"], ["dt"], {"bucket": "1"})
    table.write(rows(("a", 1, 1)))

    def slowly() -> Any:
        yield rows(("a", 2, 2)).to_batches()[0]
        write_table(handle_of(open_table(table.path)), rows(("a", 3, 3), ("b", 3, 3)))

    table.overwrite(pa.RecordBatchReader.from_batches(ROWS, slowly()))
    assert held(table) == [("a", 2, 2), ("b", 3, 3)]


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}])
def test_keys_that_come_to_a_replaced_partition_leave_the_others(options: dict[str, str], tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "w.db" / "t"), ROWS, ["id"], ["dt"], {"bucket": "-1"} | options)
    table.write(rows(("a", 1, 1), ("a", 2, 2), ("b", 3, 3), ("b", 4, 4), ("c", 5, 5)))
    before = table.snapshots().num_rows
    assert table.overwrite(rows(("a", 3, 30), ("a", 6, 60), ("a", 2, 20))) == before + 1
    assert held(table) == [("a", 2, 20), ("a", 3, 30), ("a", 6, 60), ("b", 4, 4), ("c", 5, 5)]
    assert table.snapshots()["commit_kind"].to_pylist()[-1] == "OVERWRITE"
    table.overwrite(rows(), {"dt": "c"})
    table.write(rows(("b", 6, 61), ("c", 5, 50), ("a", 1, 10)))
    assert held(table) == [("a", 1, 10), ("a", 2, 20), ("a", 3, 30), ("b", 4, 4), ("b", 6, 61), ("c", 5, 50)]
    assert table.doctor(rows=True) == []
    table.compact()
    assert len(held(table)) == 6


def test_an_overwrite_of_moving_keys_is_planned_again_when_somebody_writes(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "w.db" / "t"), ROWS, ["id"], ["dt"], {"bucket": "-1"})
    table.write(rows(("a", 1, 1), ("b", 2, 2)))

    def slowly() -> Any:
        yield rows(("a", 7, 7)).to_batches()[0]
        write_table(handle_of(open_table(table.path)), rows(("b", 7, 8)))

    with pytest.raises(CommitConflictError) as error:
        table.overwrite(pa.RecordBatchReader.from_batches(ROWS, slowly()))
    assert error.value.fields["rule"] == "second-writer"
    assert held(table) == [("a", 1, 1), ("b", 2, 2), ("b", 7, 8)]
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_old_snapshots_expire_after_an_overwrite_of_moving_keys(tmp_path: Path) -> None:
    kept = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2"}
    table = create_table(str(tmp_path / "w.db" / "t"), ROWS, ["id"], ["dt"], {"bucket": "-1"} | kept)
    last = 0
    for number in range(4):
        last = table.overwrite(rows(("a", 1, number)))
    assert table.snapshots()["snapshot_id"].to_pylist() == [last - 1, last]
    assert held(table) == [("a", 1, 3)]


def test_what_an_overwrite_of_moving_keys_sends_to_tasks_does_not_grow_with_the_tables_files(tmp_path: Path) -> None:
    options = {"bucket": "-1", "write-only": "true"}
    table = create_table(str(tmp_path / "w.db" / "t"), ROWS, ["id"], ["dt"], options)
    sizes = []

    @dataclass
    class Weighing:
        workers: Workers = LOCAL_ENGINE.workers

        def run(self, work: Any) -> Outcome:
            sizes.append(len(pickle.dumps((work.place, work.write))))
            return LOCAL_ENGINE.run(work)

    for files in (2, 12):
        for number in range(files):
            table.write(rows(("a", number, 1), ("b", 100 + number, 1)))
        table.overwrite(rows(("a", 1, 2)), engine=Weighing())
    assert abs(sizes[1] - sizes[0]) < 200
    assert sum(row[0] == "b" for row in held(table)) == 12
