"""Options of tables that other options bound here: mapped, or told once, and never silently without effect."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.advice import advise_read, advise_write
from bucketline.conf.job import Setting
from bucketline.conf.resolve import effective_options
from bucketline.conf.sink_options import ROUTE_MEMORY, sink_options
from bucketline.conf.table.memory_options import BOUNDED
from bucketline.conf.table.promised_options import OF_READS, OF_WRITES
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.table_at import table_at

MB = 1 << 20
VALUES = {"write-buffer-spillable": "false", "write-buffer-for-append": "true", "spill-compression": "zstd"}
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int32())})


@pytest.mark.parametrize("key", BOUNDED)
def test_each_option_that_another_one_bounds_is_told_with_that_one(key: str) -> None:
    text = VALUES.get(key, "9")
    (sentence,) = advise_write({key: text, "bucket": "1"})
    assert sentence == f"'{key}' = '{text}' has no effect here: {BOUNDED[key].instead}"
    shown = effective_options({}, {key: text})[key]
    assert shown == Setting(text, f"table; without effect: {BOUNDED[key].instead}")


def test_what_happens_anyway_is_not_worth_a_word() -> None:
    assert advise_write({"write-buffer-spillable": "true", "write-buffer-size": "64 mb"}) == ()
    assert effective_options({}, {"write-buffer-spillable": "true"})["write-buffer-spillable"].origin == "table"


def test_the_write_buffer_of_a_table_is_the_default_of_the_map_sides() -> None:
    assert sink_options({"write-buffer-size": "64 mb"}).route_memory_bytes == 64 * MB
    assert sink_options({"write-buffer-size": "64 mb", "route-memory": "8 mb"}).route_memory_bytes == 8 * MB
    assert sink_options({"write-buffer-size": "192 kb"}).route_memory_bytes == MB
    assert advise_write({"write-buffer-size": "192 kb"}) == (
        "'write-buffer-size' = '192 kb' counts as '1 mb', which is the smallest value",
    )
    assert advise_write({"write-buffer-size": "192 kb", "route-memory": "8 mb"}) == ()


def test_the_settings_shown_are_those_that_count() -> None:
    table = {"write-buffer-size": "65536 kb"}
    assert effective_options({}, table)["route-memory"] == Setting("64 mb", "write-buffer-size of table")
    job = {"options.route-memory": Setting("8 mb", "job.yaml")}
    assert effective_options(job, table)["route-memory"] == Setting("8 mb", "job.yaml")
    assert effective_options({}, {})["route-memory"] == Setting(ROUTE_MEMORY.shown(), "default")


def test_a_stop_trigger_below_the_compaction_trigger_is_told() -> None:
    options = {"num-sorted-run.stop-trigger": "3"}
    assert advise_write(options) == (
        "'num-sorted-run.stop-trigger' = '3' is below 'num-sorted-run.compaction-trigger', and counts as 5",
    )
    assert advise_write({**options, "num-sorted-run.compaction-trigger": "3"}) == ()


def test_a_table_that_is_opened_for_writing_says_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"bucket": "1", "sort-spill-threshold": "4", "write-buffer-size": "32 mb"}
    table = create_table(str(tmp_path / "w.db" / "t"), "id INT", ["id"], options=options)
    with caplog.at_level(logging.WARNING, "bucketline"):
        assert table.to_arrow().num_rows == 0
        assert caplog.messages == []
        for _ in range(2):
            write_table(handle_of(table), ROWS)
        assert caplog.messages == [
            f"{table.path}: 'sort-spill-threshold' = '4' has no effect here: {BOUNDED['sort-spill-threshold'].instead}"
        ]
        write_table(handle_of(table), ROWS, options={"page-size": "64 kb"})
        assert len(caplog.messages) == 2
    assert table_at(open_handle(table.path), {}).plan.sink.route_memory_bytes == 32 * MB


@pytest.mark.parametrize("key", ["file-index.bitmap.columns", *OF_WRITES, *OF_READS])
def test_what_is_promised_and_not_kept_is_told_unless_it_is_off(key: str) -> None:
    advise = advise_read if key in OF_READS else advise_write
    (sentence,) = advise({key: "true", "bucket": "1"})
    assert sentence.startswith(f"'{key}' = 'true' has no effect here: ")
    assert "without effect" in effective_options({}, {key: "true"})[key].origin
    assert advise({key: "False", "bucket": "1"}) == ()


def test_bloom_filters_need_no_word() -> None:
    assert advise_write({"file-index.read.enabled": "true", "file-index.in-manifest-threshold": "1 kb"}) == ()
    assert advise_write({"file-index.bloom-filter.columns": "a", "file-index.bloom-filter.a.fpp": "0.01"}) == ()


def test_a_table_says_once_what_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"bucket": "1", "file-index.bitmap.columns": "id", "table-read.sequence-number.enabled": "true"}
    path = create_table(str(tmp_path / "w.db" / "t"), "id INT", ["id"], options=options).path
    with caplog.at_level(logging.WARNING, "bucketline"):
        for _ in range(2):
            table = open_table(path)
            table.write(ROWS)
    told = ["rows are read without their sequence numbers", "no index of this kind is written"]
    assert len(caplog.messages) == 2
    assert all(text in message for text, message in zip(told, caplog.messages, strict=True))
