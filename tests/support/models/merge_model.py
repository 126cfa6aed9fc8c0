"""Merge engines as a plain person would write them: one row at a time into a dictionary.

Every model takes the rows of a key in the order they were written, and knows which of them a table may hold.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.peers.every_type import NANOSECONDS, VALUES, name_of

Row = dict[str, Any]

ORDERED: Mapping[str, Sequence[Any]] = {
    "INT": (-2147483648, -1, 0, 7, 2147483647),
    "STRING": ("", "B", "a", "aa", "longer than eight", "ž🐎"),
    "TIMESTAMP(6)": ("1969-12-31T23:59:59.999999", "2024-01-01T00:00:00", "2024-01-01T00:00:00.000001"),
    "DECIMAL(9, 2)": ("-1.50", "0.00", "9999999.99"),
}
"""Values in ascending order, for columns that decide which row wins."""
VALUE_KINDS = [kind for kind in VALUES if kind not in NANOSECONDS]
ADDS = ("+I", "+U")


class Model(Protocol):
    """`columns` beside the key and their types, the table's `options`, and the kinds of row that may be written."""

    columns: dict[str, str]
    options: dict[str, str]
    changes: tuple[str, ...]
    python_reads: bool
    python_writes: bool
    hides_level_0: bool

    def values(self, column: str) -> Sequence[Any]:
        """What a column may hold, null included where it may."""

    def merge(self, old: Row | None, new: Row, kind: str) -> Row | None:
        """The row of a key after one more; None when there is none."""


@dataclass
class Deduplicate:
    """The last row wins, or the one that is last by `sequence`."""

    columns: dict[str, str]
    options: dict[str, str]
    sequence: str | None = None
    descending: bool = False
    changes: tuple[str, ...] = ("+I", "+I", "+U", "-U", "-D")
    python_reads: bool = True
    python_writes: bool = True
    hides_level_0: bool = False

    def values(self, column: str) -> Sequence[Any]:
        kind = self.columns[column]
        return ORDERED[kind] if column == self.sequence else (*VALUES[kind], None)

    def merge(self, old: Row | None, new: Row, kind: str) -> Row | None:
        if kind in ("-U", "-D"):
            return None
        if old is None or self.sequence is None:
            return new
        order = ORDERED[self.columns[self.sequence]]
        mine, its = order.index(new[self.sequence]), order.index(old[self.sequence])
        return new if mine == its or (mine < its) == self.descending else old


@dataclass
class FirstRow:
    """The first row wins. Batch reads do not see level 0."""

    columns: dict[str, str]
    options: dict[str, str]
    changes: tuple[str, ...] = ADDS
    python_reads: bool = True
    python_writes: bool = True
    hides_level_0: bool = True

    def values(self, column: str) -> Sequence[Any]:
        return (*VALUES[self.columns[column]], None)

    def merge(self, old: Row | None, new: Row, kind: str) -> Row | None:
        return new if old is None else old


@dataclass
class PartialUpdate:
    """Nulls leave what was there. `groups` maps a sequence column to the columns it decides about."""

    columns: dict[str, str]
    options: dict[str, str]
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    changes: tuple[str, ...] = ADDS
    python_reads: bool = True
    python_writes: bool = True
    hides_level_0: bool = False

    def values(self, column: str) -> Sequence[Any]:
        kind = self.columns[column]
        # Columns of a group come in threes of nulls, so that groups are left out at times.
        return (*ORDERED[kind], None, None) if column in self.groups else (*VALUES[kind], None, None, None)

    def tidy(self, row: Row, kind: str) -> None:
        """Empties what Java keeps or not, as it happens: values of deletes, and groups without a sequence."""
        if kind == "-D":
            row |= dict.fromkeys(self.columns)
        for sequence, columns in self.groups.items():
            if row[sequence] is None:
                row |= dict.fromkeys(columns)

    def merge(self, old: Row | None, new: Row, kind: str) -> Row | None:
        if kind == "-D":
            return None
        row = dict(old) if old is not None else {c: None if c in self.columns else v for c, v in new.items()}
        grouped = {c for columns in self.groups.values() for c in columns} | set(self.groups)
        for column, value in new.items():
            if column not in grouped and value is not None:
                row[column] = value
        for sequence, columns in self.groups.items():
            order = ORDERED[self.columns[sequence]]
            mine, its = new[sequence], row[sequence]
            if mine is not None and (its is None or order.index(mine) >= order.index(its)):
                row |= {c: new[c] for c in (sequence, *columns)}
        return row


