"""A writer of tables whose readers skip level 0 reads its own rows, whoever compacts beside it, or is told that it
cannot.

Others act just before one of this writer's snapshots is published, through the FileIO it commits with.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bucketline as bl
from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.errors import CommitConflictError, CommittedNotVisibleError, CorruptFileError, StorageError
from bucketline.state.store.doctor.examine import Severity
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.table.write_result import WriteResult
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import on_io
from tests.support.tables.commit_table import CountedPause
from tests.support.tables.worlds import handle_in

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("p", pa.int32())])
KINDS: Mapping[str, Mapping[str, str]] = {
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "first-row": {"merge-engine": "first-row"},
}
MODES: Mapping[str, tuple[Mapping[str, str], tuple[str, ...], tuple[str, ...]]] = {
    "fixed": ({"bucket": "1"}, ("id",), ()),
    "fixed, by partition": ({"bucket": "1"}, ("id", "p"), ("p",)),
}


def make(path: Path, options: Mapping[str, str], mode: str = "fixed") -> Table:
    buckets, key, partitions = MODES[mode]
    return create_table(str(path / "shop.db" / "t"), COLUMNS, key, partitions, {**buckets, **options})


def rows(*ids: int, v: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids), "p": [0] * len(ids)}, schema=COLUMNS)


def found(table: Table, key: int) -> list[int]:
    return [r["v"] for r in open_table(table.path).to_arrow(filter=pc.field("id") == key).to_pylist()]


def errors(table: Table) -> list[str]:
    findings = open_table(table.path).doctor(rows=True)
    return [f.message for f in findings if f.severity is Severity.ERROR]


def is_snapshot(name: str, path: str) -> bool:
    return name == "publish" and "/snapshot/" in path


class Halves:
    """Chance that never surprises."""

    def fraction(self) -> float:
        return 0.5


@dataclass
class Others:
    """Lets others act before this writer's publications with these numbers, counted from 1; may refuse compactions."""

    acts: dict[int, Callable[[], object]] = field(default_factory=dict)
    refuse: Callable[[int], bool] = lambda number: False
    seen: int = 0

    def __call__(self, name: str, path: str) -> None:
        if is_snapshot(name, path):
            self.seen += 1
            self.acts.pop(self.seen, lambda: None)()
            if self.refuse(self.seen):
                raise StorageError(f"{path}: the quota is used up", path=path, retryable=False, missing=False)


def beside(table: Table, others: Others, **options: str) -> Table:
    """The table as a writer opens it who is interrupted by others."""
    mine = open_table(table.path, options={k.replace("_", "-"): v for k, v in options.items()})
    return on_io(mine, FaultyIO(LocalIO(), before_call=others))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_write_whose_compaction_lost_a_race_can_be_read_when_it_returns(tmp_path: Path, kind: str, mode: str) -> None:
    table = make(tmp_path, KINDS[kind], mode)
    table.write(rows(*range(100)))
    others = Others({1: lambda: open_table(table.path).write(rows(200))})
    done = beside(table, others).write(rows(300, v=3))
    assert found(table, 300) == [3] and found(table, 200) == [0]
    assert isinstance(done, int) and done == handle_of(open_table(table.path)).snapshot_store.latest_id()
    assert done.visible and done.dropped is None
    kinds = table.snapshots()["commit_kind"].to_pylist()
    assert kinds == ["APPEND", "COMPACT"] * 3 and errors(table) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_is_tried_again_with_pauses_that_grow(tmp_path: Path, kind: str) -> None:
    table, pause = make(tmp_path, KINDS[kind]), CountedPause()
    others = Others(refuse=lambda number: number in (2, 3, 4, 5))
    done = write_table(handle_in(beside(table, others), pause=pause, clock=pause.clock, random=Halves()), rows(1, v=3))
    assert done.visible and done.dropped is None and found(table, 1) == [3]
    assert pause.waits == [20, 40, 80] and others.seen == 6


def test_rows_that_another_writer_has_compacted_meanwhile_are_not_compacted_again(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["deletion vectors"])
    table.write(rows(*range(100)))
    others = Others({2: lambda: open_table(table.path).compact()})
    done = beside(table, others).write(rows(300, v=3))
    assert done.visible and done.dropped is None and found(table, 300) == [3]
    assert table.snapshots()["commit_kind"].to_pylist() == ["APPEND", "COMPACT", "APPEND", "COMPACT"]
    assert done == 4


