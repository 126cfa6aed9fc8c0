"""Two operations on tables of eleven kinds: the first is stopped at a call to storage while the second runs whole, or
it dies there. Rows, tags and branches are then those of one order of what was done, and later care works.

A drawn part runs by default; `.ci/run interleavings-long` runs all of it, or what `BUCKETLINE_INTERLEAVINGS` says:
the number of pairs of each kind, and of moments of each pair.
"""

import os
import random
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.commit.pins import PIN_LEFT_MS
from bucketline.state.store.catalog.consumers import next_of_consumers
from bucketline.state.store.table.table import handle_of, open_table
from tests.support.storage.interleaved import stopped_at
from tests.support.tables.care_world import KINDS, OPERATIONS, content, done, is_unnoticed, made, rows

_PAIRS, _MOMENTS = map(int, os.environ.get("BUCKETLINE_INTERLEAVINGS", "4 2").split())
_SEED = os.environ.get("BUCKETLINE_INTERLEAVINGS_SEED", "1")

Content = tuple[str, ...]


@dataclass(frozen=True)
class Base:
    """A table of a kind, what each of its snapshots holds, and which operations it takes."""

    path: str
    snapshots: dict[tuple[int, object], Content]
    """By id and time: a rollback gives ids anew."""
    operations: tuple[str, ...]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interleaved")


@cache
def _base(kind: str, folder: Path) -> Base:
    path = str(folder / kind.replace(" ", "-") / "base")
    table = made(KINDS[kind], path)
    known = table.snapshots().select(["snapshot_id", "commit_time"]).to_pylist()
    held = {(s["snapshot_id"], s["commit_time"]): content(path, **{"scan.snapshot-id": str(s["snapshot_id"])})
            for s in known}  # fmt: skip
    return Base(path, held, tuple(o for o in OPERATIONS if _alone(path, folder, o)))


def _alone(path: str, folder: Path, operation: str) -> bool:
    return done(_copied(path, folder), operation)


def _copied(path: str, folder: Path) -> str:
    copy = str(folder / "t")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    return copy


def _in_turn(base: Base, folder: Path, *operations: str) -> tuple[tuple[bool, ...], Content]:
    """What was done, and the rows, when one operation runs after the other."""
    path = _copied(base.path, folder)
    return tuple(done(path, o) for o in operations), content(path)


@dataclass(frozen=True)
class Expected:
    """The rows that are right, by whether the first and the second operation were done."""

    rows: dict[tuple[bool, bool], set[Content]]

    @classmethod
    def of(cls, base: Base, folder: Path, first: str, second: str) -> "Expected":
        none, first_alone, second_alone = (
            _in_turn(base, folder, *o)[1] for o in ((), (first,), (second,))
        )  # fmt: skip
        (_, took_second), in_order = _in_turn(base, folder, first, second)
        (_, took_first), turned = _in_turn(base, folder, second, first)
        both = {in_order} if took_second else set()
        both |= {turned} if took_first else set()
        return cls(
            {
                (False, False): {none},
                (True, False): {first_alone, *([] if took_second else [in_order])},
                (False, True): {second_alone, *([] if took_first else [turned])},
                (True, True): both or {in_order, turned},
            }
        )