@dataclass
class Aggregation:
    """Every column has a function of its own."""

    columns: dict[str, str]
    options: dict[str, str]
    functions: dict[str, str]
    changes: tuple[str, ...] = ADDS
    python_reads: bool = True
    python_writes: bool = True
    hides_level_0: bool = False

    def values(self, column: str) -> Sequence[Any]:
        kind = self.columns[column]
        if self.functions[column] == "sum":
            return (-3, 0, 1, 100, None)
        if self.functions[column] == "listagg":
            return ("a", "bb", "ž", None)
        return (*ORDERED.get(kind, VALUES[kind]), None)

    def merge(self, old: Row | None, new: Row, kind: str) -> Row | None:
        if old is None:
            return new
        found = {c: self._fold(c, old[c], v) if c in self.functions else v for c, v in new.items()}
        return found

    def _fold(self, column: str, old: Any, new: Any) -> Any:
        function = self.functions[column]
        if function == "last_value":
            return new
        if function == "first_value":
            return old
        if old is None or new is None:
            return new if old is None else old
        return FOLDS[function](old, new, self.values(column))


FOLDS: Mapping[str, Callable[[Any, Any, Sequence[Any]], Any]] = {
    "sum": lambda old, new, _: old + new,
    "max": lambda old, new, order: max(old, new, key=order.index),
    "min": lambda old, new, order: min(old, new, key=order.index),
    "last_non_null_value": lambda old, new, _: new,
    "first_non_null_value": lambda old, new, _: old,
    "bool_or": lambda old, new, _: old or new,
    "bool_and": lambda old, new, _: old and new,
    "listagg": lambda old, new, _: f"{old},{new}",
}
"""What functions make of two values that are not null; `first_value` and `last_value` take nulls for values."""

OF_ANY_KIND = ("last_value", "last_non_null_value", "first_value", "first_non_null_value")


def draw_model(draw: random.Random, engine: str) -> Model:
    """A random table of a merge engine."""
    kinds = draw.sample(VALUE_KINDS, draw.choice((1, 3, len(VALUE_KINDS))))
    plain = {name_of(kind): kind for kind in kinds}
    options = {} if engine == "deduplicate" else {"merge-engine": engine}
    if engine == "deduplicate":
        return _deduplicate(draw, plain, options)
    if engine == "first-row":
        return FirstRow(plain, options)
    if engine == "partial-update":
        return _partial_update(draw, plain, options)
    return _aggregation(draw, plain, options)


def _deduplicate(draw: random.Random, columns: dict[str, str], options: dict[str, str]) -> Model:
    if draw.random() < 0.7:
        return Deduplicate(columns, options)
    descending = draw.random() < 0.3
    options |= {"sequence.field": "s"} | ({"sequence.field.sort-order": "descending"} if descending else {})
    columns = {**columns, "s": draw.choice(list(ORDERED))}
    # A delete leaves no trace in the end, so that rows which come after it cannot be told to be older.
    return Deduplicate(columns, options, "s", descending, changes=("+I", "+I", "+U"))


def _partial_update(draw: random.Random, columns: dict[str, str], options: dict[str, str]) -> Model:
    sort = draw.choice(("plain", "plain", "removes", "groups", "groups"))
    if sort == "plain":
        return PartialUpdate(columns, options)
    if sort == "removes":
        options |= {"partial-update.remove-record-on-delete": "true"}
        changes = (*ADDS, "-D")
        return PartialUpdate(columns, options, changes=changes, python_writes=False, python_reads=False)
    groups: dict[str, tuple[str, ...]] = {}
    for number in range(draw.choice((1, 2))):
        kind = draw.choice(VALUE_KINDS)
        columns = {**columns, f"s{number}": draw.choice(list(ORDERED)), f"g{number}": kind, f"h{number}": "INT"}
        groups[f"s{number}"] = (f"g{number}", f"h{number}")
        options[f"fields.s{number}.sequence-group"] = f"g{number},h{number}"
    return PartialUpdate(columns, options, groups, python_writes=False, python_reads=False)


def _aggregation(draw: random.Random, columns: dict[str, str], options: dict[str, str]) -> Model:
    functions = {column: draw.choice(OF_ANY_KIND) for column in columns}
    for column, kind, function in (
        ("total", "BIGINT", "sum"),
        ("highest", draw.choice(list(ORDERED)), "max"),
        ("lowest", draw.choice(list(ORDERED)), "min"),
        ("some", "BOOLEAN", "bool_or"),
        ("every", "BOOLEAN", "bool_and"),
        ("all", "STRING", "listagg"),
    ):
        if draw.random() < 0.6:
            columns = {**columns, column: kind}
            functions[column] = function
    options |= {f"fields.{column}.aggregate-function": function for column, function in functions.items()}
    return Aggregation(columns, options, functions)
