"""What becomes of the events of a source under `select`, `where` and `expect`, one event at a time.

Written from the table in docs/columns.md. Somebody else computes the values: Spark, or a plain function.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bucketline.conf.column_options import Otherwise

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
Row = Mapping[str, Any]


class Error(Enum):
    """Stands for the value of an expression that cannot be computed."""

    ERROR = "error"


ERROR = Error.ERROR
Truth = bool | None | Error


class Judging(Enum):
    """The column of the table in docs/columns.md that holds for a job."""

    INSERTS = "inserts"
    NEW = "new"
    OWN = "own"


@dataclass(frozen=True)
class Image:
    """A row as an event tells it, and what is computed of it. `row` is the row of the table, with `ERROR` where a value
    cannot be computed. `key_inputs` are the values that the key is computed from."""

    row: Row
    key_inputs: Sequence[Any]
    where: Truth = True
    checks: Mapping[str, Truth] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """A change: `op` as Debezium has it. `at` says which event it is."""

    at: int
    op: str
    before: Image | None
    after: Image | None


@dataclass(frozen=True)
class Rules:
    """What a job asks for. `keys` identify a row; a delete needs the columns `needed`; `gives_old`: an update gives
    its old row too."""

    judging: Judging
    keys: Sequence[str]
    needed: Sequence[str]
    not_null: Sequence[str]
    has_where: bool
    expect: Mapping[str, Otherwise]
    gives_old: bool = False


class _BadError(Exception):
    """The event is a bad record."""


@dataclass
class Expected:
    """What becomes of the events: rows with their kinds, events that are bad, how many rows were unexpected by name."""

    rules: Rules
    rows: list[tuple[int, Row]] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        try:
            self.rows += [(kind, self._stored(kind, image)) for kind, image in self._judged(event)]
        except _BadError:
            self.bad.append(event.at)

    def _changes(self, event: Event) -> list[tuple[int, Image]]:
        """The rows of an event, before any is judged."""
        before, after = event.before, event.after
        if before is not None and None in before.key_inputs:
            raise _BadError  # Debezium leaves out what REPLICA IDENTITY does not name: it may be another value.
        if event.op == "d":
            assert before is not None
            return [(DELETE, before)]
        assert after is not None
        if event.op != "u":
            return [(INSERT, after)]
        if before is None:
            return [(UPDATE_AFTER, after)]
        if self._key(before) != self._key(after):
            return [(DELETE, before), (UPDATE_AFTER, after)]
        return [(UPDATE_BEFORE, before), (UPDATE_AFTER, after)] if self.rules.gives_old else [(UPDATE_AFTER, after)]

    def _key(self, image: Image) -> list[Any]:
        return [image.row[name] for name in self.rules.keys]

    def _judged(self, event: Event) -> list[tuple[int, Image]]:
        changes = self._changes(event)
        if self.rules.has_where:
            changes = self._passing(event, changes)
        for kind, image in changes:
            names = self.rules.needed if kind == DELETE else image.row
            if any(image.row[name] is ERROR for name in names):
                self._count(changes)
                raise _BadError
        return [] if self._count(changes) else changes

    def _passing(self, event: Event, changes: list[tuple[int, Image]]) -> list[tuple[int, Image]]:
        """The rows after `where`."""
        kind, newest = changes[-1]
        if self.rules.judging is Judging.OWN:
            passing = [change for change in changes if change[1].where is True]
            if [kind for kind, _ in changes] == [UPDATE_AFTER] or any(image.where is ERROR for _, image in changes):
                self._count(passing)
                raise _BadError
            return [(DELETE, image) for _, image in passing] if newest.where is not True else passing
        if kind == DELETE:
            return changes
        if newest.where is ERROR:
            raise _BadError
        if newest.where is True:
            return changes
        if self.rules.judging is Judging.INSERTS or event.op == "c":
            return []
        if changes[0][0] == UPDATE_BEFORE:
            return [(DELETE, changes[0][1])]
        return [*changes[:-1], (DELETE, newest)]

    def _count(self, changes: Sequence[tuple[int, Image]]) -> bool:
        """Counts what new rows do not meet; says whether the event is left out."""
        dropped = is_bad = False
        for kind, image in changes:
            if kind not in (INSERT, UPDATE_AFTER):
                continue
            for name, otherwise in self.rules.expect.items():
                truth = image.checks[name]
                is_bad |= truth is ERROR
                if truth is False:
                    self.counts[name] = self.counts.get(name, 0) + 1
                    is_bad |= otherwise is Otherwise.REJECT
                    dropped |= otherwise is Otherwise.DROP
        if is_bad:
            raise _BadError
        return dropped

    def _stored(self, kind: int, image: Image) -> Row:
        for name in self.rules.not_null:
            if image.row[name] is None and (kind != DELETE or name in self.rules.needed):
                raise _BadError
        return {name: None if value is ERROR else value for name, value in image.row.items()}
