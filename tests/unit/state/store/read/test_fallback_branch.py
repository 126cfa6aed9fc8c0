"""Reads that take from another branch what the opened one lacks: partition by partition, at every snapshot."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.table.table import Table, handle_of, open_table
from tests.support.peers.our_tables import make_table
from tests.support.tables.grafted import graft, set_times

COLUMNS = {"k": "INT NOT NULL", "d": "STRING NOT NULL", "v": "INT"}
Row = tuple[int, str, int | None]


def table_of(path: Path, *commits: Iterable[Row], primary_key: bool = True, **options: str) -> Table:
    """A table partitioned by `d`, with these commits."""
    options = {"bucket": "1" if primary_key else "-1"} | {k.replace("__", "."): v for k, v in options.items()}
    table = make_table(
        path, COLUMNS, primary_key=("k", "d") if primary_key else (), partition_by=("d",), options=options
    )
    for rows in commits:
        table.write(batch(table, rows))
    return table


def batch(table: Table, rows: Iterable[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, table.schema, strict=True)], schema=table.schema)


def rows_of(table: Table, **arguments: Any) -> list[Row]:
    return sorted(tuple(row.values()) for row in table.to_arrow(**arguments).to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Main commits z, a and b at 100, 200 and 400 ms; the branch old commits b and c at 300, a and e at 500 ms."""
    main = table_of(tmp_path / "t", [(0, "z", 0)], [(1, "a", 1)], [(3, "b", 3)])
    old = table_of(tmp_path / "old", [(1, "b", 100), (2, "c", 200)], [(1, "a", 999), (5, "e", 5)])
    graft(main, "old", old)
    set_times(tmp_path / "t", [100, 200, 400])
    set_times(tmp_path / "t/branch/branch-old", [300, 500])
    return main.set_options({"scan.fallback-branch": "old"})


Z, A, B = (0, "z", 0), (1, "a", 1), (3, "b", 3)
OLD_B, OLD_C, OLD_E = (1, "b", 100), (2, "c", 200), (5, "e", 5)


def test_partitions_that_the_branch_lacks_come_from_the_fallback_branch(table: Table) -> None:
    assert rows_of(table) == [Z, A, OLD_C, B, OLD_E]
    assert table.to_batches().read_all().num_rows == 5
    assert rows_of(open_table(table.path)) == [Z, A, OLD_C, B, OLD_E]


def test_a_partition_is_the_first_branchs_whatever_the_filter_makes_of_it(table: Table) -> None:
    assert rows_of(table, filter=pc.field("v") == 100) == []
    assert rows_of(table, filter=pc.field("v") >= 200) == [OLD_C]
    assert rows_of(table, filter=pc.field("d") == "c", columns=["v", "k"]) == [(200, 2)]
    assert table.to_arrow(columns=[]).num_rows == 5


def test_a_snapshot_id_means_the_fallback_branch_as_it_was_then(table: Table) -> None:
    """Before the first snapshot of the fallback branch, that snapshot stands for it, as in Paimon."""
    for read in (
        lambda n: rows_of(table, snapshot=n),
        lambda n: rows_of(open_table(table.path, options={"scan.snapshot-id": str(n)})),
    ):
        assert read(1) == [Z, OLD_B, OLD_C]
        assert read(2) == [Z, A, OLD_B, OLD_C]
        assert read(3) == [Z, A, OLD_C, B]


def test_a_time_means_the_same_time_in_both_branches(table: Table) -> None:
    def at(time_ms: int) -> list[Row]:
        return rows_of(open_table(table.path, options={"scan.timestamp-millis": str(time_ms)}))

    assert at(300) == [Z, A, OLD_B, OLD_C]
    assert at(450) == [Z, A, OLD_C, B]
    assert at(500) == [Z, A, OLD_C, B, OLD_E]
    with pytest.raises(OptionError, match="branch-old has no snapshot committed at 250 or before"):
        at(250)


