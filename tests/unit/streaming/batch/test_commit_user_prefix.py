"""`commit.user-prefix`: who a snapshot says has made it, while a writer is known by its own name alone."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.commit.author import Author
from bucketline.state.commit.replay import MARKER_TAG, commit_user, find_replayed, newest_of_user, writer_of
from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.job.kafka.table_offsets import newest_offsets
from tests.support.spark.stream_run import StreamRun
from tests.support.spark.tasks import Cluster
from tests.support.tables.commits import snapshot

QUERY = "0b2c3f9e-6f0a-4c57-9e1d-3a1f2b4c5d6e"
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.mark.parametrize("name", [QUERY, f"{QUERY}-orders", f"{QUERY}-a_b"])
@pytest.mark.parametrize("prefix", [None, "", "etl", "team_a", "a-b", QUERY])
def test_a_writer_is_known_by_its_name_whatever_the_prefix(name: str, prefix: str | None) -> None:
    assert writer_of(commit_user(prefix, name)) == name


@pytest.mark.parametrize("user", ["user", "some_user", f"x{QUERY}", f"x_{QUERY}x"])
def test_a_user_without_an_id_after_its_prefix_is_a_name_of_its_own(user: str) -> None:
    assert writer_of(user) == user


def test_commits_of_one_writer_are_found_under_other_prefixes() -> None:
    history = [snapshot(3, user=f"new_{QUERY}", identifier=2), snapshot(2, user=QUERY, identifier=1)]
    assert newest_of_user(history, f"old_{QUERY}") == history[0]
    assert newest_of_user(history, f"{QUERY}-other") is None
    assert find_replayed(history, QUERY, 2) == history[0]
    assert newest_of_user(history[1:], f"new_{QUERY}") == history[1]


def _as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def _table(path: Path, **options: str) -> Table:
    found = {"bucket": "1"} | options
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options=found)


def _write(table: Table, number: int, prefix: str | None = None, sink_id: str | None = None) -> None:
    """A batch of one row, as a process writes it that has just been started."""
    forget_table(table.path, QUERY if sink_id is None else f"{QUERY}-{sink_id}")
    offsets = [f'[{{"t":{{"0":{n}}}}}]' for n in (number, number + 1)]
    identity = BatchIdentity(QUERY, number, *offsets, f"digest {number}")
    data = pa.table({"id": [number], "v": [number]}).cast(COLUMNS)
    frame = Cluster(random.Random(number), 2).frame(data, 1)
    options = {} if prefix is None else {"commit.user-prefix": prefix}
    TableSink(table.path, options, sink_id=sink_id, decode=_as_is).write(frame, identity)


def _commits(table: Table) -> list[tuple[str, int]]:
    return [
        (s["commit_user"], s["commit_identifier"])
        for s in table.snapshots().to_pylist()
        if s["commit_kind"] == "APPEND"
    ]


def test_a_stream_commits_under_its_prefix_and_goes_on_under_another(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"commit.user-prefix": "etl"})
    _write(table, 0)
    _write(table, 1)
    _write(table, 2, "other")
    _write(table, 3, "")
    users = [f"etl_{QUERY}", f"etl_{QUERY}", f"other_{QUERY}", QUERY]
    assert _commits(table) == list(zip(users, range(4), strict=True))
    assert [t["tag_name"] for t in table.tags().to_pylist()] == [MARKER_TAG + QUERY]
    assert not [f for f in table.doctor() if f.severity is Severity.ERROR]


@pytest.mark.parametrize("sink_id", [None, "a_b"])
def test_a_batch_replayed_under_another_prefix_is_skipped(sink_id: str | None, tmp_path: Path) -> None:
    table = _table(tmp_path)
    _write(table, 0, "one", sink_id)
    _write(table, 0, "two", sink_id)
    _write(table, 1, sink_id=sink_id)
    _write(table, 1, "three", sink_id)
    assert [number for _, number in _commits(table)] == [0, 1]


def test_the_marker_proves_a_batch_under_another_prefix_when_its_snapshot_has_expired(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _write(table, 0, "one")
    open_table(table.path).write(pa.table({"id": [9], "v": [9]}).cast(COLUMNS))
    table.expire_snapshots(retain_max=1, retain_min=1)
    _write(table, 0, "two")
    _write(table, 1, "three")
    assert _commits(table)[-1] == (f"three_{QUERY}", 1)


def test_a_rewound_checkpoint_is_noticed_under_another_prefix(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _write(table, 0, "one")
    _write(table, 1, "one")
    with pytest.raises(CheckpointMismatchError, match="its checkpoint is at batch 0"):
        identity = BatchIdentity(QUERY, 0, "[]", "[]", "another digest")
        data = Cluster(random.Random(0), 2).frame(pa.table({"id": [0], "v": [0]}).cast(COLUMNS), 1)
        forget_table(table.path, QUERY)
        TableSink(table.path, {"commit.user-prefix": "two"}, decode=_as_is).write(data, identity)


def test_a_second_run_under_another_prefix_does_not_add_the_batch_again(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _write(table, 0)
    runs = [StreamRun(table.path, {"commit.user-prefix": prefix}, QUERY) for prefix in ("one", "two")]
    for run in runs:
        run.refresh()
    done = [commit_change(run.at, appended(run.at, [], ignore_empty=False), Author(QUERY, 1)) for run in runs]
    assert [d.replayed for d in done] == [False, True]
    assert _commits(table)[-1] == (f"one_{QUERY}", 1)


def test_offsets_of_a_writer_are_those_of_all_its_prefixes(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _write(table, 0, "one")
    _write(table, 1, "two")
    for user in (None, QUERY, f"one_{QUERY}"):
        assert [found.topics for found in newest_offsets(table, user)] == [{"t": {"0": 2}}]


def test_writes_without_spark_have_the_prefix_as_well(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"commit.user-prefix": "by-hand"})
    table.write(pa.table({"id": [1], "v": [1]}).cast(COLUMNS))
    table.write(pa.table({"id": [1], "v": [2]}).cast(COLUMNS))
    table.compact()
    users = [s["commit_user"] for s in table.snapshots().to_pylist()]
    assert all(user.startswith("by-hand_") for user in users)
    assert len({writer_of(user) for user in users}) == 3
