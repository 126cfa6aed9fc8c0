"""A stream whose compaction lost: its rows are made visible, or owed to the next batch, the end of the job, the next
start. Spark's part is played in this process; others act through the FileIO that the stream commits with.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import StorageError
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import LiveTable, forget_table, live_table
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import on_io
from tests.support.tables.commit_table import CountedPause
from tests.support.tables.worlds import handle_in

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
KINDS: Mapping[str, Mapping[str, str]] = {
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "first-row": {"merge-engine": "first-row"},
}


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


@dataclass
class Storage(FaultyIO):
    """Storage that refuses COMPACT snapshots while it is told to; others may act before a snapshot is published."""

    refuses: bool = False
    acts: list[Callable[[], object]] = field(default_factory=list)

    def publish(self, path: str, data: bytes) -> bool:
        if "/snapshot/" in path:
            act = self.acts.pop(0) if self.acts else (lambda: None)
            act()
            if self.refuses and b'"COMPACT"' in data:
                raise StorageError(f"{path}: the quota is used up", path=path, retryable=False, missing=False)
        return super().publish(path, data)


@dataclass
class Stream:
    """A stream into a table."""

    table: Table
    caplog: pytest.LogCaptureFixture
    options: Mapping[str, str] = field(default_factory=dict)
    storage: Storage = field(default_factory=lambda: Storage(LocalIO()))
    pause: CountedPause = field(default_factory=CountedPause)

    def start(self) -> LiveTable:
        """A new process of the same query."""
        forget_table(self.table.path, "query")
        table = on_io(open_table(self.table.path), self.storage)
        handle = handle_in(table, pause=self.pause, clock=self.pause.clock)
        return live_table(self.table.path, self.options, "query", table=handle)

    def write(self, number: int, *ids: int) -> BatchReport:
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        data = pa.table({"id": list(ids), "v": [number] * len(ids)}, schema=COLUMNS)
        frame = Cluster(random.Random(number), 2).frame(data, 2)
        self.caplog.clear()
        with self.caplog.at_level("INFO", "bucketline"):
            self.sink.write(frame, identity)
        found: list[BatchReport] = [r.bucketline for r in self.caplog.records if hasattr(r, "bucketline")]
        return found[-1]

    def finish(self) -> int:
        self.caplog.clear()
        return self.sink.finish(Cluster(random.Random(0), 2), "query")

    @property
    def sink(self) -> TableSink:
        return TableSink(self.table.path, self.options, decode=as_is)

    @property
    def warnings(self) -> list[str]:
        return [r.getMessage() for r in self.caplog.records if r.levelname == "WARNING"]

    def ids(self) -> list[int]:
        found: list[int] = open_table(self.table.path).to_arrow()["id"].to_pylist()
        return sorted(found)

    def kinds(self) -> list[str]:
        found: list[str] = open_table(self.table.path).snapshots()["commit_kind"].to_pylist()
        return found


@pytest.fixture(params=KINDS)
def stream(request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Stream]:
    options = {"bucket": "4", **KINDS[request.param]}
    made = Stream(create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options), caplog)
    made.start()
    yield made
    forget_table(made.table.path, "query")


def other_write(table: Table) -> Callable[[], object]:
    return lambda: open_table(table.path).write(pa.table({"id": [100], "v": [7]}, schema=COLUMNS))


def test_a_batch_whose_compaction_lost_a_race_is_visible_when_it_ends(stream: Stream) -> None:
    stream.write(0, *range(50))
    stream.storage.acts = [other_write(stream.table)]
    report = stream.write(1, *range(50, 100))
    assert stream.ids() == list(range(101))
    assert (report.hidden_rows, report.compaction_dropped, stream.warnings) == (0, False, [])
    assert report.snapshot_ids == (5, 6)
    # The commit's own second try, and nothing for the compaction.
    assert len(stream.pause.waits) == 1


def test_a_batch_that_stays_hidden_warns_is_counted_and_is_compacted_by_the_next_one(stream: Stream) -> None:
    stream.storage.refuses = True
    report = stream.write(0, *range(50))
    assert (report.hidden_rows, report.compaction_dropped) == (50, True)
    assert "50 rows committed but not readable yet" in report.line()
    assert len(stream.warnings) == 1 and "50 rows are committed but cannot be read yet" in stream.warnings[0]
    assert stream.ids() == [] and sum(stream.pause.waits) == 120_000
    stream.storage.refuses = False
    # A batch of one row touches one bucket of four.
    report = stream.write(1, 1000)
    assert stream.ids() == [*range(50), 1000]
    assert (report.hidden_rows, report.compaction_dropped, stream.warnings) == (0, False, [])


def test_no_batch_fails_and_each_waits_once_where_no_compaction_comes_through(stream: Stream) -> None:
    stream.storage.refuses = True
    reports = [stream.write(n, *range(10 * n, 10 * n + 10)) for n in range(3)]
    assert [r.hidden_rows for r in reports] == [10, 20, 30]
    assert sum(stream.pause.waits) == 3 * 120_000


def test_a_restart_compacts_what_the_run_before_it_left_hidden(stream: Stream) -> None:
    stream.options = {"visibility-timeout": "0 s"}
    stream.start()
    stream.storage.refuses = True
    assert stream.write(0, *range(50)).hidden_rows == 50 and stream.pause.waits == []
    stream.storage.refuses, stream.options = False, {}
    stream.start()
    assert stream.write(1, 1000).hidden_rows == 0 and stream.ids() == [*range(50), 1000]


def test_a_restart_whose_first_batch_is_skipped_survives_a_lost_race(stream: Stream) -> None:
    stream.storage.refuses = True
    assert stream.write(0, *range(50)).hidden_rows == 50
    stream.storage.refuses = False
    stream.start()
    stream.storage.acts = [lambda: open_table(stream.table.path).compact()]
    report = stream.write(0, *range(50))
    assert report.skipped and report.hidden_rows == 0 and stream.ids() == list(range(50))
    assert stream.warnings == []


def test_a_skipped_batch_whose_compaction_stays_lost_does_not_stop_the_stream(stream: Stream) -> None:
    stream.storage.refuses = True
    stream.write(0, *range(50))
    stream.start()
    report = stream.write(0, *range(50))
    assert report.skipped and report.hidden_rows == 50 and "50 rows committed but not readable yet" in report.line()
    stream.storage.refuses = False
    stream.write(1, 1000)
    assert stream.ids() == [*range(50), 1000]


def test_a_bounded_job_compacts_before_it_ends_and_says_what_is_left(stream: Stream) -> None:
    stream.storage.refuses = True
    stream.write(0, *range(50))
    assert stream.finish() == 50 and sum(stream.pause.waits) == 2 * 120_000
    assert len(stream.warnings) == 1 and "cannot be read yet" in stream.warnings[0]
    stream.storage.refuses = False
    assert stream.finish() == 0 and stream.ids() == list(range(50)) and stream.warnings == []


def test_a_bounded_job_without_a_batch_compacts_what_an_earlier_one_left_hidden(stream: Stream) -> None:
    stream.storage.refuses = True
    stream.write(0, *range(50))
    stream.storage.refuses = False
    stream.start()
    assert stream.finish() == 0 and stream.ids() == list(range(50))


def test_a_stream_that_does_not_compact_owes_nothing(stream: Stream) -> None:
    stream.options = {"compaction": "none"}
    stream.start()
    report = stream.write(0, *range(50))
    assert (report.hidden_rows, stream.warnings, stream.ids()) == (0, [], [])
    assert stream.finish() == 0 and stream.kinds() == ["APPEND"]


def plain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: Mapping[str, str], job: Mapping[str, str] | None = None
) -> Stream:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    stream = Stream(table, caplog, job or {})
    stream.start()
    return stream


def test_a_changelog_that_waits_is_logged_by_the_next_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = plain(tmp_path, caplog, {"bucket": "4", "changelog-producer": "lookup"})
    stream.storage.refuses = True
    report = stream.write(0, *range(50))
    assert (report.hidden_rows, stream.ids()) == (0, list(range(50)))
    assert len(stream.warnings) == 1 and "the changes of 50 rows are not logged yet" in stream.warnings[0]
    stream.storage.refuses = False
    stream.write(1, 1000)
    changes = open_table(stream.table.path).to_arrow(changes_since=0)
    assert sorted(changes["id"].to_pylist()) == [*range(50), 1000]


def test_a_full_compaction_that_lost_is_done_by_the_next_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without it the changelog would wait for as many batches again."""
    options = {"bucket": "2", "changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"}
    stream = plain(tmp_path, caplog, options)
    for number in range(3):
        stream.storage.refuses = number == 2
        stream.write(number, *range(10 * number, 10 * number + 10))
    assert open_table(stream.table.path).to_arrow(changes_since=0).num_rows == 0
    stream.storage.refuses = False
    stream.write(3, 1000)
    changes = open_table(stream.table.path).to_arrow(changes_since=0)
    assert sorted(changes["id"].to_pylist()) == [*range(30), 1000]


def test_a_full_compaction_that_lost_last_is_done_before_a_bounded_job_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"bucket": "2", "changelog-producer": "full-compaction", "full-compaction.delta-commits": "1"}
    stream = plain(tmp_path, caplog, options)
    stream.storage.refuses = True
    stream.write(0, *range(10))
    stream.storage.refuses = False
    assert stream.finish() == 0
    assert open_table(stream.table.path).to_arrow(changes_since=0).num_rows == 10


@pytest.mark.parametrize("ends", [True, False])
def test_postponed_rows_that_lost_their_compaction_are_dealt_by_the_next_batch_or_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ends: bool
) -> None:
    stream = plain(tmp_path, caplog, {"bucket": "-2"}, {"postpone-compaction.batches": "2"})
    stream.write(0, *range(10))
    stream.storage.refuses = True
    report = stream.write(1, *range(10, 20))
    assert (report.postponed_rows, report.compaction_dropped, stream.ids()) == (20, True, [])
    stream.storage.refuses = False
    if ends:
        stream.finish()
    else:
        stream.write(2, 1000)
    assert stream.ids() == [*range(20)] + ([] if ends else [1000])