def test_a_tag_means_its_own_snapshot_alone(table: Table) -> None:
    table.create_tag("early", 2)
    assert rows_of(table, snapshot="early") == [Z, A]
    assert rows_of(open_table(table.path, options={"scan.tag-name": "early"})) == [Z, A]
    assert rows_of(open_table(table.path, options={"scan.version": "early"})) == [Z, A]


def test_the_id_of_a_version_is_taken_in_each_branch_as_it_is(table: Table) -> None:
    assert rows_of(open_table(table.path, options={"scan.version": "1"})) == [Z, OLD_B, OLD_C]
    assert rows_of(open_table(table.path, options={"scan.version": "2"})) == [Z, A, OLD_B, OLD_C, OLD_E]
    with pytest.raises(OptionError, match="branch-old has no snapshot 3"):
        rows_of(open_table(table.path, options={"scan.version": "3"}))


def test_a_first_snapshot_of_the_fallback_branch_that_is_expired_is_an_error(table: Table) -> None:
    (Path(table.path) / "branch/branch-old/snapshot/snapshot-1").unlink()
    with pytest.raises(OptionError, match="branch-old has no snapshot 1"):
        rows_of(table, snapshot=1)


def test_an_empty_branch_is_read_from_the_fallback_branch_alone_and_the_other_way_round(tmp_path: Path) -> None:
    main, old = table_of(tmp_path / "t"), table_of(tmp_path / "old", [OLD_B])
    graft(main, "old", old)
    main.create_branch("bare")
    assert rows_of(open_table(main.path, options={"scan.fallback-branch": "old"})) == [OLD_B]
    main.write(batch(main, [Z]))
    bare = open_table(main.path, options={"scan.fallback-branch": "bare"})
    assert rows_of(bare) == rows_of(bare, snapshot=1) == [Z]


def test_tables_without_partitions_are_read_from_one_branch(tmp_path: Path) -> None:
    main = make_table(tmp_path / "t", COLUMNS, options={"bucket": "-1"})
    old = make_table(tmp_path / "old", COLUMNS, options={"bucket": "-1"})
    old.write(batch(old, [OLD_B]))
    graft(main, "old", old)
    main = main.set_options({"scan.fallback-branch": "old"})
    assert rows_of(main) == [OLD_B]
    main.write(batch(main, [Z]))
    assert rows_of(main) == [Z]


def test_a_primary_branch_is_asked_first(table: Table) -> None:
    reversed_ = table.unset_options("scan.fallback-branch").set_options({"scan.primary-branch": "old"})
    assert rows_of(reversed_) == [Z, (1, "a", 999), OLD_B, OLD_C, OLD_E]
    assert rows_of(reversed_, snapshot=2) == [Z, A, OLD_B, OLD_C]


def test_a_fallback_branch_wins_over_a_primary_branch_and_is_not_followed_further(table: Table) -> None:
    both = open_table(table.path, options={"scan.primary-branch": "old"})
    assert rows_of(both) == [Z, A, OLD_C, B, OLD_E]
    schema = Path(table.path) / "branch/branch-old/schema/schema-0"
    found = json.loads(schema.read_text())
    schema.write_text(json.dumps(found | {"options": found["options"] | {"scan.fallback-branch": "nowhere"}}))
    assert rows_of(table) == [Z, A, OLD_C, B, OLD_E]


