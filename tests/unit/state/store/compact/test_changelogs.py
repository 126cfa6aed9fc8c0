"""What each producer logs, file by file and row by row, as Paimon does."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import Table, create_table, open_table

SCHEMA = pa.schema({"k": pa.int32(), "n": pa.int64(), "s": pa.string()})
_KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
_NAMES = {code: name for name, code in _KINDS.items()}
Change = tuple[str, int, int | None, str | None]


def make(path: Path, **options: str) -> Table:
    """A table of one bucket; underscores in option names stand for dashes, two for a dot."""
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return create_table(str(path / "db.db" / "t"), SCHEMA, ["k"], options={"bucket": "1", **named})


def write(table: Table, *rows: Change) -> None:
    columns = list(zip(*[r[1:] for r in rows], strict=True))
    data = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    table.write(data, pa.array([_KINDS[r[0]] for r in rows], pa.int8()))


def changes(table: Table, since: int) -> list[Change]:
    """What was logged after a snapshot, in the order it is read."""
    found = open_table(table.path).to_batches(changes_since=since).read_all().to_pylist()
    return [(_NAMES[r["_row_kind"]], r["k"], r["n"], r["s"]) for r in found]


def rows(table: Table) -> list[tuple[int, int | None, str | None]]:
    return [tuple(r.values()) for r in open_table(table.path).to_arrow().sort_by("k").to_pylist()]


def counts(table: Table) -> list[tuple[str, int, int | None]]:
    """Kind, delta and changelog record count of each snapshot."""
    found = open_table(table.path).snapshots().to_pylist()
    return [(s["commit_kind"], s["delta_record_count"], s["changelog_record_count"]) for s in found]


def files(table: Table, pattern: str) -> list[Path]:
    return sorted(Path(table.path, "bucket-0").glob(pattern))


def test_the_input_is_logged_row_by_row_by_key(tmp_path: Path) -> None:
    table = make(tmp_path, changelog_producer="input")
    write(table, ("+I", 2, 1, "a"), ("+I", 1, 1, "b"), ("-U", 2, 1, "a"), ("+U", 2, 2, "c"), ("-D", 1, 1, "b"))
    assert changes(table, 0) == [
        ("+I", 1, 1, "b"),
        ("-D", 1, 1, "b"),
        ("+I", 2, 1, "a"),
        ("-U", 2, 1, "a"),
        ("+U", 2, 2, "c"),
    ]
    assert counts(table) == [("APPEND", 2, 5)]
    assert rows(table) == [(2, 2, "c")]
    assert len(files(table, "changelog-*.parquet")) == 1


def test_a_lookup_logs_how_rows_replace_older_ones(tmp_path: Path) -> None:
    table = make(tmp_path, changelog_producer="lookup")
    write(table, ("+I", 1, 1, "a"), ("+I", 2, 2, "b"), ("+I", 3, 3, "c"))
    write(table, ("+I", 1, 11, "x"), ("-D", 2, 2, "b"), ("-D", 9, 9, "z"))
    write(table, ("+I", 2, 5, "new"), ("+I", 3, 3, "c"))
    assert changes(table, 0) == [
        ("+I", 1, 1, "a"),
        ("+I", 2, 2, "b"),
        ("+I", 3, 3, "c"),
        ("-U", 1, 1, "a"),
        ("+U", 1, 11, "x"),
        ("-D", 2, 2, "b"),
        ("+I", 2, 5, "new"),
        ("-U", 3, 3, "c"),
        ("+U", 3, 3, "c"),
    ]
    assert [c for c in counts(table) if c[0] == "COMPACT"] == [
        ("COMPACT", 0, 3),
        ("COMPACT", 0, 3),
        ("COMPACT", -5, 3),
    ]


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_updates_that_change_nothing_are_left_out_on_demand(tmp_path: Path, producer: str) -> None:
    table = make(
        tmp_path,
        changelog_producer=producer,
        changelog_producer__row_deduplicate="true",
        changelog_producer__row_deduplicate_ignore_fields="s",
    )
    write(table, ("+I", 1, 1, "a"), ("+I", 2, 2, "b"), ("+I", 3, None, "b"))
    write(table, ("+I", 1, 1, "z"), ("+I", 2, 3, "b"), ("+I", 3, None, "b"))
    assert changes(table, 2) == [("-U", 2, 2, "b"), ("+U", 2, 3, "b")]


def test_a_full_compaction_logs_what_differs_on_the_last_level(tmp_path: Path) -> None:
    table = make(tmp_path, changelog_producer="full-compaction", full_compaction__delta_commits="100")
    write(table, ("+I", 1, 1, "a"), ("+I", 2, 2, "b"))
    write(table, ("+I", 1, 2, "x"), ("+I", 3, 3, "c"))
    assert changes(table, 0) == []
    table.compact()
    assert changes(table, 0) == [("+I", 1, 2, "x"), ("+I", 2, 2, "b"), ("+I", 3, 3, "c")]
    write(table, ("-D", 1, 2, "x"), ("+I", 4, 4, "d"), ("-D", 7, 7, "q"))
    seen = open_table(table.path).snapshots().num_rows
    table.compact()
    assert changes(table, seen) == [("-D", 1, 2, "x"), ("+I", 4, 4, "d")]


def test_a_full_compaction_is_due_with_each_commit_unless_said_otherwise(tmp_path: Path) -> None:
    table = make(tmp_path, changelog_producer="full-compaction")
    write(table, ("+I", 1, 1, "a"))
    write(table, ("-D", 1, 1, "a"))
    assert changes(table, 0) == [("+I", 1, 1, "a"), ("-D", 1, 1, "a")]


def test_the_first_row_of_a_key_stays_and_is_logged_once(tmp_path: Path) -> None:
    table = make(tmp_path, merge_engine="first-row", changelog_producer="lookup")
    write(table, ("+I", 1, 1, "a"), ("+I", 1, 2, "b"), ("+I", 2, 1, "c"))
    write(table, ("+I", 2, 9, "no"), ("+I", 3, 3, "d"))
    assert rows(table) == [(1, 1, "a"), (2, 1, "c"), (3, 3, "d")]
    assert changes(table, 0) == [("+I", 1, 1, "a"), ("+I", 2, 1, "c"), ("+I", 3, 3, "d")]
    table.compact()
    assert rows(table) == [(1, 1, "a"), (2, 1, "c"), (3, 3, "d")]


def test_rows_of_first_row_tables_wait_for_a_compaction(tmp_path: Path) -> None:
    table = make(tmp_path, merge_engine="first-row", write_only="true")
    write(table, ("+I", 1, 1, "a"))
    write(table, ("+I", 1, 2, "b"))
    assert rows(table) == []
    table.compact()
    assert rows(table) == [(1, 1, "a")]


def test_sums_are_completed_by_the_newest_older_row_only(tmp_path: Path) -> None:
    options = {"merge_engine": "aggregation", "fields__n__aggregate_function": "sum", "changelog_producer": "lookup"}
    table = make(tmp_path, **options)
    write(table, *[("+I", k, 100, "a") for k in range(50)])
    write(table, ("+I", 1, 1, "b"))
    write(table, ("+I", 1, 1, "c"), ("-U", 60, 5, "d"))
    assert rows(table)[1] == (1, 102, "c")
    assert rows(table)[50] == (60, -5, None)
    assert changes(table, 2) == [
        ("-U", 1, 100, "a"),
        ("+U", 1, 101, "b"),
        ("-U", 1, 101, "b"),
        ("+U", 1, 102, "c"),
        ("+I", 60, -5, None),
    ]
    table.compact()
    assert rows(table)[1] == (1, 102, "c")


def test_changelog_files_obey_their_own_options(tmp_path: Path) -> None:
    table = make(
        tmp_path,
        changelog_producer="lookup",
        changelog_file__prefix="log-",
        changelog_file__format="avro",
        changelog_file__compression="deflate",
        changelog_file__stats_mode="none",
    )
    write(table, ("+I", 1, 1, "a"))
    assert len(files(table, "log-*.avro")) == 1
    assert changes(table, 0) == [("+I", 1, 1, "a")]


def test_a_rescale_does_not_count_older_rows_twice(tmp_path: Path) -> None:
    options = {"merge_engine": "aggregation", "fields__n__aggregate_function": "sum", "changelog_producer": "lookup"}
    table = make(tmp_path, **options)
    write(table, *[("+I", k, 100, "a") for k in range(500)])
    write(table, ("+I", 1, 1, "b"))
    assert len({f["level"] for f in open_table(table.path).files().to_pylist()}) == 2
    open_table(table.path).rescale(2)
    assert rows(table)[1] == (1, 101, "b")
    assert counts(table)[-1][2] is None


def test_the_input_of_postponed_rows_is_logged_when_they_are_compacted(tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "changelog-producer": "input"}
    table = create_table(str(tmp_path / "db.db" / "t"), SCHEMA, ["k"], options=options)
    write(table, ("+I", 1, 1, "a"), ("-U", 1, 1, "a"), ("+U", 1, 2, "b"))
    assert changes(table, 0) == []
    table.compact()
    assert changes(table, 0) == [("+I", 1, 1, "a"), ("-U", 1, 1, "a"), ("+U", 1, 2, "b")]
    assert counts(table)[-1] == ("COMPACT", -2, 3)


def test_dynamic_buckets_log_too(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "db.db" / "t"), SCHEMA, ["k"], options={"changelog-producer": "lookup"})
    write(table, ("+I", 1, 1, "a"), ("+I", 2, 1, "a"))
    write(table, ("-D", 2, 1, "a"))
    assert changes(table, 2) == [("-D", 2, 1, "a")]
