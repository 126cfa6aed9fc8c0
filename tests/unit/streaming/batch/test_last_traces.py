"""The first batch of a query died before its marker was there: whoever expires its snapshot leaves the marker."""

import itertools
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.commit.author import Author
from bucketline.state.commit.expire import Retention
from bucketline.state.commit.replay import DIGEST, MARKER_RETAINED_MS, MARKER_TAG, unmarked
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.maintenance.expiry import expire_snapshots, move_tag
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.streaming.batch.commit import batch_properties
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.recover import CheckpointMismatchError, SkipBatch, WriteBatch, decide
from tests.support.spark.stream_run import StreamRun
from tests.support.storage.faulty_io import FaultyIO
from tests.support.tables.commit_table import StillClock

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])
ROWS = pa.table({"id": [1], "n": pa.array([1], pa.int32())}, schema=COLUMNS)
ONE = Retention(min_count=1, max_count=1, time_ms=0, limit=1000)
MARKER = MARKER_TAG + "q"

Begun = Callable[[], tuple[Table, Snapshot]]


class _Died(Exception):
    """The end of a process."""


def _batch(batch_id: int) -> BatchIdentity:
    return BatchIdentity("q", batch_id, None, f"[{batch_id}]", f"digest-{batch_id}", run_id="run")


def _unmarked_batch(path: str, batch_id: int) -> Snapshot:
    """What a stream leaves that dies right after its commit."""
    died = StreamRun(path, {}, "q")
    died.refresh()
    change = appended(died.at, [], ignore_empty=False)
    return commit_change(died.at, change, Author("q", batch_id, batch_properties(_batch(batch_id)))).snapshots[0]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with the first batch of a stream, which has no marker, among what others have written."""
    path = tmp_path_factory.mktemp("template")
    made = create_table(str(path / "shop.db" / "t"), COLUMNS, primary_key=("id",), options={"bucket": "1"})
    made.write(ROWS)
    _unmarked_batch(made.path, 0)
    for _ in range(3):
        made.write(ROWS)
    return path


@pytest.fixture
def begun(template: Path, tmp_path: Path) -> Begun:
    """Makes a copy of that table, and returns it with the stream's batch."""
    numbers = itertools.count()

    def begin() -> tuple[Table, Snapshot]:
        path = tmp_path / str(next(numbers))
        shutil.copytree(template, path)
        made = open_table(str(path / "shop.db" / "t"))
        first = handle_of(made).snapshot_store.get(2)
        assert first is not None and first.commit_user == "q"
        return made, first

    return begin


def _expire(made: Table, io: FileIO | None = None, world: World = SYSTEM_WORLD) -> int:
    table = handle_of(open_table(made.path))
    return expire_snapshots(io or table.io, made.path, table.table_schema, world, retention=ONE).snapshots


def _mark(made: Table, snapshot: Snapshot, io: FileIO | None = None) -> None:
    table = handle_of(made)
    move_tag(io or table.io, made.path, table.table_schema, MARKER, snapshot, SYSTEM_WORLD)


def _decided(made: Table, batch_id: int) -> object:
    run = StreamRun(made.path, {}, "q")
    run.refresh()
    return decide(_batch(batch_id), run.history(), allow_reprocess=False)


def _is_there(made: Table, snapshot: Snapshot) -> bool:
    return handle_of(made).snapshot_store.get(snapshot.id) is not None


def _once(act: Callable[[], object], before: Callable[[str, str], bool]) -> Callable[[str, str], None]:
    """Acts once, before the first call that fits."""
    done: list[str] = []

    def look(name: str, path: str) -> None:
        if not done and before(name, path):
            done.append(name)
            act()

    return look


def test_a_first_batch_that_left_no_marker_is_known_after_others_have_expired_its_snapshot(begun: Begun) -> None:
    made, first = begun()
    assert _expire(made) == 4
    assert not _is_there(made, first)
    assert isinstance(_decided(made, 0), SkipBatch)
    run = StreamRun(made.path, {}, "q")
    run.refresh()
    assert decide(_batch(1), run.history(), allow_reprocess=False) == WriteBatch()
    run.commit_batch(_batch(1), Outcome((), (), ()))
    tag = Tags(handle_of(made).io, made.path).get(MARKER)
    assert tag is not None and tag.snapshot.commit_identifier == 1


def test_the_marker_says_that_the_checkpoint_was_replaced_where_it_was(begun: Begun) -> None:
    made, _ = begun()
    _unmarked_batch(made.path, 1)
    made.write(ROWS)
    _expire(made)
    with pytest.raises(CheckpointMismatchError, match="rewound"):
        _decided(made, 0)


def test_a_marker_keeps_what_its_snapshot_names_and_ends_like_others(begun: Begun) -> None:
    made, first = begun()
    _expire(made)
    tag = Tags(handle_of(made).io, made.path).get(MARKER)
    assert tag is not None and tag.snapshot == first and tag.retained_ms == MARKER_RETAINED_MS
    assert open_table(made.path, options={"scan.tag-name": MARKER}).to_arrow().num_rows == 1
    made.write(ROWS)
    later = World(StillClock(first.time_ms + MARKER_RETAINED_MS + 86_400_000))
    table = handle_of(open_table(made.path))
    assert expire_snapshots(table.io, made.path, table.table_schema, later, retention=ONE).tags == (MARKER,)
    assert made.doctor() == []


