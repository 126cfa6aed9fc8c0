"""The judge: watches what is published and removed, and says what each snapshot must hold.

The rows of a snapshot are those of the one before it, changed as the operation says that published it; a snapshot that
is known by its files, as a branch has it, holds what it held before. What the files hold is read by `Stored`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot
from bucketline.state.store.doctor.finding import Finding
from tests.simulation.disk import Change, Disk
from tests.simulation.rows import NOTHING, Effect, Kind, State, applied, difference, followed
from tests.simulation.stored import GoneError, Stored

_SNAPSHOT = re.compile(r"(?P<root>.*)/snapshot/snapshot-(?P<id>\d+)")
_TAG = re.compile(r"(?P<root>.*)/tag/tag-(?P<name>[^/]+)")
_DATA = re.compile(r".*/(?P<name>data-[^/]+)")

UNDOING = frozenset({"roll back", "roll back to a tag", "fast-forward"})
"""Operations that take history back."""


class Judgement(AssertionError):
    """Something is wrong in the world."""


@dataclass(eq=False)
class Doing:
    """An operation that runs or has ended: the changes that it intends, and what it has published.

    `result` is None while it goes on, `done`, `refused`, `unknown` or `killed`.
    """

    number: int
    actor: str
    operation: str
    table: str
    began: int
    effect: Effect = NOTHING
    batch: tuple[str, int] | None = None
    """The commit user and the commit identifier of a stream's batch."""
    result: str | None = None
    code: str = ""
    ended: int | None = None
    published: "list[Published]" = field(default_factory=list)
    target: int | None = None
    """The id of the snapshot that a rollback makes the newest."""

    def __str__(self) -> str:
        return f"{self.actor}: {self.number} {self.operation} {self.table} [{self.result} {self.code}]"


@dataclass(eq=False)
class Published:
    """A snapshot that was published, and its later history. `gone_by` is the operation that removed it, `was_newest`
    whether it was the newest then."""

    snapshot: Snapshot
    root: str
    state: State | None
    by: Doing | None
    ties: frozenset[object] = frozenset()
    """Keys for which more than one row may be right; see `Stored.ties`."""
    gone_by: Doing | None = None
    is_gone: bool = False
    was_newest: bool = False
    is_behind: bool = False
    """Whether the table went back to an older snapshot after this one had expired."""

    @property
    def identity(self) -> tuple[str, str]:
        return (self.snapshot.base_manifest_list, self.snapshot.delta_manifest_list)

    @property
    def moves_rows(self) -> bool:
        return self.snapshot.commit_kind.moves_rows

    @property
    def is_undone(self) -> bool:
        """Whether this snapshot is no part of the history: it was removed while it was the newest snapshot, or it was
        taken back, or the table went back to an older snapshot after this one had expired."""
        return self.is_gone and (self.was_newest or self.is_behind or self.gone_by is self.by)


@dataclass
class Line:
    """The snapshots of a table or of one of its branches. `newest` are (time, published) of each that became the
    newest."""

    root: str
    there: dict[int, Published] = field(default_factory=dict)
    newest: list[tuple[int, Published | None]] = field(default_factory=list)