def test_a_branch_that_does_not_exist_is_left_out_with_a_warning(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert rows_of(open_table(table.path, options={"scan.fallback-branch": "gone"})) == [Z, A, B]
    assert "'scan.fallback-branch' names the branch gone, which does not exist" in caplog.text
    assert rows_of(open_table(table.path, options={"branch": "old", "scan.fallback-branch": "old"})) == rows_of(
        open_table(table.path, options={"branch": "old"})
    )


def test_each_branch_is_read_by_its_own_options(tmp_path: Path) -> None:
    """What a branch does not show, as level 0 under deletion vectors, does not hide the other's partition."""
    options = {"deletion-vectors__enabled": "true", "write-only": "true"}
    main = table_of(tmp_path / "t", [A, B], **options)
    old = table_of(tmp_path / "old", [(7, "a", 7), (8, "c", 8)])
    graft(main, "old", old)
    main = main.set_options({"scan.fallback-branch": "old"})
    assert rows_of(main) == [(7, "a", 7), (8, "c", 8)]
    assert sorted((f["partition"], f["level"]) for f in main.files().to_pylist()) == [
        ("{a}", 0),
        ("{a}", 0),
        ("{b}", 0),
    ]
    main.compact(partitions=[{"d": "a"}])
    assert rows_of(main) == [A, (8, "c", 8)]
    assert sorted((f["partition"], f["level"]) for f in main.files().to_pylist()) == [("{a}", 5), ("{b}", 0)]


def test_partitions_whose_rows_are_all_deleted_stay_the_first_branchs_until_their_files_go(tmp_path: Path) -> None:
    main, old = table_of(tmp_path / "t", [A]), table_of(tmp_path / "old", [(9, "a", 9)])
    graft(main, "old", old)
    main.delete(pc.field("k") == 1)
    main = main.set_options({"scan.fallback-branch": "old"})
    assert rows_of(main) == []
    main.compact()
    assert rows_of(main) == [(9, "a", 9)]


def test_read_optimized_asks_both_branches_for_what_they_have_compacted(table: Table) -> None:
    assert rows_of(table, read_optimized=True) == []
    table.compact(partitions=[{"d": "b"}])
    assert rows_of(table, read_optimized=True) == [B]


def test_files_and_changes_are_those_of_the_branch_alone(table: Table) -> None:
    assert sorted(f["partition"] for f in table.files().to_pylist()) == ["{a}", "{b}", "{z}"]
    early = open_table(table.path, options={"scan.snapshot-id": "1"})
    assert [f["partition"] for f in early.files().to_pylist()] == ["{z}"]
    assert rows_of(table, changes_since=0) == [(*Z, 0), (*A, 0), (*B, 0)]


def test_columns_are_matched_by_their_place_and_must_have_the_same_types(table: Table) -> None:
    renamed = table.rename_column("v", "w")
    assert rows_of(renamed, filter=pc.field("w") == 200) == [OLD_C]
    with pytest.raises(UnsupportedTableError, match=r"both need the same columns.*w BIGINT.*v INT"):
        rows_of(renamed.alter_column("w", type="BIGINT"))


def test_columns_that_an_option_of_the_fallback_branch_goes_by_cannot_have_another_name(tmp_path: Path) -> None:
    main = table_of(tmp_path / "t", [A])
    graft(main, "old", table_of(tmp_path / "old", [OLD_C], sequence__field="v"))
    renamed = main.rename_column("v", "w").set_options({"scan.fallback-branch": "old"})
    with pytest.raises(UnsupportedTableError, match="and its options use this name"):
        rows_of(renamed)


def test_rows_of_a_fallback_branch_cannot_be_changed_and_nothing_is_written(table: Table) -> None:
    newest = handle_of(table).snapshot_store.latest_id()
    with pytest.raises(UnsupportedTableError, match=r"scan\.fallback-branch"):
        table.delete(pc.field("k") == 5)
    with pytest.raises(UnsupportedTableError, match=r"scan\.fallback-branch"):
        table.update(pc.field("k") == 5, {"v": 6})
    assert handle_of(table).snapshot_store.latest_id() == newest


def test_the_branches_of_a_chain_table_are_still_refused(table: Table) -> None:
    with pytest.raises(UnsupportedTableError, match=r"scan\.fallback-delta-branch"):
        rows_of(open_table(table.path, options={"scan.fallback-delta-branch": "old"}))