def test_a_stream_that_was_last_seen_before_a_marker_would_have_ended_gets_none(begun: Begun) -> None:
    made, first = begun()
    _expire(made, world=World(StillClock(first.time_ms + MARKER_RETAINED_MS + 86_400_000)))
    assert not _is_there(made, first) and Tags(handle_of(made).io, made.path).names() == []


def test_wherever_expiry_dies_the_batch_stays_known(begun: Begun) -> None:
    made, first = begun()
    whole = FaultyIO(handle_of(made).io)
    _expire(made, whole)
    seen = set()
    for number in range(len(whole.calls)):
        made, first = begun()
        left = [number]

        def die(name: str, path: str, left: list[int] = left) -> None:
            if left[0] == 0:
                raise _Died
            left[0] -= 1

        with pytest.raises(_Died):
            _expire(made, FaultyIO(handle_of(made).io, before_call=die))
        assert isinstance(_decided(made, 0), SkipBatch), whole.calls[number]
        seen.add((_is_there(made, first), MARKER in Tags(handle_of(made).io, made.path).names()))
        open_table(made.path).expire_snapshots(retain_min=1, retain_max=1)
        assert isinstance(_decided(made, 0), SkipBatch), whole.calls[number]
    assert seen == {(True, False), (True, True), (False, True)}


def test_a_writer_that_marks_its_batch_while_it_expires_and_dies_anywhere_leaves_it_known(begun: Begun) -> None:
    """The writer is stopped before each of its calls while expiry runs whole, and goes on, or dies there."""
    made, first = begun()
    whole = FaultyIO(handle_of(made).io)
    _mark(made, first, whole)
    for number in range(len(whole.calls) * 2):
        made, first = begun()
        left = [number // 2]

        def stop(
            name: str, path: str, made: Table = made, left: list[int] = left, dies: bool = number % 2 == 1
        ) -> None:
            left[0] -= 1
            if left[0] == -1:
                _expire(made)
                if dies:
                    raise _Died

        with suppress(_Died):
            _mark(made, first, FaultyIO(handle_of(made).io, before_call=stop))
        assert not _is_there(made, first)
        assert isinstance(_decided(made, 0), SkipBatch), whole.calls[number // 2]
        assert open_table(made.path, options={"scan.tag-name": MARKER}).to_arrow().num_rows == 1
        assert made.doctor() == []


def test_an_expiry_beside_which_the_writer_marks_its_batch_keeps_the_files(begun: Begun) -> None:
    """The writer marks its batch, whole, before each of expiry's calls up to the first removal."""
    made, first = begun()
    whole = FaultyIO(handle_of(made).io)
    _expire(made, whole)
    for number in range(len(whole.calls)):
        made, first = begun()
        left = [number]

        def mark(name: str, path: str, made: Table = made, first: Snapshot = first, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                _mark(made, first)

        _expire(made, FaultyIO(handle_of(made).io, before_call=mark))
        assert isinstance(_decided(made, 0), SkipBatch), whole.calls[number]
        assert open_table(made.path, options={"scan.tag-name": MARKER}).to_arrow().num_rows == 1


def test_a_batch_that_is_rolled_back_while_its_marker_is_made_leaves_none(begun: Begun) -> None:
    """Expiry was stopped for longer than its announcement is respected."""
    made, _ = begun()
    table = handle_of(made)

    def roll_back() -> None:
        for name in (Path(made.path) / "bucketline").iterdir():
            name.unlink()
        open_table(made.path).rollback_to(1)

    beside = _once(roll_back, lambda name, path: name == "publish" and path.endswith(MARKER))
    _expire(made, FaultyIO(table.io, before_call=beside))
    assert MARKER not in Tags(table.io, made.path).names()
    assert _decided(made, 0) == WriteBatch()


def test_expiry_asks_for_nothing_more_where_every_writer_has_its_marker(begun: Begun) -> None:
    calls = []
    for marks in (True, False):
        made, first = begun()
        _mark(made, first)
        if not marks:
            # The same snapshot without a stream: the tag is somebody's.
            path = Path(made.path) / "snapshot" / f"snapshot-{first.id}"
            path.write_text(path.read_text().replace(DIGEST, "another.property----"))
        io = FaultyIO(handle_of(made).io)
        _expire(made, io)
        calls.append([name for name, _ in io.calls])
    assert calls[0] == calls[1]


def _some(snapshot: Snapshot, *of: tuple[int, int, CommitKind]) -> list[Snapshot]:
    return [replace(snapshot, id=i, commit_identifier=b, commit_kind=kind) for i, b, kind in of]


def test_the_newest_batch_is_marked_by_its_newest_snapshot(begun: Begun) -> None:
    _, first = begun()
    rows, compaction = CommitKind.APPEND, CommitKind.COMPACT

    def marked(*of: tuple[int, int, CommitKind]) -> int:
        return unmarked(_some(first, *of), ["another", MARKER_TAG + "other"])[MARKER].id

    assert marked((1, 0, rows), (2, 0, compaction)) == 2
    assert marked((1, 0, rows), (2, 1, rows), (3, 0, compaction)) == 2
    assert marked((1, 0, compaction), (2, 1, compaction), (3, 0, compaction)) == 2
    assert marked((1, 5, compaction), (2, 0, rows)) == 2
    assert unmarked([first], [MARKER]) == {}
    assert unmarked([replace(first, properties={})], []) == {}