@pytest.mark.parametrize("change", ["write", "delete", "update"])
def test_a_write_that_stays_hidden_says_that_it_is_committed_and_must_not_be_repeated(
    tmp_path: Path, change: str
) -> None:
    table, pause = make(tmp_path, KINDS["deletion vectors"]), CountedPause()
    table.write(rows(1, 2, v=1))
    others = Others(refuse=lambda number: number > 1)
    mine = beside(table, others, visibility_timeout="0 s")
    with pytest.raises(CommittedNotVisibleError, match="do not write again") as caught:
        if change == "write":
            write_table(handle_in(beside(table, others), pause=pause, clock=pause.clock), rows(3))
        elif change == "delete":
            mine.delete(pc.field("id") == 1)
        else:
            mine.update(pc.field("id") == 1, {"v": 7})
    assert caught.value.code == "COMMITTED_NOT_VISIBLE"
    assert caught.value.fields["snapshot_id"] == 3 and caught.value.fields["rows"] == 1
    assert "2 min" in caught.value.message if change == "write" else others.seen == 2
    assert 119_000 <= sum(pause.waits) <= 120_000 if change == "write" else pause.waits == []
    assert table.snapshots()["commit_kind"].to_pylist() == ["APPEND", "COMPACT", "APPEND"]
    assert (found(table, 1), found(table, 3)) == ([1], [])
    table.compact()
    assert (found(table, 1), found(table, 3)) == {
        "write": ([1], [0]), "delete": ([], []), "update": ([7], [])
    }[change]  # fmt: skip


def test_a_table_that_does_not_wait_takes_the_rows_and_says_that_they_are_hidden(tmp_path: Path) -> None:
    table, pause = make(tmp_path, {**KINDS["deletion vectors"], "lookup-wait": "false"}), CountedPause()
    table.write(rows(1))
    others = Others(refuse=lambda number: number > 1)
    done = write_table(handle_in(beside(table, others), pause=pause, clock=pause.clock), rows(3))
    assert not done.visible and done.dropped is not None and pause.waits == []
    table.write(rows(4))
    assert found(table, 3) == [0] and errors(table) == []


def test_the_budget_of_a_writer_comes_from_the_options_of_its_table_handle(tmp_path: Path) -> None:
    table, pause = make(tmp_path, KINDS["first-row"]), CountedPause()
    mine = beside(table, Others(refuse=lambda number: number > 1), visibility_timeout="3 s")
    with pytest.raises(CommittedNotVisibleError, match="within 3 s"):
        write_table(handle_in(mine, pause=pause, clock=pause.clock), rows(3))
    assert sum(pause.waits) == 3000
    for text in ("2 d", "unlimited", "soon"):
        with pytest.raises(OptionError, match="visibility-timeout"):
            open_table(table.path, options={"visibility-timeout": text})


def test_the_budget_ends_although_the_clock_is_set_back(tmp_path: Path) -> None:
    table, pause = make(tmp_path, KINDS["first-row"]), CountedPause()

    def set_back(number: int) -> bool:
        pause.clock.now -= 3_600_000
        return number > 1

    mine = beside(table, Others(refuse=set_back), visibility_timeout="30 s")
    with pytest.raises(CommittedNotVisibleError):
        write_table(handle_in(mine, pause=pause, clock=pause.clock), rows(3))
    assert sum(pause.waits) == 30_000


def test_an_error_that_stays_after_the_commit_does_not_look_like_a_failed_write(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["deletion vectors"])

    def corrupt() -> None:
        raise CorruptFileError("a manifest is cut off")

    with pytest.raises(CommittedNotVisibleError, match="cut off"):
        beside(table, Others({2: corrupt})).write(rows(1))
    assert table.snapshots()["commit_kind"].to_pylist() == ["APPEND"]


def test_storage_that_fails_after_the_commit_does_not_fail_the_write(tmp_path: Path) -> None:
    table = make(tmp_path, {})
    hints: list[str] = []

    def fail_after_the_hint(name: str, path: str) -> None:
        if hints and name.startswith("read"):
            raise StorageError(f"{path}: gone", path=path, retryable=False, missing=False)
        hints.extend([path] if name == "overwrite" and path.endswith("LATEST") else [])

    done = on_io(table, FaultyIO(LocalIO(), before_call=fail_after_the_hint)).write(rows(1))
    assert done == 1 and done.visible and hints