def _check(path: str, base: Base, right: set[Content], what: str, *, is_left: bool) -> None:
    """The rows are right, tags and branches are readable, and later care finds nothing wrong. `is_left`: a process
    died, so that a branch may be half removed before care, and a rollback is finished by the next write."""
    kept = content(path)
    assert kept in right, what
    if not is_left:
        _check_references(path, base, what)
    table = open_table(path)
    table.expire_snapshots(retain_min=1, retain_max=2)
    table.remove_orphan_files(dry_run=False)
    assert content(path) == kept, what
    _check_references(path, base, what)
    passing = ("hint", "rollback", "half-forwarded") if is_left else ("hint",)
    assert [f for f in open_table(path).doctor(rows=True) if f.rule not in passing] == [], what
    notes = list(Path(path, "bucketline").glob("*"))
    for note in notes:
        then = note.stat().st_mtime_ns - (PIN_LEFT_MS + 1000) * 1_000_000
        os.utime(note, ns=(then, then))
    if "rescale" in what:
        open_table(path).rescale(3)
    new = rows((1,), 99)
    if "more" in open_table(path).schema.names:
        new = new.append_column("more", pa.nulls(1, pa.int32()))
    open_table(path).write(new)
    open_table(path).compact()
    open_table(path).expire_snapshots(retain_min=1, retain_max=1)
    open_table(path).remove_orphan_files(dry_run=False)
    _check_references(path, base, what)
    assert [f for f in open_table(path).doctor(rows=True) if f.rule != "hint"] == [], what
    assert list(Path(path, "bucketline").glob("*")) == [], what


def _check_references(path: str, base: Base, what: str) -> None:
    for tag in open_table(path).tags().to_pylist():
        read = content(path, **{"scan.tag-name": tag["tag_name"]})
        of = tag["snapshot_id"], tag["commit_time"]
        assert read == base.snapshots.get(of, read), f"{what}: tag {tag['tag_name']}"
    handle = handle_of(open_table(path))
    newest = handle.snapshot_store.latest_id() or 0
    for consumer, following in next_of_consumers(handle.io, path).items():
        assert following > newest or handle.snapshot_store.exists(following), f"{what}: consumer {consumer}"
    for branch in open_table(path).branches():
        content(path, branch=branch)
        assert handle_of(open_table(path, options={"branch": branch})).snapshot_store.check_complete() is None


def _pairs(kind: str, base: Base) -> list[tuple[str, str]]:
    everything = [(a, b) for a in base.operations for b in base.operations]
    draw = random.Random(f"{_SEED} {kind}")
    return everything if _PAIRS <= 0 else draw.sample(everything, min(_PAIRS, len(everything)))


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("kind", KINDS)
def test_two_operations_leave_what_one_order_of_them_leaves(kind: str, folder: Path) -> None:
    base, room = _base(kind, folder), folder / kind.replace(" ", "-")
    failed, moments = [], 0
    for first, second in _pairs(kind, base):
        expected = Expected.of(base, room, first, second)
        with stopped_at(None) as counted:
            done(_copied(base.path, room), first)
        draw = random.Random(f"{_SEED} {kind} {first} {second}")
        every = [(at, dies) for at in range(1, counted.calls + 1) for dies in (False, True)]
        for at, dies in every if _MOMENTS <= 0 else draw.sample(every, min(_MOMENTS, len(every))):
            moments += 1
            try:
                _run(base, room, expected, first, second, at, dies)
            except Exception as e:  # noqa: BLE001 (each moment is judged, and all that failed are shown)
                failed.append(f"{first} | {second} | {at} {'dies' if dies else 'stops'}: {e!r}"[:600])
    print(f"{kind}: {len(base.operations)} operations, {moments} moments, {len(failed)} failed")
    assert failed == [], "\n".join(failed)


def _run(base: Base, room: Path, expected: Expected, first: str, second: str, at: int, dies: bool) -> None:
    path = _copied(base.path, room)
    was_done: dict[str, bool] = {}

    def meanwhile() -> None:
        was_done["second"] = done(path, second)

    with stopped_at(at, None if dies else meanwhile) as stopped:
        was_done["first"] = done(path, first)
    with stopped_at(None):
        if not dies and is_unnoticed(first, second, stopped.where):
            return
        if dies and first == "fast-forward":
            done(path, first)  # one that was cut short is repeated
        if dies or not stopped.where:
            meanwhile()
        what = f"{first} | {second} | {'dies' if dies else 'stopped'} before {stopped.where.replace(path, '')}"
        seconds = was_done["second"]
        right = expected.rows[was_done.get("first", False), seconds]
        if dies and stopped.where:
            right = expected.rows[True, seconds] | expected.rows[False, seconds]
        _check(path, base, right, what, is_left=dies)