class Judge:
    """Watches one table. `moment` is a number that grows with everything that happens."""

    def __init__(self, disk: Disk, path: str, kind: Kind) -> None:
        self.disk, self.path, self.kind = disk, path, kind
        self.stored = Stored(disk, path, kind)
        self.lines: dict[str, Line] = {path: Line(path)}
        self.states: dict[tuple[str, str], tuple[State | None, frozenset[object]]] = {}
        self.tags: dict[str, Published] = {}
        self.doings: list[Doing] = []
        self.moment = 0
        self.checks_rows = not kind.hides
        self.doubtful: list[tuple[Published, str]] = []
        """Snapshots that their writers must take back, and why."""
        self.is_given_up = False
        """Whether the table is no longer judged. A writer was active during a rollback, and an error has told a user to
        roll the table back, or a late request of the writer has brought a removed snapshot back, or the writer has gone
        on from the target before the rollback had ended."""

    # -- what happens

    def watch(self, change: Change) -> None:
        """To be called with every change on the disk."""
        if self.is_given_up or not change.path.startswith(f"{self.path}/"):
            return
        self.moment += 1
        if hasattr(change.owner, "at"):
            change = replace(change, owner=change.owner.at(self.path))
        if match := _SNAPSHOT.fullmatch(change.path):
            self._snapshot(match["root"], int(match["id"]), change)
        elif match := _TAG.fullmatch(change.path):
            self._tag(change)
        elif change.after is None and (match := _DATA.fullmatch(change.path)):
            self._removed(match["name"], change)

    def _snapshot(self, root: str, number: int, change: Change) -> None:
        line = self.lines.setdefault(root, Line(root))
        if change.after is None:
            gone = line.there.pop(number, None)
            if gone is not None:
                if change.owner is not None and change.owner.operation in UNDOING and self._took_an_id(line, gone):
                    # A rollback was stopped right at its `delete` while a writer finished it and went on: docs/ excepts
                    # that.
                    self.is_given_up = True
                    return
                gone.is_gone, gone.gone_by = True, change.owner
                gone.was_newest = all(n < number for n in line.there)
                if gone.was_newest and line.there:
                    self._went_back(line, max(line.there))
        elif change.before is not None and change.before.data == change.after.data:
            return
        else:
            replaced = line.there.get(number)
            if replaced is not None:
                if change.owner is None or change.owner.operation != "fast-forward":
                    raise Judgement(f"{change.path} was published, and was changed by {change.owner}")
                replaced.is_gone = replaced.was_newest = True
                replaced.gone_by = change.owner
            by = change.owner
            if by is not None and by.ended is not None and self.has_rolled_back(by):
                self.is_given_up = True  # the request was late
                return
            is_undoing = by is not None and by.operation in UNDOING
            if line.there and number < max(line.there) and by and not is_undoing and self.has_rolled_back(by):
                # A writer goes on from the target of a rollback that still removes snapshots, which docs/ excepts.
                self.is_given_up = True
                return
            if line.there and number < min(line.there) and not is_undoing:
                return  # a late request; the snapshot that has won the id has expired
            line.there[number] = self._published(line, number, change)
        newest = line.there[max(line.there)] if line.there else None
        if not line.newest or line.newest[-1][1] is not newest:
            line.newest.append((self.moment, newest))

    def _went_back(self, line: Line, number: int) -> None:
        """Called when the newest snapshot was removed, and `number` is the newest snapshot now. Marks expired snapshots
        that were newer, because what they hold is not in the table any more."""
        for p in (p for doing in self.doings for p in doing.published):
            p.is_behind |= p.root == line.root and p.is_gone and p.snapshot.id > number

    def _took_an_id(self, line: Line, published: Published) -> bool:
        """Whether a writer has published this snapshot during a rollback, with the id of one that was removed."""
        by = published.by
        is_late = by is not None and by.operation not in UNDOING and self.has_rolled_back(by)
        same_id = [p for _, p in line.newest if p is not None and p.snapshot.id == published.snapshot.id]
        return is_late and any(p is not published for p in same_id)

    def _published(self, line: Line, number: int, change: Change) -> Published:
        assert change.after is not None
        try:
            snapshot = decode_snapshot(change.after.data)
        except CorruptFileError as e:
            raise Judgement(f"{change.path} cannot be read: {e}") from e
        if snapshot.id != number:
            raise Judgement(f"{change.path} holds snapshot {snapshot.id}")
        by = change.owner
        found = Published(snapshot, line.root, None, by)
        if found.identity in self.states:
            found.state, found.ties = self.states[found.identity]
            return found
        if by is not None:
            by.published.append(found)
        missing = self.stored.missing(snapshot)
        if missing:
            # Its writer was stopped until they were removed, and takes it back.
            return found
        before = line.there.get(number - 1)
        if before is None and number > 1:
            return found  # an island: whoever built on it was stopped until it had expired, and takes it back
        try:
            held = self.stored.state(snapshot) if self.checks_rows else None
            found.ties = self.stored.ties(snapshot) if self.checks_rows else found.ties
        except GoneError as e:
            raise Judgement(f"snapshot {number} by {by} names {e}, which is not there") from e
        self._check_levels(found)
        try:
            found.state = self._judged(held, before, found)
        except Judgement as e:
            if by is None or not self.has_rolled_back(by):
                raise
            # Its base was replaced, by that of a branch or by one of another writer after a rollback: its writer finds
            # that out, and takes it back.
            self.doubtful.append((found, str(e)))
            return found
        self.states[found.identity] = (found.state, found.ties)
        return found

    def _check_levels(self, found: Published) -> None:
        wrong = self.stored.overlapping(found.snapshot)
        if wrong is not None:
            raise Judgement(f"snapshot {found.snapshot.id} by {found.by}: {wrong}")

    def _judged(self, held: State | None, before: Published | None, found: Published) -> State | None:
        if held is None or (before is not None and before.state is None):
            return held
        start: State = {} if before is None or before.state is None else before.state
        by = found.by
        effect = by.effect if by is not None and found.moves_rows else NOTHING
        expected = applied(self.kind, start, effect)
        found.ties |= self._contended(found, before)
        if self.is_same(held, expected, found.ties | (frozenset() if before is None else before.ties)):
            return held
        if by is not None and (self._may_see_less(by, effect, start, held) or self._met(by, effect, expected, held)):
            return held
        more, less = difference(held, expected)
        raise Judgement(
            f"{found.root} snapshot {found.snapshot.id} ({found.snapshot.commit_kind.value}) by {by} holds "
            f"{more} too much, and lacks {less}; before it {sorted(start.items(), key=str)}, effect {effect}"
        )

    def _contended(self, found: Published, before: Published | None) -> frozenset[object]:
        """The keys that several writers have written at the same time. Nothing says which row is newer, so without a
        `sequence.field` a compaction may choose another row than readers have seen before."""
        by, old = found.by, frozenset() if before is None else before.ties
        if not self.kind.key or self.kind.has_versions or by is None or not found.moves_rows:
            return old
        own = {self.kind.key_of(row) for row, _ in by.effect.brought}
        line = self.lines[found.root]
        beside = [p.by for at, p in line.newest if p is not None and p.by is not None and at > by.began]
        theirs = {self.kind.key_of(row) for other in beside for row, _ in other.effect.brought if other is not by}
        return self.kind.still_open(old, own, theirs)

    def is_same(self, one: State, other: State, ties: frozenset[object]) -> bool:
        """Whether two states are equal in all keys that are not tied."""
        if not ties or one == other:
            return one == other
        more, less = difference(one, other)
        return all(self.kind.key_of(row) in ties for row, _ in (*more, *less))

    def _may_see_less(self, by: Doing, effect: Effect, start: State, held: State) -> bool:
        """Whether an operation has only missed rows without a key that others appended while it ran. It need not see
        these."""
        if self.kind.key or not effect.ids:
            return False
        seen = [p for m, p in self.lines[self.path].newest if p is not None and p.state is not None]
        for planned in seen:
            assert planned.state is not None
            known = {r: n for r, n in planned.state.items() if r[0] in effect.ids and start.get(r, 0) >= n}
            rest = {r: n - known.get(r, 0) for r, n in start.items() if n > known.get(r, 0)}
            changed = applied(self.kind, known, effect)
            whole = dict(rest)
            for row, count in changed.items():
                whole[row] = whole.get(row, 0) + count
            if whole == dict(held):
                return True
        return False

    def _met(self, by: Doing, effect: Effect, expected: State, held: State) -> bool:
        """Whether the difference comes only from writers of one key at the same time. Each column may have the value of
        either."""
        if not self.kind.key or not effect.brought or effect.is_own_days:
            return False
        line = self.lines[self.path]
        states = [p.state for at, p in line.newest if p is not None and p.state is not None and at > by.began]
        before = [p.state for at, p in line.newest if p is not None and p.state is not None and at <= by.began]
        states = [*before[-1:], *states]
        others = [p.by.effect.brought for at, p in line.newest if p is not None and p.by is not None and at > by.began]
        by_key = [{self.kind.key_of(r): r for r in s} for s in states]
        now, wanted = ({self.kind.key_of(r): r for r in s} for s in (held, expected))
        if len(held) != sum(held.values()):
            return False
        for key in now.keys() | wanted.keys():
            if now.get(key) == wanted.get(key):
                continue
            known = {s.get(key) for s in by_key}
            own = [(r, k) for r, k in effect.brought if self.kind.key_of(r) == key]
            theirs = [(r, k) for rows in others for r, k in rows if self.kind.key_of(r) == key]
            if not own or (len(known) < 2 and not theirs):
                return False
            seen = [r for r in (*known, *(r for r, _ in (*own, *theirs))) if r is not None]
            row = now.get(key)
            if row is None and None not in known and not any(k in (1, 3) for _, k in (*own, *theirs)):
                return False
            if row is not None and not all(any(row[c] == r[c] for r in seen) for c in range(4)):
                return False
        return True

    def _tag(self, change: Change) -> None:
        if change.after is None:
            self.tags.pop(change.path, None)
            return
        snapshot = decode_snapshot(change.after.data)
        known = [p for line in self.lines.values() for p in line.there.values() if p.snapshot.is_same_as(snapshot)]
        state, ties = self.states.get((snapshot.base_manifest_list, snapshot.delta_manifest_list), (None, frozenset()))
        self.tags[change.path] = known[0] if known else Published(snapshot, "", state, None, ties)

    def _removed(self, name: str, change: Change) -> None:
        """Raises Judgement if a file is removed that the newest snapshot names."""
        for line in self.lines.values():
            if not line.there:
                continue
            newest = line.there[max(line.there)]
            if newest.state is None and self.checks_rows:
                continue
            names = self.stored.names(newest.snapshot)
            if name in names and not self._is_put_aside(name):
                raise Judgement(f"{change.owner} removed {name}, which snapshot {newest.snapshot.id} names")

    def _is_put_aside(self, name: str) -> bool:
        return any(f".{name}." in p and p.endswith(".orphan") for p in self.disk.files)

    # -- what was said

    def begin(self, doing: Doing) -> None:
        self.moment += 1
        doing.began = self.moment
        self.doings.append(doing)

    def end(self, doing: Doing, result: str, code: str = "") -> None:
        self.moment += 1
        doing.result, doing.code, doing.ended = result, code, self.moment

    def newest(self, root: str | None = None) -> Published | None:
        line = self.lines[root or self.path]
        return line.there[max(line.there)] if line.there else None

    def shown(self) -> list[Published | None]:
        """The snapshots of which readers see one now: the newest, and targets of rollbacks that were interrupted."""
        return [self.newest(), *self._targets_of_interrupted(self.lines[self.path], self.moment)]

    def known(self, number: int) -> Published | None:
        """A snapshot of the table whose rows are known."""
        found = self.lines[self.path].there.get(number)
        return None if found is None or found.state is None or found.ties else found

    def tagged(self, name: str) -> int | None:
        """The id of the snapshot that a tag names; None if there is no such tag."""
        found = self.tags.get(f"{self.path}/tag/tag-{name}")
        return None if found is None else found.snapshot.id

    def check_changes(self, doing: Doing, start: Published, changes: pa.Table) -> None:
        """Raises Judgement unless the changes that a reader saw lead from the snapshot where it began to one that was
        the newest while it read."""
        line = self.lines[self.path]
        seen = [p for p in self._newest_during(line, doing) if p is not None]
        end = max((p.snapshot.id for p in seen), default=0)
        between = [p for _, p in line.newest if p is not None and start.snapshot.id < p.snapshot.id <= end]
        is_unclear = any(p.state is None or p.ties or p.snapshot.commit_kind is CommitKind.OVERWRITE for p in between)
        is_unclear = is_unclear or self._lags(doing, between)
        if self.kind.readers_wait or self.is_excused(doing) or is_unclear:
            return
        assert start.state is not None
        held = followed(self.kind, start.state, changes)
        if not any(p.state == held for p in seen):
            more, less = difference(held, seen[-1].state or {})
            raise Judgement(f"{doing} from {start.snapshot.id} on leads to {more} too much, and {less} is missing")

    def check_read(self, doing: Doing, held: State, root: str | None = None) -> None:
        """Raises Judgement unless a reader saw a state that was the newest at some moment while it read."""
        line = self.lines[root or self.path]
        looked = self._newest_during(line, doing)
        allowed = [({}, frozenset[object]()) if p is None else (p.state, p.ties) for p in looked]
        if self.kind.readers_wait or self.is_excused(doing) or any(state is None for state, _ in allowed):
            return
        if not any(self.is_same(held, state or {}, ties) for state, ties in allowed or [({}, frozenset())]):
            more, less = difference(held, allowed[-1][0] or {})
            raise Judgement(f"{doing} read what never was the newest: {more} too much, {less} missing")

    def _newest_during(self, line: Line, doing: Doing) -> list[Published | None]:
        """The snapshots that were the newest at some moment while the operation ran. If a rollback was interrupted
        after it had removed a snapshot, readers see its target until a write has finished it."""
        before: list[Published | None] = [*self._targets_of_interrupted(line, doing.began)]
        before += [p for at, p in line.newest if at <= doing.began][-1:]
        return [*before, *(p for at, p in line.newest if at > doing.began)]

    def _targets_of_interrupted(self, line: Line, moment: int) -> list[Published]:
        """The target of a rollback that was interrupted before this moment and that nobody has finished since, and
        those of rollbacks that were interrupted after it."""
        newest = [p for at, p in line.newest if at <= moment and p is not None]
        for gone, left in reversed(list(pairwise(newest))):
            by = gone.gone_by
            if left.snapshot.id > gone.snapshot.id:
                return []  # a write published it
            if by is not None and by.operation in UNDOING and by.ended is not None and by.result != "done":
                undoing = [d for d in self.doings if d.operation in UNDOING and d.result != "done"]
                ended = [d for d in undoing if d.ended is not None and d.ended > by.began]
                if any(d.target is None for d in ended):
                    return list(line.there.values())  # a fast-forward does not say which snapshot it rolls back to
                targets = [line.there.get(d.target) for d in ended if d.target is not None]
                return [t for t in targets if t is not None]
        return []

    def _lags(self, doing: Doing, between: Iterable[Published]) -> bool:
        """Whether the changelog of some rows may come later than the rows: it is written by the compaction of the write
        that brought them, or by a later one if the writer died in between."""
        if self.kind.options.get("changelog-producer") != "lookup":
            return False
        writers = [p.by for p in between if p.moves_rows]
        return any(w is None or w.result != "done" or (w.ended or 0) > doing.began for w in writers)

    def is_excused(self, doing: Doing) -> bool:
        """Whether an operation may see anything: history was taken back while it ran, or the table is not judged."""
        return self.is_given_up or self.has_rolled_back(doing)

    def has_rolled_back(self, doing: Doing) -> bool:
        """Whether history was taken back while the operation ran."""
        return any(d.operation in UNDOING and (d.ended is None or d.ended > doing.began) for d in self.doings)

    def has_interrupted_rollback(self) -> bool:
        """Whether a rollback has ended before it was done."""
        return any(d.operation in UNDOING and d.ended is not None and d.result != "done" for d in self.doings)

    def expects(self, found: Finding) -> bool:
        """Whether doctor may find that at the end. After history was taken back, a consumer may wait for a snapshot
        that is gone, and a stream that was active then may have marked such a snapshot."""
        if found.rule in ("hint", "rollback"):
            return True
        is_undone = any(d.operation in UNDOING for d in self.doings)
        is_marker = found.rule == "tag-history" and "/tag-bucketline-writer-" in found.subject
        return is_undone and (found.rule == "consumer" or is_marker)

    def check_answers(self) -> None:
        """Raises Judgement unless the answers of all operations are true and every batch is in the table once."""
        batches: dict[tuple[object, ...], list[Published]] = {}
        for doing in self.doings:
            brought = [p for p in doing.published if p.moves_rows and not p.is_undone]
            if len(brought) > 1 and doing.batch is None and doing.operation not in ("rescale", "expire partitions"):
                raise Judgement(f"{doing} is in the table {len(brought)} times")
            if doing.result == "refused" and brought and doing.operation in ("write", "overwrite", "delete", "update"):
                raise Judgement(f"{doing} said that it was refused, and is in snapshot {brought[0].snapshot.id}")
            if doing.result == "done" and doing.operation == "write" and not doing.published:
                raise Judgement(f"{doing} said that it was done, and published nothing")
            for p in brought if doing.batch is not None else ():
                batches.setdefault((p.root, *(doing.batch or ())), []).append(p)
        for name, found in batches.items():
            if len(found) > 1:
                raise Judgement(f"batch {name} is in the table {len(found)} times: {[p.snapshot.id for p in found]}")

    @staticmethod
    def _put_back(oldest: Published) -> bool:
        """Whether a rollback to a tag has put the snapshot back, and was killed before it removed anything."""
        return oldest.by is not None and oldest.by.operation == "roll back to a tag" and oldest.by.result == "killed"

    def check_files(self) -> None:
        """Raises Judgement if snapshot ids have a gap, or a file is missing that a snapshot or tag needs."""
        for line in self.lines.values():
            ids = sorted(line.there)
            if ids and self._put_back(line.there[ids[0]]):
                ids = ids[1:]  # the next expiry removes the first one, unless a consumer waits for it
            if ids and ids != list(range(ids[0], ids[-1] + 1)):
                raise Judgement(f"{line.root} has snapshots {ids}")
            for p in line.there.values():
                missing = self.stored.missing(p.snapshot)
                if missing:
                    raise Judgement(f"{line.root} snapshot {p.snapshot.id} by {p.by} lacks {missing}")
                if self.checks_rows and p.state is None:
                    p.state = self.stored.state(p.snapshot)
        for p, why in self.doubtful:
            undoing = p.gone_by is p.by or (p.gone_by is not None and p.gone_by.operation in UNDOING)
            if not (p.is_gone and undoing):
                raise Judgement(f"{why}; and it was not taken back")
        for path, p in self.tags.items():
            missing = self.stored.missing(p.snapshot)
            # The marker of a stream is written without a pin; what it says is how far the stream has got.
            if missing and "/tag-bucketline-" not in path:
                raise Judgement(f"{path} lacks {missing}")