def test_an_interrupt_while_a_write_waits_says_that_the_rows_are_committed(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["deletion vectors"])

    class Interrupting:
        def wait_ms(self, duration_ms: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        write_table(handle_in(beside(table, Others(refuse=lambda number: number > 1)), pause=Interrupting()), rows(1))
    assert "do not write again" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("options", [{"write-only": "true"}, {"lookup-compact": "gentle"}])
def test_rows_that_the_options_leave_to_a_later_compaction_are_no_error(
    tmp_path: Path, options: Mapping[str, str]
) -> None:
    table = make(tmp_path, {**KINDS["deletion vectors"], **options})
    done = table.write(rows(1))
    assert (int(done), done.visible, done.dropped) == (1, False, None)
    assert found(table, 1) == []


def test_a_handle_that_does_not_compact_leaves_rows_to_others(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["first-row"])
    done = open_table(table.path, options={"compaction": "none"}).write(rows(1))
    assert (int(done), done.visible, done.dropped) == (1, False, None)


@pytest.mark.parametrize("merges", [True, False])
def test_postponed_rows_are_invisible_until_they_are_dealt_to_buckets(tmp_path: Path, merges: bool) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    table = make(tmp_path, options | ({"postpone.merge-on-read": "true"} if merges else {}))
    assert table.write(rows(1)).visible is merges
    assert found(table, 1) == ([0] if merges else [])


def test_a_lost_compaction_of_a_table_that_merges_on_read_is_told_in_the_result(tmp_path: Path) -> None:
    table, pause = make(tmp_path, {"full-compaction.delta-commits": "1"}), CountedPause()
    mine = beside(table, Others(refuse=lambda number: number > 1))
    done = write_table(handle_in(mine, pause=pause, clock=pause.clock), rows(1, v=3))
    assert done.visible and done.dropped is not None and "quota" in done.dropped
    assert found(table, 1) == [3] and pause.waits == []


def test_changes_of_a_lookup_table_are_logged_before_the_write_returns(tmp_path: Path) -> None:
    table = make(tmp_path, {"changelog-producer": "lookup"})
    table.write(rows(*range(100)))
    beside(table, Others({1: lambda: open_table(table.path).write(rows(300, v=2))})).write(rows(299, 300, v=3))
    changes = open_table(table.path).to_arrow(changes_since=2).to_pylist()
    # +I by the other writer, then -U and +U by ours: what was looked up is what is there.
    assert [(r["id"], r["v"], r["_row_kind"]) for r in changes] == [(300, 2, 0), (299, 3, 0), (300, 2, 1), (300, 3, 2)]


def test_a_changelog_that_waits_is_a_warning_since_the_rows_can_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, pause = make(tmp_path, {"changelog-producer": "lookup"}), CountedPause()
    mine = beside(table, Others(refuse=lambda number: number > 1))
    done = write_table(handle_in(mine, pause=pause, clock=pause.clock), rows(1, v=3))
    assert done.visible and done.dropped is not None and found(table, 1) == [3]
    assert [r.levelname for r in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_of_one_key_do_not_leave_it_twice(tmp_path: Path, kind: str) -> None:
    """The other's row went past the level of ours to the last one, where our compaction had not found it."""
    table = make(tmp_path, KINDS[kind])
    table.write(rows(*range(2000)))

    def other() -> None:
        open_table(table.path).write(rows(5000, v=1))
        open_table(table.path).compact()

    done = beside(table, Others({1: other})).write(rows(5000, v=2))
    assert done.visible and done.dropped is None
    assert found(table, 5000) == [1 if kind == "first-row" else 2]
    assert sum(f["record_count"] for f in open_table(table.path).files().to_pylist()) == 2001 + (kind != "first-row")
    assert errors(table) == []


def test_a_compaction_does_not_bring_back_rows_that_were_replaced_while_it_ran(tmp_path: Path) -> None:
    """The files that it read had no deletion vectors then, so that none of its own changes was about one."""
    table = make(tmp_path, KINDS["deletion vectors"])
    for first, count in ((0, 60_000), (100_000, 15_000)):
        ids = range(first, first + count)
        values = [i * 7919 % 1_000_003 for i in ids]
        table.write(pa.table({"id": ids, "v": values, "p": [0] * count}, schema=COLUMNS))
    assert {f["level"] for f in table.files().to_pylist()} == {4, 5}
    with pytest.raises(CommitConflictError, match="were deleted after it was read"):
        beside(table, Others({1: lambda: open_table(table.path).write(rows(1, v=7))})).compact()
    assert found(table, 1) == [7] and errors(table) == []
    assert open_table(table.path).compact() is not None
    assert found(table, 1) == [7] and errors(table) == []


def test_a_compaction_by_hand_that_loses_a_race_says_so(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["deletion vectors"])
    table.write(rows(*range(2000)))
    table.write(rows(1, v=1))
    mine = beside(table, Others({1: lambda: open_table(table.path).compact()}))
    with pytest.raises(CommitConflictError, match="run the compaction again") as caught:
        mine.compact()
    assert caught.value.fields["rule"] in ("file-deleted", "index-changed")
    assert open_table(table.path).compact() is None


def test_what_a_write_returns_can_be_stored_and_counted_with(tmp_path: Path) -> None:
    done = WriteResult(7, dropped="lost", visible=False)
    again = pickle.loads(pickle.dumps(done))
    assert (again, again.dropped, again.visible) == (7, "lost", False)
    assert done + 1 == 8 and repr(done) == "7" and isinstance(done, bl.WriteResult)
    table = make(tmp_path, {})
    assert table.write(rows(1)).visible and table.write(rows()).visible
    replaced = table.overwrite(rows(2))
    assert isinstance(replaced, WriteResult) and (replaced, replaced.visible) == (2, True)
    assert issubclass(bl.CommittedNotVisibleError, BucketlineError)
